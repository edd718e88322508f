"""Small models and data for the tests of training."""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rudel
from rudel.backend import keras_on_jax, set_seed
from rudel.data.stream import Stream

keras = keras_on_jax()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    set_seed(7)


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


class Listed(Stream):
    """A stream over arrays that notes what is asked of it, and can do something before it answers."""

    def __init__(self, x: Any, y: Any = None, before: Callable[[np.ndarray], None] | None = None) -> None:
        self.examples = rudel.Examples(x, y)
        self.asked: list[np.ndarray] = []
        self._before = before or (lambda indices: None)

    def __len__(self) -> int:
        return len(self.examples)

    def take(self, indices: np.ndarray | slice) -> rudel.Examples:
        numbers = np.arange(len(self))[indices]
        self._before(numbers)
        self.asked.append(numbers)
        return self.examples.take(numbers)

    def fingerprint(self) -> str:
        return f"listed {zlib.crc32(np.ascontiguousarray(self.examples.x).view(np.uint8).data)}"


@pytest.fixture
def listed() -> type[Listed]:
    return Listed


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of streams of 2 kB, so that small streams have many."""
    monkeypatch.setattr("rudel.loop.blocks.BLOCK_BYTES", 2000.0)
