"""The recipe for movements: what its model makes of the sensor's columns."""

import numpy as np
import pytest

import rudel
from rudel.recipes import motion


def test_columns_far_from_zero_are_scaled_by_their_spread() -> None:
    pressure = np.random.default_rng(0).normal(101_325, 3, (400, 119, 2)).astype(np.float32)
    dataset = rudel.Dataset(rudel.Examples(pressure, np.arange(400) % 2), class_names=["up", "down"])
    scaled = np.asarray(motion.model(dataset).get_layer("scaled")(pressure))
    assert scaled.mean(dtype=np.float64) == pytest.approx(0, abs=0.01)
    assert scaled.std(dtype=np.float64) == pytest.approx(1, abs=0.01)
