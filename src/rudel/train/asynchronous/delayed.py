"""Outer optimizers of arrivals: what one replica's delta does to the weights as soon as it comes.

A delta has a weight: the share that its steps have in a cycle, in which every replica comes once, less if it is stale.
So the arrivals of a cycle together move the weights as the mean delta of a round does.

    sum              every delta as a whole: the parameter server of old, where a replica's step is a step
    average          every delta by its weight
    nesterov:LR:MU   delayed Nesterov: the same, times LR, and every time that a whole cycle's weight has come, all that
                     came since the last time is added to the momentum, and the weights move by LR * MU * momentum

The last is from B. Liu and others, *Asynchronous Local-SGD Training for Language Modeling*, 2401.09135: momentum that
is added with every arrival instead pushes the weights N times as often with N replicas, in directions that are stale,
and makes learning unstable. There, every delta has the weight 1 / N; here, replicas of all speeds have theirs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rudel.errors import OptionError
from rudel.train.diloco.outer import rate_and_momentum

Arrays = Sequence[np.ndarray]
"""One float32 array for each variable of a model."""

_FRESH = 2.0
"""Cycles that a delta may be old and still count fully: one has to pass before a replica comes again, and as it takes
a merge in while it goes on, up to another one.
"""


@dataclass(frozen=True)
class Delayed:
    """How weights follow from a delta that arrives.

    Args:
        name: what `make_delayed` makes it from.
        init: (weights) -> state, a list of float32 arrays, which may be empty.
        update: (delta, weight, freshness, state, weights) -> (new weights, new state), with the share that the delta's
            steps have in a cycle, and how much it counts for its age, from 0 to 1.

    >>> outer = make_delayed("nesterov:1:0.5")
    >>> weights, delta = [np.zeros(1, np.float32)], [np.ones(1, np.float32)]
    >>> state = outer.init(weights)
    >>> for _ in range(4):
    ...     weights, state = outer.update(delta, 0.5, 1.0, state, weights)
    ...     print(weights[0])
    [0.5]
    [1.5]
    [2.]
    [3.25]
    """

    name: str
    init: Callable[[Arrays], list[np.ndarray]]
    update: Callable[[Arrays, float, float, Arrays, Arrays], tuple[list[np.ndarray], list[np.ndarray]]]


def freshness(age: float) -> float:
    """How much a delta counts that is so many cycles old.

    >>> freshness(1.0), freshness(8.0)
    (1.0, 0.25)
    """
    return min(1.0, _FRESH / max(age, _FRESH))


def make_delayed(name: str) -> Delayed:
    """The outer optimizer of this name.

    Args:
        name: sum, average, or `nesterov:LR:MU` with 0 < LR <= 2 and 0 <= MU < 1.

    Raises:
        OptionError: there is none of this name, or not with these numbers.

    >>> make_delayed("nesterov:0.7:0.6").name
    'nesterov:0.7:0.6'
    """
    if name in ("sum", "average"):
        return _without_memory(name)
    if name.partition(":")[0] != "nesterov":
        raise OptionError(
            f"There is no outer optimizer {name!r} of arrivals: it can be sum, average or nesterov:LR:MU, as "
            "nesterov:1:0.5."
        )
    return _delayed_nesterov(*rate_and_momentum(name))


def _without_memory(name: str) -> Delayed:
    def update(
        delta: Arrays, weight: float, fresh: float, state: Arrays, weights: Arrays
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        by = np.float32(fresh if name == "sum" else weight * fresh)
        return [np.add(w, d * by) for w, d in zip(weights, delta, strict=True)], list(state)

    return Delayed(name, lambda weights: [], update)


def _delayed_nesterov(lr: float, mu: float) -> Delayed:
    """The state: momentum and sums of weighted deltas, one of each for every variable, and the sum of their weights."""
    rate, kept = np.float32(lr), np.float32(mu)

    def init(weights: Arrays) -> list[np.ndarray]:
        return [np.zeros(w.shape, np.float32) for w in [*weights, *weights]] + [np.zeros(1, np.float32)]

    def update(
        delta: Arrays, weight: float, fresh: float, state: Arrays, weights: Arrays
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        *arrays, came = state
        count = len(weights)
        momentum, sums, by = list(arrays[:count]), list(arrays[count:]), np.float32(weight * fresh)
        came, moved = came + np.float32(weight), []
        whole = bool(came[0] >= 1)
        for i, (d, w) in enumerate(zip(delta, weights, strict=True)):
            part = d * by
            sums[i] = sums[i] + part
            part *= rate
            part += w
            if whole:
                momentum[i] = momentum[i] * kept
                momentum[i] += sums[i]
                part += momentum[i] * (rate * kept)
                sums[i] = np.zeros(d.shape, np.float32)
            moved.append(part)
        return moved, [*momentum, *sums, np.maximum(came - 1, 0) if whole else came]

    return Delayed(f"nesterov:{lr:g}:{mu:g}", init, update)
