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
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from rudel.errors import ModelError, NonFiniteError, RunError
from rudel.train import checkpoint as checkpoints
from rudel.train import state as model_state
from rudel.train.checkpoint import Checkpoint
from rudel.train.diloco import journal, pieces, wire
from rudel.train.diloco.checks import check_memory, check_versions
from rudel.train.diloco.codec import make_codec
from rudel.train.diloco.coordinator import Coordinator
from rudel.train.diloco.lengths import Agreed, Speeds
from rudel.train.diloco.members import Piece
from rudel.train.diloco.options import Diloco
from rudel.train.diloco.outer import make_outer
from rudel.train.diloco.program import RoundProgram, export_rounds
from rudel.train.diloco.rounds import HostChanged, RoundClosed, Task, World
from rudel.train.diloco.service import ReplicaPlugin
from rudel.train.diloco.shard import cut, rows_of
from rudel.train.evaluation import Evaluator, as_floats
from rudel.train.single import Training

_SLOTS_SECONDS = 15.0
"""Time between two askings for a replica's optimizer slots."""

_CHECKPOINT_SECONDS = 15.0
_CHECKPOINT_SHARE, _CHECKPOINT_SHARE_WITHOUT_JOURNAL = 0.05, 0.2
"""The most that checkpoints take of the time."""

_SHOW_SECONDS = 0.2
"""Time between two readings of the metrics, which cost milliseconds."""

_EVALUATION_SHARE = 0.05
_LATE_EVALUATIONS = 64
_LATE_BYTES = 256e6


@dataclass(frozen=True)
class _Late:
    """An epoch that has ended and is not evaluated yet.

    Args:
        epoch: its number, from 0.
        logs: its training metrics.
        world: the state at its end.
        sums: of its metrics variables.
        seconds: of training until its end.
    """

    epoch: int
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

    def __init__(self, *arguments: Any, cluster: Any, options: Diloco) -> None:
        self._cluster = cluster
        self._given = options
        self._options = options.chosen_for(max(1, cluster.count), arguments[1].schedule.total_steps)
        self._programs: dict[str, RoundProgram] = {}
        self._tracing = threading.Lock()
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._late: deque[_Late] = deque()
        self._coordinator: Coordinator
        self._hosts: list[str] = []
        self._sent = self._received = self._rounds = self._lost = self._joined = 0
        self._sent_before = self._received_before = 0
        self._sums: list[np.ndarray] = []
        self._slots: bytes | None = None
        self._journal: journal.Journal | None = None
        self._journaled: dict[int, bool] = {}
        self._last_shown = 0.0
        super().__init__(*arguments)

    @property
    def about(self) -> dict[str, Any]:
        """What the summary says of how it was trained."""
        steps = self.position.step
        return {
            "strategy": "diloco",
            "strategy_options": vars(self._options),
            "hosts": self._hosts,
            "steps": steps // max(1, len(self._hosts)),
            "samples": steps * self.job.schedule.batch_size,
            "rounds": self._rounds,
            "bytes_sent": self._sent,
            "bytes_received": self._received,
            "workers_lost": self._lost,
            "workers_joined": self._joined,
        }

    def _compile(self) -> None:
        job, state = self.job, self._state
        self._evaluator = None
        if job.validation is not None:
            self._evaluator = Evaluator(job.model, state, job.validation, job.validation_batch_size)
            self.position.clock.compile = self._evaluator.compile_seconds
            began = time.perf_counter()
            self._evaluator.run(state)
            self._evaluation_seconds = time.perf_counter() - began
        if getattr(self._optimizer, "use_ema", False):
            raise ModelError(
                "The optimizer of the model averages weights itself (use_ema=True), which hosts that average theirs "
                "cannot "
                "do as well: leave use_ema out, or train on one computer."
            )
        moving = set(range(len(state.non_trainable))) - _frozen(self._model)
        self._statistics = [i for i in sorted(moving) if np.asarray(state.non_trainable[i]).dtype.kind in "fV"]
        self._seeds = [
            i for i, v in enumerate(state.non_trainable) if np.asarray(v).dtype == np.uint32 and np.shape(v) == (2,)
        ]
        self._rates = self._rate_table()
        host = model_state.to_host(state)
        weights = [np.asarray(value, np.float32) for value in host.trainable]
        self._world = World(
            round=0,
            steps=0,
            weights=weights,
            momentum=make_outer(self._options.outer).init(weights),
            residual=make_codec(self._options.merge_codec).init([w.shape for w in weights]),
            statistics=[np.asarray(host.non_trainable[i], np.float32) for i in self._statistics],
        )
        self._host_state = host
        self._read_rate()

    def _train(self) -> None:
        if self.position.step >= self.job.schedule.total_steps or self.position.stopped:
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
        ready: concurrent.futures.Future[None] = background.start(self._prepare())
        self._wait_for(ready)
        self.position.clock.setup += time.perf_counter() - began - self._coordinator.compile_seconds
        self.position.clock.compile += self._coordinator.compile_seconds
        self._train_before, self._recorded_step = self.position.clock.train, self.position.step
        self._last_slots = self._last_save = time.perf_counter()
        self._last_evaluation, self._save_seconds = time.perf_counter(), 0.0
        self._save()
        self._callbacks.on_epoch_begin(self._epoch_of(self.position.step))
        self._read_rate()
        done = background.start(self._coordinator.run())
        try:
            while not (done.done() and self._events.empty()):
                self._take_events()
                if self._interrupts.received or self.position.stopped:
                    self._coordinator.stop()
        except BaseException:
            done.cancel()
            raise
        finally:
            background.start(self._cluster.fleet.uninstall(ReplicaPlugin.name)).result()
        self._evaluate_late()
        self._take_over(self._world)
        if not isinstance(done.exception(), NonFiniteError):
            self._save()
        done.result()
        self._interrupts.act(self._told())

    def _wait_for(self, future: "concurrent.futures.Future[None]") -> None:
        while not future.done():
            concurrent.futures.wait([future], timeout=0.2)
            if self._interrupts.received:
                future.cancel()
                self._interrupts.act(self._told())
        future.result()

    def _agree(self, speeds: Speeds) -> Agreed:
        agreed = self._given.agree(self._options, len(self._hosts), speeds)
        self._options = replace(
            self._options,
            round_steps=agreed.lengths.most,
            delta_codec=agreed.delta_codec,
            merge_codec=agreed.merge_codec,
        )
        return agreed

    async def _prepare(self) -> None:
        fleet = self._cluster.fleet
        await fleet.install(ReplicaPlugin())
        self._hosts = sorted(await fleet.members())
        arrays = jax.tree.leaves((self.job.train.x, self.job.train.y, self.job.train.sample_weight))
        count = len(self.job.train)
        layout = np.random.default_rng(0).permutation(count) if self.job.schedule.shuffle else np.arange(count)
        row_bytes = sum(int(np.prod(np.shape(a)[1:])) * np.asarray(a[:1]).dtype.itemsize for a in arrays)
        spans = cut(count, row_bytes, len(self._hosts))
        encoded = await asyncio.to_thread(lambda: [(s, *pieces.encode(rows_of(arrays, s, layout))) for s in spans])
        task = Task(
            total_steps=self.job.schedule.total_steps,
            agree=self._agree,
            batch_size=self.job.schedule.batch_size,
            outer=make_outer(self._options.outer),
            dtypes=[value.dtype for value in self._host_state.trainable],
            pieces=[Piece(name, span, lambda content=content: content) for span, name, content in encoded],
            setup=self._setup,
            rates=self._rates_of,
            patience=self._options.patience,
        )
        self._leaves = [(np.shape(a)[1:], str(np.asarray(a[:1]).dtype)) for a in arrays]
        self._shard_bytes = count * row_bytes
        self._coordinator = Coordinator(fleet, task, self._world, self._slots, self._events.put)
        await self._coordinator.prepare()

    # -- what replicas are made of --------------------------------------------------------------------------------

    def _setup(self, number: int, description: dict[str, Any]) -> dict[str, Any]:
        """Fields of a replica's `Setup`; called in other threads.

        Raises:
            ModelError: the model is too large for the host.
            ClusterError: its versions are others than those here.
        """
        check_versions(description)
        host = self._host_state
        check_memory(description, host, self._shard_bytes / max(1, len(self._hosts)))
        with self._tracing:
            program = self._programs.get(description["platform"])
            if program is None:
                job = self.job
                data = (job.train.x, job.train.y, job.train.sample_weight)
                program = export_rounds(
                    job.model, self._state, data, job.schedule.batch_size, job.augment, description["platform"]
                )
                self._programs[program.platform] = program
        logs = [np.zeros(shape, dtype) for shape, dtype in program.logs]
        state = (host.non_trainable, host.optimizer, [np.asarray(m) for m in self._initial_metrics], logs)
        return {
            "code": program.code,
            "examples": len(self.job.train),
            "leaves": self._leaves,
            "batch_size": self.job.schedule.batch_size,
            "seed": self.job.schedule.seed,
            "shuffle": self.job.schedule.shuffle,
            "number": number,
            "delta_codec": self._options.delta_codec,
            "merge_codec": self._options.merge_codec,
            "outer": self._options.outer,
            "seeds": self._seeds,
            "statistics": self._statistics,
            "state": wire.pack([value for part in state for value in part]),
            "counts": [len(part) for part in state],
        }

    def _rate_table(self) -> np.ndarray | None:
        """Learning rate of every step, if the optimizer follows a schedule."""
        from keras.optimizers.schedules import LearningRateSchedule

        rate = self._optimizer._learning_rate
        if not isinstance(rate, LearningRateSchedule):
            return None
        steps = self.job.schedule.total_steps
        return np.array(
            jax.vmap(lambda step: jax.numpy.asarray(rate(step), "float32"))(np.arange(steps, dtype=np.int32))
        )

    def _rates_of(self, first: int, last: int, count: int) -> np.ndarray:
        if self._rates is None:
            return np.full(count, self._options.rate_factor * self._plain_rate, np.float32)
        places = first + (last - first) * np.arange(count) // count
        return (self._options.rate_factor * self._rates[np.minimum(places, len(self._rates) - 1)]).astype(np.float32)

    @property
    def _optimizer(self) -> Any:
        return getattr(self._model.optimizer, "inner_optimizer", self._model.optimizer)

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
        if self.position.stopped:
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
        self._rounds += 1
        self._sent, self._received = self._sent_before + closed.sent, self._received_before + closed.received
        self._slots = closed.slots or self._slots
        self._sums = [a + b for a, b in zip(self._sums, closed.metrics, strict=True)] if self._sums else closed.metrics
        before, position.step = position.step, min(closed.world.steps, schedule.total_steps)
        position.clock.train = self._train_before + closed.seconds
        self._log_round(closed)
        now = time.perf_counter()
        epoch = self._epoch_of(before)
        ends = position.step >= schedule.last_step(epoch)
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
            self._end_epochs(epoch, logs)

    def _end_epochs(self, epoch: int, logs: dict[str, float]) -> None:
        """A round has gone beyond the end of an epoch, or of several."""
        epoch = max(epoch, self._epoch_of(max(self.position.step - 1, 0)))
        epoch -= self.position.step < self.job.schedule.last_step(epoch)
        sums, self._sums = self._sums, []
        self._late.append(_Late(epoch, logs, self._world, sums, self.position.clock.train))
        if self.job.callbacks:  # what these remember is in checkpoints alone
            self._end_journal()
        if not self._evaluation_can_wait():
            self._evaluate_late()
        if self.position.step < self.job.schedule.total_steps:
            self._callbacks.on_epoch_begin(epoch + 1)
            self._read_rate()

    def _evaluation_can_wait(self) -> bool:
        if self._evaluator is None or self.job.callbacks or len(self._late) > _LATE_EVALUATIONS:
            return False
        if sum(w.nbytes for w in self._world.weights) * len(self._late) > _LATE_BYTES:
            return False
        since = time.perf_counter() - self._last_evaluation
        return self._evaluation_seconds > _EVALUATION_SHARE * since

    def _evaluate_late(self) -> None:
        while self._late:
            late = self._late.popleft()
            self._take_over(late.world, late.sums)
            began = time.perf_counter()
            logs = self._end_of_epoch(late.epoch, late.logs)
            self._last_evaluation = time.perf_counter()
            self._evaluation_seconds = self._last_evaluation - began
            with self._back_at(late):
                self._record(late.epoch, logs)
            self.position.stopped = bool(self._model.stop_training)

    @contextlib.contextmanager
    def _back_at(self, late: "_Late") -> Iterator[None]:
        """While it is entered, the position is where it was when an epoch ended."""
        position, clock = self.position, self.position.clock
        here, now = position.step, clock.train
        position.step, clock.train = min(self.job.schedule.last_step(late.epoch), here), late.seconds
        yield
        position.step, clock.train = here, now

    def _read_rate(self) -> None:
        """Learns what callbacks have made of the learning rate."""
        self._plain_rate = 0.0 if self._rates is not None else float(self._optimizer.learning_rate)

    def _take_over(self, world: World, metrics: list[np.ndarray] | None = None) -> None:
        """Makes the state of the model of a world, and of sums of metrics variables."""
        old = self._host_state
        trainable = [w.astype(before.dtype) for w, before in zip(world.weights, old.trainable, strict=True)]
        non_trainable = list(old.non_trainable)
        for index, value in zip(self._statistics, world.statistics, strict=True):
            non_trainable[index] = value.astype(non_trainable[index].dtype)
        optimizer = [np.asarray(variable.value) for variable in self._model.optimizer.variables]
        for i, variable in enumerate(self._model.optimizer.variables):
            if variable is self._optimizer.iterations:
                optimizer[i] = np.asarray(world.steps, optimizer[i].dtype)
        self._state = model_state.ModelState(
            trainable, non_trainable, optimizer, metrics or [value.copy() for value in self._initial_metrics]
        )

    def _metrics_of(self, sums: list[np.ndarray], last: list[np.ndarray]) -> dict[str, float]:
        """The metrics that these variables stand for; of a model that logs something else, what it logged last."""
        for variable, value in zip(self._model.metrics_variables, sums, strict=True):
            variable.assign(value)
        results = as_floats(self._model.get_metrics_result())
        names = next(iter(self._programs.values())).log_names
        return results if set(results) == set(names) else as_floats(dict(zip(names, last, strict=True)))

    def _epoch_of(self, step: int) -> int:
        return step // self.job.schedule.steps_per_epoch

    # -- what is kept ---------------------------------------------------------------------------------------------

    def _save_is_due(self) -> bool:
        if not self.run:
            return False
        since = time.perf_counter() - self._last_save
        if self._journal is None:
            return self._save_seconds <= _CHECKPOINT_SHARE_WITHOUT_JOURNAL * since
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
        """What the journal has of a round: what the replicas were told, and what people and callbacks have seen."""
        new = [r for r in self.position.records if not self._journaled.get(r["epoch"])]
        late = [r for r in self._records_of_late() if r["epoch"] not in self._journaled]
        self._journaled |= {r["epoch"]: True for r in new} | {r["epoch"]: False for r in late}
        document = {
            "round": closed.world.round,
            "step": closed.world.steps,
            "seconds": self.position.clock.train,
            "outer": self._options.outer,
            "merge_codec": self._options.merge_codec,
            "diloco": self._counts(),
            "records": new + late,
        }
        return journal.Record(document, [closed.merge.delta, closed.merge.statistics, wire.pack(self._sums)])

    def _catch_up(self) -> None:
        assert self.run
        for record in journal.read(checkpoints.path_of(self.run.path, self.position.step)):
            if record.document["round"] == self._world.round + 1:
                self._replay(record)
        self._take_over(self._world)

    def _replay(self, record: journal.Record) -> None:
        """Does again what a round did."""
        world, document, position = self._world, record.document, self.position
        delta, statistics, sums = record.parts
        codec, outer = make_codec(document["merge_codec"]), make_outer(document["outer"])
        shapes = [w.shape for w in world.weights]
        weights, momentum = outer.update(codec.decode(delta, shapes), world.momentum, world.weights)
        self._world = World(
            document["round"], document["step"], weights, momentum, codec.init(shapes), wire.unpack(statistics)
        )
        self._sums = wire.unpack(sums)
        position.step = min(document["step"], self.job.schedule.total_steps)
        position.clock.train = document["seconds"]
        self._take_counts(document["diloco"])
        known = {r["epoch"]: r for r in [*position.records, *document["records"]]}
        position.records = [known[epoch] for epoch in sorted(known)]

    def _to_keep(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        world = self._world
        parts = {"weights": world.weights, "momentum": world.momentum, "residual": world.residual}
        parts |= {"statistics": world.statistics, "sums": self._sums}
        arrays = {f"{name}/{i}": array for name, values in parts.items() for i, array in enumerate(values)}
        if self._slots is not None:
            arrays["slots"] = np.frombuffer(self._slots, np.uint8)
        diloco = self._counts() | {"round": world.round, "sums": len(self._sums)}
        return arrays, {"diloco": diloco, "records": self.position.records + self._records_of_late()}

    def _counts(self) -> dict[str, Any]:
        return {
            "rounds": self._rounds, "sent": self._sent, "received": self._received, "lost": self._lost,
            "joined": self._joined, "hosts": self._hosts, "learning_rate": self._plain_rate,
        }  # fmt: skip

    def _take_counts(self, counts: dict[str, Any]) -> None:
        self._hosts = counts["hosts"]
        self._rounds, self._lost, self._joined = counts["rounds"], counts["lost"], counts["joined"]
        self._sent = self._sent_before = counts["sent"]
        self._received = self._received_before = counts["received"]

    def _records_of_late(self) -> list[dict[str, Any]]:
        """Records of epochs whose evaluation was put off, as they are kept in case it is never made."""
        records = []
        for late in self._late:
            with self._back_at(late):
                records.append(self._record_of(late.epoch, late.logs))
        return records

    def _restore_state(self, saved: Checkpoint) -> None:
        assert self.run
        before, old = saved.document.get("diloco", {}), self._world
        parts = {"weights": old.weights, "momentum": old.momentum, "residual": old.residual}
        parts["statistics"] = old.statistics
        found: dict[str, list[np.ndarray]] = {}
        for name, values in parts.items():
            found[name] = [saved.arrays.get(f"{name}/{i}", np.empty(0)) for i in range(len(values))]
            if not before or [a.shape for a in found[name]] != [a.shape for a in values]:
                raise RunError(
                    f"The run {self.run.path} was begun with another strategy, or a model of other shapes: resume it "
                    f"as it "
                    "was begun, or give another directory with --run."
                )
        self._world = World(before["round"], saved.step, **found)
        slots = saved.arrays.get("slots")
        self._slots = None if slots is None else slots.tobytes()
        self._sums = [saved.arrays[f"sums/{i}"] for i in range(before["sums"])]
        if self._rates is None:
            self._optimizer.learning_rate = before["learning_rate"]
        self._take_counts(before)
        self._take_over(self._world)

    def _log_round(self, closed: RoundClosed) -> None:
        hosts = {
            told.name: {
                "steps": told.steps, "seconds": round(told.seconds, 4), "waited": round(told.waited, 4),
                "merged_at": told.merged_at, "memory": told.memory, "cpu": round(told.cpu, 4),
                "sent": told.sent, "received": told.received,
            }
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


def _frozen(model: Any) -> set[int]:
    """Places, among a model's non-trainable variables, of weights that would be trainable were their layer not
    frozen.
    """
    made_trainable = {id(v) for layer in model._flatten_layers() for v in layer._trainable_variables}
    return {i for i, variable in enumerate(model.non_trainable_variables) if id(variable) in made_trainable}
