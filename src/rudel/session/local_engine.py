"""The engine of the strategy `single`: one process, one device, the whole training compiled."""

import platform
from typing import TYPE_CHECKING, Any

from rudel.loop import model_state
from rudel.loop.compiled_loop import Program, compile_training
from rudel.loop.evaluation import Evaluator, make_evaluator
from rudel.loop.feed import Feed, StepBlock, feed_of
from rudel.loop.model_state import ModelState
from rudel.session.compiled_engine import CompiledEngine
from rudel.session.job import Job
from rudel.session.session import Session

if TYPE_CHECKING:
    import keras


BLOCK_SECONDS = 0.25
"""Aim for the length of a block: long enough to cost nothing, short enough for a lively display and Ctrl-C."""


def local_engine() -> CompiledEngine:
    """Makes an engine that trains on JAX's first device."""
    return CompiledEngine(OneDevice(), Alone())


class OneDevice:
    """`Devices` of which there is one: the loop and the model's variables share their arrays."""

    def prepare(self, session: Session) -> None:
        """See `Devices`."""

    def read(self, model: "keras.Model") -> ModelState:
        """See `Devices`."""
        return model_state.read(model)

    def write(self, model: "keras.Model", state: ModelState) -> None:
        """See `Devices`."""
        model_state.write(model, state)

    def release(self, model: "keras.Model") -> None:
        """See `Devices`."""

    def to_host(self, state: ModelState) -> ModelState:
        """See `Devices`."""
        return model_state.to_host(state)

    def feed(self, job: Job) -> Feed:
        """See `Devices`."""
        return feed_of(job.train, job.schedule, job.model)

    def compile(self, job: Job, state: ModelState, block: StepBlock, ahead: bool) -> tuple[Program, Any]:
        """See `Devices`."""
        steps, total = job.schedule.steps_of(block.size), job.schedule.total_steps
        rare = steps <= 2 and steps * 32 <= total  # so that what such steps take longer counts for little
        data, order, size, *_ = block
        return compile_training(job.model, state, data, order, job.augment, size=size, ahead=ahead, rare=rare)

    def evaluator(self, job: Job, state: ModelState) -> Evaluator:
        """See `Devices`."""
        assert job.validation is not None
        return make_evaluator(job.model, state, job.validation, job.validation_batch_size, "validation")

    def note(self) -> str:
        """See `Devices`."""
        return ""

    def describe(self) -> dict[str, Any]:
        """See `Devices`."""
        return {"strategy": "single", "hosts": [platform.node()]}


class Alone:
    """`Decisions` of a process that trains by itself."""

    block_seconds = BLOCK_SECONDS
    keeps = False

    def prepare(self, session: Session) -> None:
        """See `Decisions`."""
        self.keeps = session.store.keeps

    def wait(self) -> None:
        """See `Decisions`."""

    def steps(self, wanted: int) -> int:
        """See `Decisions`."""
        return wanted

    def save_is_due(self, due: bool, wanted: int) -> bool:
        """See `Decisions`."""
        return due

    def logs(self, logs: dict[str, float]) -> dict[str, float]:
        """See `Decisions`."""
        return logs

    def stop(self, wanted: bool) -> bool:
        """See `Decisions`."""
        return wanted

    def can_write(self, error: BaseException) -> bool:
        """See `Decisions`."""
        return True

    def traffic(self) -> dict[str, int]:
        """See `Decisions`."""
        return {"bytes_sent": 0, "bytes_received": 0}
