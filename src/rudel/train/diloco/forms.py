"""The forms in which a codec writes a vector: rounded floats, whole numbers with scales, or its largest elements.

A form is a pair of pure functions. What is read comes from the network: what cannot have been written raises
`ValueError`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rudel.train.diloco.bits import Reader, pack, unpack
from rudel.train.diloco.largest import Largest
from rudel.train.diloco.vector import Change, Layout, check_sizes

_BLOCK = 256
_LEAST = np.finfo(np.float32).tiny


class Form(NamedTuple):
    """How a vector travels.

    Args:
        write: (float32 vector, layout) -> (bytes, what is read from them). Raises FloatingPointError; see
            `rudel.train.diloco.vector.check_sizes`.
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
        check_sizes(np.abs(vector))
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
        sizes = np.abs(blocks).max(axis=1, initial=0)
        check_sizes(sizes)
        scales = sizes * np.float32(1 / most)
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


def largest(group: int) -> Form:
    """The largest element of so many, in a byte each."""
    each = Largest(group)
    return Form(each.write, each.read)


def _in_blocks(values: np.ndarray) -> np.ndarray:
    """Float32 (N,) as (blocks, elements), the last block filled up with zeros; a view where nothing is to be filled."""
    missing = -values.size % _BLOCK
    if not missing:
        return values.reshape(-1, _BLOCK)
    filled = np.zeros(values.size + missing, np.float32)
    filled[: values.size] = values
    return filled.reshape(-1, _BLOCK)


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


FORMS = {
    "float32": rounded(lambda values: values.astype("<f4"), lambda bits: bits.astype(np.float32, copy=False)),
    "float16": rounded(_to_half, lambda bits: bits.astype(np.float32)),
    "bfloat16": rounded(_to_brain, _from_brain),
    "int8": integers(8),
    "int4": integers(4),
    "top8": largest(8),
    "top16": largest(16),
}
"""All forms, by name."""
