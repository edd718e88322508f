"""Matrices whose neighbouring rows change alike, as frequencies: few of these hold what many rows have in common.

The rows of a matrix that takes pictures, one for each pixel, are laid out on a grid with sides as even as can be (784
rows: 28 x 28). Every square of 4 x 4 rows undergoes a cosine transform, column by column, and the means of the squares
again as long as their grid can be cut so; all of it is orthonormal. B. Peng and others, *DeMo: Decoupled momentum
optimization*, 2411.19870, choose among cosine frequencies what to send, too.

Only sums and products of float32 elements are used, one operation at a time: every host, of whatever make, computes the
same bits, and no BLAS wakes threads that compete with the training.

Limit: pictures that are not square, or have several channels, are not laid out as they are, and gain less.
"""

import functools

import numpy as np

_ALIKE, _EVERY = 0.3, 5
_HALF = np.float32(0.5)
_LONG, _SHORT = np.float32(0.65328148), np.float32(0.27059805)  # the cosine and sine of 22.5 degrees, over sqrt(2)


@functools.lru_cache(maxsize=64)
def grid_of(rows: int) -> tuple[int, int] | None:
    """The sides of the grid for so many rows, or None where there is none with sides that are multiples of 4.

    >>> grid_of(784), grid_of(3072), grid_of(100)
    ((28, 28), (48, 64), None)
    """
    side = next((side for side in range(4 * int(rows**0.5 / 4), 0, -4) if rows % (4 * side) == 0), 0)
    return (side, rows // side) if side else None


def rows_are_alike(values: np.ndarray) -> bool:
    """Whether neighbours among the rows of float32 (rows, columns) are so similar that frequencies are worth while."""
    some, next_ones = values[:-1:_EVERY], values[1::_EVERY]
    return float(np.sum(some * next_ones)) > _ALIKE * float(np.sum(some * some))


def to_frequencies(values: np.ndarray) -> np.ndarray:
    """Transforms every column.

    Args:
        values: float32 (sides..., columns), with sides as `grid_of` gives them.

    Returns:
        float32 (4, 4, sides / 4..., columns), the lowest frequencies first.
    """
    first, second, columns = values.shape
    half = np.empty((4, first // 4, second, columns), np.float32)
    _analyse(np.moveaxis(values.reshape(first // 4, 4, second, columns), 1, 0), half)
    bands = np.empty((4, 4, first // 4, second // 4, columns), np.float32)
    _analyse(np.moveaxis(half.reshape(4, first // 4, second // 4, 4, columns), 3, 0), bands.swapaxes(0, 1))
    if first % 16 == 0 and second % 16 == 0:
        bands[0, 0] = to_frequencies(bands[0, 0]).reshape(bands[0, 0].shape)
    return bands


def from_frequencies(bands: np.ndarray) -> np.ndarray:
    """The way back.

    Args:
        bands: float32 (4, 4, sides / 4..., columns); it is overwritten.

    Returns:
        float32 (sides..., columns).
    """
    _, _, first, second, columns = bands.shape
    if first % 4 == 0 and second % 4 == 0:
        means = bands[0, 0].reshape(4, 4, first // 4, second // 4, columns)
        bands[0, 0] = from_frequencies(means)
    half = np.empty((4, first, second, 4, columns), np.float32)
    _synthesise(bands.swapaxes(0, 1), np.moveaxis(half, 3, 0))
    values = np.empty((first, 4, 4 * second, columns), np.float32)
    _synthesise(half.reshape(4, first, 4 * second, columns), np.moveaxis(values, 1, 0))
    return values.reshape(4 * first, 4 * second, columns)


def _analyse(values: np.ndarray, frequencies: np.ndarray) -> None:
    """The cosine transform of four numbers, along axis 0."""
    outer, inner = values[0] + values[3], values[1] + values[2]
    outer *= _HALF
    inner *= _HALF
    np.add(outer, inner, out=frequencies[0])
    np.subtract(outer, inner, out=frequencies[2])
    np.subtract(values[0], values[3], out=outer)
    np.subtract(values[1], values[2], out=inner)
    np.add(outer * _LONG, inner * _SHORT, out=frequencies[1])
    np.subtract(outer * _SHORT, inner * _LONG, out=frequencies[3])


def _synthesise(frequencies: np.ndarray, values: np.ndarray) -> None:
    """The inverse of `_analyse`."""
    even = frequencies[0] + frequencies[2]
    even *= _HALF
    odd = frequencies[1] * _LONG
    odd += frequencies[3] * _SHORT
    np.add(even, odd, out=values[0])
    np.subtract(even, odd, out=values[3])
    np.subtract(frequencies[0], frequencies[2], out=even)
    even *= _HALF
    np.multiply(frequencies[1], _SHORT, out=odd)
    odd -= frequencies[3] * _LONG
    np.add(even, odd, out=values[1])
    np.subtract(even, odd, out=values[2])
