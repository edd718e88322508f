"""The changes as a Keras layer: at work in training alone, saved with the model, with random numbers that go on."""

from pathlib import Path

import numpy as np
import pytest

import rudel
from rudel.backend import keras_on_jax, set_seed
from rudel.data.augmentation import Augmentation
from rudel.errors import OptionError

keras = keras_on_jax()
PICTURES = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype="uint8")


def model_with(*layers: Augmentation):
    set_seed(0)
    model = keras.Sequential(
        [keras.Input((8, 8, 3), dtype="uint8"), *layers, keras.layers.Flatten(), keras.layers.Dense(2)]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def test_pictures_are_changed_in_training_alone() -> None:
    layer = Augmentation("cloud_tpu_guide", seed=1)
    used = np.asarray(layer(PICTURES))
    np.testing.assert_array_equal(used, PICTURES)
    first, second = (np.asarray(layer(PICTURES, training=True)) for _ in range(2))
    assert first.dtype == used.dtype == np.float32
    assert not np.array_equal(first, PICTURES)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(np.asarray(Augmentation("cloud_tpu_guide", seed=1)(PICTURES, training=True)), first)


def test_a_model_with_the_layer_is_trained_saved_and_resumed(tmp_path: Path) -> None:
    def train(epochs: int, run: str) -> np.ndarray:
        model = model_with(Augmentation("random_brightness", {"delta": 0.1}, seed=3, name="brighter"))
        y = np.arange(24) % 2
        rudel.fit(model, PICTURES / np.float32(255), y, epochs=epochs, batch_size=8, run=tmp_path / run, resume=True)
        return np.concatenate([weight.reshape(-1) for weight in model.get_weights()])

    whole = train(4, "whole")
    train(2, "parts")
    np.testing.assert_array_equal(train(4, "parts"), whole)
    read = rudel.load(tmp_path / "parts")
    assert read.get_layer("brighter").settings == {"delta": 0.1}
    np.testing.assert_array_equal(
        rudel.predict(read, PICTURES), rudel.predict(rudel.load(tmp_path / "whole"), PICTURES)
    )


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(OptionError, match="no augmentation 'random_cat'"):
        Augmentation("random_cat")
    with pytest.raises(OptionError, match="no setting 'strength'"):
        Augmentation("random_brightness", {"strength": 1})
