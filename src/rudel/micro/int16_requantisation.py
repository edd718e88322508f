"""From sums to outputs of int16, step by step as each interpreter takes them.

An output of int16 has 65,535 thresholds, too many to look for a line through all of them as for int8. The forms:

- `reduced`: the sum of 64 bits is multiplied by the upper 16 bits of the multiplier, and the product is rounded once,
  a half upwards. All interpreters do that with biases of 64 bits (LiteRT's dense layers aside). The rows are int32
  (channels, 4) of multiplier, lower and upper word of the offset, and shift; bias and rounding are in the offset.
- `twice_int16`: the sum of 32 bits, with its bias of 32 bits, is rounded twice, as for int8. The rows are int32
  (channels, 3) of multiplier, bias and exponent. `upwards` is the same but for halves, which are rounded upwards the
  second time, too (Ruy, LiteRT's library of matrix products).
- `once_int16`: the sum is multiplied in double precision and rounded half away from zero (LiteRT's dense layers).
  The rows are int32 (channels, 5) of both words of the factor's mantissa, its exponent, and both words of the bias.
"""

import numpy as np

from rudel.micro.arithmetic import ScalesError, Scaling, scaling_once, scaling_twice
from rudel.micro.requantisation import Requantisation

_MOST_EXPONENT = 14


def reduced(factors: np.ndarray, bias: np.ndarray, limits: tuple[int, int]) -> Requantisation:
    """Returns how sums of 64 bits become outputs.

    Args:
        factors: float64 (channels), input scale x weight scale / output scale.
        bias: int64 (channels).
        limits: the least and the greatest output.

    Raises:
        ScalesError: a factor is 2**14 or more, for which the interpreters' own shifts are undefined.
    """
    pairs = scaling_twice(factors).twice
    assert pairs is not None
    multiplier, exponent = pairs
    if exponent.max() > _MOST_EXPONENT:
        raise ScalesError(float(factors.max()))
    short = np.where(multiplier < 0x7FFF0000, (multiplier + (1 << 15)) >> 16, 0x7FFF)
    with np.errstate(over="ignore"):  # as the interpreters' own sums do
        offset = bias * short + (np.int64(1) << (14 - exponent))
    lower, upper = words(offset)
    return _rows("reduced", limits, short, lower, upper, 15 - exponent)


def twice(scaling: Scaling, bias: np.ndarray, limits: tuple[int, int], *, upwards: bool = False) -> Requantisation:
    """Returns how sums of 32 bits become outputs.

    Args:
        scaling: one that rounds twice.
        bias: int64 (channels), within 32 bits.
        limits: the least and the greatest output.
        upwards: whether the second rounding takes halves upwards.
    """
    pairs = scaling.twice
    assert pairs is not None
    return _rows("upwards" if upwards else "twice_int16", limits, pairs[0], bias, pairs[1])


def once(factors: np.ndarray, bias: np.ndarray, limits: tuple[int, int]) -> Requantisation:
    """Returns how sums become outputs in double precision; the arguments are those of `reduced`."""
    fraction, exponent = np.frexp(scaling_once(factors).factor)
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    return _rows("once_int16", limits, *words(mantissa), exponent - 53, *words(bias))


def words(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lower and the upper 32 bits of int64 (channels,), each as int32."""
    pairs = np.ascontiguousarray(values, np.int64).astype("<i8").view("<i4").reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _rows(form, limits: tuple[int, int], *columns: np.ndarray) -> Requantisation:
    return Requantisation(form, np.stack(columns, axis=1).astype(np.int32), 0, 0, *limits)
