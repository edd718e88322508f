"""The outer optimizer: from the mean pseudo-gradient of all replicas to a step of the global weights.

A delta is what local steps have added to the weights since the round began: the negative of DiLoCo's pseudo-gradient.
With `nesterov:LR:MU`, m becomes MU * m + delta, and the weights move by LR * (delta + MU * m). DiLoCo (A. Douillard and
others, 2311.08105) has 0.7 and 0.9; 1 and 0 make local SGD, or federated averaging: the weights move by the mean delta.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rudel.array_types import Float32
from rudel.errors import OptionError


@dataclass(frozen=True)
class Outer:
    """An outer optimizer: from the mean delta to a movement of the weights.

    Args:
        name: what `make_outer` makes it from.
        step: (mean delta, state) -> movement of the weights, a new float32 (N,). The state, float32 (N,), is changed in
            place.

    >>> outer = make_outer("nesterov:1:0.5")
    >>> state, delta = np.zeros(1, np.float32), np.ones(1, np.float32)
    >>> outer.step(delta, state), outer.step(delta, state)
    (array([1.5], dtype=float32), array([1.75], dtype=float32))
    """

    name: str
    step: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def init(self, size: int) -> Float32[np.ndarray, "memory"]:
        """The state before the first step, for so many weights: float32 zeros."""
        return np.zeros(size, np.float32)


def make_outer(name: str) -> Outer:
    """The outer optimizer of this name.

    Args:
        name: `nesterov:LR:MU` with 0 < LR <= 2 and 0 <= MU < 1.

    Raises:
        OptionError: there is none of this name, or not with these numbers.

    >>> make_outer("nesterov:0.7:0.6").name
    'nesterov:0.7:0.6'
    """
    if name.partition(":")[0] != "nesterov":
        raise OptionError(f"There is no outer optimizer {name!r}: it can be nesterov:LR:MU, as nesterov:1:0.5.")
    lr, mu = rate_and_momentum(name)
    return Outer(f"nesterov:{lr:g}:{mu:g}", _nesterov(lr, mu))


def rate_and_momentum(name: str) -> tuple[float, float]:
    """The numbers of an outer optimizer `nesterov:LR:MU`, with 0 < LR <= 2 and 0 <= MU < 1.

    Raises:
        OptionError: it has others.

    >>> rate_and_momentum("nesterov:0.7:0.6")
    (0.7, 0.6)
    """
    _, *numbers = name.split(":")
    try:
        lr, mu = map(float, numbers)
    except ValueError:
        lr, mu = 0.0, 0.0
    if not 0 < lr <= 2 or not 0 <= mu < 1:
        raise OptionError(
            f"The outer optimizer {name!r} must be nesterov:LR:MU with a learning rate above 0 and up to 2 and a "
            "momentum from 0 to below 1, as nesterov:1:0.5."
        )
    return lr, mu


def _nesterov(lr: float, mu: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    rate, kept, ahead = np.float32(lr), np.float32(mu), np.float32(lr * mu)

    def step(
        delta: Float32[np.ndarray, "weights"], state: Float32[np.ndarray, "weights"]
    ) -> Float32[np.ndarray, "weights"]:
        state *= kept
        state += delta
        movement = state * ahead
        movement += rate * delta
        return movement

    return step
