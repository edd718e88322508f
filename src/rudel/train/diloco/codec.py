"""Codecs of deltas: how the change of a model's weights in a round becomes bytes, and what is made up for later.

A codec is three pure functions. `init` makes residuals, arrays of zeros in the shapes of the weights. `encode` adds them
to the deltas, writes what shall be sent, and returns with it what was not, which are the next residuals: an entry that
is too small to be sent adds up over rounds until it is sent (error feedback). `decode` makes arrays of a message.

Decoding is a look-up or one product per element in float32, so every host, of whatever make, decodes the same bits.

The ideas and their sources: error feedback is from F. Seide and others, *1-bit stochastic gradient descent*,
Interspeech 2014, and why it converges is in S. P. Karimireddy and others, 1901.09847. Y. Lin and others, *Deep gradient
compression*, 1712.01887, send the largest entries, here as in F. Sattler and others, 1903.02891, with Golomb codes
of their places and in both directions. That the deltas of many local steps (A. Douillard and others, *DiLoCo*,
2311.08105) take it as well is known from 4 bits in *Streaming DiLoCo*, 2501.18512, and from few entries of 2 bits
in A. Sarfi and others, *SparseLoCo*, 2508.15706.

    float32            as they are
    float16, bfloat16  rounded to half the bytes
    int8, int4         rounded to whole numbers, with a scale for every 256 elements
    topk:SHARE:BITS    this share of each array, those that are largest, with a sign and BITS - 1 bits of magnitude

Limits: arrays are float32 with fewer than 2**31 elements. A message says nothing of shapes: both sides know the model.
"""

import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rudel.errors import NonFiniteError, OptionError
from rudel.train.diloco.bits import Reader, pack, pack_indices, unpack, unpack_indices

Arrays = Sequence[np.ndarray]
"""One float32 array for each variable of a model."""

Shapes = Sequence[tuple[int, ...]]
"""Their shapes."""

_CHECKSUM = struct.Struct("<I")
_COUNT = struct.Struct("<I")
_BLOCK = 256
_TOO_FEW_TO_CHOOSE = 1024
_SAMPLE = 8192
_SAMPLE_ABOVE = 256
_LEAST_SCALE = np.finfo(np.float32).tiny
_NAMES = "float32, float16, bfloat16, int8, int4 or topk:SHARE:BITS, as topk:0.05:4"


@dataclass(frozen=True)
class Codec:
    """How deltas travel.

    Args:
        name: what `make_codec` makes it from; both sides must have the same.
        init: (shapes) -> residuals.
        encode: (deltas, residuals) -> (message, next residuals). Raises NonFiniteError.
        decode: (message, shapes) -> float32 arrays. Raises ValueError for what `encode` cannot have written.

    >>> codec = make_codec("int8")
    >>> residuals = codec.init([(2, 2)])
    >>> message, residuals = codec.encode([np.array([[1, 2], [3, 127]], np.float32)], residuals)
    >>> len(message), codec.decode(message, [(2, 2)])[0].tolist()
    (12, [[1.0, 2.0], [3.0, 127.0]])
    """

    name: str
    init: Callable[[Shapes], list[np.ndarray]]
    encode: Callable[[Arrays, Arrays], tuple[bytes, list[np.ndarray]]]
    decode: Callable[[bytes, Shapes], list[np.ndarray]]


class _Form(NamedTuple):
    """How one array travels, as a pair of pure functions on flat float32 arrays.

    Args:
        write: (values (N,)) -> (bytes, what they leave out (N,)).
        read: (reader, N) -> values (N,).
    """

    write: Callable[[np.ndarray], tuple[bytes, np.ndarray]]
    read: Callable[[Reader, int], np.ndarray]


def make_codec(name: str) -> Codec:
    """The codec of this name.

    Args:
        name: float32, float16, bfloat16, int8, int4, or `topk:SHARE:BITS` with 0 < SHARE <= 1 and 1 to 8 BITS.

    Raises:
        OptionError: there is none of this name, or not with these numbers.

    >>> codec = make_codec("topk:0.05:4")
    >>> deltas = [np.arange(-50_000, 50_000, dtype=np.float32)]
    >>> message, residuals = codec.encode(deltas, codec.init([(100_000,)]))
    >>> len(message) < 100_000 * 0.05 * (5.8 + 4) / 8
    True
    >>> sent = codec.decode(message, [(100_000,)])
    >>> bool(np.all(sent[0] + residuals[0] == deltas[0]))
    True
    """
    kind, *numbers = name.split(":")
    if kind == "topk":
        large = _largest(*_share_and_bits(name, numbers))
        return _codec(name, lambda size: large if size >= _TOO_FEW_TO_CHOOSE else _INTEGERS["int8"])
    form = (_FLOATS | _INTEGERS).get(name)
    if form is None:
        raise OptionError(f"There is no codec {name!r}: it can be {_NAMES}.")
    return _codec(name, lambda size: form)


def _share_and_bits(name: str, numbers: Sequence[str]) -> tuple[float, int]:
    try:
        share, bits = float(numbers[0]), int(numbers[1])
    except (IndexError, ValueError):
        share, bits = 0.0, 0
    if len(numbers) != 2 or not 0 < share <= 1 or not 1 <= bits <= 8:
        raise OptionError(
            f"The codec {name!r} must be topk:SHARE:BITS with a share above 0 and up to 1 and 1 to 8 bits, as topk:0.05:4."
        )
    return share, bits


def _codec(name: str, form_of: Callable[[int], _Form]) -> Codec:
    """A codec that writes each array in the form for its size, after a checksum that also tells codecs apart."""
    seed = zlib.crc32(name.encode())

    def init(shapes: Shapes) -> list[np.ndarray]:
        return [np.zeros(shape, np.float32) for shape in shapes]

    def encode(deltas: Arrays, residuals: Arrays) -> tuple[bytes, list[np.ndarray]]:
        parts, left = [], []
        for number, (delta, residual) in enumerate(zip(deltas, residuals, strict=True)):
            total = np.add(delta, residual, dtype=np.float32).reshape(-1)
            if not np.isfinite(np.max(total, initial=0) - np.min(total, initial=0)):
                raise NonFiniteError(
                    f"The change of weight array {number} in a round is NaN or infinite: lower the learning rate."
                )
            part, rest = form_of(total.size).write(total)
            parts.append(part)
            left.append(rest.reshape(delta.shape))
        body = b"".join(parts)
        return _CHECKSUM.pack(zlib.crc32(body, seed)) + body, left

    def decode(message: bytes, shapes: Shapes) -> list[np.ndarray]:
        reader = Reader(message)
        (checksum,) = reader.fields(_CHECKSUM)
        if checksum != zlib.crc32(memoryview(message)[_CHECKSUM.size :], seed):
            raise ValueError(f"The message is damaged, or was not written by the codec {name!r}.")
        arrays = []
        for shape in shapes:
            size = math.prod(shape)
            arrays.append(form_of(size).read(reader, size).reshape(shape))
        reader.end()
        return arrays

    return Codec(name, init, encode, decode)


def _rounded(to_bits: Callable[[np.ndarray], np.ndarray], to_floats: Callable[[np.ndarray], np.ndarray]) -> _Form:
    """Elements rounded one by one, to arrays of bits with their own dtype."""
    dtype = to_bits(np.zeros(0, np.float32)).dtype.str

    def write(values: np.ndarray) -> tuple[bytes, np.ndarray]:
        bits = to_bits(values)
        return bits.tobytes(), values - to_floats(bits)

    def read(reader: Reader, size: int) -> np.ndarray:
        return _finite(to_floats(reader.array(dtype, size)))

    return _Form(write, read)


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


def _integers(bits: int) -> _Form:
    """Whole numbers from -m to m, m = 2**(bits - 1) - 1, times a scale for every block."""
    most = 2 ** (bits - 1) - 1

    def write(values: np.ndarray) -> tuple[bytes, np.ndarray]:
        blocks = _in_blocks(values)
        scales = np.abs(blocks).max(axis=1, initial=0) * np.float32(1 / most)
        scales[scales < _LEAST_SCALE] = 0
        inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
        numbers = np.rint(blocks * inverse[:, None])
        np.clip(numbers, -most, most, out=numbers)
        rest = blocks - numbers * scales[:, None]
        numbers += np.float32(most)
        codes = numbers.astype(np.uint8).reshape(-1)[: values.size]
        return scales.astype("<f4").tobytes() + pack(codes, bits), rest.reshape(-1)[: values.size]

    def read(reader: Reader, size: int) -> np.ndarray:
        scales = _finite(reader.array("<f4", -(-size // _BLOCK)))
        numbers = unpack(reader, size, bits).astype(np.float32)
        numbers -= np.float32(most)
        blocks = _in_blocks(numbers)
        blocks *= scales[:, None]
        return blocks.reshape(-1)[:size]

    return _Form(write, read)


def _in_blocks(values: np.ndarray) -> np.ndarray:
    """Float32 (N,) as (blocks, elements), the last block filled up with zeros; a view where nothing is to be filled."""
    missing = -values.size % _BLOCK
    return (np.pad(values, (0, missing)) if missing else values).reshape(-1, _BLOCK)


def _largest(share: float, bits: int) -> _Form:
    """The largest elements: where they are, a sign each, and one of 2**(bits - 1) magnitudes that are sent along."""
    levels = 2 ** (bits - 1)

    def write(values: np.ndarray) -> tuple[bytes, np.ndarray]:
        sizes = np.abs(values)
        indices = _indices_of_largest(sizes, share)
        if not len(indices):
            return _COUNT.pack(0), values
        chosen, sizes = values[indices], sizes[indices]
        bins = _logarithmic_bins(sizes, levels)
        counts = np.bincount(bins, minlength=levels)
        magnitudes = (np.bincount(bins, sizes, levels) / np.maximum(counts, 1)).astype("<f4")
        codes = bins | (chosen < 0) * np.uint8(levels)
        rest = values.copy()
        rest[indices] = chosen - _signed(magnitudes)[codes]
        return _COUNT.pack(len(indices)) + pack_indices(indices) + magnitudes.tobytes() + pack(codes, bits), rest

    def read(reader: Reader, size: int) -> np.ndarray:
        (count,) = reader.fields(_COUNT)
        values = np.zeros(size, np.float32)
        if count:
            indices = unpack_indices(reader, count, size)
            magnitudes = _finite(reader.array("<f4", levels))
            values[indices] = _signed(magnitudes)[unpack(reader, count, bits)]
        return values

    return _Form(write, read)


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
    indices = np.flatnonzero(sizes >= max(threshold, _LEAST_SCALE))
    if wanted / 2 <= len(indices) <= 2 * wanted:
        return indices
    indices = np.sort(np.argpartition(sizes, sizes.size - wanted)[-wanted:])
    return indices[sizes[indices] >= _LEAST_SCALE]


def _logarithmic_bins(sizes: np.ndarray, levels: int) -> np.ndarray:
    """Which of so many bins, evenly spaced by the logarithm from the smallest to the largest, each falls in: uint8 (N,)."""
    if levels == 1:
        return np.zeros(len(sizes), np.uint8)
    places = np.log(sizes)
    low, high = places.min(), places.max()
    places -= low
    places *= np.float32(levels / max(high - low, _LEAST_SCALE))
    return np.minimum(places, levels - 1).astype(np.uint8)


def _signed(magnitudes: np.ndarray) -> np.ndarray:
    return np.concatenate([magnitudes, -magnitudes])


def _finite(values: np.ndarray) -> np.ndarray:
    if not np.all(np.isfinite(values)):
        raise ValueError("The message is damaged: it holds NaN or infinite numbers.")
    return values


_FLOATS = {
    "float32": _rounded(lambda values: values.astype("<f4", copy=False), lambda bits: bits.astype(np.float32)),
    "float16": _rounded(_to_half, lambda bits: bits.astype(np.float32)),
    "bfloat16": _rounded(_to_brain, _from_brain),
}
_INTEGERS = {"int8": _integers(8), "int4": _integers(4)}
