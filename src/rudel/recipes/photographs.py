"""Photographs to learn from: a folder of classes or of records, as streams of examples for training and validation."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import rudel
from rudel.data.photographs import decode
from rudel.data.records.sources import is_address, open_source
from rudel.errors import DataError

_IMAGE, _LABEL = "image/encoded", "image/class/label"


@dataclass(frozen=True)
class Photographs:
    """Records of photographs, on this computer or at an address.

    Args:
        folder: of the records.
        validation: share to hold out where no records are for validation.
    """

    folder: str
    validation: float

    def decoded(self, side: int) -> tuple[Any, Any]:
        """Streams of (uint8 (side, side, 3), label): what to learn from, and what is held out."""
        function = partial(_example, side=side)
        train = self._records("train").map(function)
        if self._has_validation():
            return train, self._records("validation").map(function)
        return rudel.split(train, self.validation)

    def class_names(self) -> list[str]:
        """What `labels.txt` says; without one, the numbers up to the largest label."""
        text = _text(self.folder, "labels.txt")
        if text is not None:
            return text.splitlines()
        labels = rudel.Records(self.folder, features=[_LABEL]).map(_label).in_memory()
        return [str(label) for label in range(int(labels.x.max()) + 1)]

    def _records(self, split: str) -> Any:
        return rudel.Records(self.folder, split, features=[_IMAGE, _LABEL])

    def _has_validation(self) -> bool:
        if not is_address(self.folder):
            return any(_local(self.folder).glob("*validation*"))
        document = json.loads(_text(self.folder, "dataset.json") or "{}")
        return bool(document.get("splits", {}).get("validation", {}).get("records"))


def find_photographs(source: str, validation: float, progress: Callable[[int, int], None] | None = None) -> Photographs:
    """The records that `source` is; or those that it becomes, in the cache, if it is a folder of photographs.

    Args:
        source: a folder or an address; see `rudel.data.images.convert` for what it can be if it has no records.
        validation: share to hold out.
        progress: is told how many photographs are converted, and of how many.

    Raises:
        DataError: there is nothing to learn from.
    """
    from rudel.cache import cache_folder
    from rudel.data.images.convert import convert

    if _has_records(source):
        return Photographs(source, validation)
    named = source if is_address(source) else str(_local(source).resolve())
    key = hashlib.sha256(f"{named} {validation}".encode()).hexdigest()[:16]
    folder = cache_folder() / "records" / key
    convert(source, folder, validation=validation, progress=progress or (lambda done, total: None))
    return Photographs(str(folder), validation)


def _has_records(source: str) -> bool:
    if is_address(source):
        return _text(source, "dataset.json") is not None
    return any("tfrecord" in path.name for path in _local(source).glob("*-of-*"))


def _example(record: dict[str, Any], side: int) -> tuple[np.ndarray, np.int32]:
    return decode(record[_IMAGE], side, side), np.int32(record[_LABEL])


def _label(record: dict[str, Any]) -> np.int64:
    return np.int64(record[_LABEL])


def _text(folder: str, name: str) -> str | None:
    """The content of a file of the folder, if it is there."""
    try:
        source = open_source(f"{folder.rstrip('/')}/{name}" if is_address(folder) else str(_local(folder) / name))
        return source.read(0, source.size).decode()
    except (DataError, UnicodeDecodeError):
        return None


def _local(folder: str) -> Path:
    return Path(folder).expanduser()
