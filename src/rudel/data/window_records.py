"""Windows of recordings as TFRecord files: `samples`, `label` and `name` of each, and a description of them all.

A folder is whole when it has a `dataset.json`; it is written last.
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
from rudel.data.records.writer import shard_name, write_records
from rudel.data.windows import Windows
from rudel.errors import DataError, OptionError
from rudel.files import expanded, write_json

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
        DataError: the folder holds something else, or cannot be written.
    """
    try:
        _write(folder, windows, kind, settings, validation)
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror or error}.") from error


def _write(folder: Path, windows: Windows, kind: str, settings: Mapping[str, Any], validation: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    own = set(_own_files(folder))
    if others := sorted(path.name for path in folder.iterdir() if path not in own):
        raise DataError(f"{folder} holds something else, such as `{others[0]}`: name an empty folder for the records.")
    for path in sorted(own, key=lambda path: path.name != _DESCRIPTION):
        path.unlink()
    order = np.random.default_rng(0).permutation(len(windows))
    stored = windows.x.astype(windows.x.dtype.newbyteorder("<"))
    counts = {}
    for split, part in zip(_SPLITS, (order[~validation[order]], order[validation[order]]), strict=True):
        shards = -(-stored[part].nbytes // _SHARD_BYTES)
        for number, rows in enumerate(np.array_split(part, shards) if shards else []):
            contents = (_encoded(stored[row], windows.labels[row], str(windows.names[row])) for row in rows.tolist())
            write_records(folder / shard_name(split, number, shards), contents)
        counts[split] = len(part)
    document = {
        "kind": kind,
        "settings": dict(settings),
        "dtype": windows.x.dtype.name,
        "shape": list(windows.x.shape[1:]),
        "classes": list(windows.classes),
        "channels": list(windows.channels),
        "records": counts,
        "left_out": [{"name": one.name, "reason": one.detail or one.reason} for one in windows.left_out],
    }
    write_json(folder / _DESCRIPTION, document)


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


def _own_files(folder: Path) -> list[Path]:
    """Files of an earlier set of windows; also of one that was broken off."""
    shards = [path for split in _SPLITS for path in folder.glob(f"{split}-?????-of-?????.tfrecord")]
    shards += partial_files(folder)
    if _description(folder) is not None:
        return [folder / _DESCRIPTION, *shards]
    return shards if not (folder / _DESCRIPTION).exists() else []
