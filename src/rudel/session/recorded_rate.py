"""The learning rate that the record of a span names."""

from typing import Any

import jax

from rudel.backend import backend_name


class RecordedRate:
    """Reads the learning rate of an optimizer.

    Keras computes a schedule operation by operation, and JAX compiles each of them: a tenth of a second on a fast
    computer. Compiled as a whole, a schedule takes a third of that, and almost nothing from then on.

    Args:
        optimizer: of Keras, or None.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer, self._schedule, self._compiled = optimizer, None, None

    def now(self) -> float | None:
        """The learning rate of the next step; None where the optimizer has none."""
        from rudel.internals.keras import iterations_of, schedule_of

        schedule = schedule_of(self._optimizer) if backend_name() == "jax" else None
        if schedule is not self._schedule:
            self._schedule, self._compiled = schedule, schedule and jax.jit(schedule)
        if self._compiled:
            try:
                return float(self._compiled(iterations_of(self._optimizer)))
            except Exception:  # one that branches on its argument cannot be compiled
                self._compiled = None
        with jax.disable_jit():  # Keras would let JAX compile one with a warm-up at each call
            rate = getattr(self._optimizer, "learning_rate", None)
            return None if rate is None else float(rate)
