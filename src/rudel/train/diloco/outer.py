"""Outer optimizers: what becomes of the weights when the mean of all deltas is known.

An outer optimizer is a pair of pure functions. A delta is what local steps have added to the weights since the round
began, so it points the way to go (the negative of DiLoCo's outer gradient). Only sums and products of float32
elements are used, one operation at a time: every host, of whatever make, computes the same bits, so all can
take the step themselves and only the mean delta has to travel.

    average              local SGD, federated averaging: everyone's mean takes the place of the weights
    momentum:LR:MU       heavy ball
    nesterov:LR:MU       DiLoCo (A. Douillard and others, 2311.08105) has 0.7 and 0.9
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rudel.errors import OptionError

Arrays = Sequence[np.ndarray]
"""One float32 array for each variable of a model."""


@dataclass(frozen=True)
class Outer:
    """How weights follow from the mean delta.

    Args:
        name: what `make_outer` makes it from.
        init: (weights) -> state, a list of float32 arrays, which may be empty.
        update: (mean delta, state, weights) -> (new weights, new state).

    >>> outer = make_outer("average")
    >>> weights = [np.array([1.0, 2.0], np.float32)]
    >>> outer.update([np.array([0.5, -0.5], np.float32)], outer.init(weights), weights)
    ([array([1.5, 1.5], dtype=float32)], [])
    """

    name: str
    init: Callable[[Arrays], list[np.ndarray]]
    update: Callable[[Arrays, Arrays, Arrays], tuple[list[np.ndarray], list[np.ndarray]]]


def average() -> Outer:
    """The weights move by the mean delta, and nothing is remembered.

    >>> average().name
    'average'
    """

    def update(delta: Arrays, state: Arrays, weights: Arrays) -> tuple[list[np.ndarray], list[np.ndarray]]:
        return [np.add(w, d) for w, d in zip(weights, delta, strict=True)], []

    return Outer("average", lambda weights: [], update)


def momentum(lr: float = 1.0, momentum: float = 0.5) -> Outer:
    """Heavy ball: m becomes momentum * m + delta, and the weights move by lr * m.

    Args:
        lr: share of the movement that is taken.
        momentum: share of m that is kept from round to round.

    >>> outer = momentum(lr=1.0, momentum=0.5)
    >>> weights, delta = [np.zeros(1, np.float32)], [np.ones(1, np.float32)]
    >>> weights, state = outer.update(delta, outer.init(weights), weights)
    >>> outer.update(delta, state, weights)
    ([array([2.5], dtype=float32)], [array([1.5], dtype=float32)])
    """
    return _with_memory("momentum", lr, momentum, ahead=False)


def nesterov(lr: float = 1.0, momentum: float = 0.5) -> Outer:
    """Nesterov's: m becomes momentum * m + delta, and the weights move by lr * (delta + momentum * m).

    Args:
        lr: share of the movement that is taken.
        momentum: share of m that is kept from round to round.

    >>> outer = nesterov(lr=1.0, momentum=0.5)
    >>> weights, delta = [np.zeros(1, np.float32)], [np.ones(1, np.float32)]
    >>> weights, state = outer.update(delta, outer.init(weights), weights)
    >>> outer.update(delta, state, weights)
    ([array([3.25], dtype=float32)], [array([1.5], dtype=float32)])
    """
    return _with_memory("nesterov", lr, momentum, ahead=True)


def make_outer(name: str) -> Outer:
    """The outer optimizer of this name.

    Args:
        name: average, `momentum:LR:MU` or `nesterov:LR:MU` with 0 < LR <= 2 and 0 <= MU < 1.

    Raises:
        OptionError: there is none of this name, or not with these numbers.

    >>> make_outer("nesterov:0.7:0.6").name
    'nesterov:0.7:0.6'
    """
    kind, *numbers = name.split(":")
    if kind == "average" and not numbers:
        return average()
    if kind not in ("momentum", "nesterov"):
        raise OptionError(
            f"There is no outer optimizer {name!r}: it can be average, momentum:LR:MU or nesterov:LR:MU, "
            "as nesterov:1:0.5."
        )
    return _with_memory(kind, *rate_and_momentum(name), ahead=kind == "nesterov")


def rate_and_momentum(name: str) -> tuple[float, float]:
    """The numbers of an outer optimizer `KIND:LR:MU`, with 0 < LR <= 2 and 0 <= MU < 1.

    Raises:
        OptionError: it has others.

    >>> rate_and_momentum("nesterov:0.7:0.6")
    (0.7, 0.6)
    """
    kind, *numbers = name.split(":")
    try:
        lr, mu = map(float, numbers)
    except ValueError:
        lr, mu = 0.0, 0.0
    if not 0 < lr <= 2 or not 0 <= mu < 1:
        raise OptionError(
            f"The outer optimizer {name!r} must be {kind}:LR:MU with a learning rate above 0 and up to 2 and a "
            f"momentum from 0 to below 1, as {kind}:1:0.5."
        )
    return lr, mu


def _with_memory(kind: str, lr: float, momentum: float, ahead: bool) -> Outer:
    rate, kept = np.float32(lr), np.float32(momentum)

    def init(weights: Arrays) -> list[np.ndarray]:
        return [np.zeros(w.shape, np.float32) for w in weights]

    def update(delta: Arrays, state: Arrays, weights: Arrays) -> tuple[list[np.ndarray], list[np.ndarray]]:
        moved, memory = [], []
        for d, m, w in zip(delta, state, weights, strict=True):
            new = m * kept
            new += d
            step = new * (kept if ahead else rate)
            if ahead:
                step += d
                step *= rate
            step += w
            memory.append(new)
            moved.append(step)
        return moved, memory

    return Outer(f"{kind}:{lr:g}:{momentum:g}", init, update)
