"""The specification of a training, and how far it has come."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rudel.data.batch_source import BatchStream
from rudel.data.dataset import Examples
from rudel.data.stream import Stream
from rudel.loop.batch_sizes import batch_size_of
from rudel.loop.schedule import Schedule
from rudel.session.training_options import TrainingOptions

if TYPE_CHECKING:
    import keras


@dataclass(frozen=True)
class Job:
    """A training to be done.

    Args:
        model: compiled Keras model.
        train: examples to train on.
        validation: examples to evaluate on, or None.
        schedule: which examples every step sees.
        options: how it is to go.
        callbacks: Keras callbacks.
        identity: what must be alike for a training to be resumed, by name.
        settings: the requested ones, by name, for people to read.
        augment: changes the inputs of a training batch at random: `(key, x) -> x`.
        initial_epoch: epochs to leave out, because the model has been trained for so many.
        class_names: those of the classes, in the order of the model's outputs; () where they are not known.
    """

    model: "keras.Model"
    train: Examples | Stream
    validation: Examples | Stream | None
    schedule: Schedule
    options: TrainingOptions = field(default_factory=TrainingOptions)
    callbacks: Sequence[Any] = ()
    identity: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    augment: Callable[[Any, Any], Any] | None = None
    initial_epoch: int = 0
    class_names: Sequence[str] = ()

    @property
    def validation_batch_size(self) -> int:
        """Examples a step of the evaluation."""
        if isinstance(self.validation, BatchStream):
            return len(self.validation.first)
        size = batch_size_of(self.model, self.options.validation_batch_size, self.schedule.batch_size)
        return min(size, len(self.validation) if self.validation else 1)


@dataclass
class Clock:
    """Seconds spent, by kind and in total; a resumed training goes on counting. `wait` is a part of `train`."""

    setup: float = 0.0
    compile: float = 0.0
    train: float = 0.0
    wait: float = 0.0
    evaluate: float = 0.0
    checkpoint: float = 0.0
    total: float = 0.0

    @contextlib.contextmanager
    def counting(self, kind: str) -> Iterator[None]:
        """Adds the seconds that the block takes, if it ends well."""
        began = time.perf_counter()
        yield
        setattr(self, kind, getattr(self, kind) + time.perf_counter() - began)


@dataclass
class Position:
    """The progress of a training; saved in every checkpoint.

    Args:
        step: optimizer steps done.
        records: what was measured; see `rudel.runs.run_log`.
        stopped: whether a callback has ended the training.
        clock: how long it took.
    """

    step: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)
    stopped: bool = False
    clock: Clock = field(default_factory=Clock)
