"""Writing TFRecord files, each wholly or not at all.

A record is its length (8 bytes, lowest first), the masked CRC-32C of those, its content, and the masked CRC-32C of that
(`tensorflow/core/lib/io/record_writer.h`).
"""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rudel.data.records.checksum import masked
from rudel.data.records.example import encode_example
from rudel.errors import DataError
from rudel.files import expanded, written_atomically, written_together

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")


def framed(content: bytes) -> bytes:
    """A record as it stands in a file.

    >>> framed(b"abc").hex(" ")
    '03 00 00 00 00 00 00 00 b0 99 49 0e 61 62 63 6e 57 f1 21'
    """
    length = _LENGTH.pack(len(content))
    return b"".join((length, _CHECKSUM.pack(masked(length)), content, _CHECKSUM.pack(masked(content))))


def write_records(path: Path, contents: Iterable[bytes]) -> int:
    """Writes a TFRecord file; where there is one, it is replaced when the new one is complete.

    Args:
        path: of the file; its folder must exist.
        contents: of the records, usually of `rudel.data.records.example.encode_example`; may be a generator.

    Returns:
        How many records there are.

    Raises:
        OSError: the folder cannot be written or the disk is full; `path` is then as it was.
        Exception: whatever `contents` raises; `path` is then as it was, too.
    """
    count = 0
    with written_atomically(path) as file:
        for content in contents:
            file.write(framed(content))
            count += 1
    return count


def write_examples(
    folder: str | Path, examples: Iterable[Mapping[str, Any]], split: str = "train", shards: int = 1
) -> list[Path]:
    """Writes examples into a set of shards, `SPLIT-00000-of-0000N.tfrecord`; neighbours go to different shards.

    All shards are on the disk before the first is renamed to its place.

    Args:
        folder: made if it does not exist.
        examples: the features of each, as `encode_example` takes them; may be a generator.
        split: `train`, `validation` or another name.
        shards: how many files.

    Returns:
        The files.

    Raises:
        DataError: an example cannot be encoded.
        OSError: the folder cannot be written or the disk is full.
    """
    if not isinstance(shards, int | np.integer) or shards < 1:
        raise DataError(f"Examples cannot be written to {shards!r} shards: give a whole number of at least 1.")
    folder = expanded(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / shard_name(split, number, shards) for number in range(shards)]
    with written_together(paths) as files:
        for number, features in enumerate(examples):
            files[number % shards].write(framed(encode_example(features)))
    return paths


def shard_name(split: str, number: int, shards: int) -> str:
    """The name of a shard.

    >>> shard_name("train", 0, 4)
    'train-00000-of-00004.tfrecord'
    """
    return f"{split}-{number:05}-of-{shards:05}.tfrecord"
