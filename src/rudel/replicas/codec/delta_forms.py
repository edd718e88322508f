"""The forms in which a codec writes the arrays of a model: floats, integers with scales, or the largest elements.

A form is a pair of pure JAX functions, so that a replica can compile them together with what it does to its weights.
Every number that is read is a whole number or a table entry times a power of two, which rounds nothing: whoever reads a
message, on whatever processor, gets the same bits.

`top8` writes one element in eight, in a byte. The elements of an array are dealt to groups of eight, neighbours to
different groups, as what changes much is often close together. Of each group, the largest element is written: its
place in the group (3 bits), its sign (1 bit) and its size (4 bits). The size is the binary exponent in relation to that
of the largest element of the array, and is read as 1.375 times that power of two, as there are more small elements than
large ones: what is left of an element is at most 3/8 of it. (With 1.5, four replicas end 0.3 points lower; see
`benchmarks/convergence.py`.) Elements 2**15 times smaller than the largest one are read as zero. Arrays of up to 1,024
elements, such as biases, are written in full, as bfloat16. `top16` and `top32` write one in 16 or 32, with a place of 4
or 5 bits, and exponents of 3 or 2 bits.

Selecting the k largest elements of a whole array with their places, as in Y. Lin and others, *Deep gradient
compression*, 1712.01887, learns as much from a fifth fewer bytes, but takes several times as long: where the largest
are is random, and processors mispredict every branch that depends on it. Here, there are none (groups as in B. Peng and
others, *DeMo: Decoupled momentum optimization*, 2411.19870).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rudel.array_types import Float32, Int32, UInt8
from rudel.replicas.codec.weight_vector import Shape

Arrays = list[jax.Array]

_BLOCK = 256
_CODES = 127
"""int8 holds whole numbers from -127 to 127."""

_SMALL, _CODE_BITS = 1024, 7
"""Elements of an array of which all are written, and bits of a byte beside the sign."""

_MANTISSA_BITS, _MIDDLE = 23, np.int32(3 << 20)  # of float32, and 0.375 as its mantissa
_MOST_EXPONENT = 227
"""Biased exponent of the largest number that is written; see `rudel.replicas.codec.delta_codec.MOST`."""

_INFINITE = 0x7F80
"""Bits of infinity as bfloat16; those of NaN are larger."""


class Form(NamedTuple):
    """A form in which float32 arrays travel.

    Args:
        write: arrays -> arrays that travel.
        read: arrays that came, and shapes -> float32 arrays of these shapes.
        sound: whether arrays that came, as NumPy's, can have been written for these shapes.
    """

    write: Callable[[Sequence[jax.Array]], Arrays]
    read: Callable[[Sequence[jax.Array], Sequence[Shape]], Arrays]
    sound: Callable[[Sequence[np.ndarray], Sequence[Shape]], bool]


# -- floats and integers -----------------------------------------------------------------------------------------------


def _floats(dtype: type[np.floating]) -> Form:
    most = np.float32(np.finfo(dtype).max)

    def write(arrays: Sequence[Float32[jax.Array, "..."]]) -> Arrays:
        return [jnp.clip(array, -most, most).astype(dtype) for array in arrays]

    def read(came: Sequence[jax.Array], shapes: Sequence[Shape]) -> Arrays:
        return [array.astype(jnp.float32) for array in came]

    return Form(write, read, lambda came, shapes: all(map(_finite, came)))


def _write_integers(arrays: Sequence[Float32[jax.Array, "..."]]) -> Arrays:
    vector = _joined([array.reshape(-1) for array in arrays], jnp.float32)
    blocks = jnp.pad(vector, (0, -vector.size % _BLOCK)).reshape(-1, _BLOCK)
    exponents = _bits(jnp.abs(blocks).max(axis=1, initial=0)) >> _MANTISSA_BITS
    inverse = _power(2 * 127 + 6 - exponents)
    codes = jnp.clip(jnp.round(blocks * inverse[:, None]), -_CODES, _CODES).astype(jnp.int8)
    codes = jnp.where(exponents[:, None] > 6, codes, jnp.int8(0))
    return [codes.reshape(-1)[: vector.size], exponents.astype(jnp.uint8)]


def _read_integers(came: Sequence[jax.Array], shapes: Sequence[Shape]) -> Arrays:
    codes, exponents = came
    scales = _power(jnp.maximum(exponents.astype(jnp.int32) - 6, 0))
    blocks = jnp.pad(codes, (0, -codes.size % _BLOCK)).reshape(-1, _BLOCK)
    vector = (blocks.astype(jnp.float32) * scales[:, None]).reshape(-1)
    sizes = list(map(math.prod, shapes))
    ends = np.cumsum(sizes)
    return [vector[end - size : end].reshape(shape) for end, size, shape in zip(ends, sizes, shapes, strict=True)]


# -- the largest -------------------------------------------------------------------------------------------------------


def _largest(place_bits: int) -> Form:
    """One element in 2**place_bits, in a byte: its place, its sign, and its exponent in the other bits."""
    group, level_bits = 1 << place_bits, _CODE_BITS - place_bits

    def write(arrays: Sequence[Float32[jax.Array, "..."]]) -> Arrays:
        large = [_write_groups(array.reshape(-1), place_bits) for array in arrays if array.size > _SMALL]
        small = [_bytes_of(array.astype(jnp.bfloat16)) for array in arrays if array.size <= _SMALL]
        return [_joined([*(codes for codes, _ in large), *(top for _, top in large), *small], jnp.uint8)]

    def read(came: Sequence[jax.Array], shapes: Sequence[Shape]) -> Arrays:
        (message,), arrays, codes = came, [], 0
        top, small = places(shapes)
        for shape in shapes:
            size = math.prod(shape)
            if size > _SMALL:
                groups = -(-size // group)
                found = _read_groups(message[codes : codes + groups], message[top], level_bits)
                arrays.append(found[:size].reshape(shape))
                codes, top = codes + groups, top + 1
            else:
                pairs = message[small : small + 2 * size].reshape(*shape, 2)
                arrays.append(jax.lax.bitcast_convert_type(pairs, jnp.bfloat16).astype(jnp.float32))
                small += 2 * size
        return arrays

    def sound(came: Sequence[np.ndarray], shapes: Sequence[Shape]) -> bool:
        (message,), (top, small) = came, places(shapes)
        sizes = message[small:].view(np.uint16) & 0x7FFF
        return message[top:small].max(initial=0) <= _MOST_EXPONENT and sizes.max(initial=0) < _INFINITE

    @functools.lru_cache(maxsize=8)
    def places(shapes: Sequence[Shape]) -> tuple[int, int]:
        """Where the largest exponents of arrays begin, and the small arrays."""
        large = [size for size in map(math.prod, shapes) if size > _SMALL]
        top = sum(-(-size // group) for size in large)
        return top, top + len(large)

    return Form(write, read, sound)


def _write_groups(
    vector: Float32[jax.Array, "elements"], place_bits: int
) -> tuple[UInt8[jax.Array, "groups"], UInt8[jax.Array, "1"]]:
    """The largest element of each group as a byte, uint8 (groups,), and the largest exponent, uint8 (1,).

    Bits of positive floats are in the order of the floats. So the lowest bits of a size, at most 8e-6 of it, give room
    for place and sign, and one maximum finds all three; places are counted from the last one, so that of equal elements
    the first is chosen, and none of those that fill an array up.
    """
    group, level_bits = 1 << place_bits, _CODE_BITS - place_bits
    size = np.int32(0x7FFFFFFF & -(1 << place_bits + 1))
    bits = jnp.pad(_bits(vector), (0, -vector.size % group)).reshape(group, -1)
    from_last = jnp.arange(group - 1, -1, -1, dtype=jnp.int32)[:, None]
    keys = ((bits & size) | (from_last << 1) | jax.lax.shift_right_logical(bits, 31)).max(axis=0)
    exponents = keys >> _MANTISSA_BITS
    top = exponents.max()
    most = 2**level_bits - 1
    levels = jnp.where(exponents > 0, jnp.maximum(exponents - top + most, 0), 0)
    places = (group - 1) - ((keys >> 1) & (group - 1))
    codes = (places << level_bits + 1) | ((keys & 1) << level_bits) | levels
    return codes.astype(jnp.uint8), top.astype(jnp.uint8)[None]


def _read_groups(
    codes: UInt8[jax.Array, "groups"], top: UInt8[jax.Array, ""], level_bits: int
) -> Float32[jax.Array, "elements"]:
    """The elements that `_write_groups` has written, and zeros between them: float32 (groups * elements of one,)."""
    numbers, most = codes.astype(jnp.int32), 2**level_bits - 1
    levels = numbers & most
    exponents = top.astype(jnp.int32) + levels - most
    sizes = jnp.where((levels > 0) & (exponents > 0), (exponents << _MANTISSA_BITS) | _MIDDLE, 0)
    values = sizes | ((numbers >> level_bits) & 1) << 31
    chosen = (numbers >> level_bits + 1) == jnp.arange(1 << _CODE_BITS - level_bits, dtype=jnp.int32)[:, None]
    return jax.lax.bitcast_convert_type(jnp.where(chosen, values, 0), jnp.float32).reshape(-1)


# -- bits --------------------------------------------------------------------------------------------------------------


def _bits(values: Float32[jax.Array, "*shape"]) -> Int32[jax.Array, "*shape"]:
    return jax.lax.bitcast_convert_type(values, jnp.int32)


def _power(exponents: Int32[jax.Array, "*shape"]) -> Float32[jax.Array, "*shape"]:
    """Powers of two of biased exponents: 0.0 for an exponent of 0."""
    return jax.lax.bitcast_convert_type(exponents << _MANTISSA_BITS, jnp.float32)


def _joined(parts: Sequence[jax.Array], dtype: jax.typing.DTypeLike) -> jax.Array:
    return jnp.concatenate(parts) if parts else jnp.zeros(0, dtype)


def _bytes_of(array: jax.Array) -> UInt8[jax.Array, "bytes"]:
    return jax.lax.bitcast_convert_type(array, jnp.uint8).reshape(-1)


def _finite(array: np.ndarray) -> bool:
    return bool(np.isfinite(array.astype(np.float32, copy=False)).all())


FORMS = {
    "float32": _floats(np.float32),
    "float16": _floats(np.float16),
    "int8": Form(_write_integers, _read_integers, lambda came, shapes: int(came[1].max(initial=0)) <= _MOST_EXPONENT),
    "top8": _largest(3),
    "top16": _largest(4),
    "top32": _largest(5),
}
"""All forms, by name."""
