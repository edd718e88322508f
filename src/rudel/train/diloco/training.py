"""The strategy `diloco`: a training whose steps are taken by replicas on the workers of a cluster.

This side keeps the books: it puts the merged weights into the model, evaluates them, lets callbacks act, writes metrics
and checkpoints, and shows what happens. The coordinator, in a thread of its own, closes round after round and does
not wait for any of that.

A checkpoint is written every quarter of a minute; it holds the weights, the outer optimizer's state, the residual of
the merges, and the inner optimizer's slots of a replica. What a round changes is in a journal beside it as soon as the
round is closed, so a training that is killed loses the round under way and no other. An evaluation that takes long
compared with the epochs is put off to the end, if nothing waits for it.
"""

import asyncio
import concurrent.futures
import contextlib
import queue
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from rudel.backend import backend_name
from rudel.cluster.fleet import installed
from rudel.errors import ModelError, NonFiniteError, RunError
from rudel.internals.keras import weight_average
from rudel.train import checkpoint as checkpoints
from rudel.train import state as model_state
from rudel.train.checkpoint import Checkpoint
from rudel.train.diloco import journal, wire
from rudel.train.diloco.codec import make_codec
from rudel.train.diloco.coordinator import Coordinator, outer_step
from rudel.train.diloco.leader import Leader
from rudel.train.diloco.lengths import Agreed, Speeds
from rudel.train.diloco.outer import make_outer
from rudel.train.diloco.rates import Rates
from rudel.train.diloco.rounds import Arrival, HostChanged, RoundClosed, Task, World
from rudel.train.diloco.service import replica_guest
from rudel.train.diloco.setups import Setups
from rudel.train.diloco.source import Source
from rudel.train.diloco.vector import Layout
from rudel.train.evaluation import as_floats
from rudel.train.on_hosts import purpose_of, unforeseen
from rudel.train.single import Training
from rudel.train.vocabulary import why_not_finite

_SLOTS_SECONDS = 15.0
"""Time between two askings for a replica's optimizer slots."""

_CHECKPOINT_SECONDS = 15.0
_CHECKPOINT_SHARE, _CHECKPOINT_SHARE_WITHOUT_JOURNAL = 0.05, 0.2
"""The most that checkpoints take of the time."""

_JOURNAL_FACTOR, _LARGE_JOURNAL = 16.0, 2**24
"""A checkpoint is due when the journal is larger than the weights by this factor, and than so many bytes."""

_SHOW_SECONDS = 0.2
"""Time between two readings of the metrics, which cost milliseconds."""

_EVALUATION_SHARE = 0.05
_LATE_EVALUATIONS = 64
_LATE_BYTES = 256e6


@dataclass(frozen=True)
class _Late:
    """A span that has ended and is not evaluated yet.

    Args:
        span: its number, from 0.
        logs: its training metrics.
        world: the state at its end.
        sums: of its metrics variables.
        seconds: of training until its end.
    """

    span: int
    logs: dict[str, float]
    world: World
    sums: list[np.ndarray]
    seconds: float


class DilocoTraining(Training):
    """See the module; arguments as of `Training`, and:

    Args:
        cluster: a running `rudel.Cluster`, or a client taken over by `rudel.cluster.engine.Borrowed`.
        options: of the strategy.
    """

    _strategy, _counted = "diloco", "rounds"

    def __init__(self, *arguments: Any, cluster: Any, options: Any) -> None:
        self._cluster = cluster
        self._given = options
        self._options: Any = options.chosen_for(max(1, cluster.count), arguments[1].schedule.total_steps)
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._late: deque[_Late] = deque()
        self._coordinator: Leader
        self._hosts: list[str] = []
        self._sent = self._received = self._lost = self._joined = 0
        self._sent_before = self._received_before = 0
        self._sums: list[np.ndarray] = []
        self._slots: bytes | None = None
        self._journal: journal.Journal | None = None
        self._journaled: dict[int, bool] = {}
        self._last_shown = 0.0
        self._average = np.empty(0, np.float32)
        super().__init__(*arguments)

    @property
    def about(self) -> dict[str, Any]:
        """What the summary says of how it was trained."""
        steps = self.position.step
        return {
            "strategy": self._strategy,
            "strategy_options": vars(self._options),
            "hosts": self._hosts,
            "steps": steps // max(1, len(self._hosts)),
            "samples": steps * self.job.schedule.batch_size,
            self._counted: self._world.round,
            "bytes_sent": self._sent,
            "bytes_received": self._received,
            "workers_lost": self._lost,
            "workers_joined": self._joined,
        }

    def _compile(self) -> None:
        state = self._state
        self._source = Source(self.job.train, self.job.schedule.shuffle, self.job.model)
        self._make_evaluator()
        if self._evaluator:
            began = time.perf_counter()
            self._evaluator.run(state)
            self._evaluation_seconds = time.perf_counter() - began
        self._ema, self._averages = weight_average(self._model.optimizer) or (None, [])
        if self._ema is not None and self._optimizer.ema_overwrite_frequency:
            raise ModelError(
                "The optimizer of the model puts averages in the place of weights as it goes on "
                "(ema_overwrite_frequency), which hosts cannot: leave that out, or train on one computer."
            )
        self._setups = Setups(self.job, state, self._source)
        self._statistics = self._setups.statistics
        self._rates = Rates(self._optimizer, self.job.schedule.total_steps)
        if (backend := backend_name()) != "jax":
            from rudel.train.backends.steps import SLOWER

            self.position.clock.compile += self._setups.pack_model()
            self.display.note(SLOWER.format(backend))
        host = model_state.to_host(state)
        self._layout = Layout.of(host.trainable)
        momentum, residual = self._first_memory(self._layout.size)
        self._world = World(
            round=0,
            steps=0,
            weights=self._layout.vector(host.trainable),
            momentum=momentum,
            residual=residual,
            statistics=[np.asarray(host.non_trainable[i], np.float32) for i in self._statistics],
        )
        self._host_state = host
        self._rates.read()

    # -- what another way of merging does otherwise -----------------------------------------------------------------

    def _first_memory(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The state of the outer optimizer, and what merges have left out, before anything was merged."""
        return make_outer(self._options.outer).init(size), np.zeros(size, np.float32)

    def _take_agreed(self, agreed: Agreed) -> None:
        self._options = replace(self._options, round_steps=agreed.steps)

    def _make_coordinator(self, fleet: Any, task: Task) -> Leader:
        return Coordinator(fleet, task, self._world, self._slots, self._events.put)

    def _rounds_in(self, arrivals: Sequence[Arrival]) -> int:
        """How many rounds are closed by what has arrived."""
        return 1

    def _moved(self, world: World, arrivals: Sequence[Arrival], statistics: list[np.ndarray], names: Any) -> World:
        """The world after a record of the journal.

        Args:
            world: before it; unchanged.
            arrivals: deltas in the order in which they came.
            statistics: averaged variables after it.
            names: of the outer optimizer and the codecs.
        """
        codec, deltas = make_codec(names["delta_codec"]), np.zeros(self._layout.size, np.float32)
        for arrival in arrivals:
            deltas += np.float32(arrival.steps) * codec.decode(arrival.delta, self._layout)
        steps, outer = sum(arrival.steps for arrival in arrivals), make_outer(names["outer"])
        merge_codec = make_codec(names["merge_codec"])
        after = outer_step(world, deltas, steps, statistics, outer, merge_codec, self._layout)[1]
        return after.averaged(world, self._ema, steps / len(arrivals))

    # -- the training -----------------------------------------------------------------------------------------------

    def _train(self) -> None:
        if self.position.step >= self.job.schedule.total_steps or self.ended:
            return
        try:
            self._train_on_hosts()
        finally:
            self._end_journal()

    def _train_on_hosts(self) -> None:
        began = time.perf_counter()
        if self.run:
            self.run.keep_rounds(self._world.round)
            if self.position.step:
                self._log_event({"event": "resumed", "seconds": round(self.position.clock.train, 4)})
        background = self._cluster.background
        with installed(self._cluster, replica_guest(backend_name(), purpose_of(self.run))) as fleet:
            self._wait_for(background.start(self._prepare(fleet)))
            self.position.clock.setup += time.perf_counter() - began - self._coordinator.compile_seconds
            self.position.clock.compile += self._coordinator.compile_seconds
            self._train_before, self._recorded_step = self.position.clock.train, self.position.step
            self._last_slots = self._last_save = time.perf_counter()
            self._last_evaluation, self._save_seconds = time.perf_counter(), 0.0
            self._save()
            self._callbacks.on_epoch_begin(self.spans.number(self.position.step))
            self._rates.read()
            self.display.hosts(self._hosts)
            done = background.start(self._coordinator.run())
            try:
                while not (done.done() and self._events.empty()):
                    self._take_events()
                    if self._interrupts.received or self.ended:
                        self._coordinator.stop()
            except BaseException:
                done.cancel()
                raise
        self._evaluate_late()
        self._take_over(self._world)
        if not isinstance(done.exception(), NonFiniteError):
            self._save()
        with unforeseen(self.run):
            done.result()
        self._interrupts.act(self._told())

    def _wait_for(self, future: "concurrent.futures.Future[None]") -> None:
        while not future.done():
            concurrent.futures.wait([future], timeout=0.2)
            self._show_delivered()
            if self._interrupts.received:
                future.cancel()
                self._interrupts.act(self._told())
        with unforeseen(self.run):
            future.result()

    def _show_delivered(self) -> None:
        """Shows how much of the program, the examples and the weights has arrived at the hosts."""
        coordinator = getattr(self, "_coordinator", None)
        if self.display.live and coordinator and (delivered := coordinator.delivered):
            self.display.sending(*delivered)

    def _agree(self, replicas: int, speeds: Speeds) -> Agreed:
        agreed = self._given.agree(replicas, self.job.schedule.total_steps, speeds)
        named = {name: value for name, value in vars(agreed).items() if name != "steps"}
        self._options = replace(self._options, **named)
        self._take_agreed(agreed)
        return agreed

    async def _prepare(self, fleet: Any) -> None:
        self._hosts = sorted(await fleet.members())
        parcels = await asyncio.to_thread(self._source.pieces, len(self._hosts))
        task = Task(
            total_steps=self.job.schedule.total_steps,
            agree=self._agree,
            batch_size=self.job.schedule.batch_size,
            layout=self._layout,
            pieces=parcels,
            setup=self._setup,
            rates=self._rates_of,
            why_not_finite=lambda: why_not_finite(self.job.model, self.job.train),
            patience=self._options.patience,
            ema=self._ema,
        )
        self._coordinator = self._make_coordinator(fleet, task)
        await self._coordinator.prepare()

    # -- what replicas are made of --------------------------------------------------------------------------------

    def _setup(self, number: int, description: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """What `Setups.setup` returns and raises; called in other threads."""
        options, metrics = self._options, [np.asarray(m) for m in self._initial_metrics]
        names = {"delta_codec": options.delta_codec, "merge_codec": options.merge_codec}
        return self._setups.setup(number, description, len(self._hosts), self._host_state, metrics, names)

    def _rates_of(self, first: int, last: int, count: int) -> np.ndarray:
        return self._rates.of(first, last, count, self._options.rate_factor)

    @property
    def _optimizer(self) -> Any:
        from rudel.internals.keras import inner_optimizer

        return inner_optimizer(self._model.optimizer)

    # -- what the coordinator tells -------------------------------------------------------------------------------

    def _take_events(self) -> None:
        try:
            event = self._events.get(timeout=0.1)
        except queue.Empty:
            return
        if isinstance(event, HostChanged):
            self._lost += event.event == "lost"
            self._joined += event.event == "joined"
            self._log_event(
                {
                    "event": event.event,
                    "host": event.name,
                    "seconds": round(self._train_before + event.seconds, 4),
                    "reason": event.reason,
                }
            )
            self.display.host(event)
            return
        if self.ended:
            return  # a round that was closed before the others heard of the end
        self._take_round(event)
        if self._save_is_due():
            self._take_over(self._world)
            self._save()
        elif self._journal:
            self._journal.append(self._record_of_round(event))

    def _take_round(self, closed: RoundClosed) -> None:
        position, schedule = self.position, self.job.schedule
        self._world = closed.world
        self._sent, self._received = self._sent_before + closed.sent, self._received_before + closed.received
        self._slots = closed.slots or self._slots
        self._sums = [a + b for a, b in zip(self._sums, closed.metrics, strict=True)] if self._sums else closed.metrics
        before, position.step = position.step, min(closed.world.steps, schedule.total_steps)
        position.clock.train = self._train_before + closed.seconds
        self._log_round(closed)
        now = time.perf_counter()
        span = self.spans.number(before)
        ends = position.step >= self.spans.last(span)
        logs: dict[str, float] = {}
        if ends or (self.display.live and now - self._last_shown > _SHOW_SECONDS):
            self._last_shown = now
            logs = self._metrics_of(self._sums, closed.logs)
            self.display.advance(position.step, logs, position.clock.train)
        self.display.round(closed)
        if self.run and now - self._last_slots > _SLOTS_SECONDS:
            self._last_slots = now
            self._coordinator.want_slots()
        if ends:
            self._end_spans(span, logs)

    def _end_spans(self, span: int, logs: dict[str, float]) -> None:
        """A round has gone beyond the end of a span, or of several."""
        span = max(span, self.spans.number(max(self.position.step - 1, 0)))
        span -= self.position.step < self.spans.last(span)
        sums, self._sums = self._sums, []
        self._late.append(_Late(span, logs, self._world, sums, self.position.clock.train))
        if self.job.callbacks:  # what these remember is in checkpoints alone
            self._end_journal()
        if not self._evaluation_can_wait():
            self._evaluate_late()
        if self.position.step < self.job.schedule.total_steps:
            self._callbacks.on_epoch_begin(span + 1)
            self._rates.read()

    def _evaluation_can_wait(self) -> bool:
        if self._evaluator is None or self.job.callbacks or self.job.monitor or len(self._late) > _LATE_EVALUATIONS:
            return False
        if self._world.weights.nbytes * len(self._late) > _LATE_BYTES:
            return False
        since = time.perf_counter() - self._last_evaluation
        return self._evaluation_seconds > _EVALUATION_SHARE * since

    def _evaluate_late(self) -> None:
        while self._late:
            late = self._late.popleft()
            self._take_over(late.world, late.sums)
            began = time.perf_counter()
            logs = self._end_of_span(late.span, late.logs)
            self._last_evaluation = time.perf_counter()
            self._evaluation_seconds = self._last_evaluation - began
            with self._back_at(late):
                self._record(late.span, logs)
            self.position.stopped = bool(self._model.stop_training)

    @contextlib.contextmanager
    def _back_at(self, late: "_Late") -> Iterator[None]:
        """While it is entered, the position is where it was when a span ended."""
        position, clock = self.position, self.position.clock
        here, now = position.step, clock.train
        position.step, clock.train = min(self.spans.last(late.span), here), late.seconds
        yield
        position.step, clock.train = here, now

    def _take_over(self, world: World, metrics: list[np.ndarray] | None = None) -> None:
        """Makes the state of the model of a world, and of sums of metrics variables."""
        old = self._host_state
        weights = zip(self._layout.arrays(world.weights), old.trainable, strict=True)
        trainable = [value.astype(before.dtype) for value, before in weights]
        non_trainable = list(old.non_trainable)
        for index, value in zip(self._statistics, world.statistics, strict=True):
            non_trainable[index] = value.astype(non_trainable[index].dtype)
        self._optimizer.iterations.assign(world.steps)
        self._average = world.average
        self._state = model_state.ModelState(
            trainable, non_trainable, [], metrics or [value.copy() for value in self._initial_metrics]
        )

    def _write_state(self) -> None:
        """Puts weights, their average and metrics into the variables; the optimizer's slots are with the replicas."""
        own = model_state.variables(self._model)._replace(optimizer=[])
        jax.tree.map(lambda variable, value: variable.assign(value), own, self._state._replace(optimizer=[]))
        if self._average.size:
            for variable, value in zip(self._averages, self._layout.arrays(self._average), strict=True):
                variable.assign(value)

    def _metrics_of(self, sums: list[np.ndarray], last: list[np.ndarray]) -> dict[str, float]:
        """The metrics that these variables stand for; of a model that logs something else, what it logged last."""
        for variable, value in zip(self._model.metrics_variables, sums, strict=True):
            variable.assign(value)
        results = as_floats(self._model.get_metrics_result())
        names = self._setups.log_names
        return results if set(results) == set(names) else as_floats(dict(zip(names, last, strict=True)))

    # -- what is kept ---------------------------------------------------------------------------------------------

    def _save_is_due(self) -> bool:
        if not self.run:
            return False
        since = time.perf_counter() - self._last_save
        if self._journal is None:
            return self._save_seconds <= _CHECKPOINT_SHARE_WITHOUT_JOURNAL * since
        if self._journal.size > max(_JOURNAL_FACTOR * self._world.weights.nbytes, _LARGE_JOURNAL):
            return True
        return since > _CHECKPOINT_SECONDS and self._save_seconds <= _CHECKPOINT_SHARE * since

    def _save(self) -> None:
        if not self.run:
            return
        began = time.perf_counter()
        super()._save()
        self._end_journal()
        self._journal = journal.Journal(checkpoints.path_of(self.run.path, self.position.step))
        self._journaled = {}
        self._last_save = time.perf_counter()
        self._save_seconds = self._last_save - began

    def _end_journal(self) -> None:
        if self._journal:
            self._journal.close()
        self._journal = None

    def _record_of_round(self, closed: RoundClosed) -> journal.Record:
        """What the journal has of a round: what the replicas brought, and what people and callbacks have seen."""
        parts = [wire.pack(closed.world.statistics), wire.pack(self._sums)]
        return journal.Record(self._document_of(closed), [*parts, *(arrival.delta for arrival in closed.arrivals)])

    def _document_of(self, closed: RoundClosed) -> dict[str, Any]:
        """The plain values of a round's record in the journal."""
        new = [r for r in self.position.records if not self._journaled.get(r["epoch"])]
        late = [r for r in self._records_of_late() if r["epoch"] not in self._journaled]
        self._journaled |= {r["epoch"]: True for r in new} | {r["epoch"]: False for r in late}
        return {
            "round": closed.world.round,
            "step": closed.world.steps,
            "seconds": self.position.clock.train,
            "outer": self._options.outer,
            "delta_codec": self._options.delta_codec,
            "merge_codec": self._options.merge_codec,
            "arrivals": [(arrival.steps, arrival.weight, arrival.fresh) for arrival in closed.arrivals],
            self._strategy: self._counts(),
            "records": new + late,
        }

    def _catch_up(self) -> None:
        assert self.run
        for record in journal.read(checkpoints.path_of(self.run.path, self.position.step)):
            document, (statistics, sums, *deltas) = record.document, record.parts
            arrivals = [Arrival(delta, *of) for delta, of in zip(deltas, document["arrivals"], strict=True)]
            if document["round"] == self._world.round + self._rounds_in(arrivals):
                self._world = self._moved(self._world, arrivals, wire.unpack(statistics), document)
                self._sums = wire.unpack(sums)
                self._replayed(document)
        self._take_over(self._world)

    def _replayed(self, document: dict[str, Any]) -> None:
        """Remembers what else a round of the journal has."""
        position = self.position
        position.step = min(document["step"], self.job.schedule.total_steps)
        position.clock.train = document["seconds"]
        self._take_counts(document[self._strategy])
        known = {r["epoch"]: r for r in [*position.records, *document["records"]]}
        position.records = [known[epoch] for epoch in sorted(known)]

    def _to_keep(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        world = self._world
        vectors = ("weights", "momentum", "residual", "average")
        parts = {name: [getattr(world, name)] for name in vectors}
        parts |= {"statistics": world.statistics, "sums": self._sums}
        arrays = {f"{name}/{i}": array for name, values in parts.items() for i, array in enumerate(values)}
        if self._slots is not None:
            arrays["slots"] = np.frombuffer(self._slots, np.uint8)
        counts = self._counts() | {"round": world.round, "sums": len(self._sums)}
        return arrays, {self._strategy: counts, "records": self.position.records + self._records_of_late()}

    def _counts(self) -> dict[str, Any]:
        return {
            "sent": self._sent, "received": self._received, "lost": self._lost, "joined": self._joined,
            "hosts": self._hosts, "learning_rate": self._rates.plain,
        }  # fmt: skip

    def _take_counts(self, counts: dict[str, Any]) -> None:
        self._hosts = counts["hosts"]
        self._lost, self._joined = counts["lost"], counts["joined"]
        self._sent = self._sent_before = counts["sent"]
        self._received = self._received_before = counts["received"]

    def _records_of_late(self) -> list[dict[str, Any]]:
        """Records of epochs whose evaluation was put off, as they are kept in case it is never made."""
        records = []
        for late in self._late:
            with self._back_at(late):
                records.append(self._record_of(late.span, late.logs))
        return records

    def _restore_state(self, saved: Checkpoint) -> None:
        assert self.run
        before, old = saved.document.get(self._strategy, {}), self._world
        empty = np.empty(0, np.float32)
        vectors = [saved.arrays.get(f"{name}/0", empty) for name in ("weights", "momentum", "residual")]
        statistics = [saved.arrays.get(f"statistics/{i}", empty) for i in range(len(old.statistics))]
        expected = [old.weights, old.momentum, old.residual, *old.statistics]
        if not before or [a.shape for a in [*vectors, *statistics]] != [a.shape for a in expected]:
            raise RunError(
                f"The run {self.run.path} was begun with another strategy, another version of Rudel, or a model of "
                "other shapes: resume it as it was begun, or give another directory with --run."
            )
        average = saved.arrays.get("average/0", empty)
        self._world = World(before["round"], saved.step, *vectors, statistics=statistics, average=average)
        slots = saved.arrays.get("slots")
        self._slots = None if slots is None else slots.tobytes()
        self._sums = [saved.arrays[f"sums/{i}"] for i in range(before["sums"])]
        self._rates.set(before["learning_rate"])
        self._take_counts(before)
        self._take_over(self._world)

    def _log_round(self, closed: RoundClosed) -> None:
        hosts = {
            told.name: {
                "steps": told.steps, "seconds": round(told.seconds, 4), "computed": round(told.computed, 4),
                "waited": round(told.waited, 4), "merged_at": told.merged_at, "memory": told.memory,
                "cpu": round(told.cpu, 4), "sent": told.sent, "received": told.received,
            } | ({self._counted: told.answers} if self._counted != "rounds" else {})
            for told in closed.replicas
        }  # fmt: skip
        self._log_event(
            {
                "round": closed.world.round, "step": closed.world.steps, "seconds": round(self.position.clock.train, 4),
                "sent": self._sent, "received": self._received, "hosts": hosts,
            }
        )  # fmt: skip

    def _log_event(self, event: dict[str, Any]) -> None:
        if self.run:
            self.run.append_round(event)
