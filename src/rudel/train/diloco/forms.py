"""The forms in which a codec writes one array: rounded floats, whole numbers with scales, or its largest elements.

A form is a pair of pure functions. What is read comes from the network: what cannot have been written raises
`ValueError`.
"""

import math
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rudel.train.diloco.bits import Reader, pack, pack_indices, unpack, unpack_indices
from rudel.train.diloco.frequencies import from_frequencies, grid_of, rows_are_alike, to_frequencies

Shape = tuple[int, ...]

_BLOCK = 256
_SAMPLE = 8192
_SAMPLE_ABOVE = 256
_LEAST = np.finfo(np.float32).tiny
_CHOSEN = struct.Struct("<BI")


class Form(NamedTuple):
    """How one array travels.

    Args:
        write: (finite float32 values) -> (bytes, what they leave out, in the same shape).
        read: (reader, shape) -> float32 values.
    """

    write: Callable[[np.ndarray], tuple[bytes, np.ndarray]]
    read: Callable[[Reader, Shape], np.ndarray]


def rounded(to_bits: Callable[[np.ndarray], np.ndarray], to_floats: Callable[[np.ndarray], np.ndarray]) -> Form:
    """Elements rounded one by one.

    Args:
        to_bits: from float32 to an array of whatever dtype travels.
        to_floats: the way back.
    """
    dtype = to_bits(np.zeros(0, np.float32)).dtype.str

    def write(values: np.ndarray) -> tuple[bytes, np.ndarray]:
        bits = to_bits(values)
        return bits.tobytes(), values - to_floats(bits)

    def read(reader: Reader, shape: Shape) -> np.ndarray:
        return _finite(to_floats(reader.array(dtype, math.prod(shape)))).reshape(shape)

    return Form(write, read)


def integers(bits: int) -> Form:
    """Whole numbers from -m to m, m = 2**(bits - 1) - 1, with a scale for every 256 elements."""
    most = 2 ** (bits - 1) - 1

    def write(values: np.ndarray) -> tuple[bytes, np.ndarray]:
        blocks = _in_blocks(values.reshape(-1))
        scales = np.abs(blocks).max(axis=1, initial=0) * np.float32(1 / most)
        scales[scales < _LEAST] = 0
        inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
        numbers = np.rint(blocks * inverse[:, None])
        np.clip(numbers, -most, most, out=numbers)
        rest = blocks - numbers * scales[:, None]
        numbers += np.float32(most)
        codes = numbers.astype(np.uint8).reshape(-1)[: values.size]
        return scales.astype("<f4").tobytes() + pack(codes, bits), rest.reshape(-1)[: values.size].reshape(values.shape)

    def read(reader: Reader, shape: Shape) -> np.ndarray:
        size = math.prod(shape)
        scales = _finite(reader.array("<f4", -(-size // _BLOCK)))
        numbers = unpack(reader, size, bits).astype(np.float32)
        numbers -= np.float32(most)
        blocks = _in_blocks(numbers)
        with np.errstate(over="ignore"):
            blocks *= scales[:, None]
        return _finite(blocks.reshape(-1)[:size].reshape(shape))

    return Form(write, read)


def largest(share: float, bits: int) -> Form:
    """The largest elements: where they are, a sign each, and one of 2**(bits - 1) magnitudes that are sent along.

    A matrix whose rows change alike is written as frequencies, where fewer elements hold more of it.
    """
    levels = 2 ** (bits - 1)

    def write(values: np.ndarray) -> tuple[bytes, np.ndarray]:
        grid = _grid_of(values.shape)
        if grid and not rows_are_alike(values):
            grid = None
        flat = (to_frequencies(values.reshape(*grid, -1)) if grid else values).reshape(-1)
        sizes = np.abs(flat)
        indices = _indices_of_largest(sizes, share)
        if not len(indices):
            return _CHOSEN.pack(0, 0), values
        flat, sizes = flat[indices], sizes[indices]
        bins = _logarithmic_bins(sizes, levels)
        magnitudes = np.array([_mean(sizes, bins == level) for level in range(levels)], "<f4")
        codes = bins | (flat < 0) * np.uint8(levels)
        rest = values - _values(values.shape, grid, indices, codes, magnitudes)
        head = _CHOSEN.pack(grid is not None, len(indices))
        return head + pack_indices(indices) + magnitudes.tobytes() + pack(codes, bits), rest

    def read(reader: Reader, shape: Shape) -> np.ndarray:
        on_grid, count = reader.fields(_CHOSEN)
        grid = _grid_of(shape) if on_grid else None
        if on_grid > 1 or (on_grid and not grid):
            raise ValueError("The message is damaged: an array does not begin as it should.")
        if not count:
            return np.zeros(shape, np.float32)
        indices = unpack_indices(reader, count, math.prod(shape))
        magnitudes = reader.array("<f4", levels)
        codes = unpack(reader, count, bits)
        with np.errstate(all="ignore"):
            return _finite(_values(shape, grid, indices, codes, magnitudes))

    return Form(write, read)


def _values(
    shape: Shape, grid: tuple[int, int] | None, indices: np.ndarray, codes: np.ndarray, magnitudes: np.ndarray
) -> np.ndarray:
    """What is read of the largest elements: float32 of this shape, the same bits on every host."""
    values = np.zeros(math.prod(shape), np.float32)
    values[indices] = np.concatenate([magnitudes, -magnitudes])[codes]
    if grid:
        first, second = grid
        values = from_frequencies(values.reshape(4, 4, first // 4, second // 4, shape[1]))
    return values.reshape(shape)


def _grid_of(shape: Shape) -> tuple[int, int] | None:
    return grid_of(shape[0]) if len(shape) == 2 else None


def _in_blocks(values: np.ndarray) -> np.ndarray:
    """Float32 (N,) as (blocks, elements), the last block filled up with zeros; a view where nothing is to be filled."""
    missing = -values.size % _BLOCK
    if not missing:
        return values.reshape(-1, _BLOCK)
    filled = np.zeros(values.size + missing, np.float32)
    filled[: values.size] = values
    return filled.reshape(-1, _BLOCK)


def _indices_of_largest(sizes: np.ndarray, share: float) -> np.ndarray:
    """Sorted indices of about this share of the elements, the largest ones that are not 0.

    What counts as large is estimated from a sample, evenly spread. Where that turns out to take less than half or more
    than twice as many as it should, all elements are sorted out instead.
    """
    wanted = max(1, round(share * sizes.size))
    stride = max(1, int(sizes.size // max(_SAMPLE, _SAMPLE_ABOVE / share)))
    while math.gcd(stride, sizes.size) > 1:  # so that no row or column of a matrix is met more often than others
        stride += 1
    sample = sizes[::stride]
    place = len(sample) - max(1, round(share * len(sample)))
    threshold = np.partition(sample, place)[place]
    indices = np.flatnonzero(sizes >= max(threshold, _LEAST))
    if wanted / 2 <= len(indices) <= 2 * wanted:
        return indices
    indices = np.sort(np.argpartition(sizes, sizes.size - wanted)[-wanted:])
    return indices[sizes[indices] >= _LEAST]


def _logarithmic_bins(sizes: np.ndarray, levels: int) -> np.ndarray:
    """In which of so many bins, evenly spaced by logarithm from smallest to largest, each size falls: uint8 (N,)."""
    if levels == 1:
        return np.zeros(len(sizes), np.uint8)
    places = np.log(sizes)
    places -= places.min()
    if places.max() > 0:
        places *= levels / places.max()
    return np.minimum(places, levels - 1).astype(np.uint8)


def _mean(values: np.ndarray, chosen: np.ndarray) -> float:
    """The mean of those that are chosen, or 0 if none is."""
    return float(np.sum(values * chosen, dtype=np.float64)) / max(1, np.count_nonzero(chosen))


def _finite(values: np.ndarray) -> np.ndarray:
    if not np.all(np.isfinite(values)):
        raise ValueError("The message is damaged: it holds NaN or infinite numbers.")
    return values


def _to_half(values: np.ndarray) -> np.ndarray:
    most = np.finfo(np.float16).max
    return np.clip(values, -most, most).astype("<f2")


def _to_brain(values: np.ndarray) -> np.ndarray:
    """bfloat16 as uint16: the upper half of a float32, rounded to even, but never up to infinity."""
    bits = values.view(np.uint32)
    upper = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where((upper & 0x7FFF) == 0x7F80, upper - 1, upper).astype("<u2")


def _from_brain(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


FLOATS = {
    "float32": rounded(lambda values: values.astype("<f4", copy=False), lambda bits: bits.astype(np.float32)),
    "float16": rounded(_to_half, lambda bits: bits.astype(np.float32)),
    "bfloat16": rounded(_to_brain, _from_brain),
}
"""Forms of rounded floats, by name."""

INTEGERS = {"int8": integers(8), "int4": integers(4)}
"""Forms of whole numbers, by name."""
