"""Sums of products over windows: how windows lie on an input, and what weights, biases and scales make of each.

Sums have 32 bits, or 64 (`wide`) where int16 inputs and 8-bit weights can lead to more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rudel.micro.arithmetic import Rounding, Scaling
from rudel.micro.emit import Context, lead_of_rows
from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.operators.checks import arity, constant, quantised_activations, require
from rudel.micro.operators.int16_sums import exceeds_32_bits, int16_reach, plan_int16
from rudel.micro.operators.outputs import element
from rudel.micro.operators.scalings import convolution_scaling, dense_scaling, output_limits
from rudel.micro.requantisation import Requantisation, plan


@dataclass(frozen=True)
class Window:
    """Windows on an input: sizes, strides, and the padding before the first row and column."""

    height: int
    width: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int
    top: int
    left: int


@dataclass(frozen=True, kw_only=True)
class WindowSums:
    """Dot products of weights and windows, ready to be written as C.

    Attributes:
        source: the input, (batch, height, width, channels).
        output: the output, in the same form.
        window: how the weights lie on the input.
        weights: int8.
        requantisation: one row for each out channel; the biases in it count the input's zero point in (`offset
            folding`): sums are those of weights times raw inputs, padding being the zero point.
        zero_point: of the input.
        reach: the least and the greatest of these sums plus bias, int64 (out channels) each.
        bias: int64 (out channels), with the zero point counted in.
    """

    source: tuple[int, int, int, int]
    output: tuple[int, int, int, int]
    window: Window
    weights: np.ndarray
    requantisation: Requantisation
    zero_point: int
    reach: tuple[np.ndarray, np.ndarray]
    bias: np.ndarray

    @property
    def products(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest sum that the kernel makes, without bias: int64 (out channels) each."""
        return self.reach[0] - self.bias, self.reach[1] - self.bias

    @property
    def item(self) -> int:
        """Bytes of an element of input and output."""
        return 2 if element(self.requantisation.form) == "int16_t" else 1

    @property
    def wide(self) -> bool:
        """Whether the kernel's sums, without bias, can need more than 32 bits."""
        return exceeds_32_bits(self.products)

    @property
    def lead(self) -> int:
        """The least lead of a kernel that makes output pixels one after the other (see `Overlap`)."""
        return window_lead(self.source, self.output, self.window, self.item)


@dataclass(frozen=True, kw_only=True)
class Convolution(WindowSums):
    """A convolution; its weights are (out channels, height, width, in channels of one group).

    Attributes:
        groups: how many groups of channels there are.
    """

    groups: int

    @property
    def macs(self) -> int:
        """Multiplications and additions, padding counted in."""
        return int(np.prod(self.output)) * int(np.prod(self.weights.shape[1:]))

    @property
    def is_pointwise(self) -> bool:
        """Whether each pixel of the output is made of the one at its place in the input; so nothing is padded."""
        w = self.window
        return (w.height, w.width, w.stride_h, w.stride_w) == (1, 1, 1, 1) and self.source[1:3] == self.output[1:3]


def reaches_out(source: tuple[int, ...], output: tuple[int, ...], window: Window) -> bool:
    """Returns whether a window reaches beyond the input; source, output: (batch, height, width, channels)."""
    w = window
    end_h = (output[1] - 1) * w.stride_h - w.top + (w.height - 1) * w.dilation_h + 1
    end_w = (output[2] - 1) * w.stride_w - w.left + (w.width - 1) * w.dilation_w + 1
    return w.top > 0 or w.left > 0 or end_h > source[1] or end_w > source[2]


def window_lead(source: tuple[int, ...], output: tuple[int, ...], window: Window, item: int = 1) -> int:
    """Returns the least lead, in bytes, of a kernel that makes output pixels in order, all channels of each at once."""
    batch, height, width, channels = source
    _, rows, columns, depth = output
    y = np.maximum(np.arange(rows) * window.stride_h - window.top, 0)
    x = np.maximum(np.arange(columns) * window.stride_w - window.left, 0)
    reads = (np.minimum(y, height - 1)[:, None] * width + np.minimum(x, width - 1)[None]).ravel() * channels
    written = (np.arange(rows * columns) + 1) * depth
    lead = lead_of_rows(reads, written)
    if batch > 1:
        grows = rows * columns * depth - height * width * channels
        lead += max(grows, 0) * (batch - 1)
    return lead * item


def tensors_of(operator: Operator, graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the input, the weights and the output of a convolution of int8 or int16.

    Raises:
        CompileError: their number, types or dimensions do not fit.
    """
    arity(operator, 2, 3)
    source, kernel, output = (graph[i] for i in (*operator.inputs[:2], operator.outputs[0]))
    quantised_activations(operator, source, output)
    for tensor in (source, output):
        require(
            len(tensor.shape) == 4, operator, f"the shape {list(tensor.shape)} is not batch, height, width, channels"
        )
    return source, kernel, output


def prepare_convolution(operator: Operator, graph: Graph, context: Context) -> Convolution:
    """Checks a CONV_2D or a FULLY_CONNECTED of int8 or int16 and computes what its C needs.

    Raises:
        CompileError: shapes, types or options that do not fit.
    """
    if operator.kind == "FULLY_CONNECTED":
        return _dense(operator, graph, context)
    source, kernel, output = tensors_of(operator, graph)
    weights = constant(operator, graph, 1, "weights")
    require(weights.dtype == np.int8 and weights.ndim == 4, operator, f"its weights are {kernel.dtype}, not int8")
    window = window_of(operator, source.shape, output.shape, weights.shape[1:3])
    batch, _, _, channels = source.shape
    depth, per_group = weights.shape[0], weights.shape[3]
    require(per_group > 0 and channels % per_group == 0, operator, "channels of input and weights do not fit")
    groups = channels // per_group
    require(
        depth % groups == 0 and output.shape[3] == depth and output.shape[0] == batch,
        operator,
        f"weights {list(weights.shape)} do not fit input {list(source.shape)} and output {list(output.shape)}",
    )
    return _finished(operator, graph, source.shape, output.shape, window, weights, groups, context)


def _dense(operator: Operator, graph: Graph, context: Context) -> Convolution:
    arity(operator, 2, 3)
    source, kernel, output = (graph[i] for i in (*operator.inputs[:2], operator.outputs[0]))
    quantised_activations(operator, source, output)
    weights = constant(operator, graph, 1, "weights")
    require(weights.dtype == np.int8 and weights.ndim == 2, operator, f"its weights are {kernel.dtype}, not int8")
    require(operator.options.get("weights_format", 0) == 0, operator, "its weights are shuffled")
    depth, length = weights.shape
    require(
        length > 0 and source.size % length == 0,
        operator,
        f"{source.size} inputs do not fit weights {list(weights.shape)}",
    )
    batch = source.size // length
    require(
        output.size == batch * depth,
        operator,
        f"output {list(output.shape)} does not fit weights {list(weights.shape)}",
    )
    window = Window(1, 1, 1, 1, 1, 1, 0, 0)
    shape = weights.reshape(depth, 1, 1, length)
    return _finished(operator, graph, (1, 1, batch, length), (1, 1, batch, depth), window, shape, 1, context)


def _finished(operator, graph, source, output, window, weights, groups, context: Context) -> Convolution:
    make = dense_scaling if operator.kind == "FULLY_CONNECTED" else convolution_scaling
    kernel, depth = graph[operator.inputs[1]], weights.shape[0]
    scales = weight_scales(operator, kernel, depth, axis=0)
    sums = sums_of(operator, graph, context, weights.reshape(depth, -1), scales, make)
    return Convolution(
        source=tuple(source), output=tuple(output), window=window, weights=weights, groups=groups, **sums
    )


def sums_of(
    operator: Operator,
    graph: Graph,
    context: Context,
    weights: np.ndarray,
    scales: np.ndarray,
    make_scaling: Callable[..., Scaling],
) -> dict[str, Any]:
    """Returns bias, reach, requantisation and zero point of a `WindowSums`.

    Args:
        operator, graph, context: as of a lowering; input, weights and bias are the operator's first three inputs.
        weights: int8 (out channels, length).
        scales: of the weights, (out channels,) or (1,).
        make_scaling: from the rounding, and the scales of input, weights and output.
    """
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    flat, zero_point = weights.astype(np.int64), source.zero_point
    if source.dtype == "int16":
        folded, requantisation = plan_int16(operator, graph, context.rounding, source, scales, 2)
        reach = int16_reach(flat, folded)
    else:
        bias = bias_of(operator, graph, 2, len(flat))
        reach = sums_reach(flat, zero_point, bias, operator)
        folded = bias - zero_point * flat.sum(axis=1)
        limits = output_limits(operator, output)
        arrays = tuple(_Array(each) for each in (scales, folded, *reach))
        requantisation = _planned(
            make_scaling, context.rounding, source.scale, output.scale, output.zero_point, limits, *arrays
        )
    return {"bias": folded, "reach": reach, "requantisation": requantisation, "zero_point": zero_point}


class _Array:
    """An array as an argument of a cached function: equal if values, shape and dtype are."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self._key = (values.dtype.str, values.shape, values.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Array) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=128)
def _planned(
    make_scaling: Callable[..., Scaling],
    rounding: Rounding,
    source_scale: float,
    output_scale: float,
    zero_point: int,
    limits: tuple[int, int],
    scales: _Array,
    bias: _Array,
    least: _Array,
    most: _Array,
) -> Requantisation:
    """Returns the requantisation of a layer, which several passes and the lowering all ask for; it is read-only."""
    scaling = make_scaling(rounding, source_scale, scales.values, output_scale)
    found = plan(scaling, bias.values, (least.values, most.values), zero_point, limits)
    found.data.setflags(write=False)
    return found


def sums_reach(
    weights: np.ndarray, zero_point: int, bias: np.ndarray, operator: Operator
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the least and the greatest accumulator that int8 inputs can lead to.

    Args:
        weights: int64 (channels, anything).
        zero_point: of the input.
        bias: int64 (channels).
        operator: for the message.

    Raises:
        CompileError: an accumulator of 32 bits could overflow.
    """
    low, high = weights * (-128 - zero_point), weights * (127 - zero_point)
    least = np.minimum(low, high).sum(axis=1) + bias
    most = np.maximum(low, high).sum(axis=1) + bias
    raw = np.abs(weights).sum(axis=1) * 128 + np.abs(bias - zero_point * weights.sum(axis=1))
    require(
        max(int(raw.max()), int(-least.min()), int(most.max())) < 1 << 31,
        operator,
        "its sums can exceed 32 bits, and the interpreters' own results are undefined then",
    )
    return least, most


def bias_of(operator: Operator, graph: Graph, position: int, depth: int) -> np.ndarray:
    """Returns the biases, int64 (depth), zeros where there are none."""
    if position >= len(operator.inputs) or operator.inputs[position] < 0:
        return np.zeros(depth, np.int64)
    bias = constant(operator, graph, position, "biases")
    require(
        bias.dtype == np.int32 and bias.size == depth,
        operator,
        f"its {bias.size} biases are {bias.dtype}, not {depth} int32",
    )
    return bias.ravel().astype(np.int64)


def weight_scales(operator: Operator, tensor: Tensor, depth: int, axis: int) -> np.ndarray:
    """Returns the scales of weights, one for each channel, float32."""
    quantisation = tensor.quantisation
    require(quantisation is not None, operator, "its weights have no quantisation")
    assert quantisation is not None
    require(not quantisation.zero_point.any(), operator, "its weights have a zero point that is not 0")
    scales = quantisation.scale
    require(
        len(scales) == 1 or (len(scales) == depth and quantisation.axis == axis),
        operator,
        f"its weights have {len(scales)} scales for {depth} channels",
    )
    return np.broadcast_to(scales, (depth,)).astype(np.float32)


def window_of(operator: Operator, source: tuple[int, ...], output: tuple[int, ...], size: tuple[int, ...]) -> Window:
    """Returns how the windows of a convolution or a pool lie, after checking that the output fits.

    Padding is `SAME` or `VALID`, or (top, bottom, left, right) where a pass has made it explicit.
    """
    options = operator.options
    strides = [int(options["stride_h"]), int(options["stride_w"])]
    dilations = [int(options.get("dilation_h", 1)), int(options.get("dilation_w", 1))]
    require(min(*strides, *dilations, *size) > 0, operator, "a stride, a dilation or a size is not positive")
    before = []
    for axis in (0, 1):
        length, span = source[1 + axis], (size[axis] - 1) * dilations[axis] + 1
        padding = options["padding"]
        if padding == "SAME":
            count = -(-length // strides[axis])
            before.append(max((count - 1) * strides[axis] + span - length, 0) // 2)
        elif padding == "VALID":
            count = (length - span) // strides[axis] + 1
            before.append(0)
        else:
            count = (length + padding[2 * axis] + padding[2 * axis + 1] - span) // strides[axis] + 1
            before.append(padding[2 * axis])
        require(
            count == output[1 + axis] and count > 0,
            operator,
            f"its output has {output[1 + axis]} rows or columns, not {count}",
        )
    return Window(size[0], size[1], *strides, *dilations, *before)
