"""All weights of a model as one vector."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rudel.array_types import Float32, Int64

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The place of each array of a model in the vector.

    Args:
        shapes: of the arrays, in order.

    >>> layout = Layout(((2, 2), (3,)))
    >>> layout.size, [array.shape for array in layout.arrays(layout.vector([np.ones((2, 2)), np.zeros(3)]))]
    (7, [(2, 2), (3,)])
    """

    shapes: tuple[Shape, ...]

    @classmethod
    def of(cls, arrays: Sequence[Any]) -> "Layout":
        """The layout of arrays of these shapes."""
        return cls(tuple(tuple(np.shape(array)) for array in arrays))

    @cached_property
    def bounds(self) -> Int64[np.ndarray, "bounds"]:
        """Offsets at which arrays begin, and the end of the last one: int64 (arrays + 1,)."""
        return np.cumsum([0, *map(math.prod, self.shapes)])

    @property
    def size(self) -> int:
        """Elements of the vector."""
        return int(self.bounds[-1])

    def arrays(self, vector: Float32[np.ndarray, "weights"]) -> list[Float32[np.ndarray, "..."]]:
        """The arrays of a vector, whose memory they share."""
        spans = itertools.pairwise(self.bounds)
        return [vector[first:last].reshape(shape) for (first, last), shape in zip(spans, self.shapes, strict=True)]

    def vector(self, arrays: Sequence[Any]) -> Float32[np.ndarray, "weights"]:
        """A new float32 vector (size,) of arrays of any dtype."""
        vector = np.empty(self.size, np.float32)
        for part, array in zip(self.arrays(vector), arrays, strict=True):
            np.copyto(part, np.asarray(array), casting="unsafe")
        return vector
