"""The examples of a replica: pieces of the data set in the places that they have in the whole.

The arrays are as long as the whole data set, and only the rows of the pieces that a replica has are ever written. On a
CPU, memory that is not written is not taken, so this costs nothing; and when the replica gets pieces of one that was
lost, no shape changes and nothing is compiled again. Examples have the same index everywhere.
"""

import itertools
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rudel.cache import cache_folder
from rudel.data.dataset import aligned_empty


@dataclass(frozen=True)
class Leaf:
    """One array of the data set.

    Args:
        shape: of one example.
        dtype: NumPy's name.
    """

    shape: tuple[int, ...]
    dtype: str


class Shard:
    """The examples of a replica, and the order in which it sees them.

    The order is a pure function of the seed, the replica's number, the pieces, the round in which they were given, and
    the count of batches taken since: permutations of the examples one after the other, cut into batches that may span
    two of them. When pieces change, the permutation under way continues without the examples that are gone, and with
    those that are new.

    Args:
        examples: length of the whole data set.
        leaves: its arrays.
        batch_size: examples a step.
        seed: of the permutations.
        number: of the replica.
        shuffle: False to see the examples in their order, again and again.
        on_disk: keep the arrays in files without names in the cache folder, for data that does not fit in memory; they
            are gone when the process ends.

    Raises:
        OSError: there can be no such files.
    """

    def __init__(
        self,
        examples: int,
        leaves: Sequence[Leaf],
        batch_size: int,
        seed: int,
        number: int,
        shuffle: bool,
        on_disk: bool = False,
    ) -> None:
        shapes = [((examples, *leaf.shape), np.dtype(leaf.dtype)) for leaf in leaves]
        self._files = [_OnDisk(*form) for form in shapes] if on_disk else []
        self.arrays = [file.array for file in self._files] or [aligned_empty(*form) for form in shapes]
        self.owned: dict[tuple[int, int], None] = {}
        self._batch_size, self._shuffle = batch_size, shuffle
        self._seed, self._since = (seed, number), 0
        self._ahead, self._epoch = np.empty(0, np.int32), 0

    def __len__(self) -> int:
        return sum(last - first for first, last in self.owned)

    def own(self, pieces: Sequence[tuple[int, int]], since: int) -> None:
        """Takes examples from these pieces from now on, ranges (first, last) of indices whose rows are written.

        Args:
            pieces: the ranges; if they are what they were, the order goes on.
            since: the number of the round that begins.
        """
        if list(pieces) == list(self.owned):
            return
        gone, new = self.owned.keys() - set(pieces), [piece for piece in pieces if piece not in self.owned]
        under_way = bool(self._shuffle and self.owned)
        self.owned = dict.fromkeys(pieces)
        self._since, self._epoch = since, 0
        self._ahead = self._continued(gone, new) if under_way else np.empty(0, np.int32)

    def _continued(self, gone: Iterable[tuple[int, int]], new: Sequence[tuple[int, int]]) -> np.ndarray:
        """Continues a permutation without pieces that are gone and with new ones."""
        stays = np.ones(len(self.arrays[0]), bool)
        for first, last in gone:
            stays[first:last] = False
        left = [self._ahead[stays[self._ahead]], *(np.arange(first, last, dtype=np.int32) for first, last in new)]
        return np.random.default_rng([*self._seed, self._since]).permutation(np.concatenate(left))

    def write(self, piece: tuple[int, int], rows: Sequence[np.ndarray]) -> None:
        """Puts the rows of a piece in their place.

        Raises:
            ValueError: they are not rows of this data set.
            OSError: the disk is full.
        """
        first, last = piece
        for array, part in zip(self.arrays, rows, strict=True):
            if part.shape != (last - first, *array.shape[1:]) or part.dtype != array.dtype or last > len(array):
                raise ValueError(f"rows {part.dtype} {part.shape} do not fit {array.dtype} {array.shape}")
        for number, part in enumerate(rows):
            if self._files:
                self._files[number].write(first, part)
            else:
                self.arrays[number][first:last] = part

    def blank(self, size: int = 1) -> int:
        """Makes zeros of the first examples, for trying things out; files are zeros where nothing was written.

        Args:
            size: bytes, of which at least one example is taken.

        Returns:
            How many examples are zeros.
        """
        each = sum(array[:1].nbytes for array in self.arrays)
        rows = max(1, min(len(self.arrays[0]), size // max(1, each)))
        for array in () if self._files else self.arrays:
            array[:rows] = 0
        return rows

    def batches(self, count: int) -> np.ndarray:
        """Indices of the next batches, int32 (count, batch_size)."""
        wanted = count * self._batch_size
        while len(self._ahead) < wanted:
            everything = np.concatenate([np.arange(first, last, dtype=np.int32) for first, last in self.owned])
            if self._shuffle:
                random = np.random.default_rng([*self._seed, self._since, self._epoch])
                everything = random.permutation(everything)
            self._epoch += 1
            self._ahead = np.concatenate([self._ahead, everything])
        taken, self._ahead = self._ahead[:wanted], self._ahead[wanted:]
        return taken.reshape(count, self._batch_size)


class _OnDisk:
    """An array of zeros in a file that takes room where it is written.

    It is written through the file and not through memory, so that a full disk is an error and not the process' end.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        size = math.prod(shape) * dtype.itemsize
        self._file, path = tempfile.mkstemp(prefix=".shard.", dir=folder)
        weakref.finalize(self, os.close, self._file)
        Path(path).unlink()
        os.truncate(self._file, max(1, size))
        memory = mmap.mmap(self._file, max(1, size), access=mmap.ACCESS_READ)
        self.array = np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)

    def write(self, first: int, rows: np.ndarray) -> None:
        content = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
        place = first * (len(content) // max(1, len(rows)))
        while len(content):
            written = os.pwrite(self._file, content, place)
            content, place = content[written:], place + written


def cut(examples: int, row_bytes: int, workers: int) -> list[tuple[int, int]]:
    """Cuts a data set into pieces, at least 16 for every worker, of at most 4 MB each.

    >>> cut(40, 100, 1)[:3]
    [(0, 2), (2, 5), (5, 7)]
    """
    count = max(16 * workers, math.ceil(examples * row_bytes / 4e6))
    bounds = [examples * i // min(count, examples) for i in range(min(count, examples) + 1)]
    return list(itertools.pairwise(bounds))


def rows_of(arrays: Sequence[Any], piece: tuple[int, int], layout: np.ndarray) -> list[np.ndarray]:
    """The rows of a piece, of data whose example `layout[i]` stands in place i."""
    return [np.asarray(array)[layout[piece[0] : piece[1]]] for array in arrays]
