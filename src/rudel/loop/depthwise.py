"""Depthwise convolutions as sums of shifted inputs times one weight each, for CPUs; see `convolution.py`."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rudel.array_types import Float
from rudel.loop.windows import interleaved, microbatch_count, microbatches_of, padded_by, reach_of, shards_of, shifted


def convolve_depthwise(
    x: Float[jax.Array, "images height width channels"],
    kernel: Float[jax.Array, "h w 1 filters"],
    strides: tuple[int, int],
    pads: Sequence[tuple[int, int]],
    dilation: tuple[int, int] = (1, 1),
) -> Float[jax.Array, "images rows columns filters"]:
    """A depthwise convolution as a sum of shifted inputs; it can be differentiated in reverse mode only.

    Args:
        x: (N, H, W, C).
        kernel: (h, w, 1, C * M), where M outputs are made of every channel.
        strides: steps between neighbouring windows along H and W.
        pads: zeros added (before, after) along H and W.
        dilation: steps between neighbouring elements of a window.

    Returns:
        (N, H', W', C * M).
    """
    return _depthwise(x, kernel, _Windows(kernel.shape[:2], strides, dilation, tuple(pads)), shards_of(len(x)))


@dataclass(frozen=True)
class _Windows:
    """Where the windows of a depthwise convolution are; each along H and W."""

    size: Sequence[int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[tuple[int, int], ...]

    def of(self, x: jax.Array) -> list[jax.Array]:
        """See `shifted`; of what is padded already."""
        return shifted(x, self.size, self.strides, self.dilation)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _depthwise(x: jax.Array, kernel: jax.Array, where: _Windows, devices: int) -> jax.Array:
    height, width, _, outputs = kernel.shape
    windows = _repeated(where.of(padded_by(x, where.pads)), outputs)
    weights = kernel.reshape(height * width, outputs)
    return functools.reduce(jnp.add, (window * weight for window, weight in zip(windows, weights, strict=True)))


def _repeated(windows: list[jax.Array], outputs: int) -> list[jax.Array]:
    """Each channel as often as outputs are made of it."""
    multiplier = outputs // windows[0].shape[-1]
    return windows if multiplier == 1 else [jnp.repeat(window, multiplier, axis=-1) for window in windows]


def _depthwise_forwards(
    x: jax.Array, kernel: jax.Array, where: _Windows, devices: int
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _depthwise(x, kernel, where, devices), (x, kernel)


def _depthwise_backwards(
    where: _Windows, devices: int, kept: tuple[jax.Array, jax.Array], dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    return _input_gradient(dy, kernel, x, where), _kernel_gradient(dy, kernel, x, where, devices)


_depthwise.defvjp(_depthwise_forwards, _depthwise_backwards)


def _input_gradient(dy: jax.Array, kernel: jax.Array, x: jax.Array, where: _Windows) -> jax.Array:
    """Of a depthwise convolution: for positions of the same remainder by the strides, a sum of shifted `dy`.

    Differentiated, the forward sum would give a sum of padded arrays, which takes two to seven times as long.
    """
    count, *sides, channels = x.shape
    strides, outputs = where.strides, kernel.shape[-1]
    lengths = [-(-(side + sum(pad)) // step) for side, pad, step in zip(sides, where.pads, strides, strict=True)]
    reach = [(there - 1) // step for there, step in zip(reach_of(where.size, where.dilation), strides, strict=True)]
    after = [length - there for length, there in zip(lengths, dy.shape[1:3], strict=True)]
    padded = padded_by(dy, list(zip(reach, after, strict=True)))

    def term(i: int, j: int) -> jax.Array:
        top, left = (r - at * d // s for r, at, d, s in zip(reach, (i, j), where.dilation, strides, strict=True))
        return (
            lax.slice(padded, (0, top, left, 0), (count, top + lengths[0], left + lengths[1], outputs))
            * kernel[i, j, 0]
        )

    def sum_at(*remainders: int) -> jax.Array:
        rows, columns = (
            [at for at in range(size) if at * apart % step == remainder]
            for size, apart, step, remainder in zip(where.size, where.dilation, strides, remainders, strict=True)
        )
        terms = [term(i, j) for i in rows for j in columns]
        total = functools.reduce(jnp.add, terms) if terms else jnp.zeros((count, *lengths, outputs), dy.dtype)
        return total if channels == outputs else total.reshape(count, *lengths, channels, -1).sum(-1)

    whole = interleaved([sum_at(*at) for at in np.ndindex(*strides)], strides)
    (top, _), (left, _) = where.pads
    return whole[:, top : top + sides[0], left : left + sides[1]]


def _kernel_gradient(dy: jax.Array, kernel: jax.Array, x: jax.Array, where: _Windows, devices: int) -> jax.Array:
    """Of a depthwise convolution: all sums in one pass over a microbatch that stays in a core's cache."""
    height, width, _, outputs = kernel.shape
    precise = jnp.promote_types(dy.dtype, jnp.float32)

    def sums(x: jax.Array, dy: jax.Array) -> jax.Array:
        windows = _repeated(where.of(x), outputs)
        products = tuple((window * dy).astype(precise) for window in windows)
        zeros = tuple(jnp.zeros((), precise) for _ in windows)
        return jnp.stack(lax.reduce(products, zeros, lambda a, b: tuple(map(jnp.add, a, b)), (0, 1, 2)))

    number = microbatch_count(len(x) // devices, 2 * dy.size // len(x) * dy.dtype.itemsize)

    padded = padded_by(x, where.pads)
    microbatches = microbatches_of(padded, devices, number), microbatches_of(dy, devices, number)
    nothing = jnp.zeros((devices, height * width, outputs), precise)
    total, _ = lax.scan(lambda total, each: (total + jax.vmap(sums)(*each), None), nothing, microbatches)
    return total.sum(0).reshape(kernel.shape).astype(kernel.dtype)
