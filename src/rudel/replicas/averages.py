"""`Averages`: the means over time of weights that several replicas have moved.

Weights that move far, as the mean of several replicas is worth a long step, sway about where they are going. Their mean
over the last steps is what is evaluated, kept and exported; the training goes on from the weights themselves. How many
steps are the last ones follows from how many there were, so the first rounds do not count for long, and there is
nothing to set: polynomial-decay averaging, O. Shamir and T. Zhang, *Stochastic gradient descent for non-smooth
optimization*, 1212.1824.

Final accuracy without and with it (`benchmarks/convergence.py`, four to six seeds): drawings, two replicas 0.817 and
0.824, four 0.813 and 0.820, eight 0.808 and 0.812, where nobody waits 0.808 and 0.815 (with learning rates that suit
each); digits take 94 and 80 steps to a target; movements end at the same. Not with SGD with momentum, whose mean change
is not amplified: there, a CNN ends at 0.832 and 0.827.
"""

from dataclasses import dataclass

import numpy as np

from rudel.array_types import Float32

_POWER = 12.0
"""Weights count in proportion to the share of the steps that they came after, to the power of 11: of the mean, 80 %
are the last eighth.
"""


@dataclass(frozen=True)
class Averages:
    """The means that a training keeps.

    Args:
        recent: whether there is one over the last steps.
        ema: how much of the exponential average that the model's optimizer has is kept in a local step; None where it
            has none.
    """

    recent: bool = False
    ema: float | None = None

    def recently(
        self, mean: Float32[np.ndarray, "mean"], weights: Float32[np.ndarray, "weights"], before: int, after: int
    ) -> Float32[np.ndarray, "recent"]:
        """The mean over the last steps, after some more; empty where none is kept, whatever was before.

        Args:
            mean: before these; empty if there were none before.
            weights: after them.
            before, after: the steps of all replicas until then.

        >>> Averages(recent=True).recently(np.zeros(1, np.float32), np.ones(1, np.float32), before=700, after=800)
        array([0.798...], dtype=float32)
        """
        return _next(mean, weights, (before / after) ** _POWER) if self.recent else np.empty(0, np.float32)

    def exponential(
        self, mean: Float32[np.ndarray, "mean"], weights: Float32[np.ndarray, "weights"], steps: float
    ) -> Float32[np.ndarray, "average"]:
        """The exponential average, after some more steps of a replica; empty where none is kept, whatever was before.

        Args:
            mean, weights: as of `recently`.
            steps: the number of them.
        """
        return np.empty(0, np.float32) if self.ema is None else _next(mean, weights, self.ema**steps)


def _next(mean: np.ndarray, weights: np.ndarray, kept: float) -> np.ndarray:
    """A mean, after these weights; what does not move is the same to the bit."""
    if not mean.size:
        return weights
    moved = weights - mean
    moved *= np.float32(1 - kept)
    moved += mean
    return moved
