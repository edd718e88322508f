"""The arithmetic of quantised kernels, bit for bit, on arrays of NumPy.

A kernel sums products into a 32-bit accumulator and scales it to the output. How it rounds then is what tells the three
interpreters apart:

- *twice*: multiplied by a 31-bit integer, rounded to 32 bits, shifted and rounded once more (gemmlowp's fixed point;
  LiteRT's reference kernels but for FULLY_CONNECTED, all kernels of TFLM and CMSIS-NN);
- *once*: the product is rounded half away from zero (FULLY_CONNECTED in LiteRT's reference kernels, in double
precision);
- *to even*: the accumulator and the product are rounded to float32, the result to an integer, each half to even
(XNNPACK).

Sources: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference"
(arXiv:1712.05877); https://ai.google.dev/edge/litert/models/quantization_spec; what was seen by experiment.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rudel.errors import CompileError

Rounding = Literal["litert", "xnnpack", "tflm"]
ROUNDINGS: tuple[Rounding, ...] = ("litert", "xnnpack", "tflm")


class ScalesError(CompileError):
    """Scales of an operator's inputs and outputs have a ratio that no interpreter computes with."""

    def __init__(self, ratio: float) -> None:
        super().__init__(
            f"the scales of its inputs and outputs are too far apart, as their ratio is {ratio:.3g}; calibrate on "
            "examples for which they vary"
        )


INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1


def half_away(value: float) -> int:
    """Returns the nearest integer, a half rounded away from zero.

    >>> half_away(2.5), half_away(-2.5), half_away(0.49999999999999994)
    (3, -3, 0)
    """
    whole = math.floor(abs(value))
    whole += abs(value) - whole >= 0.5
    return int(math.copysign(whole, value))


def quantise_multiplier(real: float) -> tuple[int, int]:
    """Returns the 31-bit multiplier and the exponent that stand for a positive real number.

    real is about multiplier / 2**31 * 2**exponent; what is below 2**-31 becomes 0.

    >>> quantise_multiplier(0.5), quantise_multiplier(1.0), quantise_multiplier(0.0)
    ((1073741824, 0), (1073741824, 1), (0, 0))

    Raises:
        ScalesError: it is 2**30 or more, which no interpreter computes with either.
    """
    if real == 0:
        return 0, 0
    if not 0 < real < 2.0**30:
        raise ScalesError(real)
    fraction, exponent = math.frexp(real)
    multiplier = half_away(fraction * (1 << 31))
    if multiplier == 1 << 31:
        multiplier //= 2
        exponent += 1
    return (0, 0) if exponent < -31 else (multiplier, exponent)


def high_product(x: np.ndarray, y: np.ndarray | int) -> np.ndarray:
    """Returns x * y / 2**31, rounded to nearest (half upwards) and saturated: gemmlowp's doubling high multiplication.

    Args:
        x: int64, within 32 bits.
        y: the same.
    """
    product = (x * np.asarray(y, np.int64) + (1 << 30)) >> 31
    return np.minimum(product, INT32_MAX)


def divide_by_power(x: np.ndarray, exponent: np.ndarray | int) -> np.ndarray:
    """Returns x / 2**exponent, rounded to nearest, a half away from zero; int64 in and out."""
    exponent = np.asarray(exponent, np.int64)
    half = np.where(exponent > 0, np.int64(1) << np.maximum(exponent - 1, 0), 0)
    return (x + half - ((x < 0) & (exponent > 0))) >> exponent


def wrap(x: np.ndarray) -> np.ndarray:
    """Returns what is left of an int64 in a 32-bit register."""
    return ((x + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def multiply(x: np.ndarray, multiplier: np.ndarray | int, exponent: np.ndarray | int) -> np.ndarray:
    """Returns x * multiplier / 2**31 * 2**exponent, rounded twice; int64 in and out."""
    exponent = np.asarray(exponent, np.int64)
    shifted = wrap(np.asarray(x, np.int64) << np.maximum(exponent, 0))
    return divide_by_power(high_product(shifted, multiplier), np.maximum(-exponent, 0))


@dataclass(frozen=True)
class Scaling:
    """Scaling of accumulators to outputs, before the zero point is added; one entry per channel.

    Attributes:
        factor: float64, the real factors, to guess with.
        apply: from accumulators int64 (channels, anything) to results int64, exact.
        twice: the multipliers and exponents of rounding twice, int64, where that is how it is done.
        single: whether it is done in single precision, to even.
    """

    factor: np.ndarray
    apply: Callable[[np.ndarray], np.ndarray]
    twice: tuple[np.ndarray, np.ndarray] | None = None
    single: bool = False


def scaling_twice(factors: np.ndarray) -> Scaling:
    """Makes the scaling that rounds twice; factors: float64 (channels)."""
    pairs = [quantise_multiplier(float(factor)) for factor in factors]
    multiplier = np.array([pair[0] for pair in pairs], np.int64)
    exponent = np.array([pair[1] for pair in pairs], np.int64)

    def apply(accumulators: np.ndarray) -> np.ndarray:
        return multiply(accumulators, multiplier[:, None], exponent[:, None])

    return Scaling(np.asarray(factors, np.float64), apply, (multiplier, exponent))


def _in_range(factors: np.ndarray) -> np.ndarray:
    """Returns factors that can be computed with.

    Raises:
        CompileError: one of them is not a number below 2**30.
    """
    for factor in factors[~(factors < 2.0**30)]:
        quantise_multiplier(float(factor))
    return factors


def scaling_once(factors: np.ndarray) -> Scaling:
    """Makes the scaling that multiplies in double precision and rounds half away from zero; float64 (channels)."""
    factors = _in_range(np.asarray(factors, np.float64))

    def apply(accumulators: np.ndarray) -> np.ndarray:
        product = np.clip(accumulators.astype(np.float64) * factors[:, None], -(2.0**40), 2.0**40)
        magnitude = np.abs(product)
        whole = np.floor(magnitude)
        whole += magnitude - whole >= 0.5
        return np.copysign(whole, product).astype(np.int64)

    return Scaling(factors, apply)


def scaling_to_even(factors: np.ndarray) -> Scaling:
    """Makes the scaling that multiplies in single precision and rounds half to even; float32 (channels)."""
    factors = _in_range(np.asarray(factors, np.float32))

    def apply(accumulators: np.ndarray) -> np.ndarray:
        product = accumulators.astype(np.float32) * factors[:, None]
        return np.rint(np.clip(product, np.float32(-(2.0**40)), np.float32(2.0**40))).astype(np.int64)

    return Scaling(factors.astype(np.float64), apply, single=True)


def activation_range(
    activation: str, scale: float, zero_point: int, bounds: tuple[int, int] = (-128, 127)
) -> tuple[int, int]:
    """Returns the least and the greatest integer that a fused activation lets through.

    Args:
        activation: NONE, RELU, RELU_N1_TO_1 or RELU6.
        scale: of the output, a float32.
        zero_point: of the output.
        bounds: the least and the greatest integer of the output's type.
    """

    def quantised(value: float) -> int:
        with np.errstate(over="ignore"):
            ratio = float(np.float32(value) / np.float32(scale))
        return zero_point + half_away(min(max(ratio, -1e6), 1e6))

    low, high = bounds
    if activation in ("RELU", "RELU6"):
        low = max(low, quantised(0.0))
    if activation == "RELU6":
        high = min(high, quantised(6.0))
    if activation == "RELU_N1_TO_1":
        low, high = max(low, quantised(-1.0)), min(high, quantised(1.0))
    return low, high
