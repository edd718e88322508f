"""The learning rates of a schedule of Keras, computed beforehand, on every backend."""

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.aliases import Tree
from rudel.array_types import Float32

if TYPE_CHECKING:
    import keras


def rate_table(schedule: "keras.optimizers.schedules.LearningRateSchedule", steps: int) -> Float32[np.ndarray, "steps"]:
    """The learning rate of every step, float32 (steps,).

    Args:
        schedule: a Keras `LearningRateSchedule`.
        steps: how many.
    """
    from keras import ops

    numbers = np.arange(steps, dtype=np.int32)

    def rate(step: Tree) -> Any:
        return ops.cast(schedule(step), "float32")

    with contextlib.suppress(Exception):  # one that branches on its argument can only be evaluated step by step
        return np.asarray(ops.convert_to_numpy(ops.vectorized_map(rate, ops.convert_to_tensor(numbers))))
    return np.array([ops.convert_to_numpy(rate(number)) for number in numbers], np.float32)
