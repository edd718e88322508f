"""Stores of images: a local folder, or any address that fsspec knows.

Local files are read without fsspec, several times as fast. Only regular files are opened: a named pipe would be waited
for, and a device read without end.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from rudel.data.records.fsspec_packages import filesystem, is_remote
from rudel.errors import DataError
from rudel.files import expanded

MOST_BYTES = 1 << 28
"""Larger files are not read: a photograph of 89 million pixels takes less, however it is coded."""

_FIRST_BYTES, _NEXT_BYTES = 1 << 17, 1 << 24
_VERSIONS = ("mtime", "ETag", "etag", "LastModified", "last_modified", "updated", "created")


@dataclass(frozen=True)
class File:
    """A file in a store.

    Args:
        name: its path from the root of the store, with slashes.
        size: in bytes.
        version: a different text once the file is written again; empty where the store has none.
    """

    name: str
    size: int
    version: str


class Store(Protocol):
    """Files under one root."""

    address: str
    threads: int
    """The number of threads to read from it with, beyond those that decode."""

    def files(self) -> list[File]:
        """All files in all folders, but not hidden ones, sorted by name.

        Raises:
            DataError: the root cannot be read.
        """
        ...

    def look_up(self, names: Iterable[str]) -> dict[str, File]:
        """Those of the named files that are there."""
        ...

    def read(self, name: str, check: Callable[[bytes], None] = lambda first: None) -> bytes:
        """The content of a file.

        Args:
            name: of the file.
            check: is given the first bytes, all or at least 128 KiB of them; what it raises ends the reading.

        Raises:
            OSError: it cannot be read, has more than `MOST_BYTES`, or is not a regular file.
        """
        ...


def open_store(address: str) -> Store:
    """The store at a local path or an address such as `s3://bucket/folder`.

    Raises:
        DataError: there is no such kind of address, or its package is not installed.
    """
    if not is_remote(address):
        return LocalStore(expanded(address))
    kind = address.partition("://")[0]
    if kind == "file":
        return LocalStore(Path(address.removeprefix("file://")))
    system, root = filesystem(address)
    return RemoteStore(address.rstrip("/"), system, root.rstrip("/"))


def parent_and_name(address: str) -> tuple[str, str]:
    """The folder of a file, and its name.

    >>> parent_and_name("s3://bucket/folder/labels.csv")
    ('s3://bucket/folder', 'labels.csv')
    """
    if is_remote(address):
        folder, _, name = address.rpartition("/")
        return folder, name
    path = expanded(address)
    return str(path.parent), path.name


class LocalStore:
    """A folder of this computer; links are followed."""

    threads = 0

    def __init__(self, root: Path) -> None:
        self.address = str(root.absolute())
        self._root = self.address

    def files(self) -> list[File]:
        """See `Store`."""
        try:
            return sorted(self._walk(self._root, "", ()), key=lambda file: file.name)
        except OSError as error:
            raise DataError(f"The folder {self.address} cannot be read: {error.strerror}.") from error

    def _walk(self, folder: str, prefix: str, above: tuple[tuple[int, int], ...]) -> list[File]:
        about = Path(folder).stat()
        here = (about.st_dev, about.st_ino)
        if here in above:  # a link to a folder that it is in
            return []
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    found += self._walk(entry.path, f"{prefix}{entry.name}/", (*above, here))
                else:
                    found += _local_file(prefix + entry.name, entry)
        return found

    def look_up(self, names: Iterable[str]) -> dict[str, File]:
        """See `Store`."""
        found = (file for name in names for file in _local_file(name, Path(self._root, name)))
        return {file.name: file for file in found}

    def read(self, name: str, check: Callable[[bytes], None] = lambda first: None) -> bytes:
        """See `Store`."""
        # every call gives Python's lock away, and may get it back late when other threads are busy: so few calls
        path = f"{self._root}/{name}" if not name.startswith("/") else name
        about = os.stat(path)  # noqa: PTH116
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            parts = [os.read(file, _FIRST_BYTES)]
            check(parts[0])
            size = len(parts[0])
            while size <= MOST_BYTES and parts[-1]:
                parts.append(os.read(file, _NEXT_BYTES))
                size += len(parts[-1])
            return _checked(parts[0] if size == len(parts[0]) else b"".join(parts))
        finally:
            os.close(file)


def _local_file(name: str, entry: os.DirEntry[str] | Path) -> list[File]:
    try:
        about = entry.stat()
    except (OSError, ValueError):
        return [File(name, 0, "")] if isinstance(entry, os.DirEntry) else []  # a dangling link is an unreadable file
    return [File(name, about.st_size, str(about.st_mtime_ns))]


class RemoteStore:
    """A folder in a file system of fsspec."""

    threads = 16

    def __init__(self, address: str, system: Any, root: str) -> None:
        self.address = address
        self._system, self._root = system, root

    def files(self) -> list[File]:
        """See `Store`."""
        try:
            found = self._system.find(self._root, detail=True)
        except Exception as error:  # each file system has errors of its own
            raise DataError(f"{self.address} cannot be read: {_reason(error)}.") from error
        files = [_remote_file(self._relative(path), about) for path, about in found.items()]
        shown = [file for file in files if not any(part.startswith(".") for part in PurePosixPath(file.name).parts)]
        return sorted(shown, key=lambda file: file.name)

    def look_up(self, names: Iterable[str]) -> dict[str, File]:
        """See `Store`."""
        found = {}
        for name in names:
            try:
                found[name] = _remote_file(name, self._system.info(f"{self._root}/{name}"))
            except Exception:  # each file system has errors of its own; what is not found is named later
                continue
        return found

    def read(self, name: str, check: Callable[[bytes], None] = lambda first: None) -> bytes:
        """See `Store`."""
        path = f"{self._root}/{name}"
        try:
            first = self._bytes(path, start=0, end=_FIRST_BYTES)
        except OSError:
            first = self._bytes(path)  # nothing has no range, and some servers know of none
        check(first)
        if len(first) != _FIRST_BYTES:
            return _checked(first)
        # begins one byte earlier, as that range is never empty
        return _checked(first[:-1] + self._bytes(path, start=_FIRST_BYTES - 1, end=MOST_BYTES + 1))

    def _bytes(self, path: str, **part: int) -> bytes:
        try:
            return self._system.cat_file(path, **part)
        except OSError:
            raise
        except Exception as error:  # each file system has errors of its own
            raise OSError(_reason(error)) from error

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._root).lstrip("/") if path.startswith(self._root) else path


def _checked(content: bytes) -> bytes:
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"more than {MOST_BYTES:,} bytes")
    return content


def _remote_file(name: str, about: dict[str, Any]) -> File:
    version = next((str(about[key]) for key in _VERSIONS if about.get(key) is not None), "")
    return File(name, int(about.get("size") or 0), version)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
