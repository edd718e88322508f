"""The `Merging` of the strategy `diloco`: one outer step for all replicas together, at the end of a round."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rudel.replicas.codec.delta_codec import make_codec
from rudel.replicas.diloco.round_leader import RoundLeader, outer_step
from rudel.replicas.leader import Desk, Leader
from rudel.replicas.outer_optimizer import make_outer
from rudel.replicas.replica_spec import ReplicaSpec
from rudel.replicas.rounds import Arrival, GlobalState


class InRounds:
    """The `Merging` of the strategy `diloco`: one outer step for all replicas together."""

    strategy, counted = "diloco", "rounds"

    def first_memory(self, outer: str, size: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Merging`."""
        return make_outer(outer).init(size), np.zeros(size, np.float32)

    def leader(self, desk: Desk, state: GlobalState) -> Leader:
        """See `Merging`."""
        return RoundLeader(desk, state)

    def rounds_in(self, arrivals: Sequence[Arrival]) -> int:
        """See `Merging`."""
        return 1

    def moved(
        self,
        state: GlobalState,
        arrivals: Sequence[Arrival],
        statistics: list[np.ndarray],
        names: dict[str, Any],
        spec: ReplicaSpec,
    ) -> GlobalState:
        """See `Merging`."""
        deltas = [(arrival.delta, arrival.steps) for arrival in arrivals]
        codecs = make_codec(names["delta_codec"]), make_codec(names["merge_codec"])
        after = outer_step(state, deltas, statistics, make_outer(names["outer"]), *codecs, spec.layout)[1]
        steps = after.steps - state.steps
        return after.averaged(state, spec.averages, steps / len(arrivals))
