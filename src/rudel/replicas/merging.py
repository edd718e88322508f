"""`Merging`: when the work of replicas comes together, and what it does to the global state."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from rudel.replicas.leader import Desk, Leader
from rudel.replicas.replica_spec import ReplicaSpec
from rudel.replicas.rounds import Arrival, GlobalState


class Merging(Protocol):
    """A way of merging.

    Attributes:
        strategy: its name.
        counted: what is counted as it merges, as the summary calls it.
    """

    strategy: str
    counted: str

    def first_memory(self, outer: str, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The outer optimizer's state and the residual before anything was merged, for so many weights."""
        ...

    def leader(self, desk: Desk, state: GlobalState) -> Leader:
        """Makes what leads the replicas, from this state, with what is on the desk."""
        ...

    def rounds_in(self, arrivals: Sequence[Arrival]) -> int:
        """The number of rounds that these arrivals close."""
        ...

    def moved(
        self,
        state: GlobalState,
        arrivals: Sequence[Arrival],
        statistics: list[np.ndarray],
        names: dict[str, Any],
        spec: ReplicaSpec,
    ) -> GlobalState:
        """The global state after a record of the journal.

        Args:
            state: before it; unchanged.
            arrivals: pseudo-gradients, encoded, in the order in which they came.
            statistics: averaged variables after it.
            names: `outer`, `delta_codec` and `merge_codec`.
            spec: of the replicas.
        """
        ...
