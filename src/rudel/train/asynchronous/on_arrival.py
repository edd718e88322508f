"""The `Merging` of the strategy `async`: what a replica brings is merged when it comes, and nobody waits.

Arrivals are counted in the place of rounds: a line of `rounds.jsonl` holds what has come in a tenth of a second, or a
single arrival where they come more slowly, and its `round` is the number of arrivals so far.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rudel.train.asynchronous.coordinator import AsyncCoordinator, arrived
from rudel.train.asynchronous.delayed import make_delayed
from rudel.train.diloco.codec import make_codec
from rudel.train.diloco.leader import Leader
from rudel.train.diloco.rounds import Arrival, Task, World
from rudel.train.diloco.spec import ReplicaSpec


class OnArrival:
    """See the module."""

    strategy, counted, length = "async", "arrivals", "steps_between"

    def first_memory(self, outer: str, size: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Merging`."""
        return make_delayed(outer).init(size), np.empty(0, np.float32)

    def coordinator(
        self, fleet: Any, task: Task, world: World, slots: bytes | None, tell: Callable[[Any], None]
    ) -> Leader:
        """See `Merging`."""
        return AsyncCoordinator(fleet, task, world, slots, tell)

    def rounds_in(self, arrivals: Sequence[Arrival]) -> int:
        """See `Merging`."""
        return len(arrivals)

    def moved(
        self,
        world: World,
        arrivals: Sequence[Arrival],
        statistics: list[np.ndarray],
        names: dict[str, Any],
        spec: ReplicaSpec,
    ) -> World:
        """See `Merging`."""
        codec, outer = make_codec(names["delta_codec"]), make_delayed(names["outer"])
        for arrival in arrivals:
            world = arrived(world, codec.decode(arrival.delta, spec.layout), arrival, outer, spec.ema)
        return replace(world, statistics=statistics)
