"""Convolution and pooling by matrix products and slices are those of XLA, gradients included."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from jax import lax

from rudel.loop.convolution import fast_on_cpu

random: Any = np.random.default_rng(0)
CHANNELS_LAST = ("NHWC", "HWIO", "NHWC")


def both_ways(function: Any, *arguments: Any) -> None:
    """Compares values and gradients, and makes sure that the fast way has no convolution or window left."""

    def summed(*arguments: Any) -> Any:
        return jnp.sum(jnp.sin(function(*arguments)))

    everything = tuple(range(len(arguments)))
    with fast_on_cpu():
        traced = jax.jit(jax.value_and_grad(summed, everything)).trace(*arguments)
    text = str(traced.jaxpr)
    assert not any(word in text for word in ("conv_general_dilated", "reduce_window", "select_and_scatter"))
    value, gradients = traced.lower().compile()(*arguments)
    expected, expected_gradients = jax.jit(jax.value_and_grad(summed, everything))(*arguments)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("size", "strides", "padding"),
    [
        ((1, 1), (1, 1), "VALID"),
        ((1, 1), (2, 2), "SAME"),
        ((3, 3), (1, 1), "SAME"),
        ((3, 3), (2, 2), "SAME"),
        ((2, 5), (1, 3), "VALID"),
        ((3, 3), (2, 1), [(0, 2), (3, 0)]),
        ((10, 8), (2, 4), "SAME"),  # the first of the recipe `keywords`
    ],
)
@pytest.mark.parametrize("groups", [1, 2, 4])  # one, some, and as many as there are channels
def test_convolution(size: tuple[int, int], strides: tuple[int, int], padding: Any, groups: int) -> None:
    x = random.normal(size=(2, 7, 9, 4)).astype("float32")
    kernel = random.normal(size=(*size, 4 // groups, 8)).astype("float32")

    def convolve(x: Any, kernel: Any) -> Any:
        return lax.conv_general_dilated(
            x, kernel, strides, padding, dimension_numbers=CHANNELS_LAST, feature_group_count=groups
        )

    both_ways(convolve, x, kernel)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(
    ("strides", "dilation", "padding"), [((1, 1), (2, 3), "SAME"), ((2, 3), (3, 2), [(1, 0), (2, 4)])]
)
def test_dilated_convolution(strides: Any, dilation: Any, padding: Any, groups: int) -> None:
    x = random.normal(size=(2, 9, 8, 4)).astype("float32")
    kernel = random.normal(size=(3, 2, 4 // groups, 4)).astype("float32")

    def convolve(x: Any, kernel: Any) -> Any:
        return lax.conv_general_dilated(
            x, kernel, strides, padding, None, dilation, CHANNELS_LAST, feature_group_count=groups
        )

    both_ways(convolve, x, kernel)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize(("size", "strides"), [((2, 2), (2, 2)), ((3, 5), (2, 3)), ((1, 4), (3, 1)), ((3, 3), (1, 1))])
def test_transposed_convolution(size: tuple[int, int], strides: Any, padding: Any) -> None:
    x = random.normal(size=(2, 4, 5, 3)).astype("float32")
    kernel = random.normal(size=(*size, 2, 3)).astype("float32")
    both_ways(lambda x, kernel: keras.ops.conv_transpose(x, kernel, strides, padding), x, kernel)


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_one_dimension(padding: Any) -> None:
    x = random.normal(size=(2, 11, 4)).astype("float32")
    kernel = random.normal(size=(3, 4, 6)).astype("float32")
    depthwise = random.normal(size=(3, 4, 1)).astype("float32")
    both_ways(lambda x, kernel: keras.ops.conv(x, kernel, 2, padding), x, kernel)
    both_ways(lambda x, kernel: keras.ops.conv(x, kernel, 1, padding, dilation_rate=3), x, kernel)
    both_ways(lambda x, kernel: keras.ops.conv_transpose(x, kernel, 2, padding), x, kernel.transpose(0, 2, 1))
    both_ways(lambda x, kernel: keras.ops.depthwise_conv(x, kernel, 1, padding), x, depthwise)
    both_ways(lambda x: keras.ops.max_pool(x, 2, 2, padding), x)
    both_ways(lambda x: keras.ops.average_pool(x, 3, 2, padding), x)


@pytest.mark.parametrize("size", [(3, 3), (2, 1)])  # one of them smaller than its strides
@pytest.mark.parametrize("count", [16, 3])  # in microbatches, and not
def test_depthwise_in_microbatches_and_twice_differentiated(size: tuple[int, int], count: int) -> None:
    x = random.normal(size=(count, 60, 60, 4)).astype("float32")
    kernel = random.normal(size=(*size, 1, 8)).astype("float32")

    def penalty(x: Any, kernel: Any) -> Any:
        def convolved(x: Any, kernel: Any) -> Any:
            y = lax.conv_general_dilated(
                x, kernel, (2, 3), "SAME", dimension_numbers=CHANNELS_LAST, feature_group_count=4
            )
            return jnp.sum(y**2) / count

        return sum(jnp.sum(gradient**2) for gradient in jax.grad(convolved, (0, 1))(x, kernel)) / 1e6

    both_ways(penalty, x, kernel)


def test_depthwise_kernels_are_summed_up_in_float32() -> None:
    x: Any = jnp.ones((64, 16, 16, 2), "bfloat16")
    kernel: Any = jnp.ones((1, 1, 1, 2), "bfloat16")

    def summed(kernel: Any) -> Any:
        y = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=CHANNELS_LAST, feature_group_count=2)
        return jnp.sum(y.astype("float32"))

    with fast_on_cpu():
        gradient = jax.grad(summed)(kernel)
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_array_equal(gradient.astype("float32").ravel(), [64 * 16 * 16] * 2)


@pytest.mark.parametrize(
    ("start", "combine", "size", "strides", "padding"),
    [
        (start, combine, size, strides, padding)
        for start, combine in ((-jnp.inf, lax.max), (jnp.inf, lax.min), (0.0, lax.add))
        for size, strides, padding in (((2, 2), (2, 2), "VALID"), ((2, 3), (1, 2), "SAME"))
    ],
)
def test_pooling(start: float, combine: Any, size: Any, strides: Any, padding: str) -> None:
    x = random.normal(size=(2, 7, 8, 3)).astype("float32")
    both_ways(lambda x: lax.reduce_window(x, start, combine, (1, *size, 1), (1, *strides, 1), padding), x)


def test_equal_maxima_give_their_gradient_to_the_first() -> None:
    ones: Any = np.ones((1, 4, 4, 1), "float32")

    def pooled(x: Any) -> Any:
        return jnp.sum(lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))

    with fast_on_cpu():
        gradient = jax.grad(pooled)(ones)
    np.testing.assert_array_equal(gradient, jax.grad(pooled)(ones))


def test_what_is_not_covered_goes_to_xla() -> None:
    volume = random.normal(size=(1, 4, 4, 4, 2)).astype("float32")
    kernel = random.normal(size=(2, 2, 2, 2, 3)).astype("float32")
    numbers = ("NDHWC", "DHWIO", "NDHWC")
    picture: Any = random.normal(size=(1, 9, 9, 2)).astype("float32")
    huge = random.normal(size=(12, 11, 2, 3)).astype("float32")
    rows: Any = np.ones((4, 3), "float32")
    counts: Any = np.arange(16, dtype="int32").reshape(1, 4, 4, 1)
    calls: list[Any] = [
        lambda: lax.conv_general_dilated(volume, kernel, (1, 1, 1), "SAME", dimension_numbers=numbers),
        lambda: lax.conv_general_dilated(
            picture, huge[:3, :3], (2, 2), [(1, 1), (1, 1)], lhs_dilation=(2, 2), dimension_numbers=CHANNELS_LAST
        ),
        lambda: lax.conv_general_dilated(picture, huge, (1, 1), "SAME", dimension_numbers=CHANNELS_LAST),
        lambda: lax.conv_general_dilated(picture.transpose(0, 3, 1, 2), huge.transpose(3, 2, 0, 1), (1, 1), "SAME"),
        lambda: lax.conv_transpose(picture, huge[:2, :2], (9, 9), [(1, 1), (1, 1)], None, CHANNELS_LAST, False),
        lambda: lax.conv_transpose(picture, huge[:2, :2].swapaxes(2, 3), (2, 2), [(1, 1)] * 2, transpose_kernel=True),
        lambda: lax.conv_general_dilated(rows, rows, (), "VALID"),
        lambda: lax.reduce_window(counts, 0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID"),
        lambda: lax.reduce_window(picture, 1.0, lax.mul, (1, 2, 2, 1), (1, 1, 1, 1), "VALID"),
    ]
    for call in calls:
        with fast_on_cpu():
            ours = call()
        np.testing.assert_array_equal(ours, call())


def test_everything_is_as_before_afterwards() -> None:
    before = lax.conv_general_dilated, lax.conv_transpose, lax.reduce_window
    with contextlib.suppress(ZeroDivisionError), fast_on_cpu():
        assert lax.conv_general_dilated is not before[0]
        raise ZeroDivisionError
    assert (lax.conv_general_dilated, lax.conv_transpose, lax.reduce_window) == before
