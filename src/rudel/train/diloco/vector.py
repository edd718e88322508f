"""All weights of a model as one vector, in which few elements say much, and what a message changes in it.

A matrix that takes pictures has a row for each pixel, and neighbouring rows change alike. In the vector, such a matrix
stands as the cosine transform of its columns over height and width: most of what changes is in few frequencies, so a
message of the largest elements holds more of it. All of it is orthonormal. B. Peng and others, *DeMo: Decoupled
momentum optimization*, 2411.19870, choose among cosine frequencies what to send, too.

Limit: only matrices with as many rows as an input has pixels (times channels) are known to take pictures.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Shape = tuple[int, ...]

_LEAST_SIDE = 8
_OF_ONE_THREAD = 65_536 * 4
"""Multiplications of a product of matrices for which OpenBLAS wakes no other threads."""


@dataclass(frozen=True)
class Layout:
    """Where each array of a model is in the vector, and how it stands there.

    Args:
        shapes: of the arrays, in order.
        grids: height and width of the pictures that an array takes; None for an array that stands as it is.

    >>> layout = Layout(((2, 2), (3,)))
    >>> layout.size, [array.shape for array in layout.arrays(layout.vector([np.ones((2, 2)), np.zeros(3)]))]
    (7, [(2, 2), (3,)])
    """

    shapes: tuple[Shape, ...]
    grids: tuple[tuple[int, int] | None, ...] = ()

    @classmethod
    def of(cls, arrays: Sequence[Any], inputs: Iterable[Sequence[int]] = ()) -> "Layout":
        """The layout of arrays of these shapes.

        Args:
            arrays: of a model.
            inputs: shapes of one example of its inputs.
        """
        shapes = tuple(tuple(np.shape(array)) for array in arrays)
        pictures = [shape for shape in inputs if len(shape) in (2, 3) and min(shape[:2]) >= _LEAST_SIDE]
        grids = {math.prod(shape): (int(shape[0]), int(shape[1])) for shape in pictures}
        return cls(shapes, tuple(grids.get(shape[0]) if len(shape) == 2 else None for shape in shapes))

    @cached_property
    def bounds(self) -> np.ndarray:
        """Where each array begins, and where the last one ends: int64 (arrays + 1,)."""
        return np.cumsum([0, *map(math.prod, self.shapes)])

    @property
    def size(self) -> int:
        """Elements of the vector."""
        return int(self.bounds[-1])

    def parts(self, vector: np.ndarray) -> list[np.ndarray]:
        """The arrays as they stand in a vector, whose memory they share."""
        spans = itertools.pairwise(self.bounds)
        return [vector[first:last].reshape(shape) for (first, last), shape in zip(spans, self.shapes, strict=True)]

    def vector(self, arrays: Sequence[Any], into: np.ndarray | None = None) -> np.ndarray:
        """A float32 vector (size,) of arrays of any dtype; a new one, unless one is given."""
        vector = np.empty(self.size, np.float32) if into is None else into
        for part, array, grid in itertools.zip_longest(self.parts(vector), arrays, self.grids):
            value = _transformed(np.asarray(array, np.float32), *map(_cosines, grid)) if grid else np.asarray(array)
            np.copyto(part, value, casting="unsafe")
        return vector

    def arrays(self, vector: np.ndarray) -> list[np.ndarray]:
        """The arrays of a vector, float32; those that stand as they are share its memory."""
        pairs = itertools.zip_longest(self.parts(vector), self.grids)
        return [_transformed(part, *(_cosines(side).T for side in grid)) if grid else part for part, grid in pairs]


@functools.lru_cache(maxsize=16)
def _cosines(side: int) -> np.ndarray:
    """The orthonormal cosine transform (DCT-II) of so many elements, as a float32 matrix."""
    places = np.arange(side)
    cosines = np.cos(np.pi * (2 * places + 1) * places[:, None] / (2 * side)) * np.sqrt(2 / side)
    cosines[0] /= np.sqrt(2)
    return cosines.astype(np.float32)


def _transformed(matrix: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The rows of a matrix, which are on a grid, transformed along both of its axes.

    Products are kept so small that OpenBLAS computes them in this thread: its others would go on turning afterwards,
    and take a core from the training.
    """
    rows = matrix.reshape(len(first), len(second), -1)
    transformed = np.empty_like(rows)
    columns = max(1, _OF_ONE_THREAD // max(len(first), len(second)) ** 2)
    for begin in range(0, rows.shape[2], columns):
        block = slice(begin, begin + columns)
        along_first = np.matmul(first, rows[:, :, block].swapaxes(0, 1)).swapaxes(0, 1)
        np.matmul(second, along_first, out=transformed[:, :, block])
    return transformed.reshape(matrix.shape)


@dataclass(frozen=True)
class Change:
    """What a message adds to a vector.

    Args:
        values: float32 (N,).
        indices: of the elements that they are added to, int64 (N,), increasing; None for all elements.
    """

    values: np.ndarray
    indices: np.ndarray | None = None

    def add_to(self, vector: np.ndarray, factor: float = 1.0) -> None:
        """Adds the values, times a factor, in place; each product and sum is rounded to float32."""
        values = self.values if factor == 1.0 else self.values * np.float32(factor)
        if self.indices is None:
            vector += values
        else:
            vector[self.indices] += values


NOTHING = Change(np.empty(0, np.float32), np.empty(0, np.int64))
"""No change."""
