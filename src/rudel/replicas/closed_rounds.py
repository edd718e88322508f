"""`ClosedRounds`: what the coordinator reports, kept in the run directory, on its way to the engine.

The engine may be busy for long, as it evaluates the model and runs callbacks. A thread of its own therefore writes each
closed round to `rounds.jsonl` and to the journal as soon as it is reported. Of rounds that wait for the engine, the
newest has its weights; others have them as long as they fit in memory, those that end a span longest. What the engine
counts and shows stays of all.

Guarantee: after `kill -9`, the rounds that were written lead to the state after the last of them. While a checkpoint is
written, rounds are in the journal of the one before and in its own, also those that waited.

Limit: where there are callbacks, whose memory is in checkpoints alone, the journal ends before the end of a span.
"""

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rudel.replicas import journal
from rudel.replicas.merging import Merging
from rudel.replicas.rounds import Counts, HostChanged, RoundClosed, added
from rudel.runs import checkpoint as checkpoints
from rudel.runs.run_directory import RunDirectory
from rudel.session.spans import Spans
from rudel.shipping import array_bytes

_WAITING_BYTES = 256e6
"""Of states and pseudo-gradients of rounds that wait, beside the newest. A span that ends without weights ends together
with a later one.
"""

Event = RoundClosed | HostChanged


class _Waiting(NamedTuple):
    """An event that waits for the engine.

    Args:
        event: without weights, if they did not fit in memory.
        counts: until then.
        ends: whether it is a round that ends a span.
        record: of a round in the journal; None where there is no run, or its weights are left out.
        nbytes: of the weights and the pseudo-gradients.
    """

    event: Event
    counts: Counts
    ends: bool = False
    record: journal.Record | None = None
    nbytes: int = 0


class ClosedRounds:
    """See the module. `put` is called by the coordinator, all other methods by the engine.

    Args:
        merging: how work comes together.
        spans: at whose ends the model is evaluated.
        run: the run directory, or None.
        has_callbacks: whether callbacks act at the ends of spans.
    """

    def __init__(self, merging: Merging, spans: Spans, run: RunDirectory | None, *, has_callbacks: bool) -> None:
        self._merging, self._spans, self._run, self._has_callbacks = merging, spans, run, has_callbacks
        self._reported: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._waiting: deque[_Waiting] = deque()
        self._journals: list[journal.Journal] = []
        self._changed = threading.Condition()
        """Guards what waits and the journals: a round is in both or in neither."""
        self._waiting_bytes = 0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="rudel-rounds", daemon=True)

    def start(
        self,
        step: int,
        seconds: float,
        counts: Counts,
        sums: Sequence[np.ndarray],
        about: Callable[[RoundClosed, Counts], dict[str, Any]],
    ) -> None:
        """Begins to take in events.

        Args:
            step: of the training, where it begins or is continued.
            seconds: of training until then.
            counts: until then.
            sums: of metrics variables since the span began.
            about: entries of the journal's records that do not follow from the round.
        """
        self._step, self._seconds, self._counts, self._before = step, seconds, counts, counts
        self._sums, self._about = list(sums), about
        self._ended: int | None = None
        """The span that the last round has ended."""
        self._thread.start()

    def put(self, event: Event) -> None:
        """Takes in an event, in any thread; returns at once."""
        self._reported.put(event)

    def take(self, seconds: float) -> tuple[Event, Counts] | None:
        """The next event, and what there is to count until then; None if none comes in so many seconds.

        Raises:
            RunError, CheckpointError: an event could not be written.
        """
        with self._changed:
            if not self._waiting and not self._error:
                self._changed.wait(seconds)
            if self._error:
                raise self._error
            if not self._waiting:
                return None
            taken = self._waiting.popleft()
            self._waiting_bytes -= taken.nbytes
            return taken.event, taken.counts

    def close(self) -> None:
        """Takes in what was reported, and nothing after that; what waits can still be taken."""
        if self._thread.ident:
            self._reported.put(None)
            self._thread.join()

    # -- the journal ------------------------------------------------------------------------------------------------

    @property
    def has_journal(self) -> bool:
        """Whether closed rounds are written to a journal now."""
        return bool(self._journals)

    @property
    def journal_size(self) -> int:
        """Bytes of the journal; 0 where there is none."""
        with self._changed:
            return self._journals[-1].size if self._journals else 0

    def begin_journal(self, step: int) -> bool:
        """Begins the journal of a checkpoint that is about to be saved, after the last round that was taken.

        Returns:
            False if rounds wait whose records are not in memory any more, after which a checkpoint can be saved.

        Raises:
            CheckpointError: the journal cannot be written.
        """
        assert self._run
        path = checkpoints.path_of(self._run.path, step)
        with self._changed:
            waiting = [each for each in self._waiting if isinstance(each.event, RoundClosed)]
            if not all(each.record for each in waiting):
                return False
            with contextlib.suppress(OSError):  # which the journal says in a sentence
                path.parent.mkdir(exist_ok=True)
            self._journals.append(journal.Journal(path))
            for each in waiting:
                if each.ends and self._has_callbacks:
                    self._end_journals(list(self._journals))
                    break
                if each.record:
                    self._journals[-1].append(each.record)
        return True

    def end_older_journals(self) -> None:
        """Ends all journals but the one that was begun last, whose checkpoint is saved."""
        with self._changed:
            self._end_journals(self._journals[:-1])

    def end_journals(self) -> None:
        """Ends all journals."""
        with self._changed:
            self._end_journals(list(self._journals))

    def add_record(self, record: dict[str, Any], *, evaluated: bool) -> bool:
        """Writes the record of a span to the journal, if there is one.

        Args:
            record: with its metrics.
            evaluated: whether these are all; if not, it counts until another one of the same span comes.

        Returns:
            Whether there is one.

        Raises:
            CheckpointError: it cannot be written.
        """
        with self._changed:
            self._append(journal.Record({"record": record, "evaluated": evaluated}, []))
            return bool(self._journals)

    def _end_journals(self, ended: Sequence[journal.Journal]) -> None:
        for each in ended:
            each.close()
            self._journals.remove(each)

    def _append(self, record: journal.Record) -> None:
        for each in self._journals:
            each.append(record)

    # -- the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while (event := self._reported.get()) is not None:
                self._take_in(event)
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _take_in(self, event: Event) -> None:
        self._counts = self._counts.after(event, self._before)
        waiting = _Waiting(event, self._counts)
        if isinstance(event, RoundClosed):
            self._sums = added(self._sums, event.metrics) if self._sums and self._ended is None else event.metrics
            self._ended, self._step = self._spans.ended(self._step, event.state.steps), event.state.steps
            record = self._record_of(event) if self._run else None
            size = event.state.nbytes + sum(len(arrival.delta) for arrival in event.arrivals)
            waiting = _Waiting(event, self._counts, self._ended is not None, record, size)
        if self._run:
            self._run.append_round(self._line_of(event))
        with self._changed:
            if waiting.ends and self._has_callbacks:
                self._end_journals(list(self._journals))
            if waiting.record:
                self._append(waiting.record)
            self._make_room()
            self._waiting.append(waiting)
            self._waiting_bytes += waiting.nbytes
            self._changed.notify_all()

    def _make_room(self) -> None:
        """Leaves out weights of rounds that wait, as far as they take too much memory; those at ends of spans last."""
        for also_ends in (False, True):
            for place, each in enumerate(self._waiting):
                if self._waiting_bytes <= _WAITING_BYTES:
                    return
                if isinstance(each.event, RoundClosed) and each.nbytes and (also_ends or not each.ends):
                    arrivals = tuple(replace(arrival, delta=b"") for arrival in each.event.arrivals)
                    light = replace(each.event, state=each.event.state.without_weights(), arrivals=arrivals)
                    self._waiting[place] = _Waiting(light, each.counts, each.ends)
                    self._waiting_bytes -= each.nbytes

    def _line_of(self, event: Event) -> dict[str, Any]:
        """The line of rounds.jsonl."""
        seconds, counted = round(self._seconds + event.seconds, 4), self._merging.counted
        if isinstance(event, HostChanged):
            return {"event": event.event, "host": event.name, "seconds": seconds, "reason": event.reason}
        hosts = {
            host.name: {
                "steps": host.steps, "seconds": round(host.seconds, 4), "computed": round(host.computed, 4),
                "waited": round(host.waited, 4), "merged_at": host.merged_at, "memory": host.memory,
                "cpu": round(host.cpu, 4), "sent": host.sent, "received": host.received,
            } | ({counted: host.answers} if counted != "rounds" else {})
            for host in event.replicas
        }  # fmt: skip
        return {
            "round": event.state.round, "step": event.state.steps, "seconds": seconds,
            "sent": self._counts.sent, "received": self._counts.received, "hosts": hosts,
        }  # fmt: skip

    def _record_of(self, closed: RoundClosed) -> journal.Record:
        """The record of a round in the journal."""
        document = {
            "round": closed.state.round,
            "step": closed.state.steps,
            "seconds": self._seconds + closed.seconds,
            "ended_at": None if self._ended is None else self._spans.last(self._ended),
            "arrivals": [(arrival.steps, arrival.weight, arrival.fresh) for arrival in closed.arrivals],
            **self._about(closed, self._counts),
        }
        payloads = [array_bytes.pack(closed.state.statistics), array_bytes.pack(self._sums)]
        return journal.Record(document, [*payloads, *(arrival.delta for arrival in closed.arrivals)])
