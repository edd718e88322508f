"""Forecasts of a training from measurements before it.

What a host has to hold is counted as `rudel.replicas.host_checks` counts it when the training begins.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

REPLICA_BYTES = 250e6
"""Memory of a process before it has a model: Python, JAX, Dask, and room for compiling."""

SHARE_OF_MEMORY = 0.75
"""Examples that would leave less of a host's memory free than the rest of this are kept on its disk."""

SOLE_SECONDS = 5.0
"""A host that trains by itself tells about so often how far it is."""


@dataclass(frozen=True)
class Work:
    """The job of a forecast.

    Args:
        steps: of a batch each, over all hosts.
        batch_size: examples a step.
        weights: bytes of the trainable variables, in float32.
        variables: bytes of the model's whole state: weights, what the optimizer and the metrics remember.
        data: bytes of all examples.
        streamed: whether examples are read when they are needed, from files that only this computer may have.
        tensors: how many trainable variables there are.
        averaged: how many variables there are that replicas average, such as the moving means and variances of batch
            normalisation.
        sgd: see `rudel.replicas.keras_rates.is_momentum_sgd`.
    """

    steps: int
    batch_size: int
    weights: int
    variables: int
    data: int = 0
    streamed: bool = False
    tensors: int = 1
    averaged: int = 0
    sgd: bool = False

    @property
    def replica(self) -> float:
        """Bytes of memory that a replica takes without its examples."""
        return 2 * self.variables + 4 * self.weights + REPLICA_BYTES

    @property
    def member(self) -> float:
        """Bytes of memory that a member of a mesh takes: the state twice, gradients, and all arrays of examples."""
        return 2 * self.variables + self.weights + REPLICA_BYTES + (0 if self.streamed else self.data)

    def on_disk(self, memory: float, hosts: int) -> bool:
        """Whether one of so many hosts, with that much memory, keeps its share of the examples on its disk."""
        return self.replica + self.data / hosts > SHARE_OF_MEMORY * memory or self.data > memory

    def memory(self, memory: float, hosts: int) -> float:
        """Bytes of memory that a replica takes on one of so many hosts, with that much memory."""
        return self.replica + (0 if self.on_disk(memory, hosts) else self.data / hosts)

    def fits(self, memory: float, disk: float, hosts: int) -> bool:
        """Whether one of so many hosts, with that much memory and disk, can hold a replica and its share.

        >>> work = Work(steps=1, batch_size=1, weights=0, variables=0, data=6e9)
        >>> [work.fits(4e9, 2e9, hosts) for hosts in (1, 2, 3, 4)]
        [False, False, True, True]
        """
        return self.replica <= memory and (not self.on_disk(memory, hosts) or self.data / hosts <= disk)


@dataclass(frozen=True)
class Link:
    """A host's own connection to the driver.

    Args:
        rate, rate_up: bytes a second to the host and from it, while nobody else sends anything.
        latency: seconds one way.
    """

    rate: float
    rate_up: float
    latency: float


@dataclass(frozen=True)
class Speed:
    """The speed of a host with a model.

    Args:
        name: of the host.
        step: seconds of a step with a whole batch, while all other hosts take steps, too.
        exchange: seconds that a round takes beside its steps: encoding a delta, merging one, going in and out of the
            compiled steps.
        message: bytes of a delta and a merge together.
        memory, disk: bytes that are free there.
        first: seconds that the first round takes longer than others.
        tried: seconds of a step and of an exchange as the host finds them in the short time for which a training looks,
            by which it chooses the length of rounds; None for the same as above.
        link: its own; None where it has the same as all others.
    """

    name: str
    step: float
    exchange: float
    message: float
    memory: float
    first: float = 0.0
    tried: tuple[float, float] | None = None
    disk: float = math.inf
    link: Link | None = None


@dataclass(frozen=True)
class Desk:
    """The time that the driver takes for a delta and for a round.

    Args:
        take: seconds for decoding a delta and counting it in, one after the other.
        close: seconds for closing a round: the outer step, and encoding its result.
    """

    take: float = 0.0
    close: float = 0.0


@dataclass(frozen=True)
class Forecast:
    """The forecast of a training.

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
        needs_files: whether every host reads files that only this computer may have; such a training is not chosen.
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
    needs_files: bool = False


def sole_steps(work: Work, step: float, rate: float) -> int:
    """Steps of a round of a host that trains by itself.

    All weights go both ways in every round; rounds are so long that the link is idle for half of the time.

    Args:
        work: what is to be done.
        step: seconds of a step.
        rate: bytes a second that the link carries.

    >>> work = Work(steps=10**6, batch_size=32, weights=10**6, variables=3 * 10**6)
    >>> sole_steps(work, 0.01, rate=1e8), sole_steps(work, 0.01, rate=1e5)
    (500, 4000)
    """
    seconds = max(SOLE_SECONDS, 2 * 2 * work.weights / rate)
    return max(1, min(work.steps, round(seconds / step)))


def fitting(work: Work, room: Mapping[str, tuple[float, float]]) -> list[str]:
    """The hosts that can hold their share of the data when all of these train together.

    Args:
        work: what is to be done.
        room: free memory and disk, by name.

    >>> work = Work(steps=1, batch_size=1, weights=0, variables=0, data=6e9)
    >>> fitting(work, {"a": (4e9, 1.9e9), "b": (4e9, 9e9), "c": (4e9, 1e9), "d": (4e9, 9e9)})
    ['b', 'd']
    """
    names = list(room)
    while left := [name for name in names if not work.fits(*room[name], len(names))]:
        names = [name for name in names if name not in left]
    return names
