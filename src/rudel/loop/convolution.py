"""Convolution and pooling as matrix products and elementwise maxima, for CPUs.

Inside a loop, XLA's CPU convolution is some twenty times slower than outside of one (`benchmarks/convolution.py`), and
the gradient of its window reductions is a scalar loop. While a training step is traced on a CPU, `fast_on_cpu` puts
these formulations in the place of `lax.conv_general_dilated` and `lax.reduce_window`:

- a convolution gathers each output's window (im2col; Chellapilla et al., "High Performance Convolutional Neural
  Networks for Document Processing", 2006) and multiplies, some examples at a time; its gradients, by differentiation,
  are products too, of windows that are gathered again;
- a depthwise convolution is a sum of shifted inputs times one weight each, and so is its gradient for the inputs;
- pooling combines strided slices, of columns and then of rows.

The results differ from XLA's by rounding only. What is not covered (three dimensions, dilation, other layouts, huge
windows) goes to XLA as before. On GPU and TPU nothing is changed.
"""

import contextlib
import contextvars
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from rudel.array_types import Float, Num

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

LARGEST_UNROLLED_WINDOW = 128
"""Windows of more elements than this stay with XLA: the program would grow with every one of them."""

GATHERED_AT_ONCE = 2**19
"""Bytes of windows that are gathered before they are multiplied: about what a core's own cache holds. More would need
memory, and slow down whoever shares the next cache.
"""

_tracing = threading.RLock()

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
        xla_convolution, xla_reduce_window = lax.conv_general_dilated, lax.reduce_window
        lax.conv_general_dilated = functools.partial(_convolve, xla_convolution)
        lax.reduce_window = functools.partial(_reduce_window, xla_reduce_window)
        try:
            yield
        finally:
            lax.conv_general_dilated, lax.reduce_window = xla_convolution, xla_reduce_window


def convolve(
    x: Float[jax.Array, "images height width channels"],
    kernel: Float[jax.Array, "h w channels filters"],
    strides: tuple[int, int],
    pads: Sequence[tuple[int, int]],
) -> Float[jax.Array, "images rows columns filters"]:
    """A two-dimensional convolution as one matrix product.

    Args:
        x: (N, H, W, C).
        kernel: (h, w, C, F).
        strides: steps between neighbouring windows along H and W.
        pads: zeros added (before, after) along H and W.

    Returns:
        (N, H', W', F).
    """
    height, width, channels, filters = kernel.shape
    padded = jnp.pad(x, ((0, 0), *pads, (0, 0)))

    def multiply(microbatch: jax.Array, kernel: jax.Array) -> jax.Array:
        windows = _shifted(microbatch, (height, width), strides)
        count, rows, columns, _ = windows[0].shape
        gathered = windows[0] if len(windows) == 1 else jnp.concatenate(windows, axis=-1)
        product = gathered.reshape(count * rows * columns, height * width * channels) @ kernel.reshape(-1, filters)
        return product.reshape(count, rows, columns, filters)

    count, sides = len(x), zip(padded.shape[1:3], (height, width), strides, strict=True)
    outputs = [(length - size) // step + 1 for length, size, step in sides]
    devices = _shards(count)
    number = _microbatch_count(count // devices, math.prod(outputs) * height * width * channels * x.dtype.itemsize)
    if number == 1 or height * width == 1:
        return multiply(padded, kernel)
    if devices == 1:
        microbatches = padded.reshape(number, count // number, *padded.shape[1:])
        each = jax.checkpoint(multiply)
        return lax.map(lambda microbatch: each(microbatch, kernel), microbatches).reshape(count, *outputs, filters)
    # Each device has a kernel of its own: gradients are added up over microbatches there, and over devices once.
    microbatches = _microbatches(padded, devices, number)
    kernels = jnp.broadcast_to(kernel, (devices, *kernel.shape))
    each = jax.checkpoint(jax.vmap(multiply))
    products = lax.map(lambda shards: each(shards, kernels), microbatches)
    return jnp.moveaxis(products, 0, 1).reshape(count, *outputs, filters)


def _shards(count: int) -> int:
    """Into how many shards so many examples are cut; 1 where they do not divide."""
    return _devices.get() if count % _devices.get() == 0 else 1


def _microbatch_count(count: int, bytes_each: int) -> int:
    """The number of equal microbatches whose gathered windows stay in a core's cache."""
    number = 1
    while count % (2 * number) == 0 and bytes_each * (count // number) > GATHERED_AT_ONCE:
        number *= 2
    return number


def _microbatches(array: jax.Array, devices: int, number: int) -> jax.Array:
    """So many microbatches one after the other, each with a part of every shard: (number, devices, examples, ...)."""
    return jnp.moveaxis(array.reshape(devices, number, -1, *array.shape[1:]), 1, 0)


def convolve_depthwise(
    x: Float[jax.Array, "images height width channels"],
    kernel: Float[jax.Array, "h w 1 filters"],
    strides: tuple[int, int],
    pads: Sequence[tuple[int, int]],
) -> Float[jax.Array, "images rows columns filters"]:
    """A depthwise convolution as a sum of shifted inputs; it can be differentiated in reverse mode only.

    Args:
        x: (N, H, W, C).
        kernel: (h, w, 1, C * M), where M outputs are made of every channel.
        strides: steps between neighbouring windows along H and W.
        pads: zeros added (before, after) along H and W.

    Returns:
        (N, H', W', C * M).
    """
    return _depthwise(x, kernel, strides, tuple(pads), _shards(len(x)))


_Pads = tuple[tuple[int, int], ...]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _depthwise(x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pads: _Pads, devices: int) -> jax.Array:
    height, width, _, outputs = kernel.shape
    windows = _repeated(_shifted(jnp.pad(x, ((0, 0), *pads, (0, 0))), (height, width), strides), outputs)
    weights = kernel.reshape(height * width, outputs)
    return functools.reduce(jnp.add, (window * weight for window, weight in zip(windows, weights, strict=True)))


def _repeated(windows: list[jax.Array], outputs: int) -> list[jax.Array]:
    """Each channel as often as outputs are made of it."""
    multiplier = outputs // windows[0].shape[-1]
    return windows if multiplier == 1 else [jnp.repeat(window, multiplier, axis=-1) for window in windows]


def _depthwise_forwards(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pads: _Pads, devices: int
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _depthwise(x, kernel, strides, pads, devices), (x, kernel)


def _depthwise_backwards(
    strides: tuple[int, int], pads: _Pads, devices: int, kept: tuple[jax.Array, jax.Array], dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    return _input_gradient(dy, kernel, x, strides, pads), _kernel_gradient(dy, kernel, x, strides, pads, devices)


_depthwise.defvjp(_depthwise_forwards, _depthwise_backwards)


def _input_gradient(dy: jax.Array, kernel: jax.Array, x: jax.Array, strides: tuple[int, int], pads: _Pads) -> jax.Array:
    """Of a depthwise convolution: for positions of the same remainder by the strides, a sum of shifted `dy`.

    Differentiated, the forward sum would give a sum of padded arrays, which takes two to seven times as long.
    """
    count, *sides, channels = x.shape
    *size, _, outputs = kernel.shape
    lengths = [-(-(side + sum(pad)) // step) for side, pad, step in zip(sides, pads, strides, strict=True)]
    reach = [(length - 1) // step for length, step in zip(size, strides, strict=True)]
    after = [length - there for length, there in zip(lengths, dy.shape[1:3], strict=True)]
    padded = jnp.pad(dy, ((0, 0), *zip(reach, after, strict=True), (0, 0)))

    def term(i: int, j: int) -> jax.Array:
        top, left = reach[0] - i // strides[0], reach[1] - j // strides[1]
        return (
            lax.slice(padded, (0, top, left, 0), (count, top + lengths[0], left + lengths[1], outputs))
            * kernel[i, j, 0]
        )

    def sum_at(row: int, column: int) -> jax.Array:
        terms = [term(i, j) for i in range(row, size[0], strides[0]) for j in range(column, size[1], strides[1])]
        total = functools.reduce(jnp.add, terms) if terms else jnp.zeros((count, *lengths, outputs), dy.dtype)
        return total if channels == outputs else total.reshape(count, *lengths, channels, -1).sum(-1)

    parts = jnp.stack([sum_at(row, column) for row in range(strides[0]) for column in range(strides[1])])
    parts = parts.reshape(*strides, count, *lengths, channels).transpose(2, 3, 0, 4, 1, 5)
    whole = parts.reshape(count, lengths[0] * strides[0], lengths[1] * strides[1], channels)
    (top, _), (left, _) = pads
    return whole[:, top : top + sides[0], left : left + sides[1]]


def _kernel_gradient(
    dy: jax.Array, kernel: jax.Array, x: jax.Array, strides: tuple[int, int], pads: _Pads, devices: int
) -> jax.Array:
    """Of a depthwise convolution: all sums in one pass over a microbatch that stays in a core's cache."""
    height, width, _, outputs = kernel.shape
    precise = jnp.promote_types(dy.dtype, jnp.float32)

    def sums(x: jax.Array, dy: jax.Array) -> jax.Array:
        windows = _repeated(_shifted(x, (height, width), strides), outputs)
        products = tuple((window * dy).astype(precise) for window in windows)
        zeros = tuple(jnp.zeros((), precise) for _ in windows)
        return jnp.stack(lax.reduce(products, zeros, lambda a, b: tuple(map(jnp.add, a, b)), (0, 1, 2)))

    number = _microbatch_count(len(x) // devices, 2 * dy.size // len(x) * dy.dtype.itemsize)

    padded = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    microbatches = _microbatches(padded, devices, number), _microbatches(dy, devices, number)
    nothing = jnp.zeros((devices, height * width, outputs), precise)
    total, _ = lax.scan(lambda total, each: (total + jax.vmap(sums)(*each), None), nothing, microbatches)
    return total.sum(0).reshape(kernel.shape).astype(kernel.dtype)


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
    along_columns = functools.reduce(combine, _shifted(x, (1, size[1]), (1, strides[1])))
    return functools.reduce(combine, _shifted(along_columns, (size[0], 1), (strides[0], 1)))


def first_maximum(a: Num[jax.Array, "*shape"], b: Num[jax.Array, "*shape"]) -> Num[jax.Array, "*shape"]:
    """The larger of two, or NaN; where they are equal the gradient goes to `a` alone, as in XLA's pooling."""
    return jnp.where((a >= b) | jnp.isnan(a), a, b)


def _shifted(x: jax.Array, size: Sequence[int], strides: Sequence[int]) -> list[jax.Array]:
    """For every element of a window, that element of all windows: a list of (N, H', W', C)."""
    count, height, width, channels = x.shape
    rows, columns = ((length - s) // step for length, s, step in zip((height, width), size, strides, strict=True))
    ends = (rows * strides[0] + 1, columns * strides[1] + 1)
    return [
        lax.slice(x, (0, i, j, 0), (count, i + ends[0], j + ends[1], channels), (1, *strides, 1))
        for i in range(size[0])
        for j in range(size[1])
    ]


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
    channels_last = numbers.lhs_spec == (0, 3, 1, 2) and numbers.rhs_spec == (3, 2, 0, 1)
    groups = feature_group_count
    depthwise = groups > 1 and groups == lhs.shape[-1] and rhs.shape[-2:-1] == (1,)
    covered = (
        channels_last
        and numbers.out_spec == numbers.lhs_spec
        and all(d == 1 for d in (*(lhs_dilation or ()), *(rhs_dilation or ()), batch_group_count))
        and (groups == 1 or depthwise)
        and rhs.shape[0] * rhs.shape[1] <= LARGEST_UNROLLED_WINDOW
        and not any(value is not None for value in settings.values())
        and lhs.dtype == rhs.dtype
        and all(length > 0 for length in lhs.shape)
    )
    if covered:
        strides = (int(window_strides[0]), int(window_strides[1]))
        pads = _pads(lhs.shape[1:3], rhs.shape[:2], strides, padding)
        fits = all(n + sum(p) >= k for n, p, k in zip(lhs.shape[1:3], pads, rhs.shape[:2], strict=True))
        if fits and all(p >= 0 for pair in pads for p in pair):
            return (convolve_depthwise if depthwise else convolve)(lhs, rhs, strides, pads)
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
        and len(size) == 4
        and (size[0], size[3], steps[0], steps[3]) == (1, 1, 1, 1)
        and size[1] * size[2] <= LARGEST_UNROLLED_WINDOW
        and all(d == 1 for d in (*(base_dilation or ()), *(window_dilation or ())))
        and (computation is not lax.add or init_value == 0)
    )
    if covered:
        strides = (steps[1], steps[2])
        pads = _pads(operand.shape[1:3], size[1:3], strides, padding, of_four=True)
        if all(n + sum(p) >= k for n, p, k in zip(operand.shape[1:3], pads, size[1:3], strict=True)):
            return pool(operand, _POOLINGS[computation], init_value, size[1:3], strides, pads)
    return xla(
        operand, init_value, computation, window_dimensions, window_strides, padding, base_dilation, window_dilation
    )


def _pads(
    lengths: Sequence[int],
    size: Sequence[int],
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    of_four: bool = False,
) -> list[tuple[int, int]]:
    if isinstance(padding, str):
        padding = [(0, 0), *lax.padtype_to_pads(lengths, size, strides, padding.upper()), (0, 0)]
        of_four = True
    pairs = [(int(before), int(after)) for before, after in padding]
    return pairs[1:3] if of_four else pairs
