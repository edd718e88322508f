"""From accumulators to outputs in two instructions: one multiplication with addition, one shift that saturates.

    output = saturate(((accumulator * multiplier >> 32) + offset) >> shift)

which SMMLA and SSAT do. The accumulator is 256 times the sum of products, plus a bias; offset and shift are the same
for all channels, so a channel has two parameters. `rudel.micro.requantisation` says which sums each output begins at;
here multipliers and biases are looked for that have the same thresholds for every sum that can occur, so the bits are
those of the interpreter, however it rounds. A bias is in 256ths of a sum, which is why there nearly always are such.

For output k > least: the threshold t, the least sum that gives it, has to obey, with g = (k * 2**shift - offset) << 32,

    (256 * t + bias) * multiplier >= g > (256 * (t - 1) + bias) * multiplier

which is an interval of biases for every multiplier; all outputs' intervals of a channel have to have a bias in common.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rudel.micro.requantisation import Requantisation, evaluate

FRACTION_BITS = 8
"""Accumulators are sums shifted left by so much."""

_NEAR = 64
"""Distance from the best multiplier within which one is looked for with a bias that is a whole number."""

_REACH_BITS = 13
"""Multipliers are looked for within one part in 2 to this power of the real factor."""

_UNIT = 1 << FRACTION_BITS


@dataclass(frozen=True)
class Scaling:
    """Parameters of that formula.

    Attributes:
        multiplier: int64 (channels), positive and below 2**31.
        bias: int64 (channels), within 32 bits, in 256ths of a sum.
        offset: for all channels.
        shift: for all channels.
        low: the least output; where it is not -128, outputs below it have still to be raised to it.
        high: the greatest output, likewise.
    """

    multiplier: np.ndarray
    bias: np.ndarray
    offset: int
    shift: int
    low: int
    high: int

    @property
    def form(self) -> str:
        """The part of a kernel's name that depends on the scaling."""
        return str(self.shift)

    @property
    def after(self) -> np.ndarray:
        """Numbers that kernels read after the weights, int64 (numbers, channels)."""
        return self.multiplier[None]

    def apply(self, sums: np.ndarray) -> np.ndarray:
        """Computes outputs as the instructions do; sums: int64 (channels, anything)."""
        products = (sums * _UNIT + self.bias[:, None]) * self.multiplier[:, None]
        return np.clip(((products >> 32) + self.offset) >> self.shift, self.low, self.high)


@dataclass(frozen=True)
class TwiceRounded:
    """Parameters of rounding twice, where no line has the same bits: linear outputs, both sides of zero.

    The sum times two is multiplied with rounding (SMMULR), one is taken from what is negative, a half and the zero
    point are added, and the result is shifted by the exponent, the last bit of it with saturation (SSAT).

    Attributes:
        multiplier: int64 (channels).
        bias: int64 (channels), in 256ths of a sum.
        shift: int64 (channels), one less than the exponent is below zero.
        offset: twice the zero point, plus one.
    """

    multiplier: np.ndarray
    bias: np.ndarray
    shift: np.ndarray
    offset: int

    form = "twice"

    @property
    def after(self) -> np.ndarray:
        """Numbers that kernels read after the weights, int64 (numbers, channels)."""
        return np.stack([self.multiplier, self.shift])

    def apply(self, sums: np.ndarray) -> np.ndarray:
        """Computes outputs as the instructions do; sums: int64 (channels, anything)."""
        doubled = (sums * _UNIT + self.bias[:, None]) >> (FRACTION_BITS - 1)
        high = (doubled * self.multiplier[:, None] + (1 << 31)) >> 32
        shift = self.shift[:, None]
        return np.clip((high + (high >> 31) + (np.int64(self.offset) << shift)) >> shift >> 1, -128, 127)


def twice_rounded(requantisation: Requantisation, reach: tuple[np.ndarray, np.ndarray]) -> TwiceRounded | None:
    """Returns the parameters for outputs that are rounded twice and not clamped; None where they do not fit.

    Args:
        requantisation: what outputs are to be.
        reach: int64 (channels) twice, the least and the greatest sum of products without bias.
    """
    r = requantisation
    if r.form != "twice" or (r.low, r.high) != (-128, 127):
        return None
    multiplier, bias, exponent = r.data.astype(np.int64).T
    if exponent.max() > -1 or exponent.min() < -22:
        return None
    if max(np.abs(sums + bias).max() for sums in reach) >= 1 << (31 - FRACTION_BITS):
        return None
    return TwiceRounded(multiplier, bias * _UNIT, -exponent - 1, 2 * r.zero_point + 1)


def find_scaling(requantisation: Requantisation, reach: tuple[np.ndarray, np.ndarray], shift: int) -> Scaling | None:
    """Looks for multipliers and biases; None where a channel has none.

    Args:
        requantisation: what outputs are to be.
        reach: int64 (channels) twice, the least and the greatest sum of products without bias.
        shift: the one to use.
    """
    r = requantisation
    least, most = reach
    if r.form == "twice" or r.low == r.high:
        return None
    if max(-least.min(), most.max()) >= 1 << (31 - FRACTION_BITS):
        return None
    factors = _factors(r)
    if factors is None:
        return None
    thresholds = _thresholds(r, least, most)
    outputs = np.arange(r.low + 1, r.high + 1, dtype=np.int64)
    offset = ((2 * r.zero_point + 1) << shift) >> 1
    goals = ((outputs << shift) - offset) << np.int64(32)
    first = np.rint(factors * 2.0 ** (32 - FRACTION_BITS + shift)).astype(np.int64)
    if first.max(initial=0) >= 0x7FF00000:
        return None
    begins, ends = thresholds <= most[:, None], thresholds > least[:, None]
    steps = _Steps(thresholds, goals, begins, ends)
    near = np.arange(2 * _NEAR + 1)
    near = np.where(near % 2, -(near // 2) - 1, near // 2)
    multiplier, bias = np.zeros_like(first), np.zeros_like(first)
    missing = _settled(steps, np.arange(len(first)), first, near[:9], multiplier, bias)
    if len(missing):
        best, gap = _narrowest(steps.of(missing), first[missing])
        if (gap > 1).any():
            return None
        missing = _settled(steps, missing, best, near, multiplier, bias)
    if len(missing):
        return None
    scaling = Scaling(multiplier, bias, offset, shift, r.low, r.high)
    return scaling if _holds(scaling, least, most) else None


@dataclass(frozen=True)
class _Steps:
    """Beginnings of outputs: int64 (channels, outputs) thresholds, goals (outputs), and which bounds there are."""

    thresholds: np.ndarray
    goals: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def of(self, channels: np.ndarray) -> "_Steps":
        return _Steps(self.thresholds[channels], self.goals, self.begins[channels], self.ends[channels])


def _settled(
    steps: _Steps,
    missing: np.ndarray,
    centre: np.ndarray,
    near: np.ndarray,
    multiplier: np.ndarray,
    bias: np.ndarray,
) -> np.ndarray:
    """Tries multipliers near a centre, puts in what it finds, and returns the channels that are still missing.

    Args:
        steps: of all channels.
        missing: which channels to try.
        centre: for each of these the multiplier to begin with.
        near: distances from it, in the order in which to try.
        multiplier: int64 (all channels), written to.
        bias: likewise.
    """
    for distance in near:
        candidate = np.maximum(centre + distance, 1)
        low, high = _biases(steps.of(missing), candidate)
        fits = low <= high
        found = missing[fits]
        multiplier[found] = candidate[fits]
        bias[found] = _middle(low[fits], high[fits])
        missing, centre = missing[~fits], centre[~fits]
        if not len(missing):
            break
    return missing


def _narrowest(steps: _Steps, first: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the multipliers for which biases come closest to existing, and by how much the bounds miss each other.

    The least bias less the greatest is a convex function of the multiplier's inverse, so a search by thirds finds its
    minimum; where that is above 1, no multiplier will do.
    """
    low = np.maximum(first - (first >> _REACH_BITS) - 64, 1)
    high = first + (first >> _REACH_BITS) + 64

    def gap(multiplier: np.ndarray) -> np.ndarray:
        slopes = steps.goals / multiplier[:, None].astype(np.float64)
        least = np.where(steps.begins, slopes - _UNIT * steps.thresholds, -np.inf).max(axis=1)
        most = np.where(steps.ends, slopes - _UNIT * (steps.thresholds - 1), np.inf).min(axis=1)
        return least - most

    while (high - low > 2).any():
        third = (high - low) // 3
        left, right = low + third, high - third
        lower = gap(left) <= gap(right)
        high, low = np.where(lower, right, high), np.where(lower, low, left)
    middle = (low + high) // 2
    return middle, gap(middle)


def _biases(steps: _Steps, multiplier: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the least and the greatest bias for a multiplier of each channel; int64 (channels) each."""
    limits = np.iinfo(np.int64)
    column = multiplier[:, None]
    low = np.where(steps.begins, -(-steps.goals // column) - _UNIT * steps.thresholds, limits.min)
    high = np.where(steps.ends, (steps.goals - 1) // column - _UNIT * (steps.thresholds - 1), limits.max)
    return low.max(axis=1), high.min(axis=1)


def _middle(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Returns a bias between two bounds, one of which may be missing."""
    limits = np.iinfo(np.int64)
    low = np.where(low == limits.min, np.where(high == limits.max, 0, high), low)
    high = np.where(high == limits.max, low, high)
    return low + (high - low) // 2


def _holds(scaling: Scaling, least: np.ndarray, most: np.ndarray) -> bool:
    """Returns whether nothing exceeds 32 bits: neither accumulators nor what is shifted."""
    for sums in (least, most):
        accumulators = sums * _UNIT + scaling.bias
        shifted = (accumulators * scaling.multiplier >> 32) + scaling.offset
        if max(np.abs(accumulators).max(), np.abs(shifted).max()) >= (1 << 31) - 1:
            return False
    return True


def _thresholds(r: Requantisation, least: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Returns the least sum that gives each output above the least one.

    Where every sum gives it, that is the least one; where none does, the greatest one plus 1.

    Returns:
        int64 (channels, high - low).
    """
    outputs = np.arange(r.low + 1, r.high + 1, dtype=np.int64)
    if r.form == "line":
        data = r.data.astype(np.int64)
        constant = (data[:, 2] << 32) | (data[:, 1] & 0xFFFFFFFF)
        steps = outputs[None] << np.int64(32 + r.shift)
        found = -((constant[:, None] - steps) // np.maximum(data[:, :1], 1))
        found = np.where(
            data[:, :1] > 0, found, np.where(steps <= constant[:, None], least[:, None], most[:, None] + 1)
        )
        return np.clip(found, least[:, None], most[:, None] + 1)
    factors, bias = _factors(r), r.data[:, 1].astype(np.int64)
    assert factors is not None
    guess = np.ceil((outputs - 0.5 - r.zero_point) / np.maximum(factors[:, None], 2.0**-60)) - bias[:, None]
    guess = np.clip(guess, -(2.0**40), 2.0**40).astype(np.int64)
    below, above = (np.clip(guess + side, least[:, None], most[:, None] + 1) for side in (-3, 3))
    return _bisected(lambda sums: evaluate(r, sums), outputs, most, below, above)


def _bisected(
    answer: Callable[[np.ndarray], np.ndarray],
    outputs: np.ndarray,
    most: np.ndarray,
    below: np.ndarray,
    above: np.ndarray,
) -> np.ndarray:
    """Returns the least sums between bounds that give outputs; what is beyond `most` gives all."""
    while (below < above).any():
        middle = (below + above) >> 1
        reached = (answer(np.minimum(middle, most[:, None])) >= outputs) | (middle > most[:, None])
        above = np.where(reached, middle, above)
        below = np.where(reached, below, np.minimum(middle + 1, above))
    return above


def _factors(r: Requantisation) -> np.ndarray | None:
    """Returns outputs per sum, float64 (channels); None where the form does not tell."""
    data = r.data.astype(np.float64)
    if r.form == "line":
        return data[:, 0] * 2.0 ** -(32 + r.shift)
    if r.form == "twice":
        return data[:, 0] * 2.0 ** (data[:, 2] - 31)
    if r.form == "even":
        return data[:, 0] * 2.0 ** -data[:, 2]
    return None
