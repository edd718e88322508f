"""Optimizers that count their steps in a way of their own."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from training.replicas.conftest import Crew

import rudel


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
