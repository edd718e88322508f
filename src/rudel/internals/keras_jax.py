"""Undocumented parts of Keras' backend for JAX that Rudel uses or replaces."""

import contextlib
import functools
import inspect
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from keras.initializers import Ones, Zeros
from keras.src.backend.common.variables import Variable
from keras.src.backend.jax import nn, random
from keras.src.initializers.random_initializers import RandomInitializer

from rudel.internals import mentions, require

_PLAIN = {Zeros: np.zeros, Ones: np.ones}
_DRAWS = ("normal", "truncated_normal", "uniform")
_LENGTHS = tuple(4**power for power in range(8, 12))
"""Of arrays that are drawn, each by a program of its own: these take half a second to compile, and MobileNetV2 has 35
shapes of kernels.
"""

_MOST = _LENGTHS[-1]
"""Elements of an array beyond which compiling takes no longer than computing."""


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


def share_programs() -> None:
    """Lets Keras give variables their first values by few compiled programs, from now on.

    JAX compiles one for every shape that is drawn at random, or filled with zeros or ones. With an empty cache, two
    epochs of `digits` take 12 s for 16 s (two cores). What variables hold is the same to the bit.
    """
    if Variable._initialize_with_initializer is _initialized:
        return
    Variable._initialize_with_initializer = _initialized  # pyright: ignore[reportAttributeAccessIssue]
    for name in _DRAWS:
        setattr(random, name, _by_few_programs(inspect.unwrap(getattr(random, name))))


class _Here(threading.local):
    """What this thread is at: whether it draws a variable's first value, and those that it leaves for later.

    The latter are variables with what they hold, and what is to draw them; None where nothing is left.
    """

    drawing = False
    undrawn: list[tuple[Any, Any, Any]] | None = None


_here = _Here()


@contextlib.contextmanager
def drawn_if_left() -> Iterator[None]:
    """Inside the block, variables that this thread makes hold zeros in the place of random numbers; at its end, those
    are drawn that nothing has set.

    Reading a model from a file sets nearly all. With an empty cache, an EfficientNetB0 is read in 1.0 s for 29 s, a
    MobileNetV2 in 0.6 s for 13 s (two cores).
    """
    before, _here.undrawn = _here.undrawn, []
    try:
        yield
        undrawn = _here.undrawn
    finally:
        _here.undrawn = before
    for variable, zeros, initializer in undrawn:
        if variable._value is zeros:
            _initialized(variable, initializer)


_by_keras = inspect.unwrap(Variable._initialize_with_initializer)


@functools.wraps(_by_keras)
def _initialized(variable: Any, initializer: Any) -> None:
    """Gives a variable its first value, the same to the bit as Keras does."""
    kind, drawn = type(initializer), isinstance(initializer, RandomInitializer)
    if (drawn and _here.undrawn is not None) or (kind in _PLAIN and math.prod(variable._shape) <= _MOST):
        value = _PLAIN.get(kind, np.zeros)(variable._shape, variable._dtype)
        variable._initialize(jax.device_put(value))  # which compiles nothing
        if drawn and _here.undrawn is not None:
            _here.undrawn.append((variable, variable._value, initializer))
        return
    _here.drawing = drawn
    try:
        _by_keras(variable, initializer)
    finally:
        _here.drawing = False


def _by_few_programs(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Draws first values as the beginning of a longer array: which number comes where follows from the seed alone."""

    @functools.wraps(draw)
    def drawn(shape: Sequence[int], *arguments: Any, **options: Any) -> Any:
        size = math.prod(shape)
        if not _here.drawing or size > _MOST or not _counts_elements():
            return draw(shape, *arguments, **options)
        longer = next(length for length in _LENGTHS if length >= size)
        numbers = draw((longer,), *arguments, **options)
        if isinstance(numbers, Tracer):  # an initializer may have itself compiled
            return numbers[:size].reshape(shape)
        return jax.device_put(np.asarray(numbers)[:size].reshape(shape))

    return drawn


def _counts_elements() -> bool:
    """Whether JAX makes each random number of an array from its place and the seed."""
    options: Any = jax.config
    return options.jax_threefry_partitionable and options.jax_default_prng_impl == "threefry2x32"


def _check() -> None:
    require(
        "keras",
        {
            "backend.jax.nn.moments": hasattr(nn, "moments"),
            "Variable._initialize_with_initializer": mentions(_by_keras, "_convert_to_tensor", "_initialize", "_shape"),
            **{f"backend.jax.random.{name}": hasattr(random, name) for name in _DRAWS},
        },
    )


_check()
