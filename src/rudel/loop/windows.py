"""Windows of convolutions and pooling: shifted, padded and interleaved arrays, in parts that a cache holds."""

import contextlib
import contextvars
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
from jax import lax

GATHERED_AT_ONCE = 2**19
"""Bytes of windows that are gathered before they are multiplied: about what a core's own cache holds. More would need
memory, and slow down whoever shares the next cache.
"""

_devices: contextvars.ContextVar[int] = contextvars.ContextVar("devices", default=1)
"""Into how many shards examples are cut, each on a device of its own."""


@contextlib.contextmanager
def sharded_over(devices: int) -> Iterator[None]:
    """Traces convolutions inside the block so that examples which are on several devices stay where they are."""
    token = _devices.set(devices)
    try:
        yield
    finally:
        _devices.reset(token)


def shifted(
    x: jax.Array, size: Sequence[int], strides: Sequence[int], dilation: Sequence[int] = (1, 1)
) -> list[jax.Array]:
    """For every element of a window, that element of all windows: a list of (N, H', W', C)."""
    count, height, width, channels = x.shape
    sides = zip((height, width), reach_of(size, dilation), strides, strict=True)
    rows, columns = ((length - s) // step for length, s, step in sides)
    ends = (rows * strides[0] + 1, columns * strides[1] + 1)
    return [
        lax.slice(x, (0, i, j, 0), (count, i + ends[0], j + ends[1], channels), (1, *strides, 1))
        for i in range(0, size[0] * dilation[0], dilation[0])
        for j in range(0, size[1] * dilation[1], dilation[1])
    ]


def interleaved(parts: Sequence[jax.Array], strides: tuple[int, int]) -> jax.Array:
    """(N, H * h, W * w, C) of (N, H, W, C) for each remainder of positions by the strides (h, w)."""
    count, rows, columns, channels = parts[0].shape
    whole = jnp.stack(parts).reshape(*strides, count, rows, columns, channels).transpose(2, 3, 0, 4, 1, 5)
    return whole.reshape(count, rows * strides[0], columns * strides[1], channels)


def padded_by(x: jax.Array, pads: Sequence[tuple[int, int]]) -> jax.Array:
    """Zeros added before and after along H and W, or so many elements cut off."""
    return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *((*pad, 0) for pad in pads), (0, 0, 0)])


def reach_of(size: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """From the first to the last element of a window, these included, along each side."""
    return [(length - 1) * apart + 1 for length, apart in zip(size, dilation, strict=True)]


def shards_of(count: int) -> int:
    """Into how many shards so many examples are cut; 1 where they do not divide."""
    return _devices.get() if count % _devices.get() == 0 else 1


def microbatch_count(count: int, bytes_each: int) -> int:
    """The number of equal microbatches whose gathered windows stay in a core's cache."""
    number = 1
    while count % (2 * number) == 0 and bytes_each * (count // number) > GATHERED_AT_ONCE:
        number *= 2
    return number


def microbatches_of(array: jax.Array, devices: int, number: int) -> jax.Array:
    """So many microbatches one after the other, each with a part of every shard: (number, devices, examples, ...)."""
    return jnp.moveaxis(array.reshape(devices, number, -1, *array.shape[1:]), 1, 0)
