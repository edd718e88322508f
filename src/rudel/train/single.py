"""Strategy `single`: one process, one device, the whole training compiled.

Guarantee: the same model, data, schedule and machine give the same bits, however the training is cut into blocks,
whether its examples are in memory or read from a stream, and however often it is killed and resumed from its
checkpoints. Limit: callbacks act at the ends of epochs, or of evaluations.
"""

import platform
import time
from typing import Any

import jax
import numpy as np

from rudel.errors import NonFiniteError, RunError
from rudel.train import best
from rudel.train import callbacks as callback_memory
from rudel.train import checkpoint as checkpoints
from rudel.train import state as model_state
from rudel.train.checkpoint import Checkpoint
from rudel.train.display import Display
from rudel.train.evaluation import as_floats, make_evaluator
from rudel.train.feed import feed_of
from rudel.train.interrupt import Interrupts
from rudel.train.job import Clock, Job, Position
from rudel.train.log import Log, flat_record
from rudel.train.loop import Program, Progress, compile_training
from rudel.train.memory import release_freed_memory
from rudel.train.run_directory import RunDirectory
from rudel.train.spans import Spans
from rudel.train.state import ModelState
from rudel.train.vocabulary import why_not_finite

BLOCK_SECONDS = 0.25
"""Aim for the length of a block: long enough to cost nothing, short enough for a lively display and Ctrl-C."""

CHECKPOINT_SECONDS = 15.0
"""Time between checkpoints where the user names no number of steps."""


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

    block_seconds = BLOCK_SECONDS

    def __init__(
        self, keras: Any, job: Job, run: RunDirectory | None, saved: Checkpoint | None, display: Display, began: float
    ) -> None:
        self.job, self.run, self.display = job, run, display
        self.position, self.spans = Position(), Spans(job.schedule, job.eval_every)
        self._saved, self._began, self._total_before = saved, began, 0.0
        self._model = job.model
        self._callbacks = keras.callbacks.CallbackList(
            list(job.callbacks), add_history=True, add_progbar=False, model=job.model, epochs=self.spans.count,
            steps=self.spans.length, verbose=0,
        )  # fmt: skip
        self._history = job.model.history
        self._log = Log(run, job.settings)
        self._interrupts = Interrupts()
        self._steps_a_block = 1
        self._feed: Any = None
        first = job.train.take(slice(0, job.schedule.batch_size))
        model_state.build(job.model, (first.x, first.y, first.sample_weight))
        self._initial_metrics = model_state.on_host(self._reset_metrics())
        self._watch = best.make_watch(job.monitor, job.stop_early, job.model.metrics, self._names())
        self._best_saved: int | None = None
        self._state = model_state.read(job.model)
        self.position.clock.setup = time.perf_counter() - began
        try:
            self._compile()
        except BaseException:
            self.close()
            raise
        release_freed_memory()

    def __call__(self) -> Any:
        """Trains to the end and returns the Keras `History`."""
        self._model.stop_training = False
        self._callbacks.on_train_begin()
        self._memory_at_begin = callback_memory.remembered(self.job.callbacks)
        if self._saved:
            self._restore(self._saved)
        else:
            self._log.begin([])
        if self.run and self.position.step < self.job.schedule.total_steps:
            self.run.mark_unfinished()
        self._saved_step, self._saved_time = self.position.step, time.perf_counter()
        self.display.start(self.job.schedule, self.position.step, self.position.clock.train)
        try:
            with self._interrupts:
                self._train()
        finally:
            self._write_state()
            self.display.stop()
            self.close()
        self._model.optimizer.finalize_variable_values(self._model.trainable_variables)
        self._callbacks.on_train_end(self.position.records[-1]["logs"] if self.position.records else {})
        return self._history

    def close(self) -> None:
        """Ends reading."""
        if self._feed:
            self._feed.close()

    @property
    def total_seconds(self) -> float:
        """Seconds since the user's call, and those of the sessions that this one resumes."""
        return self._total_before + time.perf_counter() - self._began

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the last evaluation."""
        return dict(self.position.records[-1]["logs"]) if self.position.records else {}

    @property
    def best(self) -> best.Best | None:
        """The best evaluation, where the job names a metric."""
        return self._watch.best

    @property
    def ended(self) -> bool:
        """Whether the training has ended, though perhaps not all steps were taken."""
        return self.position.stopped or self._watch.exhausted

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
        """Trains span by span, from the position to the end."""
        while self.position.step < self.job.schedule.total_steps and not self.ended:
            self._span(self.spans.number(self.position.step))

    def _compile(self) -> None:
        clock = self.position.clock
        self._feed = feed = self._make_feed()
        feed.start(self._saved.step if self._saved else 0, lambda: self._interrupts.received)
        clock.setup = time.perf_counter() - self._began
        self._program, self._logs = self._compile_steps(feed)
        self._make_evaluator()
        clock.compile += self._program.compile_seconds
        self._keyed, self._key = -1, jax.random.key(self.job.schedule.seed)

    def _make_feed(self) -> Any:
        """The way of the examples into the loop."""
        return feed_of(self.job.train, self.job.schedule, self.job.model)

    def _compile_steps(self, feed: Any) -> tuple[Program, Any]:
        """The program that takes steps, and logs to begin with."""
        return compile_training(self.job.model, self._state, feed.data, feed.order, self.job.augment)

    def _make_evaluator(self) -> None:
        job, self._evaluator = self.job, None
        if job.validation is not None:
            self._evaluator = self._new_evaluator(job.validation, job.validation_batch_size, "validation")
            self.position.clock.compile += self._evaluator.compile_seconds

    def _new_evaluator(self, examples: Any, batch_size: int, what: str) -> Any:
        return make_evaluator(self.job.model, self._state, examples, batch_size, what)

    def _read_state(self) -> ModelState:
        """The values of the model's variables, where the loop wants them; see `state.read`."""
        return model_state.read(self._model)

    def _write_state(self) -> None:
        """Puts the state into the model's variables."""
        model_state.write(self._model, self._state)

    def _fresh_metrics(self) -> list[Any]:
        """Metrics of a span that begins, where the loop wants them."""
        return jax.device_put(self._initial_metrics)

    def _span(self, number: int) -> None:
        position = self.position
        if position.step == (position.records[-1]["step"] if position.records else 0):
            self._callbacks.on_epoch_begin(number)
            self._state = self._read_state()._replace(metrics=self._fresh_metrics())
        logs = self._train_until(self.spans.last(number))
        logs = self._end_of_span(number, logs)
        self._state = self._read_state()
        self._record(number, logs)
        position.stopped = bool(self._model.stop_training)
        if position.step == self.job.schedule.total_steps or self.ended or self._checkpoint_is_due():
            self._save()
        self._interrupts.act(self._told())

    def _end_of_span(self, number: int, logs: dict[str, float]) -> dict[str, float]:
        """Evaluates, lets the callbacks act, and returns the logs of the span; the model has the state thereafter."""
        self._write_state()
        results = as_floats(self._model.get_metrics_result())
        logs = results if set(results) == set(logs) else logs
        if self._evaluator:
            began = time.perf_counter()
            self._callbacks.on_test_begin()
            validation = self._evaluator.run(self._read_state())
            self._callbacks.on_test_end(dict(validation))
            logs |= {f"val_{name}": value for name, value in validation.items()}
            self.position.clock.evaluate += time.perf_counter() - began
            if np.isnan(validation.get("loss", 0.0)):
                raise self._non_finite("validation loss", self.position.step)
        self._keep_if_best(number, logs)
        self._callbacks.on_epoch_end(number, dict(logs))
        return logs

    def _train_until(self, end: int) -> dict[str, float]:
        """Takes the steps up to this one; returns the logs of the last."""
        schedule, position, clock = self.job.schedule, self.position, self.position.clock
        began = time.perf_counter()
        progress = Progress(self._state, self._logs, np.asarray(-1, np.int32))
        while position.step < end:
            epoch = position.step // schedule.steps_per_epoch
            stop = min(position.step + self._block_steps(), schedule.last_step(epoch), end)
            block_began, waited = time.perf_counter(), self._feed.wait_seconds
            progress, done, bad_step = self._take_steps(progress, epoch, stop)
            if bad_step >= 0:
                raise self._non_finite("loss", schedule.first_step(epoch) + bad_step + 1)
            took = time.perf_counter() - block_began
            self._steps_a_block = _next_block(max(1, done - position.step), took, self.block_seconds)
            position.step = done
            clock.train += time.perf_counter() - began
            clock.wait += self._feed.wait_seconds - waited
            self.display.advance(done, as_floats(progress.logs), clock.train)
            if done < end:
                if self._checkpoint_is_due():
                    self._save()
                self._interrupts.act(self._told())
            began = time.perf_counter()
        return as_floats(progress.logs)

    def _take_steps(self, progress: Progress, epoch: int, stop: int) -> tuple[Progress, int, int]:
        """Takes steps of an epoch up to this one, or fewer if it is interrupted while it waits for their examples.

        Part after part of the examples is given to the device without waiting for it to be done with the last but one.

        Returns:
            The progress, steps done since the beginning of the training, and the number in the epoch of the first with
            a loss that is not finite, or -1.
        """
        if epoch != self._keyed:
            key = jax.random.key(self.job.schedule.seed)
            self._keyed, self._key = epoch, jax.random.fold_in(key, epoch)
        done = self.position.step
        under_way: list[jax.Array] = []
        for part in self._feed.parts(epoch, done, stop, lambda: jax.block_until_ready(under_way)):
            progress, bad_step = self._program.run(
                progress, part.data, part.order, self._key, part.first, part.last, part.offset
            )
            self._state = progress.state  # what went in is gone
            jax.block_until_ready(under_way)
            under_way[:] = [bad_step]
            done = self.job.schedule.first_step(epoch) + int(part.last)
        return progress, done, int(under_way[0]) if under_way else -1

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

    def _record(self, number: int, logs: dict[str, float]) -> None:
        record = self._record_of(number, logs)
        self.position.records.append(record)
        self._log.add(record)
        self.display.epoch(flat_record(record))

    def _record_of(self, number: int, logs: dict[str, float]) -> dict[str, Any]:
        clock, rate = self.position.clock, getattr(self._model.optimizer, "learning_rate", None)
        return {
            **self._place_of(number),
            "seconds": round(clock.train, 3),
            "time": round(time.time(), 3),
            "logs": logs,
            "learning_rate": None if rate is None else float(rate),
        }

    def _place_of(self, number: int) -> dict[str, Any]:
        """Where a span ends: there, or where the training is in it."""
        step = min(self.spans.last(number), self.position.step)
        return {"epoch": self.spans.epoch(step), "step": step}

    def _keep_if_best(self, number: int, logs: dict[str, float]) -> None:
        """Keeps the weights that were just evaluated, if they are the best so far."""
        place = self._place_of(number)
        if not self._watch.observe(place | {"logs": logs}) or not self.run:
            return
        began = time.perf_counter()
        kept = self._weights_at_hand()
        arrays = model_state.as_arrays(kept._replace(optimizer=[], metrics=[]))
        best.save(self.run.path, Checkpoint(place["step"], arrays, {"logs": logs}), self._best_saved)
        self.position.clock.checkpoint += time.perf_counter() - began

    def _weights_at_hand(self) -> ModelState:
        """The state in memory, after it was written into the model."""
        return model_state.to_host(self._state)

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
        checkpoints.save(self.run.path, Checkpoint(position.step, arrays, document), self.job.keep)
        self._saved_step, self._saved_time = position.step, time.perf_counter()
        if self._watch.best:
            self._best_saved = self._watch.best.step
            best.prune(self.run.path, [self._best_saved])
        position.clock.checkpoint += time.perf_counter() - began

    def _to_keep(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays of a checkpoint, and what its document says beside what all strategies do."""
        return model_state.as_arrays(model_state.to_host(self._state)), {}

    def _restore_state(self, saved: Checkpoint) -> None:
        """Takes the arrays of a checkpoint over.

        Raises:
            RunError: they are not of this model.
        """
        parts = [
            [saved.arrays.get(f"{part}/{i}") for i in range(len(getattr(self._state, part)))]
            for part in ModelState._fields
        ]
        expected, found = jax.tree.leaves(self._state), [array for part in parts for array in part]
        if any(b is None or (a.shape, a.dtype) != (b.shape, b.dtype) for a, b in zip(expected, found, strict=True)):
            assert self.run
            raise RunError(
                f"The run {self.run.path} was begun with a model, an optimizer or metrics of other shapes: "
                "resume it as it was begun, or give another directory with --run."
            )
        self._state = jax.device_put(ModelState(*parts))
        model_state.write(self._model, self._state)

    def _restore(self, saved: Checkpoint) -> None:
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
        self._retell()
        self._best_saved = self._watch.best.step if self._watch.best else None

    def _retell(self) -> None:
        """Tells the history, the watch and the log what the records have."""
        records = self.position.records
        for record in records:
            self._history.epoch.append(self.spans.number(record["step"] - 1))
            for name, value in record["logs"].items():
                self._history.history.setdefault(name, []).append(value)
        self._watch.observe_all(records)
        self._log.begin(records)

    def _catch_up(self) -> None:
        """Goes on from the checkpoint as far as something else is known of what came after it."""

    def _reset_metrics(self) -> list[Any]:
        self._model.reset_metrics()
        return self._model.metrics_variables

    def _names(self) -> list[str]:
        """Names of what an evaluation tells."""
        if self.job.monitor is None:
            return []
        names = list(as_floats(self._model.get_metrics_result()))
        return names + ([f"val_{name}" for name in names] if self.job.validation is not None else [])

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
        why = why_not_finite(self._model, self.job.train)
        return NonFiniteError(f"The {what} became NaN or infinite at step {step:,}: {why}.{kept}")


def _next_block(steps: int, seconds: float, aim: float) -> int:
    """How many steps to take next, so that a block takes about `aim` seconds; it grows by at most 8 times."""
    return max(1, min(steps * 8, int(steps * aim / max(seconds, 1e-6))))
