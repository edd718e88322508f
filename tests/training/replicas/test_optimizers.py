"""What becomes of the state of an optimizer whose steps hosts take, and of its learning rates."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from training.replicas.conftest import Crew

import rudel
from rudel.backend import set_seed
from rudel.replicas.local_rates import Rates


@pytest.mark.parametrize("strategy", ["diloco", "async"])
def test_gradients_are_accumulated_as_on_one_computer(
    strategy: str, crew: Crew, classifier: Any, blobs: Any, tmp_path: Path
) -> None:
    model = classifier(keras.optimizers.Adam(0.02, gradient_accumulation_steps=2))
    before = rudel.evaluate(model, *blobs)["loss"]
    settings: Any = {"client": crew.client, "strategy": strategy, "run": tmp_path / "run", "verbose": 0}
    rudel.fit(model, *blobs, batch_size=8, epochs=10, validation=blobs, **settings)
    assert rudel.evaluate(model, *blobs)["loss"] < 0.8 * before
    saved = rudel.load(tmp_path / "run")
    for a, b in zip(saved.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_optimizer_is_after_the_training_as_it_was_before(
    crew: Crew, classifier: Any, blobs: Any, tmp_path: Path
) -> None:
    seen = []
    count = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(int(model.optimizer.iterations))
    )
    model = classifier()
    rudel.fit(model, *blobs, steps=5, verbose=0)
    before = [np.asarray(variable) for variable in model.optimizer.variables]
    run = tmp_path / "run"
    rudel.fit(model, *blobs, steps=100, client=crew.client, callbacks=[count], run=run, verbose=0)
    assert seen[-1] >= 105
    for optimizer in (model.optimizer, rudel.load(run).optimizer):
        for now, then in zip(optimizer.variables, before, strict=True):
            np.testing.assert_array_equal(now, then)


def test_a_schedule_begins_where_the_optimizer_was_also_in_a_resumed_training(
    crew: Crew, classifier: Any, blobs: Any, tmp_path: Path
) -> None:
    def train(steps: int, before: int) -> Any:
        set_seed(1)
        schedule: Any = keras.optimizers.schedules.PiecewiseConstantDecay([5], [0.1, 0.0])
        model = classifier(keras.optimizers.SGD(schedule))
        if before:
            rudel.fit(model, *blobs, steps=before, verbose=0)
            kept.extend(model.get_weights())
        rudel.fit(model, *blobs, steps=steps, client=crew.client, run=tmp_path / "run", resume=True, verbose=0)
        return model

    kept: list[Any] = []
    for model in (train(20, before=6), train(40, before=0)):
        for now, then in zip(model.get_weights(), kept, strict=True):
            np.testing.assert_array_equal(now, then)


def test_a_rate_that_a_function_says_stays_what_it_says_in_a_resumed_training() -> None:
    function: Any = lambda: 0.05  # noqa: E731  # the stubs of Keras want a number
    for optimizer, expected in ((keras.optimizers.SGD(function), 0.05), (keras.optimizers.SGD(0.05), 0.01)):
        rates = Rates(optimizer, steps=8)
        rates.read()
        rates.set(0.01)
        assert rates.of(0, 8, 4, factor=2.0) == pytest.approx(2 * expected)
        assert float(optimizer.learning_rate) == pytest.approx(expected)
