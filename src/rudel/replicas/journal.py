"""The rounds that were closed since a checkpoint, one short record each, so that no closed round is lost.

Writing all weights takes long; what changes them in a round are the deltas of its replicas, some kilobytes each. Read
back and applied in order to the checkpoint that the journal belongs to, the records lead to the same weights, momentum
and residual, bit by bit.

A record is a JSON document and a few byte strings, with a CRC-32 over all. What a kill has cut short, or is damaged,
ends the journal there. Records are given to the system, not flushed to the disk: they outlive the process, not a power
cut; after one, the checkpoint is where the training goes on.
"""

import contextlib
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rudel.errors import CheckpointError, option
from rudel.runs.run_directory import gone

_HEAD = struct.Struct("<II")


@dataclass(frozen=True)
class Record:
    """The record of a round.

    Args:
        document: plain values.
        payloads: byte strings.
    """

    document: dict[str, Any]
    payloads: Sequence[bytes]


class Journal:
    """Writes records beside a checkpoint file.

    Args:
        checkpoint: the file; the journal has its name with the suffix `.rounds`. One that is there is overwritten.

    Raises:
        CheckpointError: it cannot be written.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._path = path_of(checkpoint)
        for other in self._path.parent.glob("*.rounds"):
            if not other.with_suffix(checkpoint.suffix).exists():
                other.unlink()
        with self._translating_errors():
            self._file: BinaryIO = self._path.open("wb", buffering=0)
        self.size = 0

    def append(self, record: Record) -> None:
        """Adds a record.

        Raises:
            CheckpointError: it cannot be written; the journal ends with the record before it.
        """
        text = json.dumps({**record.document, "_sizes": [len(payload) for payload in record.payloads]}).encode()
        body = b"".join([struct.pack("<I", len(text)), text, *record.payloads])
        with self._translating_errors():
            self._write(_HEAD.pack(len(body), zlib.crc32(body)) + body)
        self.size += len(body)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, content: bytes) -> None:
        """Writes all of it or nothing: a disk that is almost full takes a part, and refuses the rest."""
        end, rest = self._file.tell(), memoryview(content)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                self._file.seek(end)
                self._file.truncate()
            raise

    @contextlib.contextmanager
    def _translating_errors(self) -> Any:
        try:
            yield
        except OSError as error:
            if problem := gone(self._path.parents[1], error):
                raise CheckpointError(problem) from error
            raise CheckpointError(
                f"The journal {self._path} could not be written ({error.strerror or error}): make room or give another "
                f"{option('run')}; {option('resume', True)} continues from the last round that was kept."
            ) from error


def path_of(checkpoint: Path) -> Path:
    """The path of a checkpoint's journal."""
    return checkpoint.with_suffix(".rounds")


def read(checkpoint: Path) -> list[Record]:
    """The records of a checkpoint's journal, in order, as far as they are whole.

    >>> import os, tempfile
    >>> place = Path(tempfile.mkdtemp()) / "step-1.npz"
    >>> journal = Journal(place)
    >>> for round in range(2):
    ...     journal.append(Record({"round": round}, [b"abc", b""]))
    >>> journal.close()
    >>> os.truncate(path_of(place), os.path.getsize(path_of(place)) - 1)  # as a kill may leave it
    >>> read(place)
    [Record(document={'round': 0}, payloads=[b'abc', b''])]
    """
    try:
        content = path_of(checkpoint).read_bytes()
    except FileNotFoundError:
        return []
    records, place = [], 0
    while place + _HEAD.size <= len(content):
        length, checksum = _HEAD.unpack_from(content, place)
        body = content[place + _HEAD.size : place + _HEAD.size + length]
        if len(body) < length or zlib.crc32(body) != checksum:
            break
        records.append(_record(body))
        place += _HEAD.size + length
    return records


def _record(body: bytes) -> Record:
    (size,) = struct.unpack_from("<I", body)
    document = json.loads(body[4 : 4 + size])
    payloads, place = [], 4 + size
    for length in document.pop("_sizes"):
        payloads.append(body[place : place + length])
        place += length
    return Record(document, payloads)
