"""Outer optimizers of arrivals: what one replica's delta does to the weights as soon as it comes.

A delta has a weight: the share that its steps have in a cycle, in which every replica comes once, less if it is stale.
So the arrivals of a cycle together move the weights as the mean delta of a round does.

    sum              every delta as a whole: the parameter server of old, where a replica's step is a step
    nesterov:LR:MU   delayed Nesterov: every delta by its weight, times LR, and every time that a whole cycle's weight
                     has come, all that came since the last time is added to the momentum, and the weights move by
                     LR * MU * momentum

The last is from B. Liu and others, *Asynchronous Local-SGD Training for Language Modeling*, 2401.09135: momentum that
is added with every arrival instead pushes the weights N times as often with N replicas, in directions that are stale,
and makes learning unstable. There, every delta has the weight 1 / N; here, replicas of all speeds have theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rudel.array_types import Float32
from rudel.errors import OptionError
from rudel.replicas.outer_optimizer import rate_and_momentum

_FRESH = 2.0
"""Cycles that a delta may be old and still count fully: one has to pass before a replica comes again, and as it takes
a merge in while it goes on, up to another one.
"""


@dataclass(frozen=True)
class Delayed:
    """An outer optimizer of single arrivals.

    Args:
        name: what `make_delayed` makes it from.
        state_size: (elements of the weights) -> elements of the state.
        step: (delta, weight, freshness, state, weights) -> None, with the share that the delta's steps have in a cycle,
            and how much it counts for its age, from 0 to 1; state and weights, float32 vectors, are changed in place.

    >>> outer = make_delayed("nesterov:1:0.5")
    >>> weights, state, delta = np.zeros(1, np.float32), outer.init(1), np.ones(1, np.float32)
    >>> for _ in range(4):
    ...     outer.step(delta, 0.5, 1.0, state, weights)
    ...     print(weights[0])
    0.5
    1.5
    2.0
    3.25
    """

    name: str
    state_size: Callable[[int], int]
    step: Callable[[np.ndarray, float, float, np.ndarray, np.ndarray], None]

    def init(self, size: int) -> Float32[np.ndarray, "memory"]:
        """The state before the first step, for so many weights: float32 zeros."""
        return np.zeros(self.state_size(size), np.float32)


def freshness(age: float) -> float:
    """The weight of a delta that is so many cycles old.

    >>> freshness(1.0), freshness(8.0)
    (1.0, 0.25)
    """
    return min(1.0, _FRESH / max(age, _FRESH))


def make_delayed(name: str) -> Delayed:
    """The outer optimizer of this name.

    Args:
        name: sum, or `nesterov:LR:MU` with 0 < LR <= 2 and 0 <= MU < 1.

    Raises:
        OptionError: there is none of this name, or not with these numbers.

    >>> make_delayed("nesterov:0.7:0.6").name
    'nesterov:0.7:0.6'
    """
    if name == "sum":
        return Delayed("sum", lambda size: 0, _sum)
    if name.partition(":")[0] != "nesterov":
        raise OptionError(
            f"There is no outer optimizer {name!r} of arrivals: it can be sum or nesterov:LR:MU, as nesterov:1:0.5."
        )
    return _delayed_nesterov(*rate_and_momentum(name))


def _sum(
    delta: Float32[np.ndarray, "weights"],
    weight: float,
    fresh: float,
    state: Float32[np.ndarray, "memory"],
    weights: Float32[np.ndarray, "weights"],
) -> None:
    weights += np.float32(fresh) * delta


def _delayed_nesterov(lr: float, mu: float) -> Delayed:
    """The state: momentum, the sum of weighted deltas, and the sum of their weights, one after the other."""
    kept, ahead = np.float32(mu), np.float32(lr * mu)

    def step(
        delta: Float32[np.ndarray, "weights"],
        weight: float,
        fresh: float,
        state: Float32[np.ndarray, "memory"],
        weights: Float32[np.ndarray, "weights"],
    ) -> None:
        momentum, sums, came = np.split(state, [weights.size, 2 * weights.size])
        sums += np.float32(weight * fresh) * delta
        weights += np.float32(lr * weight * fresh) * delta
        came += np.float32(weight)
        if came[0] >= 1:
            momentum *= kept
            momentum += sums
            weights += momentum * ahead
            sums[:] = 0
            came -= 1

    return Delayed(f"nesterov:{lr:g}:{mu:g}", lambda size: 2 * size + 1, step)
