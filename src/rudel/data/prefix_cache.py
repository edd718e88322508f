"""The first bytes of remote files, kept on disk with a checksum, for many processes at once.

Beside each other lie `<name>.part`, the bytes; `<name>.json`, how many of them count, their SHA-256 and the state of
the remote file they are of; and `<name>.lock`, which the one process that reads or writes them holds. Bytes are only
ever appended, and count once the record says so, which is replaced as a whole: whatever stops a process, and whenever,
what the record covers is intact, and the next process goes on from there. Bytes that do not match their checksum are
dropped.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from rudel.data.http_range import Version
from rudel.data.npy import LONGEST_HEADER
from rudel.data.ranged_download import Cancelled
from rudel.errors import DataError
from rudel.files import write_json

_RECORD_EVERY = 1 << 20
_CHUNK = 1 << 18
_LOOK_AGAIN = 0.05


@dataclass(frozen=True)
class _Record:
    url: str
    bytes: int
    sha256: str
    etag: str | None
    last_modified: str | None
    size: int | None


class Prefix:
    """The first bytes of one remote file; to be had from `opened_prefix`, and used inside its block only.

    `length` says how many there are, `version` of which state of the remote file; `head` holds those where a header is.
    """

    def __init__(self, file: io.BufferedRandom, record_path: Path, url: str) -> None:
        """Takes over what is intact in `file`, by the record beside it, and drops the rest."""
        self._file = file
        self._record_path = record_path
        self._url = url
        self._forget()
        self._take_what_is_intact()

    def restart(self, version: Version) -> None:
        """Forgets all bytes; those that follow are of this version of the remote file."""
        self._record_path.unlink(missing_ok=True)
        self._file.seek(0)
        self._file.truncate()
        self._forget()
        self.version = version

    def append(self, chunk: bytes) -> None:
        """Takes the bytes that follow."""
        self._file.write(chunk)
        self._count(chunk)
        if self.length - self._recorded >= _RECORD_EVERY:
            self.record()

    def record(self) -> None:
        """Makes the bytes that are there count from now on, also after a crash."""
        if self.length == self._recorded:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        state = _Record(self._url, self.length, self._sha256.hexdigest(), **asdict(self.version))
        write_json(self._record_path, asdict(state))
        self._recorded = self.length

    def read_into(self, offset: int, target: np.ndarray) -> None:
        """Fills a contiguous uint8 array with the bytes from `offset` on; they must be there."""
        self._file.seek(offset)
        self._file.readinto(target.data)
        self._file.seek(self.length)

    def _take_what_is_intact(self) -> None:
        record = _read_record(self._record_path, self._url)
        if record is not None:
            self._file.seek(0)
            while self.length < record.bytes:
                chunk = self._file.read(min(_CHUNK, record.bytes - self.length))
                if not chunk:
                    break
                self._count(chunk)
        if record is None or self._sha256.hexdigest() != record.sha256:
            self.restart(Version())
            return
        self.version = Version(record.etag, record.last_modified, record.size)
        self._recorded = self.length
        self._file.seek(self.length)
        self._file.truncate()

    def _forget(self) -> None:
        self.version = Version()
        self.length = 0
        self.head = b""
        self._recorded = 0
        self._sha256 = hashlib.sha256()

    def _count(self, chunk: bytes) -> None:
        self._sha256.update(chunk)
        self.length += len(chunk)
        self.head += chunk[: LONGEST_HEADER - len(self.head)]


@contextlib.contextmanager
def opened_prefix(folder: Path, name: str, url: str, cancelled: threading.Event) -> Iterator[Prefix]:
    """The cached first bytes of `url`, verified, for this process alone; they are recorded when the block ends.

    Args:
        folder: where they are kept; made if it does not exist.
        name: of the files, without an ending.
        url: what they are the first bytes of.
        cancelled: set from another thread to wait no longer for other processes.

    Raises:
        DataError: the folder cannot be read and written, or the disk is full.
        Cancelled: `cancelled` was set while another process had these files.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f"{name}.lock", cancelled), _opened(folder / f"{name}.part") as file:
            prefix = Prefix(file, folder / f"{name}.json", url)
            try:
                yield prefix
            finally:
                prefix.record()
    except OSError as error:
        raise DataError(
            f"The cache `{folder}` cannot be used ({error.strerror or error}): "
            "make room there, or set `RUDEL_CACHE` to a folder that can be written."
        ) from error


def _opened(path: Path) -> io.BufferedRandom:
    path.touch()
    return path.open("r+b")


@contextlib.contextmanager
def _locked(path: Path, cancelled: threading.Event) -> Iterator[None]:
    with path.open("ab") as file:
        while not _lock(file):
            if cancelled.wait(_LOOK_AGAIN):
                raise Cancelled
        yield


def _lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_record(path: Path, url: str) -> _Record | None:
    """The record, or None where there is none that could be one of this file."""
    try:
        document: Any = json.loads(path.read_bytes())
        record = _Record(**document)
    except (FileNotFoundError, ValueError, TypeError, RecursionError):
        return None
    kinds = {"bytes": int, "sha256": str, "etag": str | None, "last_modified": str | None, "size": int | None}
    fits = all(isinstance(getattr(record, name), kind) for name, kind in kinds.items())
    return record if fits and record.url == url and record.bytes > 0 else None
