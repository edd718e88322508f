"""The learning rate that the record of a span names."""

import contextlib
from collections.abc import Callable
from typing import Any

import jax

from rudel.backend import backend_name

_MANY = 100
"""Spans for which a schedule is compiled: that takes about as long as so many of its values take Keras."""


class RecordedRate:
    """Reads the learning rate of an optimizer.

    Keras computes a schedule operation by operation, in a millisecond on a fast computer: with short epochs, that is a
    third of a training. For many of them, it is compiled, once. It is not compiled at each call, as Keras would let JAX
    do with one that has a warm-up.

    Args:
        optimizer: of Keras, or None.
        spans: how many records there will be.
    """

    def __init__(self, optimizer: Any, spans: int) -> None:
        self._optimizer, self._schedule = optimizer, None
        self._compiled: Callable[[Any], jax.Array] | None = None
        if spans >= _MANY and optimizer is not None and backend_name() == "jax":
            from rudel.internals.keras import schedule_of

            self._schedule = schedule_of(optimizer)
            self._compiled = self._schedule and jax.jit(self._schedule)

    def now(self) -> float | None:
        """The learning rate of the next step; None where the optimizer has none."""
        from rudel.internals.keras import iterations_of, schedule_of

        if self._compiled and schedule_of(self._optimizer) is self._schedule:
            with contextlib.suppress(Exception):  # one that branches on its argument cannot be compiled
                return float(self._compiled(iterations_of(self._optimizer)))
        self._compiled = None
        with jax.disable_jit():
            rate = getattr(self._optimizer, "learning_rate", None)
            return None if rate is None else float(rate)
