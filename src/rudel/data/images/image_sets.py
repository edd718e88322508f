"""Photographs to learn from: a folder of classes or of records, as streams of examples for training and validation.

A folder of classes becomes records in the cache, once: which photographs are held out is decided when they are read.
"""

import bisect
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rudel.cache import cache_folder
from rudel.data.dataset import ToEvaluate, split
from rudel.data.images.convert import convert
from rudel.data.images.shard_plan import place
from rudel.data.photographs import decode
from rudel.data.records.byte_sources import open_source
from rudel.data.records.fsspec_packages import is_remote
from rudel.data.records.records import Records
from rudel.data.records.shard_files import has_records
from rudel.errors import DataError, OptionError, option
from rudel.files import expanded

_IMAGE, _LABEL, _NAME = "image/encoded", "image/class/label", "image/filename"


@dataclass(frozen=True)
class Photographs:
    """Records of photographs, on this computer or at an address.

    Args:
        source: what they were made of, or are.
        folder: of the records.
        by_name: whether they are in the order in which their names decide what is held out, as in the cache.
        notes: what a user should know of them, a sentence each.
    """

    source: str
    folder: str
    by_name: bool = False
    notes: tuple[str, ...] = ()

    def decoded(self, side: int, validation: float) -> tuple[Any, Any]:
        """Streams of (uint8 (side, side, 3), label): what to learn from, and what is held out, if anything.

        Args:
            side: height and width to scale to, in pixels.
            validation: share to hold out where no records are for validation.
        """
        function = partial(_example, side=side)
        train = Records(self.folder, features=[_IMAGE, _LABEL]).map(function)
        if self._has_validation():
            return train, Records(self.folder, "validation", features=[_IMAGE, _LABEL]).map(function)
        if not validation:
            return train, None
        held_out = self._held_out(validation) if self.by_name else 0
        if not 0 < held_out < len(train):
            return split(train, validation)
        return train.subset(np.arange(held_out, len(train))), train.subset(np.arange(held_out))

    def to_evaluate(
        self, side: int, split: str | None, class_names: Sequence[str], known_to: str = "the model knows"
    ) -> ToEvaluate:
        """All photographs, or those of one split, with the labels that a model has for their classes.

        Args:
            side: height and width to scale to, in pixels.
            split: of records; None for all of them.
            class_names: of the model.
            known_to: "the model knows", or what else has these classes, for messages.

        Raises:
            DataError: none is of one of these classes.
        """
        if self.by_name and split is not None:
            raise OptionError(
                f"{option('split')} chooses among the records of a folder, and {self.source} has photographs: "
                "leave it out."
            )
        names, function = self._names_in_file(), partial(_example, side=side)
        stream: Any = Records(self.folder, split, features=[_IMAGE, _LABEL])
        if names == list(class_names):
            return ToEvaluate(stream.map(function), {}, self.notes)
        stored = Records(self.folder, split, features=[_LABEL]).map(_label).in_memory().x
        if names is None:  # then labels mean what those of the model mean
            names = [*class_names, *map(str, range(len(class_names), stored.max() + 1))]
        if stored.max() >= len(names):
            raise DataError(
                f"{self.source} has photographs with the label {stored.max()}, and its labels.txt names "
                f"only {len(names):,} classes."
            )
        known = {name: label for label, name in enumerate(class_names)}
        labels = [known.get(name, -1) for name in names]
        kept = np.array(labels)[stored] >= 0
        if not kept.any():
            raise DataError(f"{self.source} has no photograph of a class that {known_to}: {', '.join(class_names)}.")
        left_out = Counter(names[label] for label in stored[~kept].tolist())
        stream = stream.map(partial(function, labels=labels)).subset(np.flatnonzero(kept))
        return ToEvaluate(stream, dict(sorted(left_out.items())), self.notes)

    def class_names(self) -> list[str]:
        """Names in `labels.txt`; without one, the numbers up to the largest label."""
        names = self._names_in_file()
        if names is not None:
            return names
        labels = Records(self.folder, features=[_LABEL]).map(_label).in_memory()
        return [str(label) for label in range(int(labels.x.max()) + 1)]

    def _names_in_file(self) -> list[str] | None:
        text = _text(self.folder, "labels.txt")
        return None if text is None else text.splitlines()

    def _has_validation(self) -> bool:
        return has_records(_expanded(self.folder), "validation")

    def _held_out(self, validation: float) -> int:
        """How many of the records, from the first, are held out: they are sorted by the places of their names."""
        records = Records(self.folder, features=[_NAME])
        return bisect.bisect_left(
            range(len(records)), validation, key=lambda number: place(os.fsdecode(records[number][_NAME]))
        )


def find_photographs(
    source: str, progress: Callable[[int, int], None] | None = None, least_classes: int = 2, frame: str = ""
) -> Photographs:
    """The records that `source` is; or those that it becomes, in the cache, if it is a folder of photographs.

    Args:
        source: a folder or an address; see `rudel.data.images.convert` for what it can be if it has no records.
        progress: called with how many photographs are converted, and of how many.
        least_classes: refuse fewer.
        frame: what messages call the frame that the table at `source` was made of, if it was.

    Raises:
        DataError: there is nothing to learn from.
    """
    if has_records(_expanded(source)):
        return Photographs(source, source)
    named = source if is_remote(source) else str(_local(source).resolve())
    folder = cache_folder() / "photographs" / hashlib.sha256(os.fsencode(named)).hexdigest()[:16]
    none = progress or (lambda done, total: None)
    converted = convert(source, folder, validation=0, least_classes=least_classes, progress=none, frame=frame)
    notes = [
        f"The photographs are kept as records of {converted.bytes / 1e6:,.1f} MB in {folder}; see `rudel cache list`."
    ]
    if converted.doubt and least_classes > 1:
        notes.append(converted.doubt)
    if converted.left_out:
        names_all = "" if frame else ": `rudel data images` names all"
        notes.append(
            f"{len(converted.left_out):,} of the files in {frame or source} cannot be used, such as "
            f"{converted.left_out[0].name} ({converted.left_out[0].reason}){names_all}."
        )
    return Photographs(frame or source, str(folder), True, tuple(notes))


def _expanded(folder: str) -> str:
    return folder if is_remote(folder) else str(_local(folder))


def _example(record: dict[str, Any], side: int, labels: Sequence[int] | None = None) -> tuple[np.ndarray, np.int32]:
    label = _label(record)
    return decode(record[_IMAGE], side, side), np.int32(label if labels is None else labels[int(label)])


def _label(record: dict[str, Any]) -> np.int64:
    """The label of a record.

    Raises:
        DataError: it is not one whole number from 0.
    """
    label = record[_LABEL]
    if not isinstance(label, np.integer | np.floating) or not (label >= 0 and label % 1 == 0):
        raise DataError(
            f"`{_LABEL}` is {label!s:.60}, not a whole number from 0: number the classes, and leave out what has none."
        )
    return np.int64(label)


def _text(folder: str, name: str) -> str | None:
    """The content of a file of the folder, if it is there."""
    try:
        source = open_source(f"{folder.rstrip('/')}/{name}" if is_remote(folder) else str(_local(folder) / name))
        return source.read(0, source.size).decode("utf-8-sig")
    except (DataError, UnicodeDecodeError):
        return None


def _local(folder: str) -> Path:
    return expanded(folder)
