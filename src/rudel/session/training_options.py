"""`TrainingOptions`: how a training is to go, from the command line or `rudel.fit` to the engine."""

from dataclasses import dataclass, fields
from typing import Any

from rudel.errors import OptionError, option
from rudel.loop.schedule import Schedule, check_whole_number, plan_schedule
from rudel.session.plain_numbers import use_plain_numbers

DEFAULT_KEEP = 2
"""Checkpoints that are kept where the user names no number."""

_DEFAULT_MONITOR = "val_loss"


@dataclass(frozen=True)
class TrainingOptions:
    """The options of a training; `rudel.fit` documents them.

    Args:
        epochs, steps: how long; 1 epoch where both are None.
        batch_size: examples a step.
        seed: of the order of examples.
        shuffle: False to take the examples in the order in which they are given.
        validation_batch_size: examples a step of the evaluation; None for what `batch_size_of` says.
        eval_every: steps between evaluations; None to evaluate at the ends of epochs.
        checkpoint_every: steps between checkpoints; None to go by time.
        keep: how many checkpoints to keep.
        monitor: the metric by which the best weights are kept; None to keep the last alone, unless `stop_early` is set.
        stop_early: end after so many evaluations in which `monitor`, or else `val_loss`, has not become better.


    Raises:
        OptionError: a value that makes no sense.
    """

    epochs: int | None = None
    steps: int | None = None
    batch_size: int = 32
    seed: int = 0
    shuffle: bool = True
    validation_batch_size: int | None = None
    eval_every: int | None = None
    checkpoint_every: int | None = None
    keep: int = DEFAULT_KEEP
    monitor: str | None = None
    stop_early: int | None = None

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        for name in ("validation_batch_size", "eval_every", "checkpoint_every", "keep", "stop_early"):
            if (value := getattr(self, name)) is not None:
                check_whole_number(name, value)
        if self.monitor is not None and not isinstance(self.monitor, str):
            raise OptionError(f"{option('monitor')} is the name of a metric, such as 'val_loss', not {self.monitor!r}.")

    @property
    def watched(self) -> str | None:
        """The metric to look at: who only says when to stop means the validation loss."""
        return self.monitor or (_DEFAULT_MONITOR if self.stop_early is not None else None)

    @property
    def given(self) -> dict[str, Any]:
        """All options that are not None, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def schedule(self, examples: int) -> Schedule:
        """The schedule for so many examples.

        Raises:
            OptionError: both or unusable `epochs` and `steps`, a batch size or seed that is no such number.
            DataError: there are no examples.
        """
        return plan_schedule(examples, self.batch_size, self.epochs, self.steps, self.seed, self.shuffle)
