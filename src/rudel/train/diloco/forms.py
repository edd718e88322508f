"""The forms in which a codec writes a vector: rounded floats, whole numbers with scales, or its largest elements.

A form is a pair of pure functions. What is read comes from the network: what cannot have been written raises
`ValueError`.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rudel.train.diloco.bits import Reader, pack, pack_elements, unpack, unpack_elements
from rudel.train.diloco.vector import Change, Layout

_BLOCK = 256
_SAMPLE = 8192
_SAMPLE_ABOVE = 256
_TOO_SMALL_TO_CHOOSE = 1024
_LEAST = np.finfo(np.float32).tiny


class Form(NamedTuple):
    """How a vector travels.

    Args:
        write: (finite float32 vector, layout) -> (bytes, what is read from them).
        read: (reader, layout) -> what was written.
    """

    write: Callable[[np.ndarray, Layout], tuple[bytes, Change]]
    read: Callable[[Reader, Layout], Change]


def rounded(to_bits: Callable[[np.ndarray], np.ndarray], to_floats: Callable[[np.ndarray], np.ndarray]) -> Form:
    """Elements rounded one by one.

    Args:
        to_bits: from float32 to an array of whatever dtype travels.
        to_floats: the way back.
    """
    dtype = to_bits(np.zeros(0, np.float32)).dtype.str

    def write(vector: np.ndarray, layout: Layout) -> tuple[bytes, Change]:
        bits = to_bits(vector)
        return bits.tobytes(), Change(to_floats(bits))

    def read(reader: Reader, layout: Layout) -> Change:
        return Change(_finite(to_floats(reader.array(dtype, layout.size))))

    return Form(write, read)


def integers(bits: int) -> Form:
    """Whole numbers from -m to m, m = 2**(bits - 1) - 1, with a scale for every 256 elements."""
    most = 2 ** (bits - 1) - 1

    def write(vector: np.ndarray, layout: Layout) -> tuple[bytes, Change]:
        blocks = _in_blocks(vector)
        scales = np.abs(blocks).max(axis=1, initial=0) * np.float32(1 / most)
        scales[scales < _LEAST] = 0
        inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
        numbers = np.rint(blocks * inverse[:, None])
        np.clip(numbers, -most, most, out=numbers)
        codes = (numbers + np.float32(most)).astype(np.uint8).reshape(-1)[: vector.size]
        numbers *= scales[:, None]
        return scales.astype("<f4").tobytes() + pack(codes, bits), Change(numbers.reshape(-1)[: vector.size])

    def read(reader: Reader, layout: Layout) -> Change:
        size = layout.size
        scales = _finite(reader.array("<f4", -(-size // _BLOCK)))
        numbers = unpack(reader, size, bits).astype(np.float32)
        numbers -= np.float32(most)
        blocks = _in_blocks(numbers)
        with np.errstate(over="ignore"):
            blocks *= scales[:, None]
        return Change(_finite(blocks.reshape(-1)[:size]))

    return Form(write, read)


def largest(share: float, bits: int) -> Form:
    """The largest elements of every array, a byte each: where it is, its sign, and one of few magnitudes.

    An array has 2**(bits - 1) magnitudes: the mean of the chosen elements that are less than twice as large as all of
    them in the mean, that of those up to four times as large, and so on. So what is left of an array is never more than
    there was, however often it is made up for. Of small arrays, all elements are sent.
    """
    levels = 2 ** (bits - 1)

    def write(vector: np.ndarray, layout: Layout) -> tuple[bytes, Change]:
        chosen, count = np.empty(vector.size, np.bool_), len(layout.shapes)
        for first, last in itertools.pairwise(layout.bounds):
            _choose(np.abs(vector[first:last]), share, chosen[first:last])
        indices = np.flatnonzero(chosen)
        values, arrays = vector[indices], _arrays_of(indices, layout)
        sizes = np.abs(values)
        bins = _bins(sizes / _means(arrays, sizes, count)[arrays], levels)
        magnitudes = _means(levels * arrays + bins, sizes, levels * count).astype("<f4")
        codes = bins | (values < 0) * np.uint8(levels)
        body = magnitudes.tobytes() + pack_elements(indices, codes, bits)
        return body, _chosen(indices, codes, magnitudes, layout)

    def read(reader: Reader, layout: Layout) -> Change:
        magnitudes = _finite(reader.array("<f4", levels * len(layout.shapes)))
        return _chosen(*unpack_elements(reader, layout.size, bits), magnitudes, layout)

    return Form(write, read)


def _means(places: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """The mean of the values in each of so many places, 0 where there are none: float64 (count,)."""
    return np.bincount(places, values, count) / np.maximum(np.bincount(places, minlength=count), 1)


def _bins(ratios: np.ndarray, levels: int) -> np.ndarray:
    """In which bin sizes are that are so many times as large as their mean: uint8 (N,)."""
    return np.clip(np.log2(np.maximum(ratios, 1)), 0, levels - 1).astype(np.uint8)


def _arrays_of(indices: np.ndarray, layout: Layout) -> np.ndarray:
    """In which array each of some sorted indices is: int64 (N,)."""
    counts = np.diff(np.searchsorted(indices, layout.bounds))
    return np.repeat(np.arange(len(counts)), counts)


def _chosen(indices: np.ndarray, codes: np.ndarray, magnitudes: np.ndarray, layout: Layout) -> Change:
    """What is read of the largest elements, the same bits on every host."""
    each = magnitudes.reshape(len(layout.shapes), -1)
    signed = np.concatenate([each, -each], axis=1)
    return Change(signed.reshape(-1)[signed.shape[1] * _arrays_of(indices, layout) + codes], indices)


def _in_blocks(values: np.ndarray) -> np.ndarray:
    """Float32 (N,) as (blocks, elements), the last block filled up with zeros; a view where nothing is to be filled."""
    missing = -values.size % _BLOCK
    if not missing:
        return values.reshape(-1, _BLOCK)
    filled = np.zeros(values.size + missing, np.float32)
    filled[: values.size] = values
    return filled.reshape(-1, _BLOCK)


def _choose(sizes: np.ndarray, share: float, chosen: np.ndarray) -> None:
    """Marks about this share of some sizes, the largest ones that are not 0; all of them where they are few.

    What counts as large is estimated from a sample, evenly spread. Where that turns out to take more than twice as many
    as it should, all sizes are sorted out instead.

    Args:
        sizes: float32 (N,).
        share: to mark.
        chosen: bool (N,), overwritten.
    """
    least, wanted = _LEAST, sizes.size
    if sizes.size > _TOO_SMALL_TO_CHOOSE:
        wanted = max(1, round(share * sizes.size))
        stride = max(1, int(sizes.size // max(_SAMPLE, _SAMPLE_ABOVE / share)))
        while math.gcd(stride, sizes.size) > 1:  # so that no row or column of a matrix is met more often than others
            stride += 1
        sample = sizes[::stride]
        place = len(sample) - max(1, round(share * len(sample)))
        least = max(np.partition(sample, place)[place], _LEAST)
    np.greater_equal(sizes, least, out=chosen)
    if np.count_nonzero(chosen) > 2 * wanted:
        most = np.argpartition(sizes, sizes.size - wanted)[-wanted:]
        chosen[:] = False
        chosen[most] = True


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
    "float32": rounded(lambda values: values.astype("<f4"), lambda bits: bits.astype(np.float32, copy=False)),
    "float16": rounded(_to_half, lambda bits: bits.astype(np.float32)),
    "bfloat16": rounded(_to_brain, _from_brain),
}
"""Forms of rounded floats, by name."""

INTEGERS = {"int8": integers(8), "int4": integers(4)}
"""Forms of whole numbers, by name."""
