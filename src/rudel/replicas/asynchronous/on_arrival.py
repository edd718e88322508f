"""The `Merging` of the strategy `async`: what a replica brings is merged when it comes, and nobody waits.

Arrivals are counted in the place of rounds: a line of `rounds.jsonl` holds what has come in a tenth of a second, or a
single arrival where they come more slowly, and its `round` is the number of arrivals so far.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rudel.replicas.asynchronous.arrival_leader import ArrivalLeader, arrived
from rudel.replicas.asynchronous.delayed import make_delayed
from rudel.replicas.codec.delta_codec import make_codec
from rudel.replicas.leader import Desk, Leader
from rudel.replicas.replica_spec import ReplicaSpec
from rudel.replicas.rounds import Arrival, GlobalState


class OnArrival:
    """See the module."""

    strategy, counted = "async", "arrivals"

    def first_memory(self, outer: str, size: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Merging`."""
        return make_delayed(outer).init(size), np.empty(0, np.float32)

    def leader(self, desk: Desk, state: GlobalState) -> Leader:
        """See `Merging`."""
        return ArrivalLeader(desk, state)

    def rounds_in(self, arrivals: Sequence[Arrival]) -> int:
        """See `Merging`."""
        return len(arrivals)

    def moved(
        self,
        state: GlobalState,
        arrivals: Sequence[Arrival],
        statistics: list[np.ndarray],
        names: dict[str, Any],
        spec: ReplicaSpec,
    ) -> GlobalState:
        """See `Merging`."""
        codec, outer = make_codec(names["delta_codec"]), make_delayed(names["outer"])
        for arrival in arrivals:
            state = arrived(state, codec.decode(arrival.delta, spec.layout), arrival, outer, spec.averages)
        return replace(state, statistics=statistics)
