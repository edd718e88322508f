"""`ReplicaProgress`: the state and the counts of a training on replicas, which its checkpoints hold.

A checkpoint holds the weights and their means over time, the outer optimizer's state, the residual of the merges, and
the inner optimizer's slots of a replica. What a round changes is in a journal beside it as soon as the round is closed
(see `closed_rounds.py`), so a training that is killed loses the round under way and no other.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rudel.errors import RunError, option
from rudel.replicas import journal
from rudel.replicas.local_rates import Rates
from rudel.replicas.merging import Merging
from rudel.replicas.replica_spec import ReplicaSpec
from rudel.replicas.rounds import Arrival, Counts, GlobalState, RoundClosed, added
from rudel.runs import checkpoint as checkpoints
from rudel.runs.checkpoint import Checkpoint
from rudel.runs.run_directory import RunDirectory
from rudel.session.job import Position
from rudel.shipping import array_bytes

_VECTORS, _MEANS = ("weights", "momentum", "residual"), ("recent", "average")

_UNEVALUATED_BYTES = 256e6
"""Of the states at the ends of spans that are restored."""


class EndedSpan(NamedTuple):
    """A span whose end is in the journal, and whose evaluation is not.

    Args:
        step: at which it ended.
        seconds: of training until then.
        state: the global state then, as far as it is evaluated; without weights, if they did not fit in memory.
        sums: of metrics variables over the span.
        logs: of a replica's last step.
    """

    step: int
    seconds: float
    state: GlobalState
    sums: list[np.ndarray]
    logs: dict[str, float]


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
        counts: bytes, and what happened to hosts.
        begun: whether callbacks know that the span at the position has begun.
        unevaluated: spans that ended in rounds that were restored, in their order.
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
        self._hosts_since, self._each_before = 0, 0.0
        self.counts, self.begun = Counts(), False
        self.unevaluated: list[EndedSpan] = []

    def begin_on(self, hosts: Iterable[str]) -> None:
        """Takes note of the hosts that train from here on."""
        self._hosts_since, self._each_before = self._position.step, self.steps_each
        self.hosts = sorted(hosts)

    @property
    def steps_each(self) -> float:
        """Steps of a replica: the mean over those that trained, which may have been others before a resumption."""
        return self._each_before + (self._position.step - self._hosts_since) / max(1, len(self.hosts))

    def take_round(self, closed: RoundClosed) -> None:
        """Takes note of a round that is closed."""
        self.state, self.slots = closed.state, closed.slots or self.slots
        self.sums = added(self.sums, closed.metrics) if self.sums else closed.metrics

    def entries(self, counts: Counts) -> dict[str, Any]:
        """Entries of a document that trainings with replicas add; can be called in any thread."""
        own = vars(counts) | {"hosts": self.hosts, "learning_rate": self._rates.plain, "begun": self.begun}
        own |= {"steps_before": self._rates.steps_before, "hosts_since": self._hosts_since}
        return {self._merging.strategy: own | {"each_before": self._each_before}}

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
        """Entries of a checkpoint's document."""
        ((strategy, entries),) = self.entries(self.counts).items()
        return {strategy: entries | {"round": self.state.round, "sums": len(self.sums)}}

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
            which = f" {self._run.shown}" if self._run else ""
            raise RunError(
                f"The run{which} was begun with another strategy, another version of Rudel, or a model of "
                f"other shapes: resume it as it was begun, or give another directory with {option('run')}."
            )
        self.state = GlobalState(before["round"], saved.step, **vectors, **means, statistics=statistics)
        slots = saved.arrays.get("slots")
        self.slots = None if slots is None else slots.tobytes()
        self.sums = [saved.arrays[f"sums/{i}"] for i in range(before["sums"])]
        self._rates.set(before["learning_rate"])
        self._rates.begin_after(before.get("steps_before", 0))
        self.begun = before.get("begun", False)
        self._take_entries(before)
        self._replay()

    def _take_entries(self, entries: dict[str, Any]) -> None:
        self.hosts = entries["hosts"]
        self._hosts_since, self._each_before = entries.get("hosts_since", 0), entries.get("each_before", 0.0)
        self.counts = Counts(*(entries[name] for name in vars(self.counts)))

    def _replay(self) -> None:
        """Takes over the rounds that were closed after the checkpoint at the position."""
        assert self._run
        late: dict[int, dict[str, Any]] = {}
        for record in journal.read(checkpoints.path_of(self._run.path, self._position.step)):
            if "round" in record.document:
                self._replay_round(record)
                continue
            of_span = record.document["record"]
            late.pop(of_span["step"], None)
            if record.document["evaluated"]:
                self._take_records([of_span])
                self.unevaluated = [each for each in self.unevaluated if each.step != of_span["step"]]
            else:
                late[of_span["step"]] = of_span
        ended = {each.step for each in self.unevaluated}
        self._take_records(each for each in late.values() if each["step"] not in ended)

    def _take_records(self, records: Iterable[dict[str, Any]]) -> None:
        position = self._position
        known = {each["step"]: each for each in [*position.records, *records] if each["step"] <= position.step}
        position.records = [known[step] for step in sorted(known)]

    def _replay_round(self, record: journal.Record) -> None:
        document, (statistics, sums, *deltas) = record.document, record.payloads
        arrivals = [Arrival(delta, *of) for delta, of in zip(deltas, document["arrivals"], strict=True)]
        if document["round"] != self.state.round + self._merging.rounds_in(arrivals):
            return
        averages = self._spec.averages  # of this many replicas, which may be others than then
        averages = replace(averages, recent=document.get("recent", averages.recent))
        spec = replace(self._spec, averages=averages)
        self.state = self._merging.moved(self.state, arrivals, array_bytes.unpack(statistics), document, spec)
        self.sums = array_bytes.unpack(sums)
        self._take_entries(document[self._merging.strategy])
        self._position.step = min(document["step"], self._spec.job.schedule.total_steps)
        self._position.clock.train = document["seconds"]
        if document.get("ended_at") is not None:
            self._end_span(document)

    def _end_span(self, document: dict[str, Any]) -> None:
        state = self.state.to_evaluate()
        ended = EndedSpan(document["ended_at"], document["seconds"], state, self.sums, document["logs"])
        self.sums, self.begun = [], False
        self.unevaluated.append(ended)
        most = max(1, int(_UNEVALUATED_BYTES / max(1, state.nbytes)))
        if len(self.unevaluated) > most:
            first = self.unevaluated[-most - 1]
            self.unevaluated[-most - 1] = first._replace(state=first.state.without_weights())
