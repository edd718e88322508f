"""Undocumented parts of Keras' backend for JAX that Rudel uses, or replaces while a step is traced."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from keras.src.backend.jax import nn

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
def _replaced(module: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    original = getattr(module, name)
    setattr(module, name, make(original))
    try:
        yield
    finally:
        setattr(module, name, original)


def _check() -> None:
    require("keras", {"backend.jax.nn.moments": hasattr(nn, "moments")})


_check()
