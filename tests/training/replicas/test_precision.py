"""Mixed precision: as accurate as float32, and overflow that loss scaling foresees is no failure."""

from typing import Any

import keras
import numpy as np
import pytest
from sklearn.datasets import load_digits

import rudel
from rudel.backend import set_seed
from rudel.errors import NonFiniteError
from rudel.training.prepared import PRECISIONS

layers = keras.layers
DIGITS: Any = load_digits()
X = DIGITS.images.astype("float32") / 16
Y = DIGITS.target.astype("int32")
TRAIN, HELD_OUT = (X[:1437], Y[:1437]), (X[1437:], Y[1437:])


def network(precision: str, optimizer: Any = None) -> Any:
    set_seed(1)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        model = keras.Sequential(
            [
                keras.Input((8, 8)),
                layers.Flatten(),
                layers.Dense(48),
                layers.BatchNormalization(),
                layers.ReLU(),
                layers.Dense(10, activation="softmax", dtype="float32"),
            ]
        )
    finally:
        keras.config.set_dtype_policy(before)
    optimizer = optimizer or keras.optimizers.Adam(2e-3)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


@pytest.fixture(scope="module")
def accuracies() -> dict[str, float]:
    """On held-out digits, by precision, trained on this computer."""
    found = {}
    for precision in PRECISIONS:
        model = network(precision)
        history = rudel.fit(model, *TRAIN, validation=HELD_OUT, epochs=8)
        assert {str(w.dtype) for w in model.trainable_variables} == {"float32"}
        found[precision] = history.history["val_accuracy"][-1]
    return found


@pytest.mark.parametrize("precision", PRECISIONS[1:])
def test_mixed_precision_is_as_accurate_as_float32(accuracies: dict[str, float], precision: str) -> None:
    assert accuracies["float32"] > 0.88
    assert accuracies[precision] == pytest.approx(accuracies["float32"], abs=0.03)


def test_gradients_that_overflow_are_skipped_and_the_scale_is_halved(accuracies: dict[str, float]) -> None:
    model = network("mixed_float16")
    model.optimizer.initial_scale = 2.0**30  # far beyond what float16 can hold
    model.optimizer.build(model.trainable_variables)
    before = [np.array(w) for w in model.get_weights()]
    rudel.fit(model, *TRAIN, steps=1)
    trainable = [i for i, w in enumerate(model.weights) if w.trainable]
    assert all(np.array_equal(before[i], model.get_weights()[i]) for i in trainable)
    assert float(model.optimizer.dynamic_scale.numpy()) == 2.0**29
    history = rudel.fit(model, *TRAIN, validation=HELD_OUT, epochs=8)
    assert 1 <= float(model.optimizer.dynamic_scale.numpy()) < 2.0**25
    assert history.history["val_accuracy"][-1] == pytest.approx(accuracies["float32"], abs=0.03)


def test_a_loss_that_is_not_finite_is_told_also_with_loss_scaling() -> None:
    x = np.where(np.arange(1437) == 40, 3e38, 1)[:, None, None].astype("float32") * TRAIN[0]
    with pytest.raises(NonFiniteError, match="loss became NaN or infinite at step 2:"):
        rudel.fit(network("mixed_float16"), x, TRAIN[1], shuffle=False, steps=3)


@pytest.mark.parametrize("precision", PRECISIONS[1:])
def test_hosts_are_as_accurate_with_mixed_precision(
    crew_of_the_package: Any, accuracies: dict[str, float], precision: str
) -> None:
    crew_of_the_package.only("a", "b")
    model = network(precision)
    settings = {"epochs": 12, "client": crew_of_the_package.client, "strategy": rudel.Diloco(round_steps=16)}
    history = rudel.fit(model, *TRAIN, validation=HELD_OUT, **settings)
    assert {str(w.dtype) for w in model.trainable_variables} == {"float32"}
    assert history.history["val_accuracy"][-1] == pytest.approx(accuracies["float32"], abs=0.04)
