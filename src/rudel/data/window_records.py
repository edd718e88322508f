"""Windows of recordings as TFRecord files: `samples`, `label` and `name` of each, and a description of them all.

A folder is whole when it has a `dataset.json`. Old records are removed when the new ones are complete on the disk,
under temporary names, of which that of `dataset.json` is the last to become the final one. Shards beside a temporary
`dataset.json`, and no other one, are thus those of a command that was killed.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rudel.data.images.dataset_file import partial_files
from rudel.data.records.example import encode_example
from rudel.data.records.records import Records
from rudel.data.records.writer import framed, shard_name
from rudel.data.windows import Windows
from rudel.errors import DataError, OptionError
from rudel.files import expanded, json_bytes, written_together

_DESCRIPTION, _SPLITS = "dataset.json", ("train", "validation")
_SHARD_BYTES = 128_000_000


def write_windows(
    folder: Path, windows: Windows, kind: str, settings: Mapping[str, Any], validation: np.ndarray
) -> None:
    """Writes windows as records, in the place of those that were there.

    Args:
        folder: made if it does not exist.
        windows: what to write.
        kind: `sound` or `motion`.
        settings: that the windows were made by; who reads them wants the same.
        validation: bool (N,), which of them are held out.

    Raises:
        DataError: the folder holds something else or records of another kind, or cannot be written; what was there is
            then as it was.
    """
    try:
        _write(folder, windows, kind, settings, validation)
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror or error}.") from error


def _write(folder: Path, windows: Windows, kind: str, settings: Mapping[str, Any], validation: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    own = _own_files(folder, kind)
    if others := sorted(path.name for path in folder.iterdir() if path not in own):
        raise DataError(f"{folder} holds something else, such as `{others[0]}`: name an empty folder for the records.")
    order = np.random.default_rng(0).permutation(len(windows))
    stored = windows.x.astype(windows.x.dtype.newbyteorder("<"))
    parts = dict(zip(_SPLITS, (order[~validation[order]], order[validation[order]]), strict=True))
    shards = {path: rows for split, part in parts.items() for path, rows in _shards(folder, split, part, stored)}
    document = {
        "kind": kind,
        "settings": dict(settings),
        "dtype": windows.x.dtype.name,
        "shape": list(windows.x.shape[1:]),
        "classes": list(windows.classes),
        "channels": list(windows.channels),
        "records": {split: len(part) for split, part in parts.items()},
        "left_out": [{"name": one.name, "reason": one.detail or one.reason} for one in windows.left_out],
    }
    with written_together([*shards, folder / _DESCRIPTION], replaced=own) as (*files, description):
        for file, rows in zip(files, shards.values(), strict=True):
            for row in rows.tolist():
                file.write(framed(_encoded(stored[row], windows.labels[row], str(windows.names[row]))))
        description.write(json_bytes(document))


def _shards(folder: Path, split: str, part: np.ndarray, stored: np.ndarray) -> list[tuple[Path, np.ndarray]]:
    """The shards of a split, and the rows that go into each; none where the split has no rows."""
    count = -(-len(part) * stored[:1].nbytes // _SHARD_BYTES)
    rows = np.array_split(part, count) if count else []
    return [(folder / shard_name(split, number, count), each) for number, each in enumerate(rows)]


def read_windows(source: str, kind: str, settings: Mapping[str, Any], split: str | None = None) -> Windows | None:
    """The windows of a folder that `write_windows` has written; None if it is none of these.

    Args:
        source: the folder.
        kind: `sound` or `motion`.
        settings: that the windows have to be made by.
        split: `train` or `validation`; None for both.

    Raises:
        DataError: they are of another kind or were made by other settings, or the records are damaged.
        OptionError: there is no such split.
    """
    folder = expanded(source)
    document = _description(folder)
    if document is None:
        return None
    if document["kind"] != kind:
        raise DataError(f"{source} has records of {document['kind']}, not of {kind}.")
    for name, value in settings.items():
        made = document["settings"].get(name)
        if made != value:
            raise DataError(
                f"The records in {source} were made with {name} {made}, not {value}: make them again, or set "
                f"{name}={made}."
            )
    there = [name for name in _SPLITS if document["records"][name]]
    if split is not None and split not in there:
        raise OptionError(f"The records in {source} have no split `{split}`: there are {', '.join(there)}.")
    shape, dtype = tuple(document["shape"]), np.dtype(document["dtype"])
    rows = []
    for part in there if split is None else [split]:
        for record in Records(str(folder), part, features=["samples", "label", "name"]):
            rows.append((record["samples"], int(record["label"]), os.fsdecode(record["name"]), part == "validation"))
    samples, labels, names, validation = zip(*rows, strict=True)
    x = np.frombuffer(b"".join(samples), dtype.newbyteorder("<")).astype(dtype).reshape(len(rows), *shape)
    classes, channels = tuple(document["classes"]), tuple(document.get("channels", ()))
    return Windows(source, x, np.array(labels, np.int32), names, classes, (), np.array(validation), channels)


def _encoded(window: np.ndarray, label: Any, name: str) -> bytes:
    return encode_example({"samples": window.tobytes(), "label": int(label), "name": os.fsencode(name)})


def _description(folder: Path) -> dict[str, Any] | None:
    try:
        document = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and "kind" in document and "shape" in document else None


def _own_files(folder: Path, kind: str) -> list[Path]:
    """Files of an earlier set of windows, its description first; also of one that was broken off.

    Raises:
        DataError: they are of another kind.
    """
    document, partial = _description(folder), partial_files(folder)
    if document is not None and document["kind"] != kind:
        raise DataError(f"{folder} holds records of {document['kind']}: name another folder for those of {kind}.")
    shards = [path for split in _SPLITS for path in folder.glob(f"{split}-?????-of-?????.tfrecord")]
    if document is not None:
        return [folder / _DESCRIPTION, *shards, *partial]
    broken_off = any(_DESCRIPTION in path.name for path in partial) and not (folder / _DESCRIPTION).exists()
    return [*shards, *partial] if broken_off else partial
