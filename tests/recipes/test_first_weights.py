"""The weights that a recipe's model begins with."""

from typing import Any

import jax
import numpy as np
import pytest

from rudel.backend import keras_on_jax, set_seed
from rudel.recipes.first_weights import made_by_few_programs

keras = keras_on_jax()


def net(width: int, kernel: Any = "glorot_uniform") -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(width, 3, kernel_initializer=kernel),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(width, kernel_initializer=kernel),
        ]
    )


def made(make: Any) -> list[np.ndarray]:
    set_seed(5)
    return [np.asarray(weight.value) for weight in make().variables]


@pytest.mark.parametrize(
    "kernel", ["glorot_uniform", "he_normal", "random_normal", "random_uniform", "lecun_uniform", "orthogonal"]
)
def test_they_are_the_same_bits(kernel: str) -> None:
    expected = made(lambda: net(7, kernel))
    with made_by_few_programs():
        found = made(lambda: net(7, kernel))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32), strict=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 3), (600, 500)])
def test_numbers_of_every_shape_and_type_are_the_same(shape: tuple[int, ...], dtype: str) -> None:
    def numbers() -> list[Any]:
        random = keras.initializers.RandomUniform(-0.3, 0.7, seed=3)(shape, dtype=dtype)
        return [random, keras.initializers.Zeros()(shape, dtype=dtype), keras.initializers.Ones()(shape, dtype=dtype)]

    expected = numbers()
    with made_by_few_programs():
        found = numbers()
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs), strict=True)


def test_a_model_of_other_shapes_needs_no_other_programs() -> None:
    compiled: list[str] = []
    with made_by_few_programs():
        made(lambda: net(9))
        jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
        made(lambda: net(11))
    assert not [event for event in compiled if "backend_compile" in event]


def test_what_is_only_traced_has_no_values() -> None:
    with made_by_few_programs():
        shape = jax.eval_shape(lambda: keras.initializers.GlorotUniform(seed=1)((4, 2)) + keras.ops.zeros((4, 2)))
    assert shape.shape == (4, 2)


def test_keras_is_as_it_was_afterwards() -> None:
    from keras.src.backend.jax import numpy, random

    before = [random.uniform, random.normal, random.truncated_normal, numpy.zeros, numpy.ones]
    with made_by_few_programs():
        assert random.uniform is not before[0]
    assert [random.uniform, random.normal, random.truncated_normal, numpy.zeros, numpy.ones] == before
