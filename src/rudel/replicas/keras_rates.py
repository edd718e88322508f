"""What replicas need to know of an optimizer of Keras: its kind, and its learning rates beforehand."""

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.aliases import Tree
from rudel.array_types import Float32

if TYPE_CHECKING:
    import keras


def is_momentum_sgd(optimizer: "keras.Optimizer") -> bool:
    """Whether an optimizer is stochastic gradient descent with momentum, whose steps are as long as gradients are."""
    from rudel.backend import keras_here
    from rudel.internals.keras import inner_optimizer

    inner = inner_optimizer(optimizer)
    return isinstance(inner, keras_here().optimizers.SGD) and inner.momentum > 0


def rate_table(
    schedule: "keras.optimizers.schedules.LearningRateSchedule", steps: int, before: int = 0
) -> Float32[np.ndarray, "steps"]:
    """The learning rate of every step, float32 (steps,).

    Args:
        schedule: a Keras `LearningRateSchedule`.
        steps: how many.
        before: steps that were taken before the first of these.
    """
    from keras import ops

    numbers = np.arange(before, before + steps, dtype=np.int32)

    def rate(step: Tree) -> Any:
        return ops.cast(schedule(step), "float32")

    with contextlib.suppress(Exception):  # one that branches on its argument can only be evaluated step by step
        return np.asarray(ops.convert_to_numpy(ops.vectorized_map(rate, ops.convert_to_tensor(numbers))))
    return np.array([ops.convert_to_numpy(rate(number)) for number in numbers], np.float32)
