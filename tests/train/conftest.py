"""Small models and data for the tests of training."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rudel.backend import keras_on_jax

keras = keras_on_jax()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    keras.utils.set_random_seed(7)


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Three separable classes: float32 (192, 6), int32 (192,)."""
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 192).astype("int32")
    centres = random.normal(0, 2, (3, 6))
    return (centres[y] + random.normal(0, 0.5, (192, 6))).astype("float32"), y


@pytest.fixture
def classifier() -> Callable[..., Any]:
    """Makes a compiled MLP for the blobs; keyword arguments go to compile."""

    def make(optimizer: Any = "adam", **settings: Any) -> Any:
        model = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3, activation="softmax")]
        )
        arguments = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]} | settings
        model.compile(optimizer=optimizer, **arguments)
        return model

    return make
