"""What a training is asked to do, and how far it has come."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rudel.data.dataset import Examples
from rudel.data.stream import Stream
from rudel.train.evaluation import DEFAULT_BATCH_SIZE
from rudel.train.schedule import Schedule

DEFAULT_KEEP = 2
"""Checkpoints that are kept where the user names no number."""


@dataclass(frozen=True)
class Job:
    """A training to be done.

    Args:
        model: compiled Keras model.
        train: examples to learn from.
        validation: examples to evaluate on, or None.
        schedule: which examples every step sees.
        callbacks: Keras callbacks.
        validation_batch_size: examples a step of the evaluation.
        eval_every: steps between evaluations; None to evaluate at the ends of epochs.
        checkpoint_every: steps between checkpoints; None to go by time.
        keep: how many checkpoints to keep.
        monitor: the metric by which the best weights are kept, such as `val_loss`; None to keep the last alone.
        stop_early: end after so many evaluations in which `monitor` has not become better; None to go on.
        identity: what must be alike for a training to be resumed, by name.
        settings: what the user asked for, by name, for people to read.
        augment: changes the inputs of a training batch at random: `(key, x) -> x`.
    """

    model: Any
    train: Examples | Stream
    validation: Examples | Stream | None
    schedule: Schedule
    callbacks: Sequence[Any] = ()
    validation_batch_size: int = DEFAULT_BATCH_SIZE
    eval_every: int | None = None
    checkpoint_every: int | None = None
    keep: int = DEFAULT_KEEP
    monitor: str | None = None
    stop_early: int | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    augment: Callable[[Any, Any], Any] | None = None


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
    """How far a training has come; saved in every checkpoint.

    Args:
        step: optimizer steps done.
        records: what was measured; see `rudel.train.log`.
        stopped: whether a callback has ended the training.
        clock: how long it took.
    """

    step: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)
    stopped: bool = False
    clock: Clock = field(default_factory=Clock)
