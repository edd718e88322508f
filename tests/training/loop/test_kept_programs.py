"""Programs of a model are kept for its next training, and never used where they are wrong."""

import gc
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import rudel
from rudel.backend import keras_on_jax

keras = keras_on_jax()

traced: list[str] = []


class Counting(keras.Sequential):
    """A model that notes when its steps are traced."""

    def train_step(self, *arguments: Any) -> Any:
        traced.append("train")
        return super().train_step(*arguments)

    def test_step(self, *arguments: Any) -> Any:
        traced.append("test")
        return super().test_step(*arguments)

    def predict_step(self, *arguments: Any) -> Any:
        traced.append("predict")
        return super().predict_step(*arguments)


@pytest.fixture
def model() -> Any:
    traced.clear()
    model = Counting([keras.Input((6,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3)])
    _compile(model, "sgd")
    return model


def _compile(model: Any, optimizer: Any, loss: Any = None) -> None:
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])


def test_the_second_fit_traces_nothing_and_trains_as_keras_does(model: Any, blobs: Any) -> None:
    x, y = blobs[0][:60], blobs[1][:60]  # 32 and a partial batch of 28
    twin = keras.models.clone_model(model)
    twin.set_weights(model.get_weights())
    _compile(twin, "sgd")

    rudel.fit(model, x, y, validation_data=(x, y), shuffle=False, verbose=0)
    first = list(traced)
    history = rudel.fit(model, x, y, validation_data=(x, y), shuffle=False, verbose=0)

    assert set(first) == {"train", "test"}
    assert traced == first
    twin.fit(x, y, shuffle=False, verbose=0)
    expected = twin.fit(x, y, validation_data=(x, y), shuffle=False, verbose=0)
    assert history.history["val_loss"] == pytest.approx(expected.history["val_loss"], rel=1e-6)
    for mine, theirs in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)


def test_evaluate_and_predict_compile_once(model: Any, blobs: Any) -> None:
    x, y = blobs
    rudel.evaluate(model, x, y)
    seen = list(traced)
    again = rudel.evaluate(model, x, y)
    assert traced == seen
    rudel.fit(model, x, y, verbose=0)
    assert rudel.evaluate(model, x, y)["loss"] < again["loss"]
    np.testing.assert_allclose(rudel.predict(model, x), model.predict(x, verbose=0), rtol=1e-5, atol=1e-6)


def test_predict_compiles_two_programs_at_most(model: Any, blobs: Any) -> None:
    x, _ = blobs
    for count in (192, 164, 36, 100):  # all of whose last batches have 36 examples, but for the first
        rudel.predict(model, x[:count], batch_size=64)
    assert traced == ["predict", "predict"]


def test_a_model_that_is_compiled_again_or_frozen_has_new_programs(model: Any, blobs: Any) -> None:
    x, y = blobs
    rudel.fit(model, x, y, verbose=0)
    before = model.get_weights()
    _compile(model, keras.optimizers.SGD(0.0))
    rudel.fit(model, x, y, verbose=0)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)

    _compile(model, "sgd")
    model.layers[0].trainable = False
    rudel.fit(model, x, y, verbose=0)
    np.testing.assert_array_equal(before[0], model.get_weights()[0])
    assert not np.array_equal(before[2], model.get_weights()[2])


def test_other_shapes_and_another_learning_rate_count(model: Any, blobs: Any) -> None:
    x, y = blobs
    rudel.fit(model, x, y, verbose=0)
    rudel.fit(model, x[:96].astype("float64"), y[:96], batch_size=48, verbose=0)
    before = model.get_weights()
    model.optimizer.learning_rate = 0.0
    rudel.fit(model, x, y, verbose=0)
    np.testing.assert_array_equal(before[0], model.get_weights()[0])


def test_programs_go_with_their_model(blobs: Any) -> None:
    model = Counting([keras.Input((6,)), keras.layers.Dense(3)])
    model.compile(optimizer="sgd", loss=lambda y, p, layer=model.layers[0]: keras.ops.mean(p))
    rudel.fit(model, *blobs, verbose=0)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


@dataclass
class Adding:
    """Cannot be hashed, and is equal to others that add as much."""

    amount: float

    def __call__(self, key: Any, x: Any) -> Any:
        return x + self.amount


def test_an_augmentation_counts_by_its_identity(model: Any, blobs: Any) -> None:
    x, y = blobs
    weights = model.get_weights()
    one, other = Adding(0.0), Adding(0.0)

    def trained(augment: Any) -> np.ndarray:
        model.set_weights(weights)
        rudel.fit(model, rudel.Dataset(rudel.Examples(x, y), augment=augment), verbose=0)
        return model.get_weights()[0]

    first = trained(one)
    assert traced == ["train"]
    np.testing.assert_array_equal(trained(one), first)
    assert traced == ["train"]
    other.amount = 5.0
    assert not np.array_equal(trained(other), first)
    one.amount = 5.0
    np.testing.assert_array_equal(trained(Adding(5.0)), trained(other))
    before = len(traced)
    trained(one.__call__)
    trained(one.__call__)
    assert len(traced) == before + 1, "each access to a method creates another object"
