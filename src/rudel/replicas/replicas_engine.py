"""The engine of the strategies `diloco` and `async`: replicas on the workers of a cluster take the steps.

A coordinator, in a thread of its own, merges the work of the replicas and does not wait for anything here. This engine
puts the merged weights into the model where the session needs them, and evaluates them. An evaluation that takes long
compared with the epochs is put off to the end, if nothing waits for it. A checkpoint is written every quarter of a
minute, and a journal in between; see `replica_progress.py` and `closed_rounds.py`.

The optimizer's slots are with the replicas. Callbacks see the count of steps; after the training, the optimizer here is
as it was before.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from rudel.backend import backend_name, keras_here
from rudel.cluster.fleet import installed
from rudel.data.batch_source import BatchStream
from rudel.errors import ModelError, NonFiniteError
from rudel.internals.keras import inner_optimizer, iterations_of, set_iterations, weight_average
from rudel.loop import model_state
from rudel.loop.evaluation import Evaluator, make_evaluator
from rudel.loop.metric_values import as_floats
from rudel.loop.vocabulary import why_not_finite
from rudel.replicas.closed_rounds import ClosedRounds
from rudel.replicas.coordinator import Coordinator
from rudel.replicas.keras_rates import is_momentum_sgd
from rudel.replicas.local_rates import Rates
from rudel.replicas.merging import Merging
from rudel.replicas.merging_options import MergingOptions
from rudel.replicas.replica_progress import ReplicaProgress
from rudel.replicas.replica_service import replica_guest
from rudel.replicas.replica_spec import spec_of
from rudel.replicas.round_lengths import Agreed, Speeds
from rudel.replicas.rounds import Counts, GlobalState, HostChanged, RoundClosed, Task
from rudel.runs.checkpoint import Checkpoint
from rudel.session.job import Job
from rudel.session.on_hosts import purpose_of, unforeseen
from rudel.session.session import Session

if TYPE_CHECKING:
    from rudel.cluster.fleet import Fleet
    from rudel.cluster.running_cluster import RunningCluster


_SLOTS_SECONDS = 15.0
"""Time between two requests for a replica's optimizer slots."""

_CHECKPOINT_SECONDS = 15.0
_CHECKPOINT_SHARE, _CHECKPOINT_SHARE_WITHOUT_JOURNAL = 0.05, 0.2
"""The most that checkpoints take of the time."""

_JOURNAL_FACTOR, _LARGE_JOURNAL = 16.0, 2**24
"""A journal is full when it is larger than the weights by this factor, and than so many bytes: reading it would take
longer than a checkpoint is worth.
"""

_SHOW_SECONDS = 0.2
"""Time between two readings of the metrics, which cost milliseconds."""

_EVALUATION_SHARE = 0.05
"""The most that evaluations take of the time of a training on hosts; what would take more waits for its end."""

_LATE_EVALUATIONS = 64
_LATE_BYTES = 256e6


@dataclass(frozen=True)
class _Late:
    """A span that has ended and is not evaluated yet.

    Args:
        span: its number, from 0.
        record: of it, with its training metrics, as it is kept in case the evaluation is never made.
        state: the global state at its end, as far as it is evaluated.
        sums: of its metrics variables.
    """

    span: int
    record: dict[str, Any]
    state: GlobalState
    sums: list[np.ndarray]


class ReplicasEngine:
    """An `Engine`; see the module.

    Args:
        job: the training.
        cluster: a running `rudel.Cluster`, or a client taken over by `rudel.cluster.ssh_cluster.ClientCluster`.
        options: of the strategy.
        merging: how the work of the replicas comes together.
    """

    def __init__(self, job: Job, cluster: "RunningCluster", options: MergingOptions, merging: Merging) -> None:
        self._job, self._cluster, self._options, self._merging = job, cluster, options, merging
        self._replicas, self._sgd = max(1, cluster.count), is_momentum_sgd(job.model.optimizer)
        self._agreed = options.chosen_for(self._replicas, job.schedule.total_steps, self._sgd)
        self._late: deque[_Late] = deque()
        self._coordinator: Coordinator | None = None
        self._evaluator: Evaluator | None = None
        self._average = np.empty(0, np.float32)
        self._last_shown = self._last_evaluation = self._evaluation_seconds = 0.0

    def prepare(self, session: Session) -> None:
        """See `Engine`."""
        job, self._session, self._position = self._job, session, session.position
        self._model, clock = session.model, session.position.clock
        self._state = state = model_state.read(session.model)
        if job.validation is not None:
            evaluator = make_evaluator(job.model, state, job.validation, job.validation_batch_size, "validation")
            self._evaluator = evaluator
            clock.compile += evaluator.compile_seconds
            if not isinstance(job.validation, BatchStream) or job.validation.repeatable:  # what is read comes again
                began = time.perf_counter()
                evaluator.run(state)
                self._evaluation_seconds = time.perf_counter() - began
        self._spec = spec = spec_of(job, session.initial_metrics, self._replicas)
        self._optimizer, self._averages = inner_optimizer(job.model.optimizer), []
        self._iterations = int(iterations_of(self._optimizer))
        if average := weight_average(job.model.optimizer):
            self._averages = average[1]
        self._rates = Rates(self._optimizer, job.schedule.total_steps)
        if (backend := backend_name()) != "jax":
            from rudel.replicas.keras_steps import SLOWER

            clock.compile += spec.packing_seconds
            session.display.note(SLOWER.format(backend))
        global_state = spec.global_state(*self._merging.first_memory(self._agreed.outer, spec.layout.size))
        self._progress = ReplicaProgress(self._merging, spec, global_state, self._rates, session.position, session.run)
        self._rounds = ClosedRounds(self._merging, session.spans, session.run, has_callbacks=bool(job.callbacks))
        self._rates.read()

    def restore(self, saved: Checkpoint) -> None:
        """See `Engine`; continues from the last round that was kept."""
        self._progress.restore(saved)
        self._take_over(self._progress.state)

    def run(self) -> None:
        """See `Engine`."""
        session = self._session
        try:
            self._end_restored_spans()
            if not session.done:
                self._train_on_hosts()
        finally:
            self._rounds.close()
            self._rounds.end_journals()
            set_iterations(self._optimizer, self._iterations)

    def write(self) -> None:
        """See `Engine`: weights, their average and metrics; the optimizer's slots are with the replicas."""
        own = model_state.variables(self._model)._replace(optimizer=[])
        jax.tree.map(lambda variable, value: variable.assign(value), own, self._state._replace(optimizer=[]))
        if self._average.size:
            for variable, value in zip(self._averages, self._spec.layout.arrays(self._average), strict=True):
                variable.assign(value)

    def describe(self) -> dict[str, Any]:
        """See `Engine`."""
        steps, progress = self._position.step, self._progress
        chosen = {
            self._options.length if name == "steps" else name: value for name, value in vars(self._agreed).items()
        }
        return {
            "strategy": self._merging.strategy,
            "strategy_options": chosen | {"patience": self._options.patience},
            "hosts": progress.hosts,
            "steps": int(progress.steps_each),
            "samples": steps * self._job.schedule.batch_size,
            self._merging.counted: progress.state.round,
            "bytes_sent": progress.counts.sent,
            "bytes_received": progress.counts.received,
            "workers_lost": progress.counts.lost,
            "workers_joined": progress.counts.joined,
        }

    def close(self) -> None:
        """See `Engine`."""

    # -- the training -----------------------------------------------------------------------------------------------

    def _train_on_hosts(self) -> None:
        session, position, progress, began = self._session, self._position, self._progress, time.perf_counter()
        if session.run:
            session.run.keep_rounds(progress.state.round)
            if position.step:
                session.run.append_round({"event": "resumed", "seconds": round(position.clock.train, 4)})
        background = self._cluster.background
        with installed(self._cluster, replica_guest(backend_name(), purpose_of(session.run))) as fleet:
            self._wait_for(background.start(self._prepare_replicas(fleet)))
            coordinator = self._coordinator
            assert coordinator
            position.clock.setup += time.perf_counter() - began - coordinator.compile_seconds
            position.clock.compile += coordinator.compile_seconds
            self._train_before, self._open_span = position.clock.train, session.spans.number(position.step)
            self._rounds.start(position.step, self._train_before, progress.counts, progress.sums, self._about_round)
            self._last_slots = self._last_save = self._last_evaluation = time.perf_counter()
            self._save_seconds = 0.0
            if not progress.begun:
                self._begin_span()
            self._save()
            session.display.hosts(progress.hosts, self._merging.counted)
            done = background.start(coordinator.run())
            try:
                while not done.done():
                    self._take_event(0.1)
                    if session.interrupts.received or session.ended:
                        coordinator.stop()
                self._rounds.close()
                while self._take_event(0.0):
                    pass
            except BaseException:
                done.cancel()
                raise
        self._evaluate_late()
        self._take_over(progress.state)
        if session.run and session.ended:
            session.run.keep_rounds(progress.state.round)
        if not isinstance(done.exception(), NonFiniteError):
            self._save()
        with unforeseen(session.run):
            done.result()
        session.act_on_interrupt()

    def _wait_for(self, future: "concurrent.futures.Future[None]") -> None:
        while not future.done():
            concurrent.futures.wait([future], timeout=0.2)
            self._show_delivered()
            if self._session.interrupts.received:
                future.cancel()
                self._session.act_on_interrupt()
        with unforeseen(self._session.run):
            future.result()

    def _show_delivered(self) -> None:
        """Shows how much of the program, the examples and the weights has arrived at the hosts."""
        display, coordinator = self._session.display, self._coordinator
        if display.live and coordinator and (delivered := coordinator.delivered):
            display.sending(*delivered)

    def _agree(self, replicas: int, speeds: Speeds) -> Agreed:
        """Settles the options of all rounds; called in the thread of the coordinator."""
        self._agreed = self._options.agree(replicas, self._job.schedule.total_steps, replace(speeds, sgd=self._sgd))
        return self._agreed

    async def _prepare_replicas(self, fleet: "Fleet") -> None:
        job, spec = self._job, self._spec
        self._progress.begin_on(await fleet.members())
        task = Task(
            total_steps=job.schedule.total_steps,
            agree=self._agree,
            batch_size=job.schedule.batch_size,
            layout=spec.layout,
            pieces=await asyncio.to_thread(spec.source.pieces, len(self._progress.hosts)),
            setup=self._setup,
            rates=lambda first, last, count: self._rates.of(first, last, count, self._agreed.rate_factor),
            why_not_finite=lambda: why_not_finite(job.model, job.train),
            patience=self._options.patience,
            averages=spec.averages,
            to_continue=self._session.store.after_interrupt(),
        )
        progress = self._progress
        make_leader = functools.partial(self._merging.leader, state=progress.state)
        self._coordinator = Coordinator(make_leader, fleet, task, progress.slots, self._rounds.put)
        await self._coordinator.prepare()

    def _setup(self, number: int, description: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """Calls `ReplicaSpec.setup`, in other threads."""
        codecs = self._agreed.delta_codec, self._agreed.merge_codec
        return self._spec.setup(number, description, len(self._progress.hosts), *codecs)

    # -- what the coordinator reports -------------------------------------------------------------------------------

    def _about_round(self, closed: RoundClosed, counts: Counts) -> dict[str, Any]:
        """Entries of a round's record in the journal; called in the thread of `ClosedRounds`."""
        agreed, recent = self._agreed, self._spec.averages.recent
        names = {"outer": agreed.outer, "delta_codec": agreed.delta_codec, "merge_codec": agreed.merge_codec}
        return names | {"recent": recent, "logs": self._logs_of(closed)} | self._progress.entries(counts)

    def _take_event(self, seconds: float) -> bool:
        """Takes the next event in; returns whether there was one in so many seconds."""
        if not (taken := self._rounds.take(seconds)):
            return False
        event, counts = taken
        ended = self._session.ended  # the coordinator closes rounds before it hears of that
        self._progress.counts = self._progress.counts if ended else counts
        if isinstance(event, HostChanged):
            self._session.display.host(event)
        elif not ended:
            self._take_round(event)
            if self._session.ended or self._save_is_due():
                self._save()
        return True

    def _take_round(self, closed: RoundClosed) -> None:
        session, position, progress = self._session, self._position, self._progress
        progress.take_round(closed)
        position.step = min(closed.state.steps, self._job.schedule.total_steps)
        position.clock.train = self._train_before + closed.seconds
        session.display.round(closed)
        now = time.perf_counter()
        span = session.spans.ended(session.spans.first(self._open_span), position.step)
        ends = span is not None and closed.state.evaluated.size > 0
        logs: dict[str, float] = {}
        if ends or (session.display.live and now - self._last_shown > _SHOW_SECONDS):
            self._last_shown = now
            logs = self._metrics_of(progress.sums, self._logs_of(closed))
            session.display.advance(position.step, logs, position.clock.train)
        if session.run and now - self._last_slots > _SLOTS_SECONDS:
            self._last_slots = now
            assert self._coordinator
            self._coordinator.want_slots()
        if span is not None and ends:
            self._end_spans(span, logs)

    def _logs_of(self, closed: RoundClosed) -> dict[str, float]:
        """What a replica's last step in a round logged, by name."""
        return as_floats(jax.tree.unflatten(self._spec.setups.log_form, closed.logs))

    def _metrics_of(self, sums: list[np.ndarray], last: dict[str, float]) -> dict[str, float]:
        """The metrics that these variables stand for; of a model that logs something else, what it logged last."""
        for variable, value in zip(self._model.metrics_variables, sums, strict=True):
            variable.assign(value)
        return self._session.logs_of_span(last)

    # -- spans ------------------------------------------------------------------------------------------------------

    def _begin_span(self) -> None:
        """Lets callbacks act at the beginning of a span."""
        with self._weights_left():
            self._session.callbacks.on_epoch_begin(self._open_span)
        self._progress.begun = True
        self._rates.read()

    def _end_restored_spans(self) -> None:
        """Evaluates the spans that rounds in the journal have ended, and that nobody has evaluated."""
        session, progress = self._session, self._progress
        for ended in progress.unevaluated:
            if session.spans.last(span := session.spans.number(ended.step - 1)) != ended.step:
                continue  # spans are others than then
            self._count_steps(ended.state)
            record = session.record_of(span, self._metrics_of(ended.sums, ended.logs)) | {"seconds": ended.seconds}
            if ended.state.evaluated.size:
                self._late.append(_Late(span, record, ended.state, ended.sums))
            else:
                session.add_record(record)
        progress.unevaluated = []
        if self._late:
            self._evaluate_late()
            self._take_over(progress.state)

    def _end_spans(self, span: int, logs: dict[str, float]) -> None:
        """A round has gone beyond the end of a span, which may be the last of several."""
        progress = self._progress
        self._open_span, progress.begun = span + 1, False
        sums, progress.sums = progress.sums, []
        self._count_steps(progress.state)
        late = _Late(span, self._session.record_of(span, logs), progress.state.to_evaluate(), sums)
        self._late.append(late)
        self._rounds.add_record(late.record, evaluated=False)
        if not self._evaluation_can_wait():
            self._evaluate_late()
        if self._session.done:
            self._rates.read()  # for a training that is resumed with more steps
        else:
            self._begin_span()

    @contextlib.contextmanager
    def _weights_left(self) -> Iterator[None]:
        """Callbacks in the block leave the weights as they are, or exchange them for their average and back.

        Raises:
            ModelError: they do not.
        """
        callbacks, variables = self._job.callbacks, self._model.trainable_variables
        if not callbacks or any(isinstance(each, keras_here().callbacks.SwapEMAWeights) for each in callbacks):
            yield
            return
        before = [value.tobytes() for value in model_state.on_host(variables)]
        yield
        if before != [value.tobytes() for value in model_state.on_host(variables)]:
            names = " or ".join(f"`{type(each).__name__}`" for each in callbacks)
            raise ModelError(
                f"The callback {names} has changed the weights of the model, which hosts do not take over during a "
                "training: do that in `on_train_end`, leave it out, or train on one computer."
            )

    def _evaluation_can_wait(self) -> bool:
        job = self._job
        if self._evaluator is None or job.callbacks or job.options.watched or len(self._late) > _LATE_EVALUATIONS:
            return False
        if sum(late.state.nbytes for late in self._late) > _LATE_BYTES:
            return False
        since = time.perf_counter() - self._last_evaluation
        return len(self._late) * self._evaluation_seconds > _EVALUATION_SHARE * since

    def _evaluate_late(self) -> None:
        session = self._session
        while self._late:
            late = self._late.popleft()
            self._take_over(late.state, late.sums)
            began = time.perf_counter()
            self.write()
            logs = session.logs_of_span(late.record["logs"])
            if evaluator := self._evaluator:
                logs |= session.evaluate(lambda evaluator=evaluator: evaluator.run(model_state.read(self._model)))
            with self._weights_left():
                session.end_span(late.span, logs)
            self._last_evaluation = time.perf_counter()
            self._evaluation_seconds = self._last_evaluation - began
            record = session.record_of(late.span, logs) | {"seconds": late.record["seconds"]}
            session.add_record(record)
            if self._rounds.add_record(record, evaluated=True):
                session.best_is_recorded()
            self._position.stopped = bool(self._model.stop_training)

    def _take_over(self, state: GlobalState, metrics: list[np.ndarray] | None = None) -> None:
        """Makes the state of the model of a global state, and of sums of metrics variables."""
        spec, old = self._spec, self._spec.state
        arrays = spec.layout.arrays(state.evaluated)
        trainable = [value.astype(before.dtype) for value, before in zip(arrays, old.trainable, strict=True)]
        non_trainable = list(old.non_trainable)
        for index, value in zip(spec.statistics, state.statistics, strict=True):
            non_trainable[index] = value.astype(non_trainable[index].dtype)
        self._count_steps(state)
        self._average = state.average
        metrics = metrics or [value.copy() for value in spec.metrics]
        self._state = model_state.ModelState(trainable, non_trainable, [], metrics)

    def _count_steps(self, state: GlobalState) -> None:
        """Sets the optimizer's count of steps, of which the learning rate may be a function."""
        set_iterations(self._optimizer, self._rates.steps_before + state.steps)

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def _save_is_due(self) -> bool:
        if not self._session.run:
            return False
        since = time.perf_counter() - self._last_save
        if not self._rounds.has_journal:
            return self._save_seconds <= _CHECKPOINT_SHARE_WITHOUT_JOURNAL * since
        if self._rounds.journal_size > max(_JOURNAL_FACTOR * 4 * self._spec.layout.size, _LARGE_JOURNAL):
            return True
        if (left := self._session.steps_to_checkpoint()) is not None:
            return left <= 0
        return since > _CHECKPOINT_SECONDS and self._save_seconds <= _CHECKPOINT_SHARE * since

    def _save(self) -> None:
        """Saves a checkpoint, if the weights are in memory and those rounds that its journal has to begin with, too."""
        if not self._session.run or not self._progress.state.weights.size:
            return
        if self._session.ended:  # rounds that were closed since then do not count
            self._rounds.end_journals()
        elif not self._rounds.begin_journal(self._position.step):
            return
        began = time.perf_counter()
        self._take_over(self._progress.state)
        records = self._position.records + [late.record for late in self._late]
        self._session.save(self._progress.arrays(), **self._progress.document(), records=records)
        self._rounds.end_older_journals()
        self._last_save = time.perf_counter()
        self._save_seconds = self._last_save - began
