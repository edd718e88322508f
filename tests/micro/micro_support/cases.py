"""Models of one operator whose shapes, padding, strides, scales and zero points hypothesis chooses."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from micro_support.models import Op, T, build

Draw = Callable[[st.SearchStrategy[Any]], Any]

_ZERO_POINTS = st.integers(-128, 127) | st.sampled_from([-128, 0, 127])
ACTIVATIONS = st.sampled_from(["NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1"])
PADDINGS = st.sampled_from(["SAME", "VALID"])


def drawn_scale(draw: Draw, low: float, high: float) -> float:
    """Draws a float32 between bounds, on a logarithmic scale; now and then a power of two, which makes ties."""
    exponent = draw(st.floats(math.log2(low), math.log2(high)))
    if draw(st.integers(0, 7)) == 0:
        exponent = min(max(round(exponent), math.ceil(math.log2(low))), math.floor(math.log2(high)))
    return float(np.float32(2.0**exponent))


def random_data(draw: Draw) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def windows_along(length: int, size: int, stride: int, dilation: int, padding: str) -> int:
    span = (size - 1) * dilation + 1
    return -(-length // stride) if padding == "SAME" else (length - span) // stride + 1


def _weights(
    draw: Draw, shape: tuple[int, ...], channels: int, source: float, axis: int, bias: bool
) -> tuple[list[T], float]:
    """Draws weights and biases, and a scale of the output that they spread over its range."""
    data = random_data(draw)
    per_channel = draw(st.booleans())
    count = channels if per_channel else 1
    base = drawn_scale(draw, 0.002, 0.02)
    scales = np.array([base * data.uniform(0.3, 2.0) for _ in range(count)], np.float32)
    weights = data.integers(-127, 128, shape).astype(np.int8)
    if draw(st.integers(0, 3)) == 0:
        weights[data.random(shape) < 0.5] = 0
    length = math.prod(shape) // channels
    spread = math.sqrt(length) * 75 * 75 / 60
    output = float(np.float32(source * float(scales.mean()) * spread * draw(st.floats(0.3, 3.0))))
    tensors = [T(shape, scale=scales, data=weights, axis=axis)]
    if bias:
        values = data.integers(-4000, 4000, channels).astype(np.int32)
        tensors.append(T((channels,), "int32", scale=scales * np.float32(source), data=values))
    return tensors, output


def convolution(draw: Draw, kind: str) -> bytes:
    """CONV_2D, with or without groups, or DEPTHWISE_CONV_2D, with or without a multiplier."""
    padding = draw(PADDINGS)
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    high, wide = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    down, across = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    dilation_h = dilation_w = 1
    if down == across == 1:
        dilation_h, dilation_w = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    if (high - 1) * dilation_h + 1 > height or (wide - 1) * dilation_w + 1 > width:
        padding = "SAME"
    channels, depth = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    batch = draw(st.integers(1, 2))
    options: dict[str, Any] = {
        "padding": padding,
        "stride_h": down,
        "stride_w": across,
        "dilation_h": dilation_h,
        "dilation_w": dilation_w,
        "activation": draw(ACTIVATIONS),
    }
    axis = 0
    if kind == "DEPTHWISE_CONV_2D":
        multiplier = draw(st.integers(1, 3))
        depth, axis = channels * multiplier, 3
        shape = (1, high, wide, depth)
        options["depth_multiplier"] = multiplier
    else:
        groups = draw(st.sampled_from([1, 1, 2, 3]))
        shape = (depth * groups, high, wide, channels)
        channels, depth = channels * groups, depth * groups
    source = drawn_scale(draw, 0.01, 0.05)
    parameters, scale = _weights(draw, shape, depth, source, axis, bias=True)
    result = (
        batch,
        windows_along(height, high, down, dilation_h, padding),
        windows_along(width, wide, across, dilation_w, padding),
        depth,
    )
    tensors = [
        T((batch, height, width, channels), scale=source, zero_point=draw(_ZERO_POINTS)),
        *parameters,
        T(result, scale=scale, zero_point=draw(_ZERO_POINTS)),
    ]
    return build(tensors, [Op(kind, (0, 1, 2), (3,), options)], [0], [3])


def _at_thresholds(draw: Draw, shape: tuple[int, int], source: float) -> tuple[list[T], float]:
    """Draws weights and biases whose sums lie where one output becomes the next, and the output's scale.

    A sum is as large as it can be beside its factor, so that the last bits of multipliers count.
    """
    data = random_data(draw)
    weights = np.zeros(shape, np.int8)
    weights[np.arange(shape[0]), data.integers(0, shape[1], shape[0])] = data.choice([-1, 1], shape[0])
    scale = drawn_scale(draw, 0.002, 0.02)
    output = float(np.float32(source * scale * 2.0 ** draw(st.floats(17, 22))))
    bias = np.rint((data.integers(-110, 110, shape[0]) + 0.5) * output / source / scale)
    scales = np.full(draw(st.sampled_from([1, 1, shape[0]])), scale, np.float32)
    tensors = [T(shape, scale=scales, data=weights)]
    tensors.append(T((shape[0],), "int32", scale=scales * np.float32(source), data=bias.astype(np.int32)))
    return tensors, output


def dense(draw: Draw, kind: str) -> bytes:
    """FULLY_CONNECTED."""
    batch, length, depth = draw(st.integers(1, 3)), draw(st.integers(1, 70)), draw(st.integers(1, 30))
    source = drawn_scale(draw, 0.01, 0.05)
    bias = True
    if draw(st.booleans()):
        parameters, scale = _at_thresholds(draw, (depth, length), source)
    else:
        bias = draw(st.booleans())
        parameters, scale = _weights(draw, (depth, length), depth, source, 0, bias)
        scale = float(np.float32(scale * 2.0 ** draw(st.just(0.0) | st.floats(-12, 8))))
    tensors = [
        T((batch, length), scale=source, zero_point=draw(_ZERO_POINTS)),
        *parameters,
        T((batch, depth), scale=scale, zero_point=draw(_ZERO_POINTS)),
    ]
    last = len(tensors) - 1
    options = {"activation": draw(ACTIVATIONS)}
    return build(tensors, [Op(kind, (0, 1, 2 if bias else -1), (last,), options)], [0], [last])


def transposed(draw: Draw, kind: str) -> bytes:
    """TRANSPOSE_CONV, where XNNPACK takes it: windows without gaps between them, or fewer than nine channels."""
    padding = draw(PADDINGS)
    height, width = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    high, wide = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    down, across = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    if padding == "SAME":
        rows = height * down - draw(st.integers(0, down - 1))
        columns = width * across - draw(st.integers(0, across - 1))
    else:
        rows, columns = (height - 1) * down + high, (width - 1) * across + wide
    channels, depth = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    source = drawn_scale(draw, 0.01, 0.05)
    parameters, scale = _weights(draw, (depth, high, wide, channels), depth, source, 0, bias=True)
    tensors = [
        T((4,), "int32", data=np.array([1, rows, columns, depth], np.int32)),
        *parameters,
        T((1, height, width, channels), scale=source, zero_point=draw(_ZERO_POINTS)),
        T((1, rows, columns, depth), scale=scale, zero_point=draw(_ZERO_POINTS)),
    ]
    options = {"padding": padding, "stride_h": down, "stride_w": across, "activation": "NONE"}
    return build(tensors, [Op(kind, (0, 1, 3, 2), (4,), options)], [3], [4])


def pool(draw: Draw, kind: str) -> bytes:
    """AVERAGE_POOL_2D and MAX_POOL_2D."""
    padding = draw(PADDINGS)
    high, wide = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    height, width = draw(st.integers(high, 9)), draw(st.integers(wide, 9))
    down, across = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    batch, channels = draw(st.integers(1, 2)), draw(st.integers(1, 9))
    scale, zero_point = drawn_scale(draw, 0.01, 0.1), draw(_ZERO_POINTS)
    result = (
        batch,
        windows_along(height, high, down, 1, padding),
        windows_along(width, wide, across, 1, padding),
        channels,
    )
    tensors = [
        T((batch, height, width, channels), scale=scale, zero_point=zero_point),
        T(result, scale=scale, zero_point=zero_point),
    ]
    options = {
        "padding": padding,
        "stride_h": down,
        "stride_w": across,
        "filter_h": high,
        "filter_w": wide,
        "activation": draw(ACTIVATIONS),
    }
    return build(tensors, [Op(kind, (0,), (1,), options)], [0], [1])


def binary(draw: Draw, kind: str) -> bytes:
    """ADD, SUB and MUL, also broadcast, also with a constant."""
    first = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    second = tuple(size if draw(st.integers(0, 3)) else 1 for size in first)[draw(st.integers(0, len(first) - 1)) :]
    scales = [drawn_scale(draw, 2.0**-12, 2.0**4) for _ in range(2)]
    largest = scales[0] * scales[1] * 120 if kind == "MUL" else max(scales)
    output = float(np.float32(largest * 2.0 ** draw(st.floats(-1, 2) | st.floats(-6, 10))))
    fixed = random_data(draw).integers(-128, 128, second).astype(np.int8) if draw(st.integers(0, 3)) == 0 else None
    swapped = draw(st.booleans())
    inputs = [
        T(first, scale=scales[0], zero_point=draw(_ZERO_POINTS)),
        T(second, scale=scales[1], zero_point=draw(_ZERO_POINTS), data=fixed),
    ]
    given = [0] if fixed is not None else [0, 1]
    tensors = [*inputs, T(first, scale=output, zero_point=draw(_ZERO_POINTS))]
    order = (1, 0) if swapped else (0, 1)
    return build(tensors, [Op(kind, order, (2,), {"activation": draw(ACTIVATIONS)})], given, [2])


def unary(draw: Draw, kind: str) -> bytes:
    """Operators of one number, over all of int8."""
    scale, zero_point = drawn_scale(draw, 2.0**-14, 4.0), draw(_ZERO_POINTS)
    output, output_zero = drawn_scale(draw, 2.0**-14, 4.0), draw(_ZERO_POINTS)
    options: dict[str, Any] = {}
    if kind == "LOGISTIC":
        output, output_zero = 1 / 256, -128
    if kind == "TANH":
        output, output_zero = 1 / 128, 0
    if kind == "HARD_SWISH":
        scale, output = drawn_scale(draw, 0.01, 0.1), drawn_scale(draw, 0.01, 0.1)
    if kind == "QUANTIZE":
        output = float(np.float32(scale * 2.0 ** draw(st.floats(-6.9, 7.9))))
    if kind == "RSQRT":
        zero_point = -128  # LiteRT refuses what is negative
        output = float(np.float32(output * scale**-0.5))
    if kind == "GELU":
        options["approximate"] = draw(st.booleans())
    if kind == "LEAKY_RELU":
        options["alpha"] = float(np.float32(draw(st.floats(0.01, 1.2))))
    tensors = [T((1, 256), scale=scale, zero_point=zero_point), T((1, 256), scale=output, zero_point=output_zero)]
    return build(tensors, [Op(kind, (0,), (1,), options)], [0], [1])


def of_reals(draw: Draw, kind: str) -> bytes:
    """Operators of one real between a DEQUANTIZE and a QUANTIZE, over all of int8."""
    output = drawn_scale(draw, 2.0**-14, 4.0)
    tensors = [
        T((1, 256), scale=drawn_scale(draw, 2.0**-14, 0.5), zero_point=draw(_ZERO_POINTS)),
        T((1, 256), "float32"),
        T((1, 256), "float32"),
        T((1, 256), scale=output, zero_point=draw(_ZERO_POINTS)),
    ]
    operators = [Op("DEQUANTIZE", (0,), (1,)), Op(kind, (1,), (2,)), Op("QUANTIZE", (2,), (3,), version=1)]
    return build(tensors, operators, [0], [3])


def cast(draw: Draw, kind: str) -> bytes:
    """CAST between types that all interpreters have."""
    shape, types = (1, draw(st.integers(1, 99))), st.sampled_from(["bool", "float32", "int8", "int16", "int32"])
    return build([T(shape, draw(types)), T(shape, draw(types))], [Op(kind, (0,), (1,), version=1)], [0], [1])


def squared_difference(draw: Draw, kind: str) -> bytes:
    """SQUARED_DIFFERENCE, also broadcast."""
    first = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    second = tuple(size if draw(st.booleans()) else 1 for size in first)
    scales = [drawn_scale(draw, 2.0**-8, 1.0) for _ in range(2)]
    output = float(np.float32(max(scales) ** 2 * 2.0 ** draw(st.floats(3, 9))))
    tensors = [
        T(first, scale=scales[0], zero_point=draw(_ZERO_POINTS)),
        T(second, scale=scales[1], zero_point=draw(_ZERO_POINTS)),
        T(first, scale=output, zero_point=draw(_ZERO_POINTS)),
    ]
    return build(tensors, [Op(kind, (0, 1), (2,))], [0, 1], [2])


def prelu(draw: Draw, kind: str) -> bytes:
    """PRELU with a slope for each channel."""
    shape = (1, draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 9)))
    scale = drawn_scale(draw, 0.01, 0.1)
    slopes = random_data(draw).integers(-127, 128, (1, 1, shape[3])).astype(np.int8)
    tensors = [
        T(shape, scale=scale, zero_point=draw(_ZERO_POINTS)),
        T(slopes.shape, scale=drawn_scale(draw, 0.001, 0.02), zero_point=0, data=slopes),
        T(shape, scale=float(np.float32(scale * 2.0 ** draw(st.floats(-2, 2)))), zero_point=draw(_ZERO_POINTS)),
    ]
    return build(tensors, [Op(kind, (0, 1), (2,))], [0], [2])


def apart(draw: Draw, kind: str) -> bytes:
    """SPLIT, SPLIT_V and UNPACK."""
    shape = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    axis = draw(st.integers(0, len(shape) - 1))
    parts = draw(st.integers(1, 4))
    sizes = [draw(st.integers(1, 3)) for _ in range(parts)]
    if kind != "SPLIT_V":
        sizes = [1 if kind == "UNPACK" else sizes[0]] * parts
    shape[axis] = sum(sizes)
    scale, zero_point = drawn_scale(draw, 0.01, 0.1), draw(_ZERO_POINTS)
    written = axis - draw(st.sampled_from([0, len(shape)]))
    dimension = T((), "int32", data=np.array(written, np.int32))
    inputs = {
        "SPLIT": [dimension, T(tuple(shape), scale=scale, zero_point=zero_point)],
        "SPLIT_V": [
            T(tuple(shape), scale=scale, zero_point=zero_point),
            T((parts,), "int32", data=np.array(sizes, np.int32)),
            dimension,
        ],
        "UNPACK": [T(tuple(shape), scale=scale, zero_point=zero_point)],
    }[kind]
    options = {"num": parts, "axis": written} if kind == "UNPACK" else {"num_splits": parts}
    tensors = list(inputs)
    for size in sizes:
        result = [*shape[:axis], *([] if kind == "UNPACK" else [size]), *shape[axis + 1 :]]
        tensors.append(T(tuple(result), scale=scale, zero_point=zero_point))
    outputs = tuple(range(len(inputs), len(tensors)))
    given = 1 if kind == "SPLIT" else 0
    return build(tensors, [Op(kind, tuple(range(len(inputs))), outputs, options)], [given], list(outputs))


def packed(draw: Draw, kind: str, dtype: str = "int8") -> bytes:
    """PACK."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    count, axis = draw(st.integers(1, 4)), draw(st.integers(-len(shape) - 1, len(shape)))
    place = axis % (len(shape) + 1)
    size, zero_point = drawn_scale(draw, 0.01, 0.1), draw(_ZERO_POINTS) if dtype == "int8" else 0
    part = T(shape, dtype, scale=size, zero_point=zero_point)
    whole = T((*shape[:place], count, *shape[place:]), dtype, scale=size, zero_point=zero_point)
    options = {"values_count": count, "axis": axis}
    operator = Op(kind, tuple(range(count)), (count,), options, version=2)
    return build([part] * count + [whole], [operator], list(range(count)), [count])


def softmax(draw: Draw, kind: str) -> bytes:
    """SOFTMAX."""
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 40)))
    options = {"beta": draw(st.sampled_from([1.0, 0.5, 2.0]))}
    tensors = [
        T(shape, scale=drawn_scale(draw, 0.003, 1.0), zero_point=draw(_ZERO_POINTS)),
        T(shape, scale=1 / 256, zero_point=-128),
    ]
    return build(tensors, [Op(kind, (0,), (1,), options)], [0], [1])


def mean(draw: Draw, kind: str) -> bytes:
    """MEAN over any axes."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    axes = sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    keep = draw(st.booleans())
    result = tuple(1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)
    source = drawn_scale(draw, 0.01, 0.1)
    scale = source if draw(st.booleans()) else drawn_scale(draw, 0.01, 0.1)
    tensors = [
        T(shape, scale=source, zero_point=draw(_ZERO_POINTS)),
        T((len(axes),), "int32", data=np.array(axes, np.int32)),
        T(result, scale=scale, zero_point=draw(_ZERO_POINTS)),
    ]
    return build(tensors, [Op(kind, (0, 1), (2,), {"keep_dims": keep})], [0], [2])


def concatenation(draw: Draw, kind: str) -> bytes:
    """CONCATENATION."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    scale, zero_point = drawn_scale(draw, 0.01, 0.1), draw(_ZERO_POINTS)
    tensors = []
    for length in (*lengths, sum(lengths)):
        shape[axis] = length
        tensors.append(T(tuple(shape), scale=scale, zero_point=zero_point))
    inputs = list(range(len(lengths)))
    options = {"axis": axis, "activation": "NONE"}
    return build(tensors, [Op(kind, tuple(inputs), (len(lengths),), options)], inputs, [len(lengths)])


def pad(draw: Draw, kind: str) -> bytes:
    """PAD of up to four dimensions."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    around = np.array([[draw(st.integers(0, 3)), draw(st.integers(0, 3))] for _ in shape], np.int32)
    result = tuple(int(size + pair.sum()) for size, pair in zip(shape, around, strict=True))
    scale, zero_point = drawn_scale(draw, 0.01, 0.1), draw(_ZERO_POINTS)
    tensors = [
        T(shape, scale=scale, zero_point=zero_point),
        T(around.shape, "int32", data=around),
        T(result, scale=scale, zero_point=zero_point),
    ]
    return build(tensors, [Op(kind, (0, 1), (2,))], [0], [2])


def transpose(draw: Draw, kind: str) -> bytes:
    """TRANSPOSE of up to four dimensions."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(shape))))
    scale, zero_point = drawn_scale(draw, 0.01, 0.1), draw(_ZERO_POINTS)
    tensors = [
        T(tuple(shape), scale=scale, zero_point=zero_point),
        T((len(order),), "int32", data=np.array(order, np.int32)),
        T(tuple(shape[axis] for axis in order), scale=scale, zero_point=zero_point),
    ]
    return build(tensors, [Op(kind, (0, 1), (2,))], [0], [2])


def strided_slice(draw: Draw, kind: str) -> bytes:
    """STRIDED_SLICE, forwards and backwards."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    begin_mask, end_mask = (draw(st.integers(0, 2 ** len(shape) - 1)) for _ in range(2))
    begins, ends, steps, counts = [], [], [], []
    for axis, size in enumerate(shape):
        step = draw(st.sampled_from([1, 1, 2, -1, -2]))
        while True:
            begin, end = draw(st.integers(0, size - 1)), draw(st.integers(0, size))
            taken = range(size)[
                slice(None if begin_mask >> axis & 1 else begin, None if end_mask >> axis & 1 else end, step)
            ]
            if len(taken):
                break
            begin_mask, end_mask = begin_mask | 1 << axis, end_mask | 1 << axis
        begins.append(begin)
        ends.append(end)
        steps.append(step)
        counts.append(len(taken))
    scale, zero_point = drawn_scale(draw, 0.01, 0.1), draw(_ZERO_POINTS)
    tensors = [
        T(tuple(shape), scale=scale, zero_point=zero_point),
        *(T((len(shape),), "int32", data=np.array(values, np.int32)) for values in (begins, ends, steps)),
        T(tuple(counts), scale=scale, zero_point=zero_point),
    ]
    options = {"begin_mask": begin_mask, "end_mask": end_mask}
    return build(tensors, [Op(kind, (0, 1, 2, 3), (4,), options)], [0], [4])


def resize(draw: Draw, kind: str) -> bytes:
    """RESIZE_NEAREST_NEIGHBOR."""
    height, width, channels = (draw(st.integers(1, 6)) for _ in range(3))
    sizes = (draw(st.integers(1, 12)), draw(st.integers(1, 12)))
    align, half = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    scale, zero_point = drawn_scale(draw, 0.01, 0.1), draw(_ZERO_POINTS)
    tensors = [
        T((1, height, width, channels), scale=scale, zero_point=zero_point),
        T((2,), "int32", data=np.array(sizes, np.int32)),
        T((1, *sizes, channels), scale=scale, zero_point=zero_point),
    ]
    options = {"align_corners": align, "half_pixel_centers": half}
    return build(tensors, [Op(kind, (0, 1), (2,), options)], [0], [2])


def shaped(draw: Draw, kind: str) -> bytes:
    """RESHAPE, SQUEEZE and EXPAND_DIMS, each between two operators that move no element but change all."""
    scale, zero_point = drawn_scale(draw, 0.01, 0.1), draw(_ZERO_POINTS)
    size = draw(st.integers(1, 8))
    first, second = {
        "RESHAPE": ((size, 6), (3, size * 2)),
        "SQUEEZE": ((1, size, 1), (size,)),
        "EXPAND_DIMS": ((size,), (1, size)),
    }[kind]
    argument = {"RESHAPE": np.array(second, np.int32), "EXPAND_DIMS": np.array([0], np.int32)}.get(kind)
    tensors = [
        T(first, scale=scale, zero_point=zero_point),
        T(second, scale=scale, zero_point=zero_point),
        T(second, scale=scale * 2, zero_point=3),
    ]
    inputs = (0,)
    if argument is not None:
        tensors.append(T(argument.shape, "int32", data=argument))
        inputs = (0, 3)
    options = {"squeeze_dims": (0, 2)} if kind == "SQUEEZE" else {}
    return build(tensors, [Op(kind, inputs, (1,), options), Op("QUANTIZE", (1,), (2,))], [0], [2])


def svdf(draw: Draw, kind: str) -> bytes:
    """SVDF with a memory of its own."""
    rank, units, memory, length = (draw(st.integers(1, most)) for most in (2, 5, 7, 20))
    filters, data = rank * units, random_data(draw)
    source, features = drawn_scale(draw, 0.01, 0.05), drawn_scale(draw, 0.005, 0.02)
    state, times = drawn_scale(draw, 0.0005, 0.002), drawn_scale(draw, 0.00001, 0.0001)
    output = float(np.float32(state * times * 6e6 * math.sqrt(memory * rank) / 40))
    bias = data.integers(-100_000, 100_000, units).astype(np.int32)
    tensors = [
        T((1, length), scale=source, zero_point=draw(_ZERO_POINTS)),
        T((filters, length), scale=features, data=data.integers(-127, 128, (filters, length)).astype(np.int8)),
        T((filters, memory), "int16", scale=times, data=data.integers(-3000, 3000, (filters, memory)).astype(np.int16)),
        T((units,), "int32", scale=state * times, data=bias),
        T((1, filters * memory), "int16", scale=state, variable=True),
        T((1, units), scale=output, zero_point=draw(_ZERO_POINTS)),
    ]
    return build(tensors, [Op(kind, (0, 1, 2, 3, 4), (5,), {"rank": rank, "activation": "RELU"})], [0], [5])


def lstm(draw: Draw, kind: str) -> bytes:
    """UNIDIRECTIONAL_SEQUENCE_LSTM as Keras' layer becomes."""
    steps, length, cells = (draw(st.integers(1, 6)) for _ in range(3))
    data = random_data(draw)
    source, hidden = drawn_scale(draw, 0.002, 0.1), drawn_scale(draw, 0.001, 1 / 64)
    hidden_zero = draw(_ZERO_POINTS)
    tensors = [T((1, steps, length), scale=source, zero_point=draw(_ZERO_POINTS))]
    scales = [drawn_scale(draw, 0.0005, 0.1) for _ in range(8)]
    for gate, scale in enumerate(scales):
        shape = (cells, length if gate < 4 else cells)
        tensors.append(T(shape, scale=scale, data=data.integers(-127, 128, shape).astype(np.int8)))
    for gate in range(4):
        bias = data.integers(-3000, 3000, cells).astype(np.int32)
        tensors.append(T((cells,), "int32", scale=scales[gate] * source, data=bias))
    tensors += [
        T((1, cells), scale=hidden, zero_point=hidden_zero, variable=True),
        T((1, cells), "int16", scale=2.0 ** -draw(st.integers(9, 15)), variable=True),
        T((1, steps, cells), scale=hidden, zero_point=hidden_zero),
        *(T((0,), "int16", scale=2.0**-12) for _ in range(4)),
        T((0,), scale=hidden, zero_point=hidden_zero),
    ]
    inputs = (*range(9), -1, -1, -1, 9, 10, 11, 12, -1, -1, 13, 14, -1, -1, -1, -1)
    options = {"activation": "TANH", "cell_clip": draw(st.sampled_from([0.0, 10.0, 1.0, 0.01, 100.0]))}
    return build(tensors, [Op(kind, inputs, (15,), options, intermediates=(16, 17, 18, 19, 20))], [0], [15])


KINDS: dict[str, Callable[[Draw, str], bytes]] = {
    "ADD": binary,
    "AVERAGE_POOL_2D": pool,
    "CAST": cast,
    "CONCATENATION": concatenation,
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": convolution,
    "ELU": of_reals,
    "EXPAND_DIMS": shaped,
    "FULLY_CONNECTED": dense,
    "GELU": unary,
    "HARD_SWISH": unary,
    "LEAKY_RELU": unary,
    "LOGISTIC": unary,
    "MAX_POOL_2D": pool,
    "MEAN": mean,
    "MUL": binary,
    "NEG": of_reals,
    "PACK": packed,
    "PAD": pad,
    "PRELU": prelu,
    "QUANTIZE": unary,
    "RELU": unary,
    "RELU6": unary,
    "RESHAPE": shaped,
    "RESIZE_NEAREST_NEIGHBOR": resize,
    "RSQRT": unary,
    "SOFTMAX": softmax,
    "SPLIT": apart,
    "SPLIT_V": apart,
    "SQUARED_DIFFERENCE": squared_difference,
    "SQUEEZE": shaped,
    "STRIDED_SLICE": strided_slice,
    "SUB": binary,
    "SVDF": svdf,
    "TANH": unary,
    "TRANSPOSE": transpose,
    "TRANSPOSE_CONV": transposed,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm,
    "UNPACK": apart,
}
"""For each operator a function that draws a model of it."""
