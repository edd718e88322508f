"""From accumulators to outputs with as few instructions as give the same bits.

Whatever an interpreter does to an accumulator, the result is a step function of it: output k begins at some
accumulator. `plan` finds these thresholds, for the accumulators that the weights can reach, and looks for one
multiplication, one addition and one shift that have the very same thresholds:

    output = clamp((accumulator * multiplier + offset) >> shift)

with bias, rounding and zero point all in the 64-bit offset. Where the thresholds are not on such a line (a linear
output rounded twice, ties), a slower form is taken that is exact by construction.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rudel.micro.arithmetic import INT32_MAX, INT32_MIN, Scaling

Form = Literal["line", "twice", "even", "table", "reduced", "twice_int16", "upwards", "once_int16"]


@dataclass(frozen=True)
class Requantisation:
    """Requantisation of accumulators to outputs; one row per channel.

    Attributes:
        form: `line`: int32 (channels, 3) of multiplier, offset's lower and upper word; the upper word of the 64-bit
            sum is shifted right by `shift` and clamped. `twice`: int32 (channels, 3) of multiplier, bias and
            exponent; rounded as `rudel.micro.arithmetic.multiply` does, then the zero point is added, then clamped.
            `table`: int32 (channels, 1 + high - low) of the bias and the accumulators (with bias) at which outputs
            low + 1, low + 2, ... begin.
            `reduced`, `twice_int16`, `upwards`, `once_int16`: of outputs of int16; see
            `rudel.micro.int16_requantisation`.
        data: those rows.
            `even`: int32 (channels, 3) of a 24-bit multiplier, bias and shift; rounded to float32, then to integers.
        shift: of `line`, beyond the 32 bits that are dropped with the lower word.
        zero_point: of the output; in `line` it is a part of the offset.
        low: the least output.
        high: the greatest output.
    """

    form: Form
    data: np.ndarray
    shift: int
    zero_point: int
    low: int
    high: int


def plan(
    scaling: Scaling,
    bias: np.ndarray,
    reach: tuple[np.ndarray, np.ndarray],
    zero_point: int,
    limits: tuple[int, int],
) -> Requantisation:
    """Finds the cheapest form that has the bits of `scaling`.

    Args:
        scaling: what the interpreter does, per channel.
        bias: int64 (channels), what is added to the sums that the kernel makes.
        reach: int64 (channels) twice, the least and the greatest sum of the kernel with its bias.
        zero_point: of the output.
        limits: the least and the greatest output.
    """
    low, high = limits
    if low == high:
        data = np.zeros((len(bias), 3), np.int32)
        data[:, 2] = low
        return Requantisation("line", data, 0, zero_point, low, high)
    thresholds = _thresholds(scaling, reach, zero_point, limits)
    line = _line(_usual_factors(scaling.factor, thresholds, reach), thresholds, bias, reach, limits)
    if line is not None:
        data, shift = line
        return Requantisation("line", data, shift, zero_point, low, high)
    if scaling.twice is not None:
        multiplier, exponent = scaling.twice
        data = np.stack([multiplier, bias, exponent], axis=1).astype(np.int32)
        return Requantisation("twice", data, 0, zero_point, low, high)
    even = _even(scaling, bias, reach)
    if even is not None:
        return Requantisation("even", even, 0, zero_point, low, high)
    rows = np.clip(thresholds, INT32_MIN, INT32_MAX)
    data = np.concatenate([bias[:, None], rows], axis=1).astype(np.int32)
    return Requantisation("table", data, 0, zero_point, low, high)


def evaluate(requantisation: Requantisation, sums: np.ndarray) -> np.ndarray:
    """Computes what the C code computes; sums: int64 (channels, anything) without bias."""
    from rudel.micro.arithmetic import multiply

    form, data = requantisation.form, requantisation.data.astype(np.int64)
    if form == "line":
        offset = (data[:, 2] << 32) | (data[:, 1] & 0xFFFFFFFF)
        outputs = (sums * data[:, :1] + offset[:, None]) >> (32 + requantisation.shift)
    elif form == "twice":
        outputs = multiply(sums + data[:, 1:2], data[:, :1], data[:, 2:]) + requantisation.zero_point
    elif form == "even":
        outputs = _round_to_even(sums + data[:, 1:2], data[:, :1], data[:, 2:]) + requantisation.zero_point
    else:
        rows = [
            np.searchsorted(data[channel, 1:], sums[channel] + data[channel, 0], side="right")
            for channel in range(len(data))
        ]
        outputs = np.stack(rows) + requantisation.low
    return np.clip(outputs, requantisation.low, requantisation.high)


def _even(scaling: Scaling, bias: np.ndarray, reach: tuple[np.ndarray, np.ndarray]) -> np.ndarray | None:
    """Returns multipliers, biases and shifts of float32 factors, where 64 bits hold what comes of them."""
    if not scaling.single or scaling.factor.max() >= 1 or scaling.factor.min() < 2.0**-20:
        return None
    if np.abs(np.stack(reach)).max() >= 1 << 24:
        return None
    fraction, exponent = np.frexp(scaling.factor)
    return np.stack([fraction * (1 << 24), bias, 24 - exponent], axis=1).astype(np.int32)


def _round_to_even(accumulators: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Returns what float32 arithmetic makes of an accumulator below 2**24: int64, computed in integers."""
    product = np.abs(accumulators * multiplier)
    length = np.where(product > 0, np.floor(np.log2(np.maximum(product, 1))).astype(np.int64) + 1, 0)
    dropped = np.maximum(length - 24, 0)
    for bits in (dropped, np.broadcast_to(shift, product.shape)):
        half = np.where(bits > 0, np.int64(1) << np.maximum(bits - 1, 0), 0)
        odd = (product >> bits) & 1
        product = np.where(bits > 0, (product + half - 1 + odd) >> bits, product) << np.where(bits is dropped, bits, 0)
    return np.sign(accumulators) * product


def _thresholds(
    scaling: Scaling, reach: tuple[np.ndarray, np.ndarray], zero_point: int, limits: tuple[int, int]
) -> np.ndarray:
    """Returns the least reachable accumulator that gives each output above the least one.

    Where every reachable accumulator gives it, that is the least one; where none does, the greatest one plus 1.

    Returns:
        int64 (channels, high - low), rising along each row.
    """
    wanted = np.arange(limits[0] + 1, limits[1] + 1, dtype=np.int64)[None] - zero_point
    least, most = reach[0][:, None], reach[1][:, None] + 1
    factor = np.maximum(scaling.factor[:, None], 2.0**-60)
    guess = np.clip(np.ceil((wanted - 0.5) / factor), -(2.0**40), 2.0**40).astype(np.int64)
    below = np.clip(guess - 3, least, most)
    above = np.clip(guess + 3, least, most)
    below = np.where((below > least) & (scaling.apply(below - 1) >= wanted), least, below)
    above = np.where((above < most) & (scaling.apply(above) < wanted), most, above)
    above = np.maximum(above, below)
    while (below < above).any():
        middle = (below + above) >> 1
        reached = scaling.apply(middle) >= wanted
        above = np.where(reached, middle, above)
        below = np.where(reached, below, np.minimum(middle + 1, above))
    return above


def _usual_factors(factor: np.ndarray, thresholds: np.ndarray, reach: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Returns the factors to look for lines with, float64 (channels).

    A channel that gives its least or its greatest output only, or has one accumulator only, is on a line of any slope.
    Its own can be far from the others', as converters leave it for weights that are all zero, and all have one shift.
    """
    least, most = reach
    any_slope = (thresholds > most[:, None]).all(axis=1) | (thresholds <= least[:, None]).all(axis=1) | (least == most)
    if any_slope.all():
        return np.full_like(factor, 2.0**-8)
    return np.where(any_slope, np.median(factor[~any_slope]), factor)


def _line(
    factor: np.ndarray,
    thresholds: np.ndarray,
    bias: np.ndarray,
    reach: tuple[np.ndarray, np.ndarray],
    limits: tuple[int, int],
) -> tuple[np.ndarray, int] | None:
    """Looks for multiplier, offset and shift with the given thresholds; None where there are none.

    For a multiplier and a shift, threshold t of output k holds when k * 2**shift <= t * multiplier + offset and
    (t - 1) * multiplier + offset < k * 2**shift: an interval of offsets for each k, and the line exists when all of
    them have an offset in common.
    """
    largest = float(factor.max())
    outputs = np.arange(limits[0] + 1, limits[1] + 1, dtype=np.int64)[None]
    least, most = reach[0][:, None], reach[1][:, None]
    if not largest or np.abs(np.stack(reach)).max() > INT32_MAX:
        return None
    finest = 62 - int(np.abs(outputs).max()).bit_length() - 1
    shift = min(30 - int(np.floor(np.log2(largest))), finest, 61)
    if shift < 32:
        return None
    exact = np.rint(factor * 2.0**shift).astype(np.int64)
    if exact.max() > INT32_MAX:
        shift -= 1
        exact = np.rint(factor * 2.0**shift).astype(np.int64)
    if shift < 32:
        return None
    offsets = np.zeros(len(exact), np.int64)
    multipliers = exact.copy()
    missing = np.ones(len(exact), bool)
    # Each output but the least needs p(t) >= k * 2**shift for the least t that gives it, and less at t - 1.
    steps = outputs << np.int64(shift)
    first, last = thresholds, np.minimum(thresholds - 1, most)
    needs_first, needs_last = thresholds <= most, thresholds > least
    for change in (0, 1, -1, 2, -2, 3, -3, 4, -4):
        candidate = np.clip(exact + change, 0, INT32_MAX)
        lower = np.where(needs_first, steps - first * candidate[:, None], np.iinfo(np.int64).min).max(
            axis=1, initial=-(1 << 62)
        )
        upper = np.where(needs_last, steps - last * candidate[:, None] - 1, np.iinfo(np.int64).max).min(
            axis=1, initial=1 << 62
        )
        found = missing & (lower <= upper)
        middle = lower + (upper - lower) // 2
        multipliers, offsets = np.where(found, candidate, multipliers), np.where(found, middle, offsets)
        missing &= ~found
        if not missing.any():
            break
    if missing.any():
        return None
    total = [
        int(offset) + int(constant) * int(multiplier)
        for offset, constant, multiplier in zip(offsets, bias, multipliers, strict=True)
    ]
    reached = [
        abs(int(multiplier)) * max(abs(int(a)), abs(int(b))) + abs(int(offset))
        for multiplier, offset, a, b in zip(multipliers, offsets, *reach, strict=True)
    ]
    if max(reached) >= 1 << 62 or max(map(abs, total)) >= 1 << 63:
        return None
    words = np.array(total, np.int64)
    upper_word = words >> 32
    lower_word = ((words & 0xFFFFFFFF) + (1 << 31) & 0xFFFFFFFF) - (1 << 31)
    return np.stack([multipliers, lower_word, upper_word], axis=1).astype(np.int32), shift - 32
