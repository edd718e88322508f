"""Outer optimizers: what becomes of the weights when the mean of all deltas is known.

A delta is what local steps have added to the weights since the round began, so it points the way to go (the negative of
DiLoCo's outer gradient). Only sums and products of float32 elements are used, one operation at a time: every host, of
whatever make, computes the same bits, so all can take the step themselves and only the mean delta has to travel.

    average              local SGD, federated averaging: everyone's mean takes the place of the weights
    momentum:LR:MU       heavy ball: m becomes MU * m + delta, and the weights move by LR * m
    nesterov:LR:MU       the weights move by LR * (delta + MU * m) instead; DiLoCo (A. Douillard and others, 2311.08105)
                         has 0.7 and 0.9
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rudel.errors import OptionError
from rudel.train.diloco.vector import Change


@dataclass(frozen=True)
class Outer:
    """How weights follow from the mean delta.

    Args:
        name: what `make_outer` makes it from.
        state_size: elements of the state, for each element of the weights.
        step: (mean delta, state, weights) -> movement. State, float32 (state_size * N,), and weights, float32 (N,), are
            changed in place; the movement, float32 (N,), is what was added to the weights.

    >>> outer = make_outer("nesterov:1:0.5")
    >>> weights, state, delta = np.zeros(1, np.float32), np.zeros(1, np.float32), Change(np.ones(1, np.float32))
    >>> outer.step(delta, state, weights), outer.step(delta, state, weights), weights
    (array([1.5], dtype=float32), array([1.75], dtype=float32), array([3.25], dtype=float32))
    """

    name: str
    state_size: int
    step: Callable[[Change, np.ndarray, np.ndarray], np.ndarray]

    def init(self, size: int) -> np.ndarray:
        """The state before the first step, for so many weights: float32 zeros."""
        return np.zeros(self.state_size * size, np.float32)


def _average(delta: Change, state: np.ndarray, weights: np.ndarray) -> np.ndarray:
    movement = np.zeros_like(weights)
    delta.add_to(movement)
    weights += movement
    return movement


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
        return Outer("average", 0, _average)
    if kind not in ("momentum", "nesterov"):
        raise OptionError(
            f"There is no outer optimizer {name!r}: it can be average, momentum:LR:MU or nesterov:LR:MU, "
            "as nesterov:1:0.5."
        )
    lr, mu = rate_and_momentum(name)
    return Outer(f"{kind}:{lr:g}:{mu:g}", 1, _with_memory(lr, mu, ahead=kind == "nesterov"))


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


def _with_memory(lr: float, mu: float, ahead: bool) -> Callable[[Change, np.ndarray, np.ndarray], np.ndarray]:
    rate, kept, whole = np.float32(lr), np.float32(mu), np.float32(lr * mu if ahead else lr)

    def step(delta: Change, state: np.ndarray, weights: np.ndarray) -> np.ndarray:
        state *= kept
        delta.add_to(state)
        movement = state * whole
        if ahead:
            delta.add_to(movement, float(rate))
        weights += movement
        return movement

    return step
