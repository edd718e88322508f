"""Learning rates of records are those of Keras, whether its schedules can be compiled or not."""

from typing import Any

import numpy as np
import pytest

from rudel.backend import keras_on_jax
from rudel.internals.keras import set_iterations
from rudel.session.recorded_rate import RecordedRate

keras = keras_on_jax()
schedules = keras.optimizers.schedules


class ByHand(schedules.LearningRateSchedule):
    """One that Python branches in, which JAX cannot compile."""

    def __call__(self, step: Any) -> Any:
        return 0.1 if step < 50 else 0.01


class Traced(schedules.LearningRateSchedule):
    """Counts how often Python computes it."""

    calls = 0

    def __call__(self, step: Any) -> Any:
        self.calls += 1
        return 1.0 / (1.0 + keras.ops.cast(step, "float32"))


def optimizer(rate: Any) -> Any:
    return built(keras.optimizers.SGD(rate))


def built(optimizer: Any) -> Any:
    optimizer.build([keras.Variable(np.zeros(3, "float32"))])
    return optimizer


@pytest.mark.parametrize(
    "rate",
    [
        0.05,
        schedules.CosineDecay(0.1, 100),
        schedules.CosineDecay(0.0, 100, warmup_target=0.1, warmup_steps=20),
        schedules.PiecewiseConstantDecay([30, 60], [0.1, 0.01, 0.001]),
        ByHand(),
    ],
    ids=lambda rate: type(rate).__name__,
)
def test_it_is_that_of_the_next_step(rate: Any) -> None:
    made = optimizer(rate)
    recorded = RecordedRate(made)
    for step in (0, 10, 25, 49, 50, 99, 100, 120):
        set_iterations(made, step)
        assert recorded.now() == pytest.approx(float(made.learning_rate), rel=1e-6, abs=1e-12)


def test_python_computes_a_schedule_once() -> None:
    made = optimizer(Traced())
    recorded = RecordedRate(made)
    for step in range(10):
        set_iterations(made, step)
        assert recorded.now() == pytest.approx(1 / (1 + step))
    assert made._learning_rate.calls == 1


def test_another_rate_that_a_callback_sets_is_told() -> None:
    made = optimizer(schedules.CosineDecay(0.1, 100))
    recorded = RecordedRate(made)
    assert recorded.now() == pytest.approx(0.1)
    made.learning_rate = schedules.PiecewiseConstantDecay([30], [0.5, 0.05])
    assert recorded.now() == pytest.approx(0.5)
    set_iterations(made, 31)
    assert recorded.now() == pytest.approx(0.05)


def test_wrapped_optimizers_have_one_and_others_none() -> None:
    wrapped = built(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(schedules.CosineDecay(0.1, 100))))
    set_iterations(wrapped, 50)
    assert RecordedRate(wrapped).now() == pytest.approx(0.05)
    assert RecordedRate(None).now() is None
