"""The examples of a replica: pieces of the data set in the places that they have in the whole.

The arrays are as long as the whole data set, and only the rows of the pieces that a replica has are ever written. On a
CPU, memory that is not written is not taken, so this costs nothing; and when the replica gets pieces of one that was
lost, no shape changes and nothing is compiled anew. Examples have the same index everywhere.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    """Which examples a replica has, and in which order it sees them.

    The order is a pure function of the seed, the replica's number, the pieces, the round in which they were given, and
    the count of batches taken since: permutations of the examples one after the other, cut into batches that may span
    two of them.

    Args:
        examples: length of the whole data set.
        leaves: its arrays.
        batch_size: examples a step.
        seed: of the permutations.
        number: of the replica.
        shuffle: False to see the examples in their order, again and again.
    """

    def __init__(
        self, examples: int, leaves: Sequence[Leaf], batch_size: int, seed: int, number: int, shuffle: bool
    ) -> None:
        self.arrays = [aligned_empty((examples, *leaf.shape), np.dtype(leaf.dtype)) for leaf in leaves]
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
        self.owned = dict.fromkeys(pieces)
        self._since = since
        self._ahead, self._epoch = np.empty(0, np.int32), 0

    def write(self, piece: tuple[int, int], rows: Sequence[np.ndarray]) -> None:
        """Puts the rows of a piece in their place.

        Raises:
            ValueError: they are not rows of this data set.
        """
        first, last = piece
        for array, part in zip(self.arrays, rows, strict=True):
            if part.shape != (last - first, *array.shape[1:]) or part.dtype != array.dtype or last > len(array):
                raise ValueError(f"rows {part.dtype} {part.shape} do not fit {array.dtype} {array.shape}")
            array[first:last] = part

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
