"""`ReplicaProgress`: the state, counts and journal of a training on replicas, which its checkpoints hold.

A checkpoint holds the weights and their means over time, the outer optimizer's state, the residual of the merges, and
the inner optimizer's slots of a replica. What a round changes is in a journal beside it as soon as the round is closed,
so a training that is killed loses the round under way and no other.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rudel.errors import RunError, option
from rudel.replicas import journal
from rudel.replicas.local_rates import Rates
from rudel.replicas.merging import Merging
from rudel.replicas.replica_spec import ReplicaSpec
from rudel.replicas.round_lengths import Agreed
from rudel.replicas.rounds import Arrival, GlobalState, HostChanged, RoundClosed, added
from rudel.runs import checkpoint as checkpoints
from rudel.runs.checkpoint import Checkpoint
from rudel.runs.run_directory import RunDirectory
from rudel.session.job import Position
from rudel.shipping import array_bytes

_JOURNAL_FACTOR, _LARGE_JOURNAL = 16.0, 2**24
"""A journal is full when it is larger than the weights by this factor, and than so many bytes."""

_VECTORS, _MEANS = ("weights", "momentum", "residual"), ("recent", "average")


class ReplicaProgress:
    """See the module.

    Args:
        merging: how work comes together.
        spec: of the replicas.
        state: the global state to begin with.
        rates: the learning rates of local steps.
        position: of the training.
        run: the run directory, or None.

    Attributes:
        state: the global state after the newest round.
        sums: of metrics variables, over the replicas, since the span began.
        slots: packed optimizer variables of a replica, or None.
        hosts: names of those that train.
        sent, received: payload bytes.
        lost, joined: how often a host was lost, or joined.
    """

    def __init__(
        self,
        merging: Merging,
        spec: ReplicaSpec,
        state: GlobalState,
        rates: Rates,
        position: Position,
        run: RunDirectory | None,
    ) -> None:
        self._merging, self._spec, self._rates, self._position, self._run = merging, spec, rates, position, run
        self.state = state
        self.sums: list[np.ndarray] = []
        self.slots: bytes | None = None
        self.hosts: list[str] = []
        self.sent = self.received = self.lost = self.joined = 0
        self._sent_before = self._received_before = 0
        self._journal: journal.Journal | None = None
        self._journaled: dict[int, bool] = {}

    # -- what happens -----------------------------------------------------------------------------------------------

    def take_round(self, closed: RoundClosed) -> None:
        """Takes note of a round that is closed."""
        self.state, self.slots = closed.state, closed.slots or self.slots
        self.sent, self.received = self._sent_before + closed.sent, self._received_before + closed.received
        self.sums = added(self.sums, closed.metrics) if self.sums else closed.metrics

    def take_change(self, changed: HostChanged) -> None:
        """Takes note of a host that was lost, or has joined."""
        self.lost += changed.event == "lost"
        self.joined += changed.event == "joined"

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of a checkpoint."""
        payloads = {name: [getattr(self.state, name)] for name in (*_VECTORS, *_MEANS)}
        payloads |= {"statistics": self.state.statistics, "sums": self.sums}
        arrays = {f"{name}/{i}": array for name, values in payloads.items() for i, array in enumerate(values)}
        if self.slots is not None:
            arrays["slots"] = np.frombuffer(self.slots, np.uint8)
        return arrays

    def document(self) -> dict[str, Any]:
        """Entries of a checkpoint's document that trainings with replicas add."""
        return {self._merging.strategy: self._counts() | {"round": self.state.round, "sums": len(self.sums)}}

    def restore(self, saved: Checkpoint) -> None:
        """Takes a checkpoint over, and the rounds in its journal, which move the position.

        Raises:
            RunError: the checkpoint is of another training.
        """
        before, old = saved.document.get(self._merging.strategy, {}), self.state
        empty = np.empty(0, np.float32)
        vectors, means = ({name: saved.arrays.get(f"{name}/0", empty) for name in of} for of in (_VECTORS, _MEANS))
        statistics = [saved.arrays.get(f"statistics/{i}", empty) for i in range(len(old.statistics))]
        expected = [*(getattr(old, name) for name in _VECTORS), *old.statistics]
        if not before or [a.shape for a in [*vectors.values(), *statistics]] != [a.shape for a in expected]:
            which = f" {self._run.path}" if self._run else ""
            raise RunError(
                f"The run{which} was begun with another strategy, another version of Rudel, or a model of "
                f"other shapes: resume it as it was begun, or give another directory with {option('run')}."
            )
        self.state = GlobalState(before["round"], saved.step, **vectors, **means, statistics=statistics)
        slots = saved.arrays.get("slots")
        self.slots = None if slots is None else slots.tobytes()
        self.sums = [saved.arrays[f"sums/{i}"] for i in range(before["sums"])]
        self._rates.set(before["learning_rate"])
        self._take_counts(before)
        self._replay()

    def _counts(self) -> dict[str, Any]:
        return {
            "sent": self.sent, "received": self.received, "lost": self.lost, "joined": self.joined,
            "hosts": self.hosts, "learning_rate": self._rates.plain,
        }  # fmt: skip

    def _take_counts(self, counts: dict[str, Any]) -> None:
        self.hosts, self.lost, self.joined = counts["hosts"], counts["lost"], counts["joined"]
        self.sent = self._sent_before = counts["sent"]
        self.received = self._received_before = counts["received"]

    # -- the journal ------------------------------------------------------------------------------------------------

    @property
    def has_journal(self) -> bool:
        """Whether closed rounds are written to a journal now."""
        return self._journal is not None

    @property
    def journal_is_full(self) -> bool:
        """Whether reading the journal would take longer than a checkpoint is worth."""
        most = max(_JOURNAL_FACTOR * self.state.weights.nbytes, _LARGE_JOURNAL)
        return self._journal is not None and self._journal.size > most

    def begin_journal(self) -> None:
        """Begins the journal of the checkpoint that was saved at the position."""
        self.end_journal()
        if self._run:
            self._journal = journal.Journal(checkpoints.path_of(self._run.path, self._position.step))
        self._journaled = {}

    def end_journal(self) -> None:
        """Ends the journal, if there is one."""
        if self._journal:
            self._journal.close()
        self._journal = None

    def journal_round(self, closed: RoundClosed, agreed: Agreed, late: Sequence[dict[str, Any]]) -> None:
        """Writes a round to the journal, which there has to be.

        Args:
            closed: the round.
            agreed: what held for it.
            late: records of spans that are not evaluated yet.

        Raises:
            CheckpointError: it cannot be written.
        """
        assert self._journal
        new = [r for r in self._position.records if not self._journaled.get(r["epoch"])]
        late = [r for r in late if r["epoch"] not in self._journaled]
        self._journaled |= {r["epoch"]: True for r in new} | {r["epoch"]: False for r in late}
        document = {
            "round": closed.state.round,
            "step": closed.state.steps,
            "seconds": self._position.clock.train,
            "outer": agreed.outer,
            "delta_codec": agreed.delta_codec,
            "merge_codec": agreed.merge_codec,
            "recent": self._spec.averages.recent,
            "arrivals": [(arrival.steps, arrival.weight, arrival.fresh) for arrival in closed.arrivals],
            self._merging.strategy: self._counts(),
            "records": [*new, *late],
        }
        payloads = [array_bytes.pack(closed.state.statistics), array_bytes.pack(self.sums)]
        self._journal.append(journal.Record(document, [*payloads, *(arrival.delta for arrival in closed.arrivals)]))

    def _replay(self) -> None:
        """Takes over the rounds that were closed after the checkpoint at the position."""
        assert self._run
        for record in journal.read(checkpoints.path_of(self._run.path, self._position.step)):
            document, (statistics, sums, *deltas) = record.document, record.payloads
            arrivals = [Arrival(delta, *of) for delta, of in zip(deltas, document["arrivals"], strict=True)]
            if document["round"] != self.state.round + self._merging.rounds_in(arrivals):
                continue
            averages = self._spec.averages  # of this many replicas, which may be others than then
            averages = replace(averages, recent=document.get("recent", averages.recent))
            spec = replace(self._spec, averages=averages)
            self.state = self._merging.moved(self.state, arrivals, array_bytes.unpack(statistics), document, spec)
            self.sums = array_bytes.unpack(sums)
            self._take_counts(document[self._merging.strategy])
            position = self._position
            position.step = min(document["step"], self._spec.job.schedule.total_steps)
            position.clock.train = document["seconds"]
            known = {r["epoch"]: r for r in [*position.records, *document["records"]]}
            position.records = [known[epoch] for epoch in sorted(known)]
