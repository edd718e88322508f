"""What Rudel uses of Keras' backend for JAX, and replaces in it while a step is traced."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from keras.src.backend.jax import nn, random

from rudel.internals import require


@contextlib.contextmanager
def replaced_moments(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Inside the block, `keras.ops.moments` computes by another function.

    Args:
        make: makes the other function `(x, axes, keepdims, synchronized)` of Keras' own.
    """
    with _replaced(nn, "moments", make):
        yield


@contextlib.contextmanager
def replaced_dropout(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Inside the block, `keras.random.dropout` computes by another function.

    Args:
        make: makes the other function `(inputs, rate, noise_shape, seed)` of Keras' own.
    """
    with _replaced(random, "dropout", make):
        yield


def noise_shape_of(inputs: Any, noise_shape: Any) -> tuple[int, ...]:
    """The shape of a dropout mask."""
    return tuple(random._get_concrete_noise_shape(inputs, noise_shape))


def draw_seed(seed: Any) -> Any:
    """The next key of a seed generator, uint32 (2,)."""
    return random.jax_draw_seed(seed)


def update_metrics(model: Any, metrics: Any, loss: Any, x: Any, y: Any, y_pred: Any, weight: Any) -> tuple[Any, Any]:
    """Updates metrics variables as `model.train_step` does; returns the logs and the new variables."""
    return model._update_metrics_variables(metrics, loss, x, y, y_pred, weight)


@contextlib.contextmanager
def _replaced(module: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    original = getattr(module, name)
    setattr(module, name, make(original))
    try:
        yield
    finally:
        setattr(module, name, original)


def _check() -> None:
    import keras

    require(
        "keras",
        {
            "backend.jax.nn.moments": hasattr(nn, "moments"),
            "backend.jax.random.dropout": hasattr(random, "dropout"),
            "backend.jax.random.jax_draw_seed": hasattr(random, "jax_draw_seed"),
            "backend.jax.random._get_concrete_noise_shape": hasattr(random, "_get_concrete_noise_shape"),
            "JAXTrainer._update_metrics_variables": hasattr(keras.Model, "_update_metrics_variables"),
        },
    )


_check()
