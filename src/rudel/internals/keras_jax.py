"""Undocumented parts of Keras' backend for JAX that Rudel uses, or replaces while a step is traced."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from keras.initializers import Ones, Zeros
from keras.src.backend.common.variables import Variable
from keras.src.backend.jax import nn
from keras.src.initializers.random_initializers import RandomInitializer

from rudel.internals import mentions, require

_NOT_DRAWN = {Zeros: np.zeros, Ones: np.ones}


@contextlib.contextmanager
def replaced_moments(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Inside the block, `keras.ops.moments` computes by another function.

    Args:
        make: makes the other function `(x, axes, keepdims, synchronized)` of Keras' own.
    """
    with _replaced(nn, "moments", make):
        yield


@contextlib.contextmanager
def _replaced(module: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    original = getattr(module, name)
    setattr(module, name, make(original))
    try:
        yield
    finally:
        setattr(module, name, original)


class _Undrawn(threading.local):
    """Variables whose first values this thread leaves for later, with what they hold and what is to draw them."""

    found: list[tuple[Any, Any, Any]] | None = None


_undrawn = _Undrawn()


@contextlib.contextmanager
def drawn_if_left() -> Iterator[None]:
    """Inside the block, variables that this thread makes hold zeros in the place of random numbers; at its end, those
    are drawn that nothing has set.

    Reading a model from a file sets nearly all. JAX compiles a program for every shape that is drawn, or filled with
    zeros or ones; without, an EfficientNetB0 is read in 0.9 s for 5.7 s, a MobileNetV2 in 0.9 s for 2.7 s (one core).
    """
    before, _undrawn.found = _undrawn.found, []
    try:
        yield
        found = _undrawn.found
    finally:
        _undrawn.found = before
    for variable, zeros, initializer in found:
        if variable._value is zeros:
            _by_keras(variable, initializer)


def _initialized(variable: Any, initializer: Any) -> None:
    if _undrawn.found is None or not isinstance(initializer, (Zeros, Ones, RandomInitializer)):
        _by_keras(variable, initializer)
        return
    fill = _NOT_DRAWN.get(type(initializer), np.zeros)
    variable._initialize(jax.device_put(fill(variable._shape, variable._dtype)))  # which compiles nothing
    if isinstance(initializer, RandomInitializer):
        _undrawn.found.append((variable, variable._value, initializer))


def _check() -> None:
    require(
        "keras",
        {
            "backend.jax.nn.moments": hasattr(nn, "moments"),
            "Variable._initialize_with_initializer": mentions(_by_keras, "_convert_to_tensor", "_initialize", "_shape"),
        },
    )


_by_keras = Variable._initialize_with_initializer
_check()
Variable._initialize_with_initializer = _initialized  # pyright: ignore[reportAttributeAccessIssue]
