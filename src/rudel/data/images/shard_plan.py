"""Which picture goes into which shard: a pure function of names, sizes and options.

Training or validation is decided by the hash of a picture's name alone, so a picture never changes sides when others
are added. Within a split, pictures are in the order of their hashes: each shard is a sample of all classes.
"""

import hashlib
import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from rudel.data.images.image_sources import Labelled
from rudel.data.records.writer import shard_name

TRAIN, VALIDATION = "train", "validation"
SHARD_BYTES = 128_000_000
"""How large a shard becomes, about."""

_VERSION = 2
"""Another one when the same pictures would become other records."""


@dataclass(frozen=True)
class Options:
    """What can be chosen about a conversion.

    Args:
        validation: share of the pictures that is held out, from 0 to below 1.
        max_side: pixels that no side of a picture exceeds; None for any number.
        shards: for training, and as many of the same size for validation; None for about `SHARD_BYTES` each.
    """

    validation: float = 0.1
    max_side: int | None = None
    shards: int | None = None


@dataclass(frozen=True)
class Shard:
    """What becomes one file of records.

    Args:
        file: its name.
        split: `train` or `validation`.
        pictures: in the order of the records.
        made_of: a fingerprint of all that the file depends on.
    """

    file: str
    split: str
    pictures: tuple[Labelled, ...]
    made_of: str


def plan_shards(pictures: Sequence[Labelled], classes: Sequence[str], options: Options) -> tuple[Shard, ...]:
    """Deals pictures out to shards.

    Args:
        pictures: all of them.
        classes: names of the classes.
        options: see there.

    Returns:
        Shards of the training, then of the validation; a split without pictures has none.
    """
    placed = sorted((place(picture.file.name), picture.file.name, picture) for picture in pictures)
    parts = {
        VALIDATION: [picture for at, _, picture in placed if at < options.validation],
        TRAIN: [picture for at, _, picture in placed if at >= options.validation],
    }
    planned = []
    for split in (TRAIN, VALIDATION):
        part = parts[split]
        count = min(len(part), _count(part, parts[TRAIN], options.shards))
        for number in range(count):
            file = shard_name(split, number, count)
            dealt = tuple(part[len(part) * number // count : len(part) * (number + 1) // count])
            planned.append(Shard(file, split, dealt, _fingerprint(dealt, classes, options)))
    return tuple(planned)


def _count(part: Sequence[Labelled], training: Sequence[Labelled], requested: int | None) -> int:
    """How many shards a split has; not yet bounded by the number of its pictures."""
    if requested is None:
        return -(-sum(picture.file.size for picture in part) // SHARD_BYTES) or 1
    return requested if part is training or not training else max(1, round(requested * len(part) / len(training)))


def place(name: str) -> float:
    """A number from 0 to below 1 that looks random and depends on the name alone."""
    # file systems differ in how they write letters with accents: the same name is to be the same
    content = os.fsencode(unicodedata.normalize("NFC", name))
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big") / 2**48


def _fingerprint(pictures: Sequence[Labelled], classes: Sequence[str], options: Options) -> str:
    known = hashlib.sha256(repr((_VERSION, options.max_side, tuple(classes))).encode())
    for picture in pictures:
        file = picture.file
        known.update(os.fsencode(f"\n{file.name}\0{picture.label}\0{file.size}\0{file.version}"))
    return known.hexdigest()[:32]
