"""The learning rates of local steps."""

from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.array_types import Float32
from rudel.replicas.keras_rates import rate_table

if TYPE_CHECKING:
    import keras


class Rates:
    """Learning rates of local steps: those of the model's optimizer, times a factor.

    Args:
        optimizer: of Keras.
        steps: of the whole training.

    Attributes:
        scheduled: whether they follow a schedule; otherwise callbacks may change the rate.
        plain: the rate where there is no schedule, as it was last read or set; 0.0 where there is one.
        steps_before: steps that the optimizer had taken before the training; a schedule begins there.
    """

    def __init__(self, optimizer: "keras.optimizers.Optimizer", steps: int) -> None:
        from rudel.internals.keras import iterations_of, schedule_of

        self._optimizer, self._steps, self._schedule = optimizer, steps, schedule_of(optimizer)
        self.scheduled, self.plain = self._schedule is not None, 0.0
        self.begin_after(int(iterations_of(optimizer)))

    def begin_after(self, steps: int) -> None:
        """Lets the training begin after so many steps of its optimizer."""
        self.steps_before = steps
        self._table = rate_table(self._schedule, self._steps, steps) if self.scheduled else None

    def read(self) -> None:
        """Learns what callbacks have made of the rate."""
        self.plain = 0.0 if self.scheduled else float(self._optimizer.learning_rate)

    def set(self, rate: float) -> None:
        """Goes back to a rate that was kept, unless a schedule or a function decides."""
        variable: Any = None if self.scheduled else self._optimizer.learning_rate
        if hasattr(variable, "assign"):
            variable.assign(rate)
            self.plain = rate

    def of(self, first: int, last: int, count: int, factor: float) -> Float32[np.ndarray, "steps"]:
        """Rates of local steps, float32 (count,).

        Args:
            first, last: of the training's steps, over which the local ones are spread.
            count: of local steps.
            factor: what they are multiplied with.
        """
        if self._table is None:
            return np.full(count, factor * self.plain, np.float32)
        places = first + (last - first) * np.arange(count) // count
        return (factor * self._table[np.minimum(places, len(self._table) - 1)]).astype(np.float32)
