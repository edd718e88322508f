"""Short records of one length, taken from mapped files as the rows of a matrix.

Where every record of local files is as long as every other, record number i is row i, and many are taken by one call of
NumPy rather than by a system call each. Mapped pages count as memory of the process, so they are given back as soon as
they may have become many; the system keeps them as long as nobody else needs the memory.
"""

import mmap
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from rudel.data.records.byte_sources import LocalSource, Source
from rudel.data.records.index import OVERHEAD, FileIndex

_LONGEST = 4096
_MOST_MAPPED = 1 << 27
_MAPPED_AT_ONCE = 1 << 16  # by a touch: the system maps neighbouring pages as well


class UniformRows:
    """Reads records of one length.

    Args:
        sources: local files.
        indexes: of them, as `uniform_rows` checks.
    """

    def __init__(self, sources: Sequence[LocalSource], indexes: Sequence[FileIndex]) -> None:
        self._given = sources, indexes
        self._sources = [source for source, index in zip(sources, indexes, strict=True) if len(index)]
        self.length = next(int(index.lengths[0]) for index in indexes if len(index))
        self._maps = [source.mapped() for source in self._sources]
        stride = self.length + OVERHEAD
        self._rows = [np.frombuffer(mapped, np.uint8).reshape(-1, stride) for mapped in self._maps]
        self._firsts = np.cumsum([0, *(len(rows) for rows in self._rows)])
        self._is_large = sum(source.size for source in self._sources) > _MOST_MAPPED
        self._touched = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return UniformRows, self._given

    def take(self, numbers: np.ndarray) -> tuple[np.ndarray, list[bytes]]:
        """Some records, int64 (n,).

        Returns:
            Their contents as rows, uint8 (n, length), and one by one.

        Raises:
            DataError: a file became shorter.
        """
        files = np.searchsorted(self._firsts, numbers, "right") - 1
        taken = np.empty((len(numbers), self.length + OVERHEAD), np.uint8)
        for file in np.unique(files).tolist():
            self._sources[file].check_size()
            places = np.flatnonzero(files == file)
            rows = numbers[places] - self._firsts[file]
            if len(places) == len(numbers):
                np.take(self._rows[file], rows, axis=0, out=taken, mode="clip")
            else:
                taken[places] = np.take(self._rows[file], rows, axis=0, mode="clip")
        self._give_back(len(numbers))
        begin, end, stride = OVERHEAD - 4, OVERHEAD - 4 + self.length, self.length + OVERHEAD
        joined = taken.tobytes()
        contents = [joined[at + begin : at + end] for at in range(0, len(joined), stride)]
        return taken[:, begin:end], contents

    def _give_back(self, count: int) -> None:
        if not self._is_large or not hasattr(mmap, "MADV_DONTNEED"):
            return
        with self._lock:
            self._touched += count * _MAPPED_AT_ONCE
            if self._touched > _MOST_MAPPED:
                self._touched = 0
                for mapped in self._maps:
                    mapped.madvise(mmap.MADV_DONTNEED)


def uniform_rows(sources: Sequence[Source], indexes: Sequence[FileIndex]) -> UniformRows | None:
    """A reader for files whose records are short and all of one length; None where that is not so."""
    local = [source for source in sources if isinstance(source, LocalSource)]
    lengths = {int(length) for index in indexes if len(index) for length in (index.lengths.min(), index.lengths.max())}
    if len(local) < len(sources) or len(lengths) != 1 or max(lengths) > _LONGEST:
        return None
    stride = max(lengths) + OVERHEAD
    whole = all(source.size == len(index) * stride for source, index in zip(sources, indexes, strict=True))
    return UniformRows(local, indexes) if whole else None
