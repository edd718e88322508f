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
"""Lengths of the arrays that are drawn. Each has a program, which takes up to half a second to compile; MobileNetV2 has
kernels of 35 shapes.
"""

_MOST = _LENGTHS[-1]
"""The longest of them: to draw the next one takes longer than to compile a program."""


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
    epochs of `digits` take 12 s instead of 16 s (two cores). What variables hold is the same to the bit.
    """
    if Variable._initialize_with_initializer is _initialized:
        return
    Variable._initialize_with_initializer = _initialized  # pyright: ignore[reportAttributeAccessIssue]
    for name in _DRAWS:
        setattr(random, name, _by_few_programs(inspect.unwrap(getattr(random, name))))


class _Here(threading.local):
    """The state of a thread.

    Attributes:
        drawing: whether it draws the first value of a variable.
        undrawn: the variables inside `drawn_if_left`, with their zeros and their initializers; None outside.
    """

    drawing = False
    undrawn: list[tuple[Any, Any, Any]] | None = None


_here = _Here()


@contextlib.contextmanager
def drawn_if_left() -> Iterator[None]:
    """Inside the block, new variables of this thread hold zeros instead of random numbers. At its end, those that
    nothing has set are drawn.

    Reading a model from a file sets nearly all. With an empty cache, it takes 1.0 s instead of 29 s for EfficientNetB0,
    and 0.6 s instead of 13 s for MobileNetV2 (two cores).
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
    """Gives a variable its first value, to the bit the one that Keras gives it."""
    kind, drawn = type(initializer), isinstance(initializer, RandomInitializer)
    undrawn = _here.undrawn if drawn else None
    if undrawn is not None or (kind in _PLAIN and math.prod(variable._shape) <= _MOST):
        value = _PLAIN.get(kind, np.zeros)(variable._shape, variable._dtype)
        variable._initialize(jax.device_put(value))  # which compiles nothing
        if undrawn is not None:
            undrawn.append((variable, variable._value, initializer))
        return
    _here.drawing = drawn
    try:
        _by_keras(variable, initializer)
    finally:
        _here.drawing = False


def _by_few_programs(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Draws a first value as the beginning of a longer array: a number depends on the seed and its place alone."""

    @functools.wraps(draw)
    def drawn(shape: Sequence[int], *arguments: Any, **options: Any) -> Any:
        size = math.prod(shape)
        if not _here.drawing or size > _MOST or not _counts_elements():
            return draw(shape, *arguments, **options)
        longer = next(length for length in _LENGTHS if length >= size)
        numbers = draw((longer,), *arguments, **options)
        if isinstance(numbers, Tracer):  # the initializer is being compiled
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
