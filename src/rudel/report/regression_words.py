"""The sentence that says whether a model fits, and by what sign."""

import math

from rudel.report.formatting import number, percent
from rudel.report.regression_fit import LEAST_EXAMPLES, SHARE_OF_ERROR, Estimate, Fit

HOW = (
    "The sign of underfitting is a pattern in the errors of training: if the model has missed something, examples with "
    "nearly the same inputs are missed in the same direction, while errors that are noise do not care for each other. "
    "The mean product of the errors of neighbouring examples therefore estimates how much of the squared error could "
    "have been learned, and the rest is noise, which no model can predict. The sign of overfitting is a larger squared "
    "error in validation than in training. Either counts when the lower end of its 95 % interval is above a tenth of "
    "the squared error in training, and above a thousandth of the variance of the targets."
)


def verdict(fit: Fit) -> str:
    """Whether the model underfits, overfits, both or neither, or that this is unknown."""
    if fit.underfits:
        return "It underfits and overfits." if fit.overfits else "It underfits."
    if fit.overfits:
        return "It overfits." if fit.pattern else "It overfits; whether it also underfits is not known."
    if fit.pattern and fit.gap:
        return "It neither underfits nor overfits."
    if fit.pattern:
        return "It does not underfit; whether it overfits is not known."
    return "It does not overfit; whether it underfits is not known." if fit.gap else "Whether it fits is not known."


def signs(fit: Fit) -> str:
    """The evidence for the verdict, with its uncertainty."""
    return f"{_pattern(fit)} {_gap(fit)}"


def _pattern(fit: Fit) -> str:
    pattern = fit.pattern
    if pattern is None:
        return f"No pattern was looked for in the errors: that takes {LEAST_EXAMPLES} training examples of numbers."
    if not fit.error:
        return "It makes no errors in training."
    share = _share(pattern, fit.error)
    if not fit.underfits:
        chance = pattern.low <= SHARE_OF_ERROR * fit.error
        what = "Its training errors look like noise" if chance else "Its errors are too small to matter"
        return f"{what}: {share} of the squared error in training is a pattern."
    noise = math.sqrt(max(fit.error - pattern.value, 0))
    return (
        "Training examples that lie next to each other are missed in the same direction: "
        f"{share} of the squared error in training is a pattern that could have been learned. "
        f"The typical error is {number(math.sqrt(fit.error), 3)}, and noise alone would make it "
        f"{number(noise, 3)}."
    )


def _gap(fit: Fit) -> str:
    gap = fit.gap
    if gap is None:
        return f"There are no {LEAST_EXAMPLES} validation examples to compare with."
    if not fit.error:
        return f"In validation, the mean squared error is {number(gap.value, 3)}."
    change = percent(abs(gap.value) / fit.error, 0)
    text = f"In validation the squared error is {change} {'larger' if gap.value >= 0 else 'smaller'} than in training"
    interval = f"95 % interval: {_signed(gap.low / fit.error)} to {_signed(gap.high / fit.error)}"
    if fit.overfits:
        return f"{text} ({interval}): it fits its training examples better than others."
    why = "no more than chance" if gap.low <= 0 else "too little to matter"
    return f"{text} ({interval}), {why}." if gap.high > 0 else f"{text} ({interval})."


def _share(pattern: Estimate, error: float) -> str:
    low, value, high = (min(max(part / error, 0), 1) for part in (pattern.low, pattern.value, pattern.high))
    return f"{percent(value, 0)} (95 % interval: {100 * low:.0f} to {percent(high, 0)})"


def _signed(share: float) -> str:
    return f"{100 * share:+.0f}".replace("-", "−") + "\u202f%"
