"""`Session`: callbacks, history, log, checkpoints and display of a training, whichever engine takes its steps.

It owns callbacks, history, records, the best weights, checkpoints, the display, interrupts, and where the training
stands; an `Engine` takes the steps. Callbacks act at the ends of epochs and of evaluations, and between steps where the
engine can.
"""

import contextlib
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import numpy as np

from rudel.data.dataset import Examples
from rudel.errors import ModelError, NonFiniteError, RunError, option
from rudel.freed_memory import release_freed_memory
from rudel.loop import model_state
from rudel.loop.metric_values import as_floats, by_class_name, results_or_logs
from rudel.loop.model_state import ModelState
from rudel.loop.vocabulary import why_not_finite
from rudel.runs.checkpoint import Checkpoint
from rudel.runs.run_directory import RunDirectory
from rudel.runs.run_log import flat_record
from rudel.session import best_weights as best
from rudel.session import callbacks as callback_memory
from rudel.session.engine import Engine
from rudel.session.held_signals import Interrupts
from rudel.session.job import Clock, Job, Position
from rudel.session.recorded_rate import RecordedRate
from rudel.session.spans import Spans
from rudel.session.store import RunStore, Store
from rudel.session.training_display import Display

CHECKPOINT_SECONDS = 15.0
"""Time between checkpoints where the user names no number of steps."""


class Session:
    """A training, from the beginning or from a checkpoint.

    Args:
        keras: the module.
        job: what to do.
        run: the run directory, or None.
        saved: a checkpoint to continue from, or None.
        display: what a person sees.
        began: `time.perf_counter()` when the user's call began.
        engine: what takes the steps.
        store: where records and checkpoints are kept; None for the run directory, if there is one.

    Attributes:
        position: how far the training has come.
        spans: at whose ends it is evaluated.
        callbacks: Keras' `CallbackList`.
        acts_between_steps: whether a callback acts between two steps.
        acts_before_steps: whether one has a hook for the beginning of a step.
        watch: the best evaluation so far.
        first_step: steps before this training, which another one has taken; the history begins there.
        initial_metrics: the metrics variables at the beginning of a span.
        saved_step: of the newest checkpoint of this session; 0 for none.

    An engine may replace `saved`, `display` and `interrupts` while it prepares, where processes share them.

    Raises:
        RudelError: the model cannot be trained on these examples, or not by this engine.
    """

    def __init__(
        self,
        keras: ModuleType,
        job: Job,
        run: RunDirectory | None,
        saved: Checkpoint | None,
        display: Display,
        began: float,
        engine: "Engine[Session]",
        store: Store | None = None,
    ) -> None:
        self.job, self.run, self.saved, self.display, self.model = job, run, saved, display, job.model
        self.store = store or RunStore(run, job.settings, job.options.keep)
        self.position, self.interrupts = Position(), Interrupts()
        self.spans = Spans(job.schedule, job.options.eval_every)
        self._engine, self._began, self._total_before = engine, began, 0.0
        checking = callback_memory.after_each_hook(keras, self._check_form)
        self.callbacks = keras.callbacks.CallbackList(
            [*job.callbacks, checking], add_history=True, add_progbar=False, model=job.model, epochs=self.spans.count,
            steps=self.spans.length, verbose=0,
        )  # fmt: skip
        hooks = callback_memory.hooks_between_steps(keras, job.callbacks)
        self.acts_between_steps = bool(hooks)
        self.acts_before_steps = bool(hooks & callback_memory.BEFORE_STEPS)
        self._history = job.model.history
        self.first_batch, self.initial_metrics = built(job)
        self._rate = RecordedRate(job.model.optimizer)
        self.watch = best.make_watch(job.options, job.model.metrics, self._metric_names())
        self._best_saved: int | None = None
        self._best_recorded: int | None = None
        self.saved_step, self._saved_time = 0, time.perf_counter()
        self.position.clock.setup = self.seconds
        self.model.stop_training = False
        self._form = model_state.form_of(self.model)
        self.callbacks.on_train_begin()
        self._memory_at_begin = callback_memory.remembered(self.job.callbacks)
        self.position.step = self.first_step = self._steps_before()
        try:
            engine.prepare(self)
        except BaseException:
            self.close()
            raise
        release_freed_memory()

    def train(self) -> Any:
        """Trains to the end and returns the Keras `History`."""
        if self.saved:
            self._restore(self.saved)
        else:
            self.store.begin([])
        if self.run and self.position.step < self.job.schedule.total_steps:
            self.run.mark_unfinished()
        self.saved_step, self._saved_time = self.position.step, time.perf_counter()
        self.display.start(self.job.schedule, self.position.step, self.position.clock.train)
        try:
            with self.interrupts:
                self._engine.run()
        finally:
            if self.has_its_form:
                self._engine.write()
            self.display.stop()
            self.close()
        self.model.optimizer.finalize_variable_values(self.model.trainable_variables)
        self.callbacks.on_train_end(self.position.records[-1]["logs"] if self.position.records else {})
        return self._history

    def close(self) -> None:
        """Ends what the engine has begun."""
        self._engine.close()

    def _check_form(self) -> None:
        """Refuses what callbacks may not change.

        Raises:
            ModelError: they have compiled the model, or frozen or unfrozen layers, which its programs do not know.
        """
        if not self.has_its_form:
            raise ModelError(
                f"A callback has compiled the model `{self.model.name}` again, or frozen or unfrozen layers of it, at "
                f"step {self.position.step:,}: end the training there, change the model, and call rudel.fit once more."
            )

    @property
    def has_its_form(self) -> bool:
        """Whether the model has the variables of the engine's state, in their places, which a callback may change."""
        return model_state.form_of(self.model) == self._form

    # -- where the training stands ----------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Seconds since the user's call."""
        return time.perf_counter() - self._began

    @property
    def total_seconds(self) -> float:
        """Seconds since the user's call, and those of the sessions that this one continues."""
        return self._total_before + self.seconds

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the last evaluation."""
        return dict(self.position.records[-1]["logs"]) if self.position.records else {}

    @property
    def best(self) -> best.Best | None:
        """The best evaluation, where the job names a metric."""
        return self.watch.best

    @property
    def ended(self) -> bool:
        """Whether the training has ended, though perhaps not all steps were taken."""
        return self.position.stopped or self.watch.exhausted

    @property
    def done(self) -> bool:
        """Whether there is no step left to take."""
        return self.position.step >= self.job.schedule.total_steps or self.ended

    @property
    def about(self) -> dict[str, Any]:
        """Entries of the summary about how the model was trained; see `Engine.describe`."""
        return self._engine.describe()

    def act_on_interrupt(self) -> None:
        """Ends the training if it was interrupted.

        Raises:
            KeyboardInterrupt, SystemExit: it was.
        """
        where = f"{self.position.step:,} of {self.job.schedule.total_steps:,} steps"
        self.interrupts.act(f"Interrupted after {where}{self.store.after_interrupt()}.")

    def not_finite(self, what: str, step: int) -> NonFiniteError:
        """The error to raise where a loss became NaN or infinite at a step."""
        kept, why = self.store.after_failure(self.saved_step), why_not_finite(self.model, self.job.train)
        return NonFiniteError(f"The {what} became NaN or infinite at step {step:,}: {why}.{kept}")

    # -- spans ------------------------------------------------------------------------------------------------------

    def logs_of_span(self, logs: dict[str, float], *, are_results: bool = False) -> dict[str, float]:
        """Training metrics of a span by the model's metrics variables; of a model that logs others, those given.

        Args:
            logs: of the last step.
            are_results: whether they are what the metrics variables say.
        """
        if are_results and "loss" in logs:
            logs = {"loss": logs["loss"]} | logs  # first, as in Keras; a compiled program sorts names
        return by_class_name(logs if are_results else results_or_logs(self.model, logs), self.job.class_names)

    def evaluate(self, run: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Evaluates the model, which has the state to evaluate in its variables.

        Args:
            run: computes metrics on the validation examples.

        Returns:
            The metrics, each with `val_` before its name.

        Raises:
            NonFiniteError: the validation loss is NaN.
        """
        with self.position.clock.counting("evaluate"):
            self.callbacks.on_test_begin()
            validation = by_class_name(run(), self.job.class_names)
            self.callbacks.on_test_end(dict(validation))
        if np.isnan(validation.get("loss", 0.0)):
            raise self.not_finite("validation loss", self.position.step)
        return {f"val_{name}": value for name, value in validation.items()}

    def end_span(self, number: int, logs: dict[str, float]) -> None:
        """Keeps the weights in the model if they are the best so far, then lets the callbacks act.

        Raises:
            OptionError: the metric to monitor is not among the logs, of which the model's own steps decide.
        """
        place = self._place_of(number)
        best.check_known(self.watch.metric, logs)
        if self.watch.observe(place | {"logs": logs}) and self.store.keeps:
            with self.position.clock.counting("checkpoint"):
                now = model_state.variables(self.model)
                weights = ModelState(*map(model_state.on_host, now[:2]), optimizer=[], metrics=[])
                self.keep_best(Checkpoint(place["step"], model_state.as_arrays(weights), {"logs": logs}))
        self.callbacks.on_epoch_end(number, dict(logs))

    def record_of(self, number: int, logs: dict[str, float]) -> dict[str, Any]:
        """The record of a span that ends at the position."""
        return {
            **self._place_of(number),
            "seconds": round(self.position.clock.train, 3),
            "time": round(time.time(), 3),
            "logs": logs,
            "learning_rate": self._rate.now(),
        }

    def add_record(self, record: dict[str, Any]) -> None:
        """Keeps and shows the record of a span."""
        self.position.records.append(record)
        self.store.add(record)
        self.display.epoch(flat_record(record))

    def _place_of(self, number: int) -> dict[str, Any]:
        """Where a span ends: there, or where the training is in it."""
        step = min(self.spans.last(number), self.position.step)
        return {"epoch": self.spans.epoch(step), "step": step}

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def checkpoint_is_due(self) -> bool:
        """Whether a checkpoint is to be saved now: by the job's number of steps, by time, or before an interrupt."""
        if not self.store.keeps:
            return False
        if self.interrupts.received:
            return True
        if (left := self.steps_to_checkpoint()) is not None:
            return left <= 0
        return time.perf_counter() - self._saved_time >= CHECKPOINT_SECONDS

    def steps_to_checkpoint(self) -> int | None:
        """Steps until a checkpoint is due; None where that goes by time."""
        every = self.job.options.checkpoint_every
        return self.saved_step + every - self.position.step if self.store.keeps and every else None

    def save(self, arrays: dict[str, np.ndarray], **more: object) -> None:
        """Saves a checkpoint of the position.

        Args:
            arrays: of the engine, by name; those of callbacks are added.
            more: entries of the document beside, or in place of, those of every training.

        Raises:
            CheckpointError: it cannot be written.
        """
        if self.store.keeps:
            with self.position.clock.counting("checkpoint"):
                self.keep(Checkpoint(self.position.step, arrays, self.document(arrays, **more)))

    def document(self, arrays: dict[str, np.ndarray], **more: object) -> dict[str, Any]:
        """The JSON document of a checkpoint; arrays of callbacks are added to `arrays`."""
        position = self.position
        position.clock.total = self.total_seconds
        return {
            "identity": self.job.identity,
            "records": list(position.records),
            "stopped": position.stopped,
            "total_steps": self.job.schedule.total_steps,
            "monitor": self.watch.metric,
            "monitored_after": self.watch.after,
            "clock": dict(vars(position.clock)),
            **more,
            "callbacks": callback_memory.snapshot(self.job.callbacks, self._memory_at_begin, arrays),
            "added": self._added_by_callbacks(),
        }

    def keep(self, checkpoint: Checkpoint) -> None:
        """Keeps a checkpoint as the newest."""
        self.best_is_recorded()
        self._best_saved = self._best_recorded
        self.store.save(checkpoint, self._best_saved)
        self.saved_step, self._saved_time = checkpoint.step, time.perf_counter()

    def keep_best(self, weights: Checkpoint) -> None:
        """Keeps weights as the best."""
        self.store.save_best(weights, [self._best_saved, self._best_recorded])

    def best_is_recorded(self) -> None:
        """Takes note that a resumed training would know of the best evaluation so far, so that its weights stay."""
        self._best_recorded = self.watch.best.step if self.watch.best else self._best_recorded

    def state_in(self, saved: Checkpoint) -> ModelState:
        """The model's state, in NumPy arrays, as a checkpoint has it.

        Raises:
            RunError: it is of another model.
        """
        expected = model_state.variables(self.model)
        parts = [[saved.arrays.get(f"{p}/{i}") for i in range(len(getattr(expected, p)))] for p in ModelState._fields]
        found = [array for part in parts for array in part]
        forms = [(tuple(v.shape), np.dtype(v.value.dtype)) for v in jax.tree.leaves(expected)]
        if any(b is None or a != (b.shape, b.dtype) for a, b in zip(forms, found, strict=True)):
            which = f" {self.run.shown}" if self.run else ""
            raise RunError(
                f"The run{which} was begun with another strategy, or a model, an optimizer or metrics of other "
                f"shapes: resume it as it was begun, or give another directory with {option('run')}."
            )
        return ModelState(*parts)

    def go_back(self, checkpoint: Checkpoint) -> None:
        """Undoes what came after a checkpoint of this session, but for the state of the model."""
        setup = self.position.clock.setup
        callback_memory.forget(self.job.callbacks, self._memory_at_begin)
        self._stand_at(checkpoint)
        self.position.clock.setup = setup
        self.model.stop_training = self.position.stopped
        self._history.epoch, self._history.history = [], {}
        self._replay(checkpoint)

    def _restore(self, saved: Checkpoint) -> None:
        now = self.position.clock
        self._stand_at(saved)
        clock = self.position.clock
        clock.setup, clock.compile = clock.setup + now.setup, clock.compile + now.compile
        self._total_before = clock.total
        self._engine.restore(saved)
        self.position.stopped &= saved.document.get("total_steps") in (None, self.job.schedule.total_steps)
        same = saved.document.get("monitor", self.watch.metric) == self.watch.metric
        self.watch.after = saved.document.get("monitored_after", -1) if same else self.position.step
        self._replay(saved)
        self._best_saved = self._best_recorded = self.watch.best.step if self.watch.best else None

    def _stand_at(self, checkpoint: Checkpoint) -> None:
        """Sets the position, and what callbacks remember, to those of a checkpoint."""
        document, position = checkpoint.document, self.position
        callback_memory.restore(self.job.callbacks, document["callbacks"], checkpoint.arrays)
        position.step, position.stopped = checkpoint.step, document["stopped"]
        position.records, position.clock = list(document["records"]), Clock(**document["clock"])

    def _replay(self, checkpoint: Checkpoint) -> None:
        """Brings the history, the watch and the store to what the records of a checkpoint say."""
        records = self.position.records
        for record in records:
            self._history.epoch.append(self.spans.number(record["step"] - 1))
            for name, value in record["logs"].items():
                self._history.history.setdefault(name, []).append(value)
        self._history.history.update(checkpoint.document.get("added", {}))
        self.watch.observe_all(records)
        self.store.begin(records)

    def _added_by_callbacks(self) -> dict[str, list[float]]:
        """Numbers in the history that callbacks have added to the logs of epochs, such as `learning_rate`, by name."""
        measured = {name for record in self.position.records for name in record["logs"]}
        added: dict[str, list[float]] = {}
        for name, values in self._history.history.items():
            if name not in measured:
                with contextlib.suppress(TypeError, ValueError):  # values that are not numbers
                    added[name] = [float(value) for value in values]
        return added

    def _steps_before(self) -> int:
        """Steps of the epochs that are left out: those that a callback says to have restored, or the user's number."""
        epochs, self.model._initial_epoch = self.model._initial_epoch, None
        return min((epochs or self.job.initial_epoch) * self.spans.length, self.job.schedule.total_steps)

    def _metric_names(self) -> list[str] | None:
        """Names of the metrics of a span; None where the model's own steps decide them, and nothing is known before."""
        if self.job.options.watched is None:
            return []
        names = list(by_class_name(as_floats(self.model.get_metrics_result()), self.job.class_names))
        if not model_state.logs_its_metrics(self.model, "train_step", "test_step"):
            lacks = self.job.validation is None and self.job.options.watched.startswith("val_")
            return names if lacks else None
        return names + ([f"val_{name}" for name in names] if self.job.validation is not None else [])


def built(job: Job) -> tuple[Examples, list[np.ndarray]]:
    """Makes all variables of a job's model.

    Returns:
        The first batch, by which they are made, and the values of metrics variables at the beginning of a span.

    Raises:
        ModelError: the model cannot take these examples.
    """
    first = job.train.take(slice(0, job.schedule.batch_size))
    model_state.build(job.model, (first.x, first.y, first.sample_weight))
    job.model.reset_metrics()
    return first, model_state.on_host(job.model.metrics_variables)
