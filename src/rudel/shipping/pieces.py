"""Pieces of a data set as they travel and as hosts keep them: compressed, with a checksum at the end.

A host that has a piece of a name in its cache is not sent it again, in this training or a later one. A piece that is
damaged, on its way or on disk, is noticed by its checksum and fetched again.
"""

import contextlib
import hashlib
import os
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rudel.cache import cache_folder
from rudel.files import written_atomically
from rudel.shipping import array_bytes

LARGEST_CACHE = 4 * 2**30
"""Bytes of pieces that a host keeps; those that were not used for longest go first."""

_CHECKSUM = hashlib.sha256().digest_size
_ABANDONED_SECONDS = 3600
"""A file that is half written and that old belongs to a process that was killed."""


def encode(rows: Sequence[np.ndarray]) -> tuple[str, bytes]:
    """A piece's name, the SHA-256 of its content, and its compressed content with its checksum."""
    content = zlib.compress(array_bytes.pack(rows), 1)
    checksum = hashlib.sha256(content)
    return checksum.hexdigest(), content + checksum.digest()


def missing(names: Sequence[str]) -> list[str]:
    """Those that are not in the cache; the others count as used, so that none of them makes room for the missing."""
    return [name for name in names if not _is_there(_path(name))]


def keep(name: str, content: bytes) -> None:
    """Puts a piece into the cache.

    Raises:
        ValueError: the content is not what its checksum says.
        OSError: the disk is full.
    """
    if not _is_whole(content):
        raise ValueError("a piece of data was damaged on its way")
    path = _path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    _make_room(path.parent, len(content))
    with written_atomically(path) as file:
        file.write(content)


def read(name: str) -> list[np.ndarray]:
    """The rows of a piece in the cache.

    Raises:
        ValueError: it is damaged; it is removed, so that it is fetched again.
        FileNotFoundError: it is not there.
    """
    path = _path(name)
    content = path.read_bytes()
    if not _is_whole(content):
        path.unlink(missing_ok=True)
        raise ValueError(f"the piece {path} was damaged")
    os.utime(path)
    return array_bytes.unpack(zlib.decompress(content[:-_CHECKSUM]))


def _is_there(path: Path) -> bool:
    if not path.is_file():
        return False
    with contextlib.suppress(OSError):  # it is another user's, or has just gone
        os.utime(path)
    return True


def _is_whole(content: bytes) -> bool:
    return hashlib.sha256(content[:-_CHECKSUM]).digest() == content[-_CHECKSUM:]


def _make_room(folder: Path, wanted: int) -> None:
    files = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another worker on this host makes room too
            status = path.stat()
            if path.suffix != ".tmp" or time.time() - status.st_mtime > _ABANDONED_SECONDS:
                files.append((status, path))
    held = sum(status.st_size for status, _ in files)
    for status, path in sorted(files, key=lambda entry: entry[0].st_mtime):
        if held + wanted <= LARGEST_CACHE:
            return
        path.unlink(missing_ok=True)
        held -= status.st_size


def _path(name: str) -> Path:
    if not name.isalnum():
        raise ValueError(f"{name!r} is not a name of a piece")
    return cache_folder() / "pieces" / name
