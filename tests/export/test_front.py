"""Layers in front of a network that stay outside of its int8 form: only where the rest does without what they take."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rudel.backend import keras_on_jax
from rudel.export.front import Front, front_of
from rudel.features.layer import Features
from rudel.features.log_mel import LogMel

keras = keras_on_jax()
layers = keras.layers
x = (np.random.default_rng(0).normal(size=(16, 3)) * [0.01, 1, 100]).astype(np.float32)


def adapted(x: np.ndarray = x, **options: Any) -> Any:
    """A layer that normalises such columns."""
    layer = layers.Normalization(**options)
    layer.adapt(x)
    return layer


def front(model: Any, x: Any, folder: Path) -> Front:
    """What is to be converted, which computes the same as the model."""
    found = front_of(model, Path("model.keras"), x, "litert-int8", folder)
    if found.features:
        network = keras.models.load_model(found.model)
        (columns,) = found.columns(x)
        for mine, other in zip(
            keras.tree.flatten(network.predict(columns, verbose=0)),
            keras.tree.flatten(model.predict(x, verbose=0)),
            strict=True,
        ):
            np.testing.assert_allclose(mine, other, atol=1e-5)
    return found


def sequential(given: Any) -> Any:
    return keras.Sequential([given, adapted(), layers.Dense(2), layers.Dense(1)])


def called_elsewhere_too(given: Any) -> Any:
    """The layer has calls before and after the one that the model is of."""
    layer = adapted()
    layer(keras.Input((3,)))
    normalised = layer(given)
    layer(given)
    return keras.Model(given, layers.Dense(1)(normalised))


@pytest.mark.parametrize("make", [sequential, called_elsewhere_too])
def test_a_layer_that_alone_takes_the_input_stays_outside(make: Callable[[Any], Any], tmp_path: Path) -> None:
    assert front(make(keras.Input((3,))), x, tmp_path).features


def test_an_input_in_a_dict_is_normalised_outside(tmp_path: Path) -> None:
    given = keras.Input((3,), name="row")
    model = keras.Model({"row": given}, layers.Dense(1)(adapted()(given)))
    assert front(model, {"row": x}, tmp_path).features


def test_sound_in_front_of_a_sequential_network(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((8000,), dtype="int16"), Features(LogMel(rate=8000)), layers.Flatten()])
    model.add(layers.Dense(2))
    sound = np.random.default_rng(0).integers(-9999, 9999, (4, 8000)).astype(np.int16)
    assert front(model, sound, tmp_path).inputs.leaves[0].name == "spectrogram"


def input_is_an_output(given: Any) -> Any:
    return keras.Model(given, [layers.Dense(1)(adapted()(given)), given])


def applied_twice(given: Any) -> Any:
    layer = adapted()
    return keras.Model(given, layers.Add()([layer(given), layer(given)]))


def added_to_the_input(given: Any) -> Any:
    return keras.Model(given, layers.Dense(1)(adapted()(given) + given))


def is_an_output(given: Any) -> Any:
    normalised = adapted()(given)
    return keras.Model(given, [layers.Dense(1)(normalised), normalised])


def is_all(given: Any) -> Any:
    return keras.Model(given, adapted()(given))


@pytest.mark.parametrize("make", [input_is_an_output, applied_twice, added_to_the_input, is_an_output, is_all])
def test_a_layer_stays_inside_where_more_takes_the_input(make: Callable[[Any], Any], tmp_path: Path) -> None:
    assert not front(make(keras.Input((3,))), x, tmp_path).features


@pytest.mark.parametrize(("pressure", "outside"), [(1013, False), (300_000, True)])
def test_a_scale_of_int16_is_fine_enough_for_columns_of_the_weather(
    pressure: int, outside: bool, tmp_path: Path
) -> None:
    rows = (np.array([22, 55, pressure]) + np.random.default_rng(0).normal(size=(64, 3)) * [4, 15, 8]).astype("float32")
    model = keras.Sequential([keras.Input((3,)), adapted(rows), layers.Dense(1)])
    found = front_of(model, Path("model.keras"), rows, "litert-int16", tmp_path)
    assert bool(found.features) == outside
    assert any("one scale of int16 is too coarse" in note for note in found.notes) == outside


def test_rows_of_a_photograph_are_not_its_columns(tmp_path: Path) -> None:
    photographs = np.random.default_rng(0).normal(size=(16, 2, 3, 3)).astype(np.float32) * x[0, :, None]
    model = keras.Sequential([keras.Input((2, 3, 3)), adapted(photographs, axis=2), layers.Flatten(), layers.Dense(1)])
    assert not front(model, photographs, tmp_path).features
