"""What is known before a training, and what follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

REPLICA_BYTES = 250e6
"""What a process takes before it has a model: Python, JAX, Dask, and room for compiling."""


@dataclass(frozen=True)
class Work:
    """What is to be trained.

    Args:
        steps: of a batch each, over all hosts.
        batch_size: examples a step.
        weights: bytes of the trainable variables.
        variables: bytes of all that a checkpoint holds.
        data: bytes of all examples.
    """

    steps: int
    batch_size: int
    weights: int
    variables: int
    data: int = 0

    def memory(self, hosts: int) -> float:
        """Bytes that each of so many hosts takes: as `rudel.train.diloco.checks` counts them."""
        merging = 4 * self.weights if hosts > 1 else 0
        return 2 * self.variables + merging + self.data / hosts + REPLICA_BYTES


@dataclass(frozen=True)
class Speed:
    """How fast a host is with this model.

    Args:
        name: of the host.
        step: seconds of a step with a whole batch, while all other hosts take steps, too.
        exchange: seconds that a round takes beside its steps: encoding a delta, merging one, going in and out of the
            compiled steps.
        message: bytes of a delta and a merge together.
        memory: bytes that are free there.
        first: seconds that the first round takes longer than others.
        tried: seconds of a step and of an exchange as the host finds them in the short time for which a training looks,
            by which it chooses the length of rounds; None for the same as above.
    """

    name: str
    step: float
    exchange: float
    message: float
    memory: float
    first: float = 0.0
    tried: tuple[float, float] | None = None


@dataclass(frozen=True)
class Desk:
    """The computer that drives.

    Args:
        take: seconds for decoding a delta and counting it in, one after the other.
        close: seconds for closing a round: the outer step, and encoding what is told of it.
    """

    take: float = 0.0
    close: float = 0.0


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
        rounds: how often hosts agree; arrivals, where nobody waits for anybody.
        memory: bytes that a host takes, the one that takes most.
        sending: share of the time in which the network is busy.
    """

    strategy: str
    hosts: tuple[str, ...]
    seconds: float
    computing: float
    exchanging: float
    waiting: float
    sent: float
    rounds: int
    memory: float = 0.0
    sending: float = 0.0


def alone(work: Work, host: Speed) -> Forecast:
    """One host trains by itself."""
    return Forecast("single", (host.name,), work.steps * host.step, 1.0, 0.0, 0.0, 0.0, 0, work.memory(1))


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
