"""The weights that a model begins with, made by few programs.

Keras makes every variable by a program for its shape, and compiling those takes longer than all else in the start of a
small training. Here, random numbers are drawn by programs of two lengths, which serve all shapes and are kept on disk,
and zeros and ones are made without any. JAX draws every number by its place alone, so the weights are the same bits.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rudel.backend import backend_name

_LENGTHS = (2**14, 2**18)
_DRAWN, _FILLED = ("uniform", "normal", "truncated_normal"), ("zeros", "ones")


@contextlib.contextmanager
def made_by_few_programs() -> Iterator[None]:
    """Inside the block, Keras makes variables so, where it is on JAX and JAX draws each number by its place."""
    if backend_name() != "jax":
        yield
        return
    import jax
    from keras.src.backend.jax import numpy, random

    replaced = [(numpy, name, _filled) for name in _FILLED]
    if getattr(jax.config, "jax_threefry_partitionable", False):
        replaced += [(random, name, _drawn) for name in _DRAWN]
    own = [getattr(module, name) for module, name, _ in replaced]
    for (module, name, made), original in zip(replaced, own, strict=True):
        setattr(module, name, made(original))
    try:
        yield
    finally:
        for (module, name, _), original in zip(replaced, own, strict=True):
            setattr(module, name, original)


def _drawn(own: Callable[..., Any]) -> Callable[..., Any]:
    """Draws more numbers than are asked for, and takes the first."""

    def drawn(shape: Any, *arguments: Any, **settings: Any) -> Any:
        count = math.prod(shape)
        length = next((length for length in _LENGTHS if count <= length), None)
        if length is None or not count or _is_traced():
            return own(shape, *arguments, **settings)
        values = np.asarray(own((length,), *arguments, **settings))
        return _on_device(values[:count].reshape(shape).copy())

    return drawn


def _filled(own: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an array of one number on the host."""
    fill = getattr(np, own.__name__)

    def filled(shape: Any, dtype: Any = None, **settings: Any) -> Any:
        small = isinstance(shape, tuple) and math.prod(shape) <= _LENGTHS[-1]
        if not small or dtype is None or settings or _is_traced():
            return own(shape, dtype=dtype, **settings)
        return _on_device(fill(shape, np.dtype(dtype)))

    return filled


def _on_device(array: np.ndarray) -> Any:
    """The array where JAX computes."""
    import jax

    return jax.device_put(array)


def _is_traced() -> bool:
    """Whether JAX only looks at what is computed, and has no values."""
    from jax import numpy
    from jax.core import Tracer

    return isinstance(numpy.ones(()), Tracer)
