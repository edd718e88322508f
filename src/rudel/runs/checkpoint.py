"""Checkpoints: everything a training needs to go on as if it had never stopped, in one file.

A checkpoint is an uncompressed `.npz` of NumPy arrays and one JSON document. It is written beside its place and
renamed, so it is whole or absent; the zip format's CRC-32 of every array is verified when it is read. The newest that
can be read is the one to resume from; a broken one is passed over.

Limit: arrays are gathered on the host, so a model must fit there twice.
"""

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np

from rudel.aliases import Tree
from rudel.data.npz import read_npz
from rudel.errors import CheckpointError, option
from rudel.files import written_atomically
from rudel.runs.run_directory import gone

FOLDER = "checkpoints"
_DOCUMENT = "document"


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a training.

    Args:
        step: optimizer steps done.
        arrays: NumPy arrays by name.
        document: everything else, as JSON values.
    """

    step: int
    arrays: dict[str, np.ndarray]
    document: dict[str, Any]


def save(run: Path, checkpoint: Checkpoint, keep: int = 2) -> Path:
    """Writes a checkpoint into a run directory, then removes all but the newest `keep`.

    Raises:
        CheckpointError: the disk is full or the folder cannot be written; older checkpoints are as they were.
    """
    path = path_of(run, checkpoint.step)
    write(path, checkpoint)
    for old in [other for other in _files(run) if other != path][keep - 1 :]:
        old.unlink(missing_ok=True)
    return path


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint to a file, whose folder is made where it is missing.

    Raises:
        CheckpointError: the disk is full, or the folder is gone or cannot be written; the file is as it was.
    """
    stored = {name: _plain(array) for name, array in checkpoint.arrays.items()}
    dtypes = {name: str(array.dtype) for name, array in checkpoint.arrays.items()}
    text = json.dumps({"step": checkpoint.step, "dtypes": dtypes, "document": checkpoint.document})
    stored[_DOCUMENT] = np.frombuffer(text.encode(), np.uint8)
    try:
        path.parent.mkdir(exist_ok=True)
        with written_atomically(path) as file:
            np.savez(file, **stored)  # type: ignore[arg-type]
    except OSError as error:
        if problem := gone(path.parents[1], error):
            raise CheckpointError(problem) from error
        raise CheckpointError(
            f"The checkpoint {path} could not be written ({error.strerror or error}): make room or "
            f"give another {option('run')}; older checkpoints are unharmed, and {option('resume', True)} continues "
            "from the newest."
        ) from error


def path_of(run: Path, step: int) -> Path:
    """The path of the checkpoint of a step."""
    return run / FOLDER / f"step-{step:010d}.npz"


def any_in(run: Path) -> bool:
    """Whether a run directory has a checkpoint, readable or not; for those who do not hold its lock."""
    return bool(_files(run))


def newest(run: Path) -> Checkpoint | None:
    """The newest readable checkpoint of a run directory whose lock is held, or None where there is none at all.

    Newer ones that are damaged are removed, with a warning, so that they are not taken for progress again.

    Raises:
        CheckpointError: there are checkpoints, and none can be read; or the system refuses to open one.
    """
    damaged: list[Path] = []
    for path in _files(run):
        try:
            found = load(path)
        except CheckpointError as error:
            if isinstance(error.__cause__, OSError):
                raise
            damaged.append(path)
            continue
        for broken in damaged:
            warnings.warn(f"The checkpoint {broken} is damaged; continuing from step {found.step:,}.", stacklevel=2)
            broken.unlink()
        return found
    if damaged:
        raise CheckpointError(
            f"No checkpoint in {run / FOLDER} can be read: remove that folder to begin this run again."
        )
    return None


def load(path: Path) -> Checkpoint:
    """Reads and verifies one checkpoint.

    Raises:
        CheckpointError: the file is missing, cut short or damaged.
    """
    try:
        stored = read_npz(path)
        document = json.loads(stored[_DOCUMENT].tobytes())
        arrays = {name: _typed(stored[name], dtype) for name, dtype in document["dtypes"].items()}
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"The checkpoint {path} cannot be read ({error}): remove it to use an older one."
        ) from error
    return Checkpoint(document["step"], arrays, document["document"])


def pack(values: Tree, prefix: str, arrays: dict[str, np.ndarray]) -> Any:
    """Turns nested plain values into JSON values, moving every array into `arrays` under a name with this prefix.

    Raises:
        TypeError: a value is neither plain data nor an array of numbers.

    >>> arrays = {}
    >>> pack({"best": np.float32(0.5), "wait": 3}, "c", arrays)
    {'dict': [['best', {'array': 'c/0'}], ['wait', {'value': 3}]]}
    >>> unpack(_, arrays)
    {'best': np.float32(0.5), 'wait': 3}
    """
    if values is None or isinstance(values, bool | int | float | str):
        return {"value": values}
    if isinstance(values, dict) and all(isinstance(key, str) for key in values):
        return {"dict": [[key, pack(value, prefix, arrays)] for key, value in values.items()]}
    if isinstance(values, list | tuple) and type(values) in (list, tuple):
        return {type(values).__name__: [pack(value, prefix, arrays) for value in values]}
    if isinstance(values, jax.Array) and not jax.numpy.issubdtype(values.dtype, jax.dtypes.prng_key):
        return {"jax": pack(np.asarray(values), prefix, arrays)}
    if isinstance(values, np.ndarray | np.generic) and values.dtype.kind in "biufcV" and values.dtype.names is None:
        name = f"{prefix}/{len(arrays)}"
        arrays[name] = np.asarray(values)
        return {"array" if isinstance(values, np.generic) else "ndarray": name}
    raise TypeError(f"{type(values).__name__} is neither plain data nor an array of numbers")


def unpack(packed: Tree, arrays: dict[str, np.ndarray]) -> Any:
    """The values that `pack` was given."""
    ((kind, content),) = packed.items()
    if kind == "value":
        return content
    if kind == "jax":
        return jax.device_put(unpack(content, arrays))
    if kind == "dict":
        return {key: unpack(value, arrays) for key, value in content}
    if kind in ("list", "tuple"):
        values = [unpack(value, arrays) for value in content]
        return values if kind == "list" else tuple(values)
    return arrays[content][()] if kind == "array" else arrays[content]


def _files(run: Path) -> Sequence[Path]:
    """Checkpoint files, newest first."""
    return sorted((run / FOLDER).glob("step-*.npz"), reverse=True)


def _plain(array: np.ndarray) -> np.ndarray:
    """NumPy's file format has no bfloat16 or float8: their bits travel as unsigned integers."""
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array


def _typed(array: np.ndarray, dtype: str) -> np.ndarray:
    known = np.dtype(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else np.dtype(dtype)
    return array if array.dtype == known else array.view(known)
