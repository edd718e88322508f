"""`CompiledEngine`: steps that are taken in this process by one compiled loop, on one device or on many.

Guarantee: the same model, data, schedule and machine give the same bits, however the training is cut into blocks,
whether its examples are in memory or read from a stream, and however often it is killed and resumed from its
checkpoints.
"""

import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from rudel.loop import model_state
from rudel.loop.compiled_loop import Program, Progress, unused_key
from rudel.loop.evaluation import Evaluator
from rudel.loop.feed import Feed, StepBlock
from rudel.loop.metric_values import as_floats
from rudel.loop.model_state import ModelState
from rudel.runs.checkpoint import Checkpoint
from rudel.session.job import Job
from rudel.session.session import Session

if TYPE_CHECKING:
    import keras


@jax.jit  # else, JAX compiles each of its operations
def _key_of(seed: np.uint32, epoch: np.uint32) -> jax.Array:
    """The random key of an epoch."""
    return jax.random.fold_in(jax.random.key(seed), epoch)


class Devices(Protocol):
    """The devices that hold the loop's state and its examples."""

    def prepare(self, session: Session) -> None:
        """Decides where the state of a session's model is to be."""
        ...

    def read(self, model: "keras.Model") -> ModelState:
        """The values of the model's variables, where the loop wants them."""
        ...

    def write(self, model: "keras.Model", state: ModelState) -> None:
        """Puts a state into the model's variables."""
        ...

    def release(self, model: "keras.Model") -> None:
        """Frees what the model holds besides the state that was read: the loop has it now."""
        ...

    def to_host(self, state: ModelState) -> ModelState:
        """Copies a state into NumPy arrays."""
        ...

    def feed(self, job: Job) -> Feed:
        """The examples' way into the loop."""
        ...

    def compile(self, job: Job, state: ModelState, block: StepBlock, ahead: bool) -> tuple[Program, Any]:
        """The program that takes steps with blocks of this form, and logs to begin with.

        With `ahead`, it may be compiled while others take their steps.
        """
        ...

    def evaluator(self, job: Job, state: ModelState) -> Evaluator:
        """Makes the evaluator of the model on the job's validation examples."""
        ...

    def note(self) -> str:
        """A sentence about the devices that the user should know; empty for none."""
        ...

    def describe(self) -> dict[str, Any]:
        """See `Engine`, without what follows from the position."""
        ...


class Decisions(Protocol):
    """Decisions between blocks of steps; several processes that train together have to agree on all of them.

    Attributes:
        block_seconds: aim for the length of a block.
        keeps: whether checkpoints are saved, by this process or another one.
    """

    block_seconds: float
    keeps: bool

    def prepare(self, session: Session) -> None:
        """Joins a session, before its model is placed."""
        ...

    def wait(self) -> None:
        """Waits until everybody has compiled."""
        ...

    def steps(self, wanted: int) -> int:
        """Steps of the next block, of which this process wants so many."""
        ...

    def save_is_due(self, due: bool, wanted: int) -> bool:
        """Whether to save a checkpoint now.

        Args:
            due: what this process says.
            wanted: steps that it wants to take next.
        """
        ...

    def logs(self, logs: dict[str, float]) -> dict[str, float]:
        """The logs of a span."""
        ...

    def stop(self, wanted: bool) -> bool:
        """Whether to end the training, which a callback of this process may want."""
        ...

    def can_write(self, error: BaseException) -> bool:
        """Whether the state can still be put into the model after an error."""
        ...

    def traffic(self) -> dict[str, int]:
        """Bytes that were sent and received, by their names in the summary, as far as they are known."""
        ...


class CompiledEngine:
    """An `Engine`; see the module.

    Args:
        devices: where the state and the examples are.
        decisions: what is decided between blocks.
        on_begin: called before the first step, with what `describe` returns and the seconds that compiling took.
    """

    def __init__(
        self,
        devices: Devices,
        decisions: Decisions,
        on_begin: Callable[[dict[str, Any], float], None] = lambda about, seconds: None,
    ) -> None:
        self._devices, self._decisions, self._on_begin = devices, decisions, on_begin
        self._steps_a_block = 1
        self._programs: dict[Hashable, tuple[Program, Any]] = {}
        """With logs to begin with, by the form of a block."""
        self._can_write = True
        self._feed: Feed | None = None
        self._evaluator: Evaluator | None = None
        self._keyed, self._samples = -1, 0
        self._form: Hashable = None

    def prepare(self, session: Session) -> None:
        """See `Engine`."""
        self._session, self._job, clock = session, session.job, session.position.clock
        self._decisions.prepare(session)
        self._devices.prepare(session)
        self._state = self._devices.read(session.model)
        self._samples = self._job.schedule.samples(session.first_step)
        self._feed = feed = self._devices.feed(self._job)
        feed.start(session.saved.step if session.saved else session.first_step, lambda: session.interrupts.received)
        blocks = feed.forms()
        clock.setup = session.seconds
        for number, block in enumerate(blocks):
            self._program(block, self._state, ahead=number > 0)
        if self._job.validation is not None:
            self._evaluator = self._devices.evaluator(self._job, self._state)
            clock.compile += self._evaluator.compile_seconds
        with clock.counting("compile"):  # who has compiled waits for the others, so that nobody counts that as training
            self._decisions.wait()
        if note := self._devices.note():
            session.display.note(note)
        if session.acts_between_steps:
            session.display.note(
                "A callback acts between steps: each step is a program call of its own, which is slower."
            )

    def restore(self, saved: Checkpoint) -> None:
        """See `Engine`."""
        model = self._session.model
        model_state.write(model, jax.device_put(self._session.state_in(saved)))
        self._state = self._devices.read(model)
        self._samples = saved.document.get("samples", self._job.schedule.samples(saved.step))

    def run(self) -> None:
        """See `Engine`."""
        session = self._session
        self._on_begin(self.describe(), session.position.clock.compile)
        try:
            while not session.done:
                self._span(session.spans.number(session.position.step))
        except BaseException as error:
            self._can_write = self._decisions.can_write(error)
            raise

    def write(self) -> None:
        """See `Engine`."""
        if self._can_write:
            self._devices.write(self._session.model, self._state)

    def describe(self) -> dict[str, Any]:
        """See `Engine`."""
        return {**self._devices.describe(), "samples": self._samples, **self._decisions.traffic()}

    def close(self) -> None:
        """See `Engine`."""
        if self._feed:
            self._feed.close()

    def _span(self, number: int) -> None:
        """Trains from the position to the end of a span, and ends it."""
        session, model, position = self._session, self._session.model, self._session.position
        if position.step == (position.records[-1]["step"] if position.records else session.first_step):
            session.callbacks.on_epoch_begin(number)
            model.reset_metrics()
            self._state = self._devices.read(model)
        end = session.spans.last(number)
        if self._decisions.stop(bool(model.stop_training)):  # asked for before the first step, which Keras takes
            end = min(end, position.step + 1)
        logs = self._train_until(end)
        self.write()
        if self._feed:
            self._feed.end_epoch(position.step)
        logs = session.logs_of_span(logs, are_results=model_state.logs_its_metrics(model, "train_step"))
        if evaluator := self._evaluator:
            compiled = evaluator.compile_seconds
            logs |= session.evaluate(lambda: self._evaluate(evaluator))
            position.clock.compile += evaluator.compile_seconds - compiled
            position.clock.evaluate -= evaluator.compile_seconds - compiled
        logs = self._decisions.logs(logs)
        session.end_span(number, logs)
        model.stop_training = self._decisions.stop(bool(model.stop_training))
        self._state = self._devices.read(model)
        session.add_record(session.record_of(number, logs))
        position.stopped = bool(model.stop_training)
        self._save_and_act()

    def _evaluate(self, evaluator: Evaluator) -> dict[str, float]:
        """The metrics of the model, in which stays what an evaluation changes, as the states of random generators."""
        model = self._session.model
        state = self._devices.read(model)
        metrics = evaluator.run(state)
        if any(new is not old for new, old in zip(evaluator.non_trainable, state.non_trainable, strict=True)):
            now = self._devices.read(model)  # with the metrics of the evaluation
            self._devices.write(model, now._replace(non_trainable=evaluator.non_trainable))
        return metrics

    def _train_until(self, end: int) -> dict[str, float]:
        """Takes the steps up to this one; returns the logs of the last."""
        self._devices.release(self._session.model)
        session, schedule, position = self._session, self._job.schedule, self._session.position
        feed, clock = self._feed, position.clock
        assert feed
        began, first = time.perf_counter(), session.spans.first(session.spans.number(position.step))
        progress = Progress(self._state, {}, np.asarray(-1, np.int32))
        self._form = None
        while position.step < end:
            epoch, batch = position.step // schedule.steps_per_epoch, position.step - first
            if session.acts_before_steps:
                session.callbacks.on_train_batch_begin(batch)
                progress = self._read_back(progress)
            steps = self._decisions.steps(self._wanted_steps())
            stop = min(position.step + steps, schedule.same_size_until(position.step), end)
            block_began, waited, compiled = time.perf_counter(), feed.wait_seconds, clock.compile
            progress, done, bad_step = self._take_steps(feed, progress, epoch, stop)
            if bad_step >= 0:
                raise session.not_finite("loss", schedule.first_step(epoch) + bad_step + 1)
            compiled = clock.compile - compiled
            took = time.perf_counter() - block_began - compiled
            if schedule.size(position.step) == schedule.sizes[0]:
                self._steps_a_block = _next_block(max(1, done - position.step), took, self._decisions.block_seconds)
            taken, position.step = done - position.step, done
            clock.train += time.perf_counter() - began - compiled
            clock.wait += feed.wait_seconds - waited
            session.display.advance(done, as_floats(progress.logs), clock.train)
            if session.acts_between_steps and taken:
                self._devices.write(session.model, progress.state)
                session.callbacks.on_train_batch_end(batch, as_floats(progress.logs))
                progress = self._read_back(progress)
                if session.model.stop_training:
                    break
            if done < end:
                self._save_and_act()
            began = time.perf_counter()
        return as_floats(progress.logs)

    def _take_steps(self, feed: Feed, progress: Progress, epoch: int, stop: int) -> tuple[Progress, int, int]:
        """Takes steps of an epoch up to this one, or fewer if it is interrupted while it waits for their examples.

        Blocks of steps are given to the device without waiting for it to be done with those that were read before.

        Returns:
            The progress, steps done since the beginning of the training, and the number in the epoch of the first with
            a loss that is not finite, or -1.
        """
        if self._keyed < 0 and self._job.augment is None:  # nothing else asks for random numbers by this key
            self._key = unused_key()
        elif epoch != self._keyed and self._job.augment is not None:
            self._key = _key_of(np.uint32(self._job.schedule.seed), np.uint32(epoch))
        self._keyed = epoch
        done = self._session.position.step
        under_way: list[jax.Array] = []
        read: int | None = None
        for block in feed.step_blocks(epoch, done, stop, lambda: jax.block_until_ready(under_way)):
            if block.form not in self._programs:
                jax.block_until_ready(under_way)  # so that its time is not counted as compile time
            program, logs = self._program(block, progress.state)
            if block.form != self._form:
                self._form, progress = block.form, progress._replace(logs=logs)
            progress, bad_step = program.run(
                progress, block.data, block.order, self._key, block.first, block.last, block.offset
            )
            self._state = progress.state  # what went in is gone
            if block.read != read:
                jax.block_until_ready(under_way)
            read, under_way[:] = block.read, [bad_step]
            done = self._job.schedule.first_step(epoch) + int(block.last)
            self._samples += block.size * int(block.last - block.first)
        return progress, done, int(under_way[0]) if under_way else -1

    def _program(self, block: StepBlock, state: ModelState, ahead: bool = False) -> tuple[Program, Any]:
        """The program for a block, compiled when it is first needed, and logs to begin with."""
        if block.form not in self._programs:
            self._programs[block.form] = found = self._devices.compile(self._job, state, block, ahead)
            self._session.position.clock.compile += found[0].compile_seconds
        return self._programs[block.form]

    def _read_back(self, progress: Progress) -> Progress:
        """The progress with what callbacks have changed in the model between two steps."""
        self._state = self._devices.read(self._session.model)._replace(metrics=progress.state.metrics)
        return progress._replace(state=self._state)

    def _wanted_steps(self) -> int:
        """Steps until the block should end: by time, where a checkpoint is due, and where callbacks act."""
        if self._session.acts_between_steps:
            return 1
        left = self._session.steps_to_checkpoint()
        return self._steps_a_block if left is None else min(self._steps_a_block, left)

    def _save_and_act(self) -> None:
        """Saves a checkpoint where one is due, and ends the training if it was interrupted.

        A signal may come at any moment: one after which nothing was saved here is acted on at the next such point.
        """
        session = self._session
        due = session.done or self._decisions.save_is_due(session.checkpoint_is_due(), self._wanted_steps())
        interrupted = session.interrupts.received
        if due or interrupted:
            self._save()
        if interrupted or session.done:
            session.act_on_interrupt()

    def _save(self) -> None:
        if self._decisions.keeps:
            with self._session.position.clock.counting("checkpoint"):
                arrays = model_state.as_arrays(self._devices.to_host(self._state))
            self._session.save(arrays, samples=self._samples)


def _next_block(steps: int, seconds: float, aim: float) -> int:
    """The number of steps to take next, so that a block takes about `aim` seconds; it grows by at most 8 times."""
    return max(1, min(steps * 8, int(steps * aim / max(seconds, 1e-6))))
