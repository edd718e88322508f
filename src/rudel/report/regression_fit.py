"""Whether a model under- or overfits, judged by its answers alone.

**Underfitting** shows in training: there is a pattern in what the model gets wrong. If its errors were noise, those of
two examples with almost the same inputs would have nothing to do with each other; if the model has missed something,
both are missed in the same direction. So the mean product of the errors of neighbouring examples estimates how much of
the mean squared error is a pattern, without knowing the noise: for an error e(x) + noise, it is the mean of e(x)
squared. (The idea is that of von Neumann's ratio of 1941 and of difference-based estimates of noise, such as Rice's of
1984.) The estimate errs to the low side: where neighbours are far apart, as in inputs with many features, and since a
fitted model has followed the noise a little, errors of neighbours agree less than they would.

**Overfitting** shows in validation: the squared error is larger than in training.

Either is reported when the lower end of the 95 % interval of the pattern, or of the difference, is above a tenth of the
squared error in training and above a thousandth of the variance of the targets: below that it is chance, or too small
to matter. Limits: noise that is itself alike for neighbours, as in a time series, counts as a pattern, and examples
have to be independent of each other.
"""

from dataclasses import dataclass

import numpy as np

from rudel.report.regression_data import Answers, Regression

LEAST_EXAMPLES = 30
"""With fewer examples in a part, the intervals would mean nothing."""

SHARE_OF_ERROR, SHARE_OF_SPREAD = 0.1, 0.001
"""Thresholds: a tenth of the squared error in training, and a thousandth of the variance of the targets."""

_QUANTILE = 1.96


@dataclass(frozen=True)
class Estimate:
    """An estimate with its 95 % interval.

    Args:
        value: the estimate.
        low: lower end of the interval.
        high: upper end.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Fit:
    """Fit of a model to its data; all in squares of the targets' unit.

    Args:
        error: mean squared error in training.
        spread: variance of the training targets, the mean over an example's numbers.
        pattern: the part of `error` that neighbouring examples share; None where it is unknown.
        gap: mean squared error in validation, less that in training; None where it is unknown.
    """

    error: float
    spread: float
    pattern: Estimate | None
    gap: Estimate | None

    @property
    def matters(self) -> float:
        """The threshold above which a squared error counts."""
        return max(SHARE_OF_ERROR * self.error, SHARE_OF_SPREAD * self.spread)

    @property
    def underfits(self) -> bool:
        """Whether the model has certainly missed a pattern."""
        return self.pattern is not None and self.pattern.low > self.matters

    @property
    def overfits(self) -> bool:
        """Whether the model certainly knows its training examples better than others."""
        return self.gap is not None and self.gap.low > self.matters


def judge(regression: Regression) -> Fit:
    """Looks for signs of under- and overfitting.

    >>> x = np.linspace(0, 1, 100, dtype=np.float32)[:, None]
    >>> line = Answers(x**2, x - 0.15, neighbours=np.clip(np.arange(100)[:, None] + [[-1, 1]], 0, 99))
    >>> judge({"train": line}).underfits
    True
    """
    train = regression["train"]
    held_out = regression.get("validation")
    return Fit(
        error=float(train.squared.mean()),
        spread=float(train.truth.astype(np.float64).var(axis=0).mean()),
        pattern=shared_by_neighbours(train),
        gap=difference(train.squared, held_out.squared) if held_out is not None else None,
    )


def shared_by_neighbours(answers: Answers) -> Estimate | None:
    """The part of the mean squared error that neighbouring examples share.

    The interval comes from how much the contributions of the examples vary; each product belongs to two examples, so it
    is, if anything, too wide.

    Returns:
        None where the neighbours are not known or there are too few examples.
    """
    if answers.neighbours is None or len(answers) < LEAST_EXAMPLES:
        return None
    first, second = _pairs(answers.neighbours)
    residuals = answers.residuals
    products = (residuals[first] * residuals[second]).mean(axis=1)
    value = products.mean()
    of_each = np.bincount(first, products - value, len(answers)) + np.bincount(second, products - value, len(answers))
    return _estimate(value, np.sqrt((of_each**2).sum()) / len(products))


def difference(train: np.ndarray, held_out: np.ndarray) -> Estimate | None:
    """The mean squared error on held-out examples less that on those of the training, (M,) and (V,), after Welch.

    Returns:
        None where there are too few examples.
    """
    if min(len(train), len(held_out)) < LEAST_EXAMPLES:
        return None
    deviation = np.sqrt(train.var(ddof=1) / len(train) + held_out.var(ddof=1) / len(held_out))
    return _estimate(held_out.mean() - train.mean(), deviation)


def _estimate(value: float, deviation: float) -> Estimate:
    return Estimate(float(value), float(value - _QUANTILE * deviation), float(value + _QUANTILE * deviation))


def _pairs(neighbours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of an example and one of its neighbours, once."""
    count, each = neighbours.shape
    one, other = np.repeat(np.arange(count), each), neighbours.reshape(-1).astype(np.int64)
    pairs = np.unique(np.stack([np.minimum(one, other), np.maximum(one, other)]), axis=1)
    return tuple(pairs[:, pairs[0] != pairs[1]])
