"""What is known before a training, and what follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Work:
    """What is to be trained.

    Args:
        steps: of a batch each, over all hosts.
        batch_size: examples a step.
        weights: bytes of the trainable variables.
        variables: bytes of all that a checkpoint holds.
    """

    steps: int
    batch_size: int
    weights: int
    variables: int


@dataclass(frozen=True)
class Speed:
    """How fast a host is with this model.

    Args:
        name: of the host.
        step: seconds of a step with a whole batch.
        exchange: seconds that encoding a delta and merging one take.
        message: bytes of a delta and a merge together.
        memory: bytes that are free there.
    """

    name: str
    step: float
    exchange: float
    message: float
    memory: float


@dataclass(frozen=True)
class Forecast:
    """How a training will go.

    Args:
        strategy: its name.
        hosts: their names.
        seconds: from the first step to the last.
        computing, exchanging, waiting: shares of the hosts' time: in steps, in encoding and merging, in waiting for
            others and for the network.
        sent: bytes over the network.
        rounds: how often hosts agree.
    """

    strategy: str
    hosts: tuple[str, ...]
    seconds: float
    computing: float
    exchanging: float
    waiting: float
    sent: float
    rounds: int


def alone(work: Work, host: Speed) -> Forecast:
    """One host trains by itself."""
    return Forecast("single", (host.name,), work.steps * host.step, 1.0, 0.0, 0.0, 0.0, 0)


def shares(total: int, seconds: Sequence[float] | np.ndarray) -> np.ndarray:
    """Steps of each host in a round, int64 (N,), so that all end it together; they add up to the total.

    Args:
        total: steps of all hosts.
        seconds: of a step, of each host.

    >>> shares(10, [1.0, 2.0, 2.0])
    array([5, 3, 2])
    """
    speed = 1 / np.asarray(seconds, float)
    exact = total * speed / speed.sum()
    floors = np.floor(exact).astype(np.int64)
    rest = np.argsort(floors - exact, kind="stable")[: total - int(floors.sum())]
    floors[rest] += 1
    return floors
