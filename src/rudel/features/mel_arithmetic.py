"""The arithmetic of `LogMel` and `MFCC` on arrays, in int32 alone, as accelerators have no 64-bit integers.

`xp` is NumPy, or `keras.ops` for whatever Keras runs on: functions that both have under one name. Products of more than
32 bits are made of two halves, which is exact.
"""

from types import ModuleType
from typing import Any, Protocol

import numpy as np

from rudel.aliases import Tensor
from rudel.features.mel_tables import LOG_BITS, LOG_STEPS, Tables, weights

FLOOR = 33
"""log2 of the power that becomes -128."""

STEP_BITS = 3
"""Fraction bits of log2 in the result."""


COSINE_BITS = 14
"""Fraction bits of what bands are multiplied by to become coefficients."""


class Framing(Protocol):
    """How a recording becomes frames; see `rudel.features.LogMel`, which is one."""

    @property
    def window(self) -> int:
        """Samples of a frame."""
        ...

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        ...

    def frames(self, samples: int) -> int:
        """How many frames so many samples give."""
        ...

    @property
    def fft(self) -> int:
        """Points of the transform, a power of two."""
        ...

    @property
    def tables(self) -> Tables:
        """The constants."""
        ...

    @property
    def cosines(self) -> np.ndarray | None:
        """The transform from bands to coefficients, int16 (bands, coefficients); None for the bands themselves."""
        ...


def spectrogram(xp: ModuleType, features: Framing, samples: Tensor) -> Tensor:
    """Spectrograms of whole recordings.

    Args:
        xp: NumPy or `keras.ops`.
        features: which.
        samples: int32 (..., S), of 16 bits.

    Returns:
        int32 (..., S // hop, bands or coefficients), of 8 bits.
    """
    real, imaginary = _spectrum(xp, features, _pairs(xp, features, samples))
    tables = features.tables
    first, last = int(tables.edges[0]), int(tables.edges[-1])
    real, imaginary = real[..., first:last], imaginary[..., first:last]
    highest = xp.max(xp.maximum(_magnitude(xp, real), _magnitude(xp, imaginary)), axis=-1, keepdims=True)
    shift = xp.maximum(_length(xp, highest) - 15, 0)
    real, imaginary = xp.right_shift(real, shift), xp.right_shift(imaginary, shift)
    power = real * real + imaginary * imaginary  # 32 bits without sign: 2^31 at most
    upper, lower = _halves(xp, power, weights(tables)[first:])
    level = _log2(xp, features, upper, lower) + xp.left_shift(shift, LOG_BITS + 1)
    steps = xp.right_shift(level - (FLOOR << LOG_BITS) + (1 << (LOG_BITS - STEP_BITS - 1)), LOG_BITS - STEP_BITS)
    bands = _limited(xp, steps - 128)
    if features.cosines is None:
        return bands
    sums = xp.matmul(bands, features.cosines.astype(np.int32))
    return _limited(xp, xp.right_shift(sums + (1 << (COSINE_BITS - 1)), COSINE_BITS))


def _limited(xp: ModuleType, values: Tensor) -> Tensor:
    return xp.minimum(xp.maximum(values, -128), 127)


def _pairs(xp: ModuleType, features: Framing, samples: Tensor) -> tuple[Any, Any]:
    """Windows of a recording, even and odd samples apart, in the order in which the transform wants them."""
    tables, window, hop = features.tables, features.window, features.hop
    count = features.frames(samples.shape[-1])
    silence = max(0, window - hop)
    padded = xp.pad(samples, [(0, 0)] * (len(samples.shape) - 1) + [(silence, 0)])
    starts = np.arange(count) * hop + silence + hop - window
    weighted = np.zeros(features.fft, np.int32)
    weighted[:window] = tables.window
    parts = []
    for odd in (0, 1):
        place = 2 * tables.reversed.astype(np.int32) + odd
        inside = np.minimum(place, window - 1)
        parts.append(xp.take(padded, starts[:, None] + inside, axis=-1) * weighted[place])
    return parts[0], parts[1]


def _spectrum(xp: ModuleType, features: Framing, parts: tuple[Any, Any]) -> tuple[Any, Any]:
    """The first half of the spectrum, real and imaginary parts, divided by the length of the transform."""
    real, imaginary = parts
    half = features.fft // 2
    cosines, sines = features.tables.twiddles.astype(np.int32).T
    shape = tuple(-1 if size is None else size for size in real.shape)  # how many recordings, a graph may not know
    width = 1
    while width < half:
        blocks = (*shape[:-1], half // (2 * width), 2, width)
        cosine, sine = (table[:: half // width] for table in (cosines, sines))
        a_real, a_imaginary, b_real, b_imaginary = (
            xp.reshape(part, blocks)[..., place, :] for place in (0, 1) for part in (real, imaginary)
        )
        w_real = _times(xp, b_real, cosine) + _times(xp, b_imaginary, sine)
        w_imaginary = _times(xp, b_imaginary, cosine) - _times(xp, b_real, sine)
        a_real, a_imaginary = xp.right_shift(a_real, 1), xp.right_shift(a_imaginary, 1)
        real = xp.reshape(xp.stack([a_real + w_real, a_real - w_real], axis=-2), shape)
        imaginary = xp.reshape(xp.stack([a_imaginary + w_imaginary, a_imaginary - w_imaginary], axis=-2), shape)
        width *= 2
    mirrored = np.arange(half, 0, -1) % half
    real, imaginary = xp.right_shift(real, 1), xp.right_shift(imaginary, 1)
    real_m, imaginary_m = xp.take(real, mirrored, axis=-1), xp.take(imaginary, mirrored, axis=-1)
    odd_real, odd_imaginary = imaginary + imaginary_m, real_m - real
    return (
        xp.right_shift(real + real_m, 1) + _times(xp, odd_real, cosines) + _times(xp, odd_imaginary, sines),
        xp.right_shift(imaginary - imaginary_m, 1) + _times(xp, odd_imaginary, cosines) - _times(xp, odd_real, sines),
    )


def _times(xp: ModuleType, value: Tensor, factor: np.ndarray) -> Tensor:
    """`(value * factor) >> 16` of 32 and 16 bits."""
    upper, lower = xp.right_shift(value, 16), xp.bitwise_and(value, 0xFFFF)
    return upper * factor + xp.right_shift(lower * factor, 16)


def _magnitude(xp: ModuleType, value: Tensor) -> Tensor:
    """Something with as many bits as the absolute value, for which -2^n has n bits."""
    return xp.bitwise_xor(value, xp.right_shift(value, 31))


def _length(xp: ModuleType, value: Tensor) -> Tensor:
    """How many bits a number has that is not negative; 0 for 0."""
    length = xp.zeros_like(value)
    for bits in (16, 8, 4, 2, 1):
        more = xp.right_shift(value, bits) > 0
        length = xp.where(more, length + bits, length)
        value = xp.where(more, xp.right_shift(value, bits), value)
    return length + value


def _halves(xp: ModuleType, power: Tensor, bands: np.ndarray) -> tuple[Any, Any]:
    """Powers summed up in bands: what is above 16 bits, and the 16 bits."""
    upper = xp.matmul(xp.bitwise_and(xp.right_shift(power, 16), 0xFFFF), bands)
    lower = xp.matmul(xp.bitwise_and(power, 0xFFFF), bands)
    return upper + xp.right_shift(lower, 16), xp.bitwise_and(lower, 0xFFFF)


def _log2(xp: ModuleType, features: Framing, upper: Tensor, lower: Tensor) -> Tensor:
    """log2 of `upper * 2^16 + lower` with LOG_BITS fraction bits; 0 for 0."""
    large = upper > 0
    lower = xp.where(large, lower, xp.maximum(lower, 1))
    length = _length(xp, xp.where(large, upper, lower))
    up, down = xp.maximum(17 - length, 0), xp.maximum(length - 17, 0)
    joined = xp.left_shift(upper, up) + xp.right_shift(lower, xp.minimum(xp.maximum(length - 1, 0), 16))
    mantissa = xp.where(large, xp.where(down > 0, xp.right_shift(upper, down), joined), xp.left_shift(lower, up))
    fraction = mantissa - (1 << 16)
    table = features.tables.logarithms.astype(np.int32)
    step_bits = 16 - (LOG_STEPS.bit_length() - 1)
    place = xp.right_shift(fraction, step_bits)
    below, above = xp.take(table, place, axis=0), xp.take(table, place + 1, axis=0)
    between = xp.right_shift((above - below) * xp.bitwise_and(fraction, (1 << step_bits) - 1), step_bits)
    whole = xp.where(large, length + 15, length - 1)
    return xp.left_shift(whole, LOG_BITS) + below + between
