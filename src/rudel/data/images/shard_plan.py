"""The plan of shards: the images of each, as a pure function of names, sizes and options.

Training or validation is decided by the hash of an image's name alone, so an image never changes sides when others
are added. Within a split, images are in the order of their hashes: each shard is a sample of all classes.
"""

import hashlib
import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rudel.data.images.image_sources import Labelled
from rudel.data.records.writer import shard_name
from rudel.errors import OptionError

TRAIN, VALIDATION = "train", "validation"
SHARD_BYTES = 128_000_000
"""The approximate size of a shard."""

_VERSION = 2
"""Another one when the same images would become other records."""


@dataclass(frozen=True)
class Options:
    """Options of a conversion.

    Args:
        validation: share of the images that is held out, from 0 to below 1; or the folder whose images are.
        max_side: pixels that no side of an image exceeds; None for any number.
        shards: for training, and as many of the same size for validation; None for about `SHARD_BYTES` each.
    """

    validation: float | str = 0.1
    max_side: int | None = None
    shards: int | None = None


@dataclass(frozen=True)
class Shard:
    """The images of one file of records.

    Args:
        file: its name.
        split: `train` or `validation`.
        files: in the order of the records.
        made_of: a fingerprint of all that the file depends on.
    """

    file: str
    split: str
    files: tuple[Labelled, ...]
    made_of: str


def check_share(validation: object) -> None:
    """Refuses a share to hold out that is none.

    Raises:
        OptionError: it is not a number from 0 to below 1.
    """
    if not isinstance(validation, int | float | np.number) or not 0 <= validation < 1:
        raise OptionError(f"`validation` is a share, from 0 to below 1, or a folder, not {validation!r}.")


def plan_shards(
    images: Sequence[Labelled], classes: Sequence[str], options: Options, held_out: Sequence[Labelled] = ()
) -> tuple[Shard, ...]:
    """Deals images out to shards.

    Args:
        images: all of them, or those of the training.
        classes: names of the classes.
        options: see there.
        held_out: images of the folder for validation, where the options name one.

    Returns:
        Shards of the training, then of the validation; a split without images has none.
    """
    share = 0 if isinstance(options.validation, str) else options.validation
    placed, others = _placed(images), _placed(held_out)
    parts = {
        VALIDATION: [image for at, image in placed if at < share] + [image for _, image in others],
        TRAIN: [image for at, image in placed if at >= share],
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


def _placed(images: Sequence[Labelled]) -> list[tuple[float, Labelled]]:
    return sorted(((place(image.file.name), image) for image in images), key=lambda one: (one[0], one[1].file.name))


def _count(part: Sequence[Labelled], training: Sequence[Labelled], requested: int | None) -> int:
    """The number of shards of a split; not yet bounded by the number of its images."""
    if requested is None:
        return -(-sum(image.file.size for image in part) // SHARD_BYTES) or 1
    return requested if part is training or not training else max(1, round(requested * len(part) / len(training)))


def place(name: str) -> float:
    """A number from 0 to below 1 that looks random and depends on the name alone."""
    # file systems differ in how they write letters with accents: the same name is to be the same
    content = os.fsencode(unicodedata.normalize("NFC", name))
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big") / 2**48


def _fingerprint(images: Sequence[Labelled], classes: Sequence[str], options: Options) -> str:
    known = hashlib.sha256(repr((_VERSION, options.max_side, tuple(classes))).encode())
    for image in images:
        file = image.file
        known.update(os.fsencode(f"\n{file.name}\0{image.label}\0{file.size}\0{file.version}"))
    return known.hexdigest()[:32]
