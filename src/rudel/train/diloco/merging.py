"""`Merging`: when the work of replicas comes together, and what it does to the global state."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from rudel.train.diloco.codec import make_codec
from rudel.train.diloco.coordinator import Coordinator, outer_step
from rudel.train.diloco.leader import Leader
from rudel.train.diloco.outer import make_outer
from rudel.train.diloco.rounds import Arrival, Task, World
from rudel.train.diloco.spec import ReplicaSpec


class Merging(Protocol):
    """A way of merging.

    Attributes:
        strategy: its name.
        counted: what is counted as it merges, as the summary calls it.
        length: the option that says how many local steps there are between two exchanges.
    """

    strategy: str
    counted: str
    length: str

    def first_memory(self, outer: str, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The outer optimizer's state and the residual before anything was merged, for so many weights."""
        ...

    def coordinator(
        self, fleet: Any, task: Task, world: World, slots: bytes | None, tell: Callable[[Any], None]
    ) -> Leader:
        """What leads the replicas; see `Leader` for the arguments."""
        ...

    def rounds_in(self, arrivals: Sequence[Arrival]) -> int:
        """How many rounds are closed by what has arrived."""
        ...

    def moved(
        self,
        world: World,
        arrivals: Sequence[Arrival],
        statistics: list[np.ndarray],
        names: dict[str, Any],
        spec: ReplicaSpec,
    ) -> World:
        """The global state after a record of the journal.

        Args:
            world: before it; unchanged.
            arrivals: pseudo-gradients, encoded, in the order in which they came.
            statistics: averaged variables after it.
            names: `outer`, `delta_codec` and `merge_codec`.
            spec: of the replicas.
        """
        ...


class InRounds:
    """The `Merging` of the strategy `diloco`: one outer step for all replicas together."""

    strategy, counted, length = "diloco", "rounds", "round_steps"

    def first_memory(self, outer: str, size: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Merging`."""
        return make_outer(outer).init(size), np.zeros(size, np.float32)

    def coordinator(
        self, fleet: Any, task: Task, world: World, slots: bytes | None, tell: Callable[[Any], None]
    ) -> Leader:
        """See `Merging`."""
        return Coordinator(fleet, task, world, slots, tell)

    def rounds_in(self, arrivals: Sequence[Arrival]) -> int:
        """See `Merging`."""
        return 1

    def moved(
        self,
        world: World,
        arrivals: Sequence[Arrival],
        statistics: list[np.ndarray],
        names: dict[str, Any],
        spec: ReplicaSpec,
    ) -> World:
        """See `Merging`."""
        codec, deltas = make_codec(names["delta_codec"]), np.zeros(spec.layout.size, np.float32)
        for arrival in arrivals:
            deltas += np.float32(arrival.steps) * codec.decode(arrival.delta, spec.layout)
        steps, outer = sum(arrival.steps for arrival in arrivals), make_outer(names["outer"])
        merge_codec = make_codec(names["merge_codec"])
        after = outer_step(world, deltas, steps, statistics, outer, merge_codec, spec.layout)[1]
        return after.averaged(world, spec.ema, steps / len(arrivals))
