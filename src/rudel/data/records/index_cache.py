"""Indexes of files whose walk takes a while, kept in the cache folder until the file changes."""

import hashlib
from pathlib import Path

import numpy as np

from rudel.cache import cache_folder
from rudel.data.npz import read_npz
from rudel.data.records.byte_sources import Source
from rudel.data.records.fsspec_packages import is_remote
from rudel.data.records.index import FileIndex, walk
from rudel.files import written_atomically

_LARGE = 1 << 28
_FORMAT = "1"
_PARTS = ("begins", "lengths", "checksums", "damaged")


def indexed(source: Source, skip_corrupt: bool = False) -> FileIndex:
    """The index of a file: the kept one, if it is remote or large and has not changed, or a new one.

    Args:
        source: the file.
        skip_corrupt: see `walk`.

    Raises:
        DataError: see `walk`.
    """
    if not is_remote(source.name) and source.size < _LARGE:
        return walk(source, skip_corrupt)
    described = f"{_FORMAT} {source.state} {skip_corrupt}"
    path = cache_folder() / "records" / f"{hashlib.sha256(described.encode()).hexdigest()[:32]}.npz"
    index = _kept(path, source.size)
    if index is None:
        index = walk(source, skip_corrupt)
        _keep(path, index)
    return index


def _kept(path: Path, size: int) -> FileIndex | None:
    try:
        stored = read_npz(path)
        index = FileIndex(*(stored[name] for name in _PARTS))
    except (OSError, ValueError, KeyError):
        return None
    return index if not len(index) or 0 < index.begins[-1] + index.lengths[-1] <= size else None


def _keep(path: Path, index: FileIndex) -> None:
    """Writes an index. It can be made again at any time, so a folder that takes no file is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_atomically(path) as file:
            np.savez(file, **{name: getattr(index, name) for name in _PARTS})
    except OSError:
        return
