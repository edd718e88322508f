"""`dataset.json` and its neighbours: what a folder of records has, and what it was made of.

It is written last, so a folder that has it is whole.
"""

import contextlib
import hashlib
import json
import re
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rudel.data.images.examined_image import QUALITY
from rudel.data.images.shard_plan import TRAIN, VALIDATION, Options, Shard
from rudel.data.images.shard_writer import LeftOut, Made, forget_notes, has_note, write_note
from rudel.errors import DataError
from rudel.files import write_json, written_atomically

DATASET, LABELS, LEFT_OUT = "dataset.json", "labels.txt", "left-out.txt"
FORMAT = "rudel image records 1"

_SHARD = re.compile(rf"(?:{TRAIN}|{VALIDATION})-\d{{5}}-of-\d{{5}}\.tfrecord")
_OTHERS = "|".join(re.escape(name) for name in (DATASET, LABELS, LEFT_OUT))
_HIDDEN = re.compile(rf"\.lock|\.+(?:{_SHARD.pattern}|{_OTHERS})(?:\.json)?(?P<partial>\.\w+\.tmp)?")


@dataclass(frozen=True)
class Converted:
    """A folder of records.

    Args:
        path: of the folder.
        classes: their names; a label is a position in it.
        shards: of the training, then of the validation.
        passed_over: files that were left out unseen.
        made: how many of the shards were made now, and not before.
    """

    path: Path
    classes: tuple[str, ...]
    shards: tuple[Made, ...]
    passed_over: tuple[LeftOut, ...]
    made: int

    @property
    def records(self) -> int:
        """The number of images."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Size of all shards."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Files that did not become records, with the reasons, sorted by name."""
        seen = (one for shard in self.shards for one in shard.left_out)
        return tuple(sorted((*self.passed_over, *seen), key=lambda one: one.name))

    @property
    def changes(self) -> dict[str, int]:
        """Numbers of changed images, by the change."""
        return dict(sum((Counter(shard.changes) for shard in self.shards), Counter()))

    @property
    def doubt(self) -> str:
        """A sentence where most images are the only one of their class, as with measurements for labels; else ""."""
        alone = [train + validation for train, validation in zip(*map(self.counts, (TRAIN, VALIDATION)), strict=True)]
        if 2 * alone.count(1) <= self.records:
            return ""
        return (
            f"{alone.count(1):,} of {self.records:,} images are the only one of their class: give names of classes as "
            "labels, which images share."
        )

    def counts(self, split: str) -> tuple[int, ...]:
        """Images of each class in a split, `train` or `validation`."""
        counted: Counter[int] = Counter()
        for shard in self.shards:
            if shard.split == split:
                counted.update(shard.classes)
        return tuple(counted[label] for label in range(len(self.classes)))


def identity(source: str, shards: tuple[Shard, ...], passed_over: tuple[LeftOut, ...], options: Options) -> str:
    """A fingerprint of all that a folder of records depends on."""
    parts = [source, *(f"{shard.file} {shard.made_of}" for shard in shards), repr(passed_over), repr(options)]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def read(folder: Path) -> dict[str, Any] | None:
    """The document; None where there is none that can be read.

    Raises:
        DataError: it is of something else.
    """
    try:
        document = json.loads((folder / DATASET).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DataError(f"{folder / DATASET} is of something else, or of another version: choose another folder.")
    return document


def as_converted(folder: Path, document: dict[str, Any]) -> Converted:
    """The folder that a document describes."""
    shards = tuple(Made.from_document(shard) for shard in document["shards"])
    passed_over = tuple(LeftOut(**one) for one in document["passed_over"])
    return Converted(folder, tuple(document["classes"]), shards, passed_over, 0)


def is_whole(converted: Converted) -> bool:
    """Whether all shards are there, in full size."""
    with contextlib.suppress(OSError):
        return all((converted.path / shard.file).stat().st_size == shard.bytes for shard in converted.shards)
    return False


def write(converted: Converted, source: str, options: Options, made_of: str) -> None:
    """Completes a folder of records: labels, what was left out, and the document."""
    folder = converted.path
    with written_atomically(folder / LABELS) as file:
        file.write("".join(f"{name}\n" for name in converted.classes).encode())
    left_out = converted.left_out
    if left_out:
        with written_atomically(folder / LEFT_OUT) as file:
            file.writelines(f"{one.name}\t{describe(one)}\n".encode() for one in left_out)
    else:
        (folder / LEFT_OUT).unlink(missing_ok=True)
    write_json(
        folder / DATASET,
        {
            "format": FORMAT,
            "source": source,
            "made_of": made_of,
            "options": asdict(options) | {"jpeg_quality": QUALITY},
            "classes": list(converted.classes),
            "splits": {split: _summary(converted, split) for split in (TRAIN, VALIDATION)},
            "left_out": dict(Counter(one.reason for one in left_out)),
            "changes": converted.changes,
            "passed_over": [asdict(one) for one in converted.passed_over],
            "shards": [shard.document() for shard in converted.shards],
        },
    )
    forget_notes(folder)
    wanted = {shard.file for shard in converted.shards}
    for path in folder.iterdir():
        if _SHARD.fullmatch(path.name) and path.name not in wanted:
            path.unlink(missing_ok=True)


def reopen(folder: Path) -> None:
    """Takes the document away, and puts notes beside the shards in its place: the folder is about to change."""
    document = read(folder)
    if document is None:
        return
    for shard in as_converted(folder, document).shards:
        write_note(folder, shard)
    (folder / DATASET).unlink()


def discard(folder: Path) -> None:
    """Removes everything that a conversion writes, and nothing else."""
    for path in [*folder.iterdir()]:
        if _is_result(path) or _HIDDEN.fullmatch(path.name):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def remove_partial_files(folder: Path) -> None:
    """Removes what a conversion that was killed was about to write."""
    for path in partial_files(folder):
        path.unlink(missing_ok=True)


def partial_files(folder: Path) -> list[Path]:
    """Shards and documents that were being written when a process was killed."""
    named = ((path, _HIDDEN.fullmatch(path.name)) for path in folder.iterdir())
    return [path for path, found in named if found and found["partial"]]


def foreign_files(folder: Path) -> list[str]:
    """Names of files that no conversion into this folder has written; hidden ones do not matter."""
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith(".") and not _is_result(path))
    if names or (folder / DATASET).exists():
        return names
    shards = sorted(path.name for path in folder.iterdir() if _SHARD.fullmatch(path.name))
    return [name for name in shards if not has_note(folder, name)]


def _is_result(path: Path) -> bool:
    return path.name in (DATASET, LABELS, LEFT_OUT) or _SHARD.fullmatch(path.name) is not None


def describe(one: LeftOut) -> str:
    """Why a file was left out.

    >>> describe(LeftOut("x.jpg", "animated", "3 pictures in one GIF file"))
    'animated (3 pictures in one GIF file)'
    """
    return f"{one.reason} ({one.detail})" if one.detail else one.reason


def _summary(converted: Converted, split: str) -> dict[str, Any]:
    shards = [shard for shard in converted.shards if shard.split == split]
    return {
        "records": sum(shard.records for shard in shards),
        "bytes": sum(shard.bytes for shard in shards),
        "classes": dict(zip(converted.classes, converted.counts(split), strict=True)),
    }
