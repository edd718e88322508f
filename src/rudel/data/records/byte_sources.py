"""Parts of files, on this computer or wherever fsspec reaches (`s3://`, `gs://`, `https://`, ...).

Local files are read by `pread`: what was read once is not held, and a file that becomes shorter meanwhile is an error
rather than a bus error. Only short records of one length are taken from mapped files (`rudel.data.records.uniform`).
"""

import contextlib
import hashlib
import mmap
import os
import resource
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rudel.data.records.fsspec_packages import filesystem, is_remote
from rudel.errors import DataError
from rudel.retry_policy import RetryPolicy

Result = TypeVar("Result")

_AT_ONCE = 1 << 30
_DESCRIPTORS = 2  # of a file: one to read from, one of its mapping
_limit = threading.Lock()
_RETRY = RetryPolicy(attempts=3, first_delay=0.8)


class Source(Protocol):
    """A file that can be read in parts, by several threads at once; what is pickled of it is its name.

    `name` is what messages call it, `size` its bytes, `state` a text that is another one when the file is another one,
    `window` how many bytes are worth reading where only a few of them are needed, and `gap` how many that are not
    needed are worth reading to spare a request.
    """

    name: str
    size: int
    state: str
    window: int
    gap: int

    def read(self, begin: int, length: int) -> bytes:
        """A part of the file, shorter where the file ends.

        Raises:
            DataError: it cannot be read.
        """
        ...


def open_source(path: str) -> Source:
    """Opens a file.

    Raises:
        DataError: it cannot be read, or a package is missing for it.
    """
    return RemoteSource(path) if is_remote(path) else LocalSource(path)


class LocalSource:
    """A file on this computer."""

    window = 1 << 16
    gap = 1 << 11

    def __init__(self, path: str) -> None:
        self.name = path
        _make_room()
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._descriptor)
            about = os.fstat(self._descriptor)
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}).") from error
        self.size = about.st_size
        self.state = f"{Path(path).absolute()} {about.st_size} {about.st_mtime_ns}"

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalSource, (self.name,)

    def mapped(self) -> mmap.mmap:
        """The file, mapped into memory; to touch it where it became shorter would kill the process.

        Raises:
            DataError: it cannot be mapped.
        """
        try:
            return mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise DataError(f"{self.name} cannot be mapped into memory ({error.strerror}).") from error

    def check_size(self) -> None:
        """Makes sure that the file is as long as it was.

        Raises:
            DataError: it is not.
        """
        if os.fstat(self._descriptor).st_size != self.size:
            raise DataError(f"{self.name} has changed its size while it is in use: start again when it is complete.")

    def read(self, begin: int, length: int) -> bytes:
        """See `Source`."""
        try:
            part = os.pread(self._descriptor, min(length, _AT_ONCE), begin)
            if len(part) == length or not part:
                return part
            parts = [part]
            while part := os.pread(
                self._descriptor, min(length := length - len(part), _AT_ONCE), begin := begin + len(part)
            ):
                parts.append(part)
            return b"".join(parts)
        except OSError as error:
            raise DataError(f"{self.name} cannot be read at byte {begin:,} ({error.strerror}).") from error


def _make_room() -> None:
    """Lets this process open two more files: a set may have more shards than a process may usually have files open."""
    with _limit, contextlib.suppress(OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft not in (hard, resource.RLIM_INFINITY):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft + _DESCRIPTORS, hard))


class RemoteSource:
    """A file that fsspec reads. What fails is tried again, twice."""

    window = 1 << 22
    gap = 1 << 17

    def __init__(self, address: str) -> None:
        self.name = address
        self.files, self._path = filesystem(address)
        about = self._retrying(lambda: self.files.info(self._path))
        if about.get("size") is None:
            raise DataError(f"{address} does not report its size: copy it to this computer.")
        self.size = int(about["size"])
        known = sorted((key, str(value)) for key, value in about.items())
        self.state = f"{address} {hashlib.sha256(repr(known).encode()).hexdigest()}"

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteSource, (self.name,)

    def read(self, begin: int, length: int) -> bytes:
        """See `Source`."""
        end = min(begin + length, self.size)
        if begin >= end:
            return b""
        return self._part(self._retrying(lambda: self.files.cat_file(self._path, begin, end)), end - begin)

    def read_together(self, blocks: Sequence["tuple[RemoteSource, int, int]"]) -> list[bytes]:
        """Parts, from begin to end, of this and other files of its file system, at the same time."""
        paths, begins, ends = zip(*((source._path, begin, end) for source, begin, end in blocks), strict=True)
        parts = self._retrying(lambda: self.files.cat_ranges([*paths], [*begins], [*ends], on_error="raise"))
        return [source._part(part, end - begin) for part, (source, begin, end) in zip(parts, blocks, strict=True)]

    def _part(self, content: bytes, length: int) -> bytes:
        """The content, which is no longer than what was requested.

        Raises:
            DataError: it is the whole file, as from servers that do not know of ranges.
        """
        if len(content) > length:
            raise DataError(
                f"{self.name} cannot be read in parts, as its server takes no range requests: copy it to this computer."
            )
        return content

    def _retrying(self, ask: Callable[[], Result]) -> Result:
        """Calls fsspec, and again after any error, as it passes on the exceptions of whatever package it uses."""
        for failures in range(1, _RETRY.attempts + 1):
            try:
                return ask()
            except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
                raise DataError(f"{self.name} cannot be read ({type(error).__name__}): check the address.") from error
            except Exception as error:
                if failures == _RETRY.attempts:
                    message = str(error).strip().partition("\n")[0] or type(error).__name__
                    raise DataError(f"{self.name} cannot be read ({message}).") from error
                time.sleep(_RETRY.delay(failures))
        raise AssertionError


def read_blocks(blocks: Sequence[tuple[Source, int, int]]) -> list[bytes]:
    """Parts of files, from begin to end each; those of remote files at the same time.

    Raises:
        DataError: one cannot be read.
    """
    remote: dict[int, list[int]] = {}
    parts = []
    for place, (source, begin, end) in enumerate(blocks):
        if isinstance(source, RemoteSource):
            remote.setdefault(id(source.files), []).append(place)
            parts.append(b"")
        else:
            parts.append(source.read(begin, end - begin))
    for places in remote.values():
        chosen: list[Any] = [blocks[place] for place in places]
        for place, part in zip(places, chosen[0][0].read_together(chosen), strict=True):
            parts[place] = part
    return parts
