"""Strategy `single`: one process, one device, the whole training compiled.

Guarantee: the same model, data, schedule and machine give the same bits, however the training is cut into blocks, and
however often it is killed and resumed from its checkpoints. Limit: callbacks act at epoch ends.
"""

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from rudel.data.dataset import Examples
from rudel.errors import NonFiniteError, RunError
from rudel.train import callbacks as callback_memory
from rudel.train import checkpoint as checkpoints
from rudel.train import state as model_state
from rudel.train.checkpoint import Checkpoint
from rudel.train.display import Display
from rudel.train.evaluation import DEFAULT_BATCH_SIZE, Evaluator, as_batch, as_floats
from rudel.train.interrupt import Interrupts
from rudel.train.loop import Progress, compile_training
from rudel.train.memory import release_freed_memory
from rudel.train.run_directory import RunDirectory
from rudel.train.schedule import Schedule
from rudel.train.state import ModelState

BLOCK_SECONDS = 0.25
"""Aim for the length of a block: long enough to cost nothing, short enough for a lively display and Ctrl-C."""

CHECKPOINT_SECONDS = 15.0
"""Time between checkpoints where the user names no number of steps."""


@dataclass(frozen=True)
class Job:
    """A training to be done.

    Args:
        model: compiled Keras model.
        train: examples to learn from.
        validation: examples to evaluate on after every epoch, or None.
        schedule: which examples every step sees.
        callbacks: Keras callbacks.
        validation_batch_size: examples a step of the evaluation.
        checkpoint_every: steps between checkpoints; None to go by time.
        identity: what must be alike for a training to be resumed, by name.
        augment: changes the inputs of a training batch at random: `(key, x) -> x`.
    """

    model: Any
    train: Examples
    validation: Examples | None
    schedule: Schedule
    callbacks: Sequence[Any] = ()
    validation_batch_size: int = DEFAULT_BATCH_SIZE
    checkpoint_every: int | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    augment: Callable[[Any, Any], Any] | None = None


@dataclass
class Clock:
    """Seconds spent, by kind and in total; a resumed training goes on counting."""

    setup: float = 0.0
    compile: float = 0.0
    train: float = 0.0
    evaluate: float = 0.0
    checkpoint: float = 0.0
    total: float = 0.0


@dataclass
class Position:
    """How far a training has come; saved in every checkpoint."""

    step: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)
    stopped: bool = False
    clock: Clock = field(default_factory=Clock)


class Training:
    """Runs a job, from the beginning or from a checkpoint.

    Args:
        keras: the module.
        job: what to do.
        run: where to keep metrics and checkpoints, or None.
        saved: a checkpoint of that run to go on from, or None.
        display: what a person sees.
        began: `time.perf_counter()` when the user's call began.
    """

    def __init__(
        self, keras: Any, job: Job, run: RunDirectory | None, saved: Checkpoint | None, display: Display, began: float
    ) -> None:
        self.job, self.run, self.display = job, run, display
        self.position = Position()
        self._saved, self._began, self._total_before = saved, began, 0.0
        self._model = job.model
        self._callbacks = keras.callbacks.CallbackList(
            list(job.callbacks), add_history=True, add_progbar=False, model=job.model, epochs=job.schedule.epochs,
            steps=job.schedule.steps_per_epoch, verbose=0,
        )  # fmt: skip
        self._history = job.model.history
        self._steps_a_block = 1
        first = job.train.take(slice(0, job.schedule.batch_size))
        model_state.build(job.model, (first.x, first.y, first.sample_weight))
        self._initial_metrics = [np.array(v.value) for v in self._reset_metrics()]
        self._data = as_batch(job.train)
        self._state = model_state.read(job.model)
        self.position.clock.setup = time.perf_counter() - began
        self._compile()
        release_freed_memory()

    def __call__(self) -> Any:
        """Trains to the end and returns the Keras `History`."""
        self._model.stop_training = False
        self._callbacks.on_train_begin()
        self._memory_at_begin = callback_memory.remembered(self.job.callbacks)
        if self._saved:
            self._restore(self._saved)
        elif self.run:
            self.run.write_metrics([])
        if self.run and self.position.step < self.job.schedule.total_steps:
            self.run.mark_unfinished()
        self._saved_step, self._saved_time = self.position.step, time.perf_counter()
        self.display.start(self.job.schedule, self.position.step, self.position.clock.train)
        try:
            with Interrupts() as self._interrupts:
                self._train()
        finally:
            model_state.write(self._model, self._state)
            self.display.stop()
        self._model.optimizer.finalize_variable_values(self._model.trainable_variables)
        self._callbacks.on_train_end(self.position.records[-1]["logs"] if self.position.records else {})
        return self._history

    @property
    def total_seconds(self) -> float:
        """Seconds since the user's call, and those of the sessions that this one resumes."""
        return self._total_before + time.perf_counter() - self._began

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the last epoch."""
        return dict(self.position.records[-1]["logs"]) if self.position.records else {}

    @property
    def about(self) -> dict[str, Any]:
        """What the summary says of how it was trained."""
        return {
            "strategy": "single",
            "hosts": [platform.node()],
            "samples": self.position.step * self.job.schedule.batch_size,
            "bytes_sent": 0,
            "bytes_received": 0,
        }

    def _train(self) -> None:
        """Trains epoch by epoch, from the position to the end."""
        while self.position.step < self.job.schedule.total_steps and not self.position.stopped:
            self._epoch(self.position.step // self.job.schedule.steps_per_epoch)

    def _compile(self) -> None:
        job = self.job
        self._order_epoch, self._order = 0, job.schedule.order(0)
        self._program, self._logs = compile_training(job.model, self._state, self._data, self._order, job.augment)
        self._evaluator = None
        if job.validation is not None:
            self._evaluator = Evaluator(job.model, self._state, job.validation, job.validation_batch_size)
        self.position.clock.compile = self._program.compile_seconds
        self.position.clock.compile += self._evaluator.compile_seconds if self._evaluator else 0.0

    def _epoch(self, epoch: int) -> None:
        schedule, position = self.job.schedule, self.position
        if position.step == schedule.first_step(epoch):
            self._callbacks.on_epoch_begin(epoch)
            self._state = model_state.read(self._model)._replace(metrics=jax.device_put(self._initial_metrics))
        logs = self._train_epoch(epoch)
        logs = self._end_of_epoch(epoch, logs)
        self._state = model_state.read(self._model)
        self._record(epoch, logs)
        position.stopped = bool(self._model.stop_training)
        if position.step == schedule.total_steps or position.stopped or self._checkpoint_is_due():
            self._save()
        self._interrupts.act(self._told())

    def _end_of_epoch(self, epoch: int, logs: dict[str, float]) -> dict[str, float]:
        """Evaluates, lets the callbacks act, and returns the logs of the epoch; the model has the state thereafter."""
        model_state.write(self._model, self._state)
        results = as_floats(self._model.get_metrics_result())
        logs = results if set(results) == set(logs) else logs
        if self._evaluator:
            began = time.perf_counter()
            self._callbacks.on_test_begin()
            validation = self._evaluator.run(model_state.read(self._model))
            self._callbacks.on_test_end(dict(validation))
            logs |= {f"val_{name}": value for name, value in validation.items()}
            self.position.clock.evaluate += time.perf_counter() - began
            if np.isnan(validation.get("loss", 0.0)):
                raise self._non_finite("validation loss", self.position.step)
        self._callbacks.on_epoch_end(epoch, dict(logs))
        return logs

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        """Takes the steps of an epoch that are still to be taken; returns the logs of the last."""
        schedule, position = self.job.schedule, self.position
        began = time.perf_counter()
        if epoch != self._order_epoch:
            self._order_epoch, self._order = epoch, schedule.order(epoch)
        order = jax.device_put(self._order)
        key = jax.random.fold_in(jax.random.key(schedule.seed), epoch)
        progress = Progress(self._state, self._logs, np.asarray(-1, np.int32))
        start = schedule.first_step(epoch)
        while position.step < schedule.last_step(epoch):
            stop = min(position.step + self._block_steps(), schedule.last_step(epoch))
            block_began = time.perf_counter()
            first, last = np.int32(position.step - start), np.int32(stop - start)
            progress = self._program.run(progress, self._data, order, key, first, last)
            self._state = progress.state  # what went in is gone
            bad_step = int(progress.bad_step)  # waits for the block
            if bad_step >= 0:
                raise self._non_finite("loss", start + bad_step + 1)
            self._steps_a_block = _next_block(stop - position.step, time.perf_counter() - block_began)
            position.step = stop
            position.clock.train += time.perf_counter() - began
            self.display.advance(stop, as_floats(progress.logs), position.clock.train)
            if stop < schedule.last_step(epoch):
                if self._checkpoint_is_due():
                    self._save()
                self._interrupts.act(self._told())
            began = time.perf_counter()
        return as_floats(progress.logs)

    def _block_steps(self) -> int:
        """Steps until the block should end: by time, and where a checkpoint is due."""
        every = self.job.checkpoint_every
        if not self.run or not every:
            return self._steps_a_block
        return min(self._steps_a_block, self._saved_step + every - self.position.step)

    def _checkpoint_is_due(self) -> bool:
        if not self.run:
            return False
        if self._interrupts.received:
            return True
        if self.job.checkpoint_every:
            return self.position.step - self._saved_step >= self.job.checkpoint_every
        return time.perf_counter() - self._saved_time >= CHECKPOINT_SECONDS

    def _record(self, epoch: int, logs: dict[str, float]) -> None:
        record = self._record_of(epoch, logs)
        self.position.records.append(record)
        if self.run:
            self.run.append_metrics(flat_record(record))
        self.display.epoch(flat_record(record))

    def _record_of(self, epoch: int, logs: dict[str, float]) -> dict[str, Any]:
        position, rate = self.position, getattr(self._model.optimizer, "learning_rate", None)
        record = {"epoch": epoch + 1, "step": position.step, "seconds": round(position.clock.train, 3)}
        return record | {"logs": logs, "learning_rate": None if rate is None else float(rate)}

    def _save(self) -> None:
        if not self.run:
            return
        began = time.perf_counter()
        arrays, more = self._to_keep()
        position = self.position
        position.clock.total = self.total_seconds
        document = {
            "identity": self.job.identity,
            "records": position.records,
            "stopped": position.stopped,
            "clock": vars(position.clock),
            "callbacks": callback_memory.snapshot(self.job.callbacks, self._memory_at_begin, arrays),
            **more,
        }
        checkpoints.save(self.run.path, Checkpoint(position.step, arrays, document))
        self._saved_step, self._saved_time = position.step, time.perf_counter()
        position.clock.checkpoint += time.perf_counter() - began

    def _to_keep(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays of a checkpoint, and what its document says beside what all strategies do."""
        host = model_state.to_host(self._state)
        return {f"{part}/{i}": array for part in ModelState._fields for i, array in enumerate(getattr(host, part))}, {}

    def _restore_state(self, saved: Checkpoint) -> None:
        """Takes the arrays of a checkpoint over.

        Raises:
            RunError: they are not of this model.
        """
        assert self.run
        parts = [
            [saved.arrays.get(f"{part}/{i}") for i in range(len(getattr(self._state, part)))]
            for part in ModelState._fields
        ]
        expected, found = jax.tree.leaves(self._state), [array for part in parts for array in part]
        if any(b is None or (a.shape, a.dtype) != (b.shape, b.dtype) for a, b in zip(expected, found, strict=True)):
            raise RunError(
                f"The run {self.run.path} was begun with a model, an optimizer or metrics of other shapes: "
                "resume it as it was begun, or give another directory with --run."
            )
        self._state = jax.device_put(ModelState(*parts))
        model_state.write(self._model, self._state)

    def _restore(self, saved: Checkpoint) -> None:
        assert self.run
        self._restore_state(saved)
        document, position = saved.document, self.position
        callback_memory.restore(self.job.callbacks, document["callbacks"], saved.arrays)
        position.step, position.records, position.stopped = saved.step, document["records"], document["stopped"]
        now = position.clock
        position.clock = Clock(**document["clock"])
        position.clock.setup += now.setup
        position.clock.compile += now.compile
        self._total_before = position.clock.total
        self._catch_up()
        for record in position.records:
            self._history.epoch.append(record["epoch"] - 1)
            for name, value in record["logs"].items():
                self._history.history.setdefault(name, []).append(value)
        self.run.write_metrics([flat_record(record) for record in position.records])

    def _catch_up(self) -> None:
        """Goes on from the checkpoint as far as something else is known of what came after it."""

    def _reset_metrics(self) -> list[Any]:
        self._model.reset_metrics()
        return self._model.metrics_variables

    def _told(self) -> str:
        """Where an interrupted training stands."""
        kept = f"; go on with --run {self.run.path} --resume" if self.run else ""
        return f"Interrupted after {self.position.step:,} of {self.job.schedule.total_steps:,} steps{kept}."

    def _non_finite(self, what: str, step: int) -> NonFiniteError:
        kept = (
            f" The run {self.run.path} keeps its checkpoint of step {self._saved_step:,}."
            if self.run and self._saved_step
            else ""
        )
        return NonFiniteError(
            f"The {what} became NaN or infinite at step {step:,}: lower the learning rate, clip the gradients "
            f"(clipnorm=1.0 in the optimizer), or look for outliers in the data.{kept}"
        )


def flat_record(record: dict[str, Any]) -> dict[str, Any]:
    """A record as a line of metrics.jsonl: the logs beside epoch, step and seconds."""
    return {key: value for key, value in record.items() if key != "logs"} | record["logs"]


def check_same(run: RunDirectory, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuses to resume another training than the one that was begun.

    Raises:
        RunError: names what differs.
    """
    for name, value in now.items():
        if name in before and before[name] != value:
            raise RunError(
                f"The run {run.path} was begun with {name} {before[name]!r}, and this is {value!r}: "
                "resume it as it was begun, or give another directory with --run."
            )


def _next_block(steps: int, seconds: float) -> int:
    """How many steps to take next, so that a block takes about BLOCK_SECONDS; it grows by at most 8 times."""
    return max(1, min(steps * 8, int(steps * BLOCK_SECONDS / max(seconds, 1e-6))))
