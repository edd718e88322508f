"""A run's Keras model, compiled by JAX: one program for each size of batch, all of them when it is loaded.

The programs are those of `rudel.predict`. A batch is filled up with zeros to the next size, so a result depends on what
it is computed with by rounding alone.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.aliases import Tree
from rudel.errors import DataError, ServeError
from rudel.serve import recording_inputs
from rudel.serve.image_inputs import IMAGES, Decode, Files, reader
from rudel.serve.model_signature import Signature, Tensor
from rudel.serve.recording_inputs import RECORDINGS
from rudel.serve.refusal import bad
from rudel.serve.runtimes.runtime import Loaded, buckets, padded
from rudel.serve.table_inputs import of_table

if TYPE_CHECKING:
    import keras

    from rudel.runs.run_directory import RunDirectory


_log = logging.getLogger(__name__)


def load_run(path: Path, most: int) -> Loaded:
    """Loads the model of a finished run.

    Args:
        path: of the run.
        most: the largest batch.

    Raises:
        RunError: there is no such run, or it is unfinished.
        ServeError: its model takes or gives what cannot be served.
    """
    from rudel.backend import keras_on_jax

    keras = keras_on_jax(light=True)
    from jax.dtypes import canonicalize_dtype

    from rudel.export.inputs import inputs_of, output_names
    from rudel.features.layer import rate_of
    from rudel.features.table_layer import columns_of
    from rudel.runs import run_directory
    from rudel.runs.loading import load, read_image_of

    directory = run_directory.open_finished(path)
    model, title = load(path), directory.title
    if not getattr(model, "inputs", None):
        raise ServeError(f"The {title} does not say what it takes: {_advice(directory)}")
    zeros = _zeros(keras, model, directory)
    inputs = inputs_of(model, zeros)
    programs = _Programs(keras, model, inputs.structure, buckets(most))
    dtypes = [canonicalize_dtype(leaf.dtype).name for leaf in inputs.leaves]  # JAX computes in 32 bits, not in 64
    first = [np.zeros((1, *leaf.shape), dtype) for leaf, dtype in zip(inputs.leaves, dtypes, strict=True)]
    outputs, structure = programs.warm_up(first)
    names = output_names(keras, model, structure)
    for name, output in zip(names, outputs, strict=True):
        if output.ndim == 0 or len(output) != 1:
            raise ServeError(f"The output `{name}` of the {title} is not one for each example: it cannot be served.")
    signature = Signature(
        tuple(Tensor(leaf.name, leaf.shape, dtype) for leaf, dtype in zip(inputs.leaves, dtypes, strict=True)),
        tuple(Tensor(name, output.shape[1:], str(output.dtype)) for name, output in zip(names, outputs, strict=True)),
    )
    read_image, config = read_image_of(directory), directory.read_config()
    compute, check = programs.compute, programs.check
    if columns := columns_of(model):
        signature, compute, check = of_table(columns, [leaf.key for leaf in inputs.leaves], signature, compute)
    return Loaded(
        signature,
        compute,
        "jax",
        tuple(map(str, config.get("class_names") or ())),
        *_files(signature, read_image, rate_of(model), config.get("input_range")),
        check,
        partial(_scores, model),
    )


def _scores(model: "keras.Model", outputs: np.ndarray) -> np.ndarray | None:
    """A probability for each class, of the one output where there are two; None of what does not classify."""
    from rudel.loop.classification import as_probabilities, of_both

    probabilities = as_probabilities(model, outputs)
    return None if probabilities is None else of_both(probabilities)


def _files(
    signature: Signature,
    read_image: Callable[[Any], Any] | None,
    rate: int | None,
    learned_from: Sequence[float] | None,
) -> tuple[Decode | None, Files]:
    """Conversion of files to inputs, and what these are; a recipe that it needs and that is missing is logged."""
    from rudel.runs.loading import MissingReadImage

    if rate is not None:
        return recording_inputs.reader(signature, rate), RECORDINGS
    decode = reader(signature, read_image, learned_from)
    if decode and isinstance(read_image, MissingReadImage):
        _log.warning("%s", read_image.reason)
    return decode, IMAGES


class _Programs:
    """A model compiled for several sizes of batches."""

    def __init__(self, keras: ModuleType, model: "keras.Model", structure: Tree, sizes: Sequence[int]) -> None:
        from rudel.loop import model_state
        from rudel.loop.vocabulary import lookups_of

        self._keras = keras
        self._model = model
        self._structure = structure
        self._sizes = sizes
        self._state = model_state.read(model)
        self._programs: dict[int, Any] = {}
        self._lookups = lookups_of(model)

    def warm_up(self, first: Sequence[np.ndarray]) -> tuple[list[np.ndarray], Any]:
        """Compiles all programs; returns the outputs of one example, flat and as the model gives them."""
        from rudel.loop.compiled_loop import compile_prediction

        raw: Tree = None
        for size in self._sizes:
            x = self._structured(padded(first, size))
            program = compile_prediction(self._model, self._state, x)
            self._programs[size] = program.run
            result, _ = program.run(self._state.trainable, self._state.non_trainable, x)
            raw = result if raw is None else raw
        return self._flat(raw), raw

    def compute(self, columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Outputs (N, ...) of inputs (N, ...)."""
        rows = len(columns[0])
        size = next(size for size in self._sizes if size >= rows)
        x = self._structured(padded(columns, size))
        outputs, _ = self._programs[size](self._state.trainable, self._state.non_trainable, x)
        outputs = self._flat(outputs)
        return [output[:rows] for output in outputs]

    def check(self, columns: Sequence[np.ndarray]) -> None:
        """Refuses indices that are in no table of the model.

        Raises:
            Refusal: names the first of them.
        """
        from rudel.loop.vocabulary import first_outside

        if self._lookups:
            outside = first_outside(self._model, self._lookups, self._structured(columns))
            if outside is not None:
                raise bad(f"{outside.described(outside.row)}.")

    def _structured(self, columns: Sequence[np.ndarray]) -> Any:
        if self._structure == 0:
            return columns[0]
        if isinstance(self._structure, dict):
            return {key: columns[place] for key, place in self._structure.items()}
        return list(columns)

    def _flat(self, outputs: Tree) -> list[np.ndarray]:
        leaves = [outputs] if not isinstance(outputs, dict | list | tuple) else self._keras.tree.flatten(outputs)
        return [_plain(np.asarray(leaf)) for leaf in leaves]


def _plain(output: np.ndarray) -> np.ndarray:
    """An output in a dtype that protocols have a name for: bfloat16 becomes float32."""
    return output if output.dtype.kind in "biuf" else output.astype(np.float32)


def _advice(directory: "RunDirectory") -> str:
    """How to make something of a run that can be served: by an export, which needs examples."""
    data = "" if "source" in directory.read_config() else " --data FILE.npz"
    place = directory.title.partition(" ")[2]
    return f"export it by `rudel export {place} --to savedmodel{data}`, and serve that."


def _zeros(keras: ModuleType, model: "keras.Model", directory: "RunDirectory") -> Any:
    """One example of zeros, in the form that the model takes.

    Raises:
        ServeError: sizes are left open.
    """
    title, place = directory.title, directory.title.partition(" ")[2]

    def zero(tensor: "keras.KerasTensor") -> np.ndarray:
        shape = tuple(tensor.shape[1:])
        if any(not isinstance(size, int) for size in shape):
            raise ServeError(
                f"The {title} takes inputs of any size, shape {shape}: export it for one size by `rudel export {place} "
                "--to savedmodel --data FILE.npz`, with examples of that size, and serve that."
            )
        if tensor.dtype == "string":
            raise ServeError(f"The {title} takes texts: it cannot be served by JAX.")
        return np.zeros((1, *shape), tensor.dtype)

    sequential = isinstance(model, keras.Sequential)
    try:
        return keras.tree.map_structure(zero, model.inputs[0] if sequential else model.input)
    except DataError as error:
        raise ServeError(f"The {title} cannot be served: {error}") from error
