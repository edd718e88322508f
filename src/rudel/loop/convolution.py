"""Convolution and pooling as matrix products and elementwise maxima, for CPUs.

Inside a loop, XLA's CPU convolution is some twenty times slower than outside of one (`benchmarks/convolution.py`), and
the gradient of its window reductions is a scalar loop. While a training step is traced on a CPU, `fast_on_cpu` puts
these formulations in the place of those of `jax.lax`:

- a convolution gathers each output's window (im2col; Chellapilla et al., "High Performance Convolutional Neural
  Networks for Document Processing", 2006) and multiplies, some examples at a time; its gradients, by differentiation,
  are products too, of windows that are gathered again;
- a transposed convolution is one for every remainder of positions by the strides, of the weights that meet inputs
  there, as in Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 1609.07009;
- a depthwise convolution is a sum of shifted inputs times one weight each, and so is its gradient for the inputs;
- pooling combines strided slices, of columns and then of rows.

One dimension counts as two, of which one has the length 1. The results differ from XLA's by rounding only. What is not
covered (three dimensions, other layouts, huge windows) goes to XLA as before. On GPU and TPU nothing is changed.
"""

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rudel.array_types import Float, Num
from rudel.loop.depthwise import convolve_depthwise
from rudel.loop.windows import interleaved, microbatch_count, microbatches_of, padded_by, reach_of, shards_of, shifted

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

LARGEST_UNROLLED_WINDOW = 128
"""Windows of more elements than this stay with XLA: the program would grow with every one of them."""

GATHERED_WHOLE = 2**21
"""Bytes of all windows up to which they are gathered at once, and kept for the gradients: with the net `series`, the
benchmark's step takes 1.2 ms for 2.9, with the others as long as without this.
"""

_tracing = threading.RLock()


@contextlib.contextmanager
def fast_on_cpu(platform: str | None = None) -> Iterator[None]:
    """Traces convolutions and pooling inside the block as matrix products and slices, if it is for a CPU.

    Args:
        platform: for what is traced, by JAX's name; None for where JAX computes here.
    """
    if (platform or jax.default_backend()) != "cpu":
        yield
        return
    with _tracing:
        xla = lax.conv_general_dilated, lax.conv_transpose, lax.reduce_window
        ours = _convolve, _convolve_transposed, _reduce_window
        lax.conv_general_dilated, lax.conv_transpose, lax.reduce_window = map(functools.partial, ours, xla)
        try:
            yield
        finally:
            lax.conv_general_dilated, lax.conv_transpose, lax.reduce_window = xla


def convolve(
    x: Float[jax.Array, "images height width channels"],
    kernel: Float[jax.Array, "h w grouped filters"],
    strides: tuple[int, int],
    pads: Sequence[tuple[int, int]],
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> Float[jax.Array, "images rows columns filters"]:
    """A two-dimensional convolution as one matrix product, or one for each group.

    Args:
        x: (N, H, W, C).
        kernel: (h, w, C / groups, F).
        strides: steps between neighbouring windows along H and W.
        pads: zeros added (before, after) along H and W; negative to cut off.
        dilation: steps between neighbouring elements of a window.
        groups: of channels, each of which makes as many of the outputs.

    Returns:
        (N, H', W', F).
    """
    height, width, grouped, filters = kernel.shape
    padded = padded_by(x, pads)

    def multiply(microbatch: jax.Array, kernel: jax.Array) -> jax.Array:
        windows = shifted(microbatch, (height, width), strides, dilation)
        count, rows, columns, _ = windows[0].shape
        gathered = windows[0] if len(windows) == 1 else jnp.concatenate(windows, axis=-1)
        if groups == 1:
            product = gathered.reshape(count * rows * columns, -1) @ kernel.reshape(-1, filters)
        else:
            gathered = gathered.reshape(count * rows * columns, height * width, groups, grouped)
            weights = kernel.reshape(height * width, grouped, groups, filters // groups)
            product = jnp.einsum("nwgc,wcgf->ngf", gathered, weights)
        return product.reshape(count, rows, columns, filters)

    count, reach = len(x), reach_of((height, width), dilation)
    outputs = [(n - size) // step + 1 for n, size, step in zip(padded.shape[1:3], reach, strides, strict=True)]
    devices = shards_of(count)
    each = math.prod(outputs) * height * width * x.shape[-1] * x.dtype.itemsize
    number = 1 if each * count // devices <= GATHERED_WHOLE else microbatch_count(count // devices, each)
    if number == 1 or height * width == 1:
        return multiply(padded, kernel)
    if devices == 1:
        microbatches = padded.reshape(number, count // number, *padded.shape[1:])
        again = jax.checkpoint(multiply)
        return lax.map(lambda microbatch: again(microbatch, kernel), microbatches).reshape(count, *outputs, filters)
    # Each device has a kernel of its own: gradients are added up over microbatches there, and over devices once.
    microbatches = microbatches_of(padded, devices, number)
    kernels = jnp.broadcast_to(kernel, (devices, *kernel.shape))
    again = jax.checkpoint(jax.vmap(multiply))
    products = lax.map(lambda shards: again(shards, kernels), microbatches)
    return jnp.moveaxis(products, 0, 1).reshape(count, *outputs, filters)


def convolve_transposed(
    x: Float[jax.Array, "images height width channels"],
    kernel: Float[jax.Array, "h w channels filters"],
    strides: tuple[int, int],
    pads: Sequence[tuple[int, int]],
) -> Float[jax.Array, "images rows columns filters"]:
    """A convolution of what has zeros between its elements, as a transposed one is, without these zeros.

    Args:
        x: (N, H, W, C).
        kernel: (h, w, C, F).
        strides: steps between neighbouring elements of `x` where they have zeros between them.
        pads: zeros added (before, after) then, along H and W; negative to cut off.

    Returns:
        (N, H', W', F).
    """
    count, lengths, size = len(x), x.shape[1:3], kernel.shape[:2]
    sides = list(zip(lengths, size, strides, pads, strict=True))
    outputs = [(length - 1) * step + 1 + sum(pad) - taps + 1 for length, taps, step, pad in sides]
    parts = [-(-output // step) for output, step in zip(outputs, strides, strict=True)]

    def outputs_at(*remainders: int) -> jax.Array:
        first = [(pad[0] - at) % step for at, (_, _, step, pad) in zip(remainders, sides, strict=True)]
        weights = kernel[first[0] :: strides[0], first[1] :: strides[1]]
        if not weights.size:
            return jnp.zeros((count, *parts, kernel.shape[-1]), x.dtype)
        moved = [(at + tap - pad[0]) // s for at, tap, (_, _, s, pad) in zip(remainders, first, sides, strict=True)]
        there = zip(moved, parts, weights.shape[:2], lengths, strict=True)
        return convolve(x, weights, (1, 1), [(-move, part + taps - 1 - n + move) for move, part, taps, n in there])

    whole = interleaved([outputs_at(*at) for at in np.ndindex(*strides)], strides)
    return whole[:, : outputs[0], : outputs[1]]


def pool(
    x: Num[jax.Array, "images height width channels"],
    combine: Callable[..., jax.Array],
    fill: "ArrayLike",
    size: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> Num[jax.Array, "images rows columns channels"]:
    """Combines the elements of every window of (N, H, W, C), along W and then along H; `fill` pads."""
    if any(sum(pad) for pad in pads):
        x = jnp.pad(x, ((0, 0), *pads, (0, 0)), constant_values=fill)
    along_columns = functools.reduce(combine, shifted(x, (1, size[1]), (1, strides[1])))
    return functools.reduce(combine, shifted(along_columns, (size[0], 1), (strides[0], 1)))


def first_maximum(a: Num[jax.Array, "*shape"], b: Num[jax.Array, "*shape"]) -> Num[jax.Array, "*shape"]:
    """The larger of two, or NaN; where they are equal the gradient goes to `a` alone, as in XLA's pooling."""
    return jnp.where((a >= b) | jnp.isnan(a), a, b)


def _convolve(
    xla: Callable[..., jax.Array],
    lhs: jax.Array,
    rhs: jax.Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    **settings: Any,
) -> jax.Array:
    numbers = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    sides = lhs.ndim - 2
    spatial, groups = range(1, sides + 1), feature_group_count
    strides, stretched, dilation = (
        _of_two(() if s is None else s) for s in (window_strides, lhs_dilation, rhs_dilation)
    )
    covered = (
        sides in (1, 2)
        and numbers.lhs_spec == numbers.out_spec == (0, sides + 1, *spatial)
        and numbers.rhs_spec == (sides + 1, sides, *range(sides))
        and batch_group_count == 1
        and (stretched == (1, 1) or (strides == dilation == (1, 1) and groups == 1 and not isinstance(padding, str)))
        and max(math.prod(rhs.shape[:-2]), 2 * math.prod(stretched)) <= LARGEST_UNROLLED_WINDOW
        and not any(value is not None for value in settings.values())
        and lhs.dtype == rhs.dtype
        and all(length > 0 for length in lhs.shape)
    )
    if covered:
        x, kernel = (lhs, rhs) if sides == 2 else (lhs[:, None], rhs[None])
        reach = reach_of(kernel.shape[:2], dilation)
        pads = _pads(x.shape[1:3], reach, strides, padding)
        lengths = reach_of(x.shape[1:3], stretched)
        if all(n + sum(p) >= k and min(*p, 0) == 0 for n, p, k in zip(lengths, pads, reach, strict=True)):
            if stretched != (1, 1):
                outputs = convolve_transposed(x, kernel, stretched, pads)
            elif 1 < groups == x.shape[-1]:
                outputs = convolve_depthwise(x, kernel, strides, pads, dilation)
            else:
                outputs = convolve(x, kernel, strides, pads, dilation, groups)
            return outputs if sides == 2 else outputs[:, 0]
    return xla(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        dimension_numbers=dimension_numbers,
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
        **settings,
    )


def _convolve_transposed(
    xla: Callable[..., jax.Array],
    lhs: jax.Array,
    rhs: jax.Array,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    *others: Any,
    **settings: Any,
) -> jax.Array:
    if isinstance(padding, str) or dimension_numbers is None or not transpose_kernel or others or settings:
        return xla(lhs, rhs, strides, padding, rhs_dilation, dimension_numbers, transpose_kernel, *others, **settings)
    numbers = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    outputs, inputs, *sides = numbers.rhs_spec
    kernel = jnp.flip(rhs, sides).swapaxes(outputs, inputs)
    return lax.conv_general_dilated(lhs, kernel, (1,) * len(strides), padding, strides, rhs_dilation, numbers)


def _of_two(sides: Sequence[int]) -> tuple[int, int]:
    """Of one dimension as of two, of which the first has the length 1."""
    *_, first, second = 1, 1, *sides
    return int(first), int(second)


_POOLINGS = {lax.max: first_maximum, lax.min: lambda a, b: jnp.where(a <= b, a, b), lax.add: jnp.add}


def _reduce_window(
    xla: Callable[..., Any],
    operand: jax.Array,
    init_value: "ArrayLike",
    computation: Callable[..., Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    size = tuple(window_dimensions)
    steps = tuple(window_strides or (1,) * len(size))
    covered = (
        computation in _POOLINGS
        and isinstance(operand, jax.Array)
        and jnp.issubdtype(operand.dtype, jnp.floating)
        and len(size) in (3, 4)
        and (size[0], size[-1], steps[0], steps[-1]) == (1, 1, 1, 1)
        and math.prod(size) <= LARGEST_UNROLLED_WINDOW
        and all(d == 1 for d in (*(base_dilation or ()), *(window_dilation or ())))
        and (computation is not lax.add or init_value == 0)
    )
    if covered:
        x = operand if len(size) == 4 else operand[:, None]
        sides, strides = _of_two(size[1:-1]), _of_two(steps[1:-1])
        pads = _pads(x.shape[1:3], sides, strides, padding if isinstance(padding, str) else padding[1:-1])
        if all(n + sum(p) >= k for n, p, k in zip(x.shape[1:3], pads, sides, strict=True)):
            pooled = pool(x, _POOLINGS[computation], init_value, sides, strides, pads)
            return pooled if len(size) == 4 else pooled[:, 0]
    return xla(
        operand, init_value, computation, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )


def _pads(
    lengths: Sequence[int], size: Sequence[int], strides: Sequence[int], padding: str | Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Zeros (before, after) along both sides."""
    pairs = lax.padtype_to_pads(lengths, size, strides, padding.upper()) if isinstance(padding, str) else padding
    first = [] if len(pairs) == 2 else [(0, 0)]
    return first + [(int(before), int(after)) for before, after in pairs]
