"""Models of one operator with activations of int16 (16x8 quantisation), which hypothesis chooses as in `cases`.

Each function takes the rounding, too: interpreters differ in which biases, zero points and options they compute with.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from micro_support.cases import ACTIVATIONS, PADDINGS, Draw, drawn_scale, packed, random_data, windows_along
from micro_support.models import Op, T, build

_TYPES = {"int32": 2, "int64": 4}
_FINEST = 2.0**-15


def _zero_point(draw: Draw, rounding: str) -> int:
    """Draws a zero point: only TFLM computes with one that is not 0, in operators that do not multiply inputs."""
    return draw(st.sampled_from([0, 0, 5, -300, 1000])) if rounding == "tflm" else 0


def _numbers(draw: Draw, kind: str, rounding: str) -> tuple[str | None, dict[str, int]]:
    """Draws the type of biases, None for none, and the option that LiteRT goes by."""
    depthwise = kind == "DEPTHWISE_CONV_2D"
    if rounding == "tflm":
        more = {"CONV_2D": ["int32"], "FULLY_CONNECTED": ["int32"], "TRANSPOSE_CONV": ["int16"]}.get(kind, [])
        dtype = draw(st.sampled_from(["int64", "int64", None, *more]))
        named = draw(st.booleans()) and not depthwise
        return dtype, {"bias_type": _TYPES[dtype or "int64"]} if named and dtype != "int16" else {}
    if draw(st.booleans()) and not depthwise:
        dtype = draw(st.sampled_from(["int32", "int64"]))
        absent = kind != "CONV_2D" and draw(st.integers(0, 3)) == 0
        return None if absent else dtype, {"bias_type": _TYPES[dtype]}
    return (None if kind != "CONV_2D" and draw(st.integers(0, 3)) == 0 else "int64"), {}


def _weights(
    draw: Draw, shape: tuple[int, ...], channels: int, source: float, axis: int, bias: str | None
) -> tuple[list[T], float]:
    """Draws weights and biases, and a scale of the output that they spread over its range."""
    data = random_data(draw)
    count = channels if draw(st.booleans()) else 1
    base = drawn_scale(draw, 0.0005, 0.02)
    scales = np.array([base * data.uniform(0.1, 2.0) for _ in range(count)], np.float32)
    weights = data.integers(-127, 128, shape).astype(np.int8)
    if draw(st.integers(0, 3)) == 0:
        weights = data.choice(np.array([-128, 127], np.int8), shape)
    length = math.prod(shape) // channels
    spread = math.sqrt(length) * 75 * 19000 / 16000
    output = float(
        np.float32(source * float(scales.mean()) * spread * 2.0 ** draw(st.floats(-3, 3) | st.floats(-8, 9)))
    )
    tensors = [T(shape, scale=scales, data=weights, axis=axis)]
    if bias is not None:
        reach = draw(st.sampled_from([100, 30_000, 1 << 20, 1 << 28 if bias != "int64" else 1 << 36]))
        values = data.integers(-reach, reach, channels)
        values = np.clip(values, -32768, 32767) if bias == "int16" else values
        tensors.append(T((channels,), bias, scale=scales * np.float32(source), data=values))
    return tensors, output


def convolution(draw: Draw, kind: str, rounding: str) -> bytes:
    """CONV_2D, with or without groups, or DEPTHWISE_CONV_2D, with or without a multiplier."""
    padding = draw(PADDINGS)
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    high, wide = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    down, across = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    dilation_h, dilation_w = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    if (high - 1) * dilation_h + 1 > height or (wide - 1) * dilation_w + 1 > width:
        padding = "SAME"
    channels, depth = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    batch = draw(st.integers(1, 3))
    bias, bias_option = _numbers(draw, kind, rounding)
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
        options |= bias_option
        groups = draw(st.sampled_from([1, 1, 1, 2]))
        shape = (depth * groups, high, wide, channels)
        channels, depth = channels * groups, depth * groups
    source = drawn_scale(draw, _FINEST, 0.01)
    parameters, output = _weights(draw, shape, depth, source, axis, bias)
    rows, columns = (
        windows_along(height, high, down, dilation_h, padding),
        windows_along(width, wide, across, dilation_w, padding),
    )
    tensors = [
        T((batch, height, width, channels), "int16", scale=source),
        T((batch, rows, columns, depth), "int16", scale=output),
        *parameters,
    ]
    inputs = (0, 2, 3) if bias is not None else (0, 2)
    return build(tensors, [Op(kind, inputs, (1,), options, version=5)], [0], [1])


def dense(draw: Draw, kind: str, rounding: str) -> bytes:
    """FULLY_CONNECTED, also with so many inputs that sums need more than 32 bits."""
    batch, depth = draw(st.integers(1, 3)), draw(st.integers(1, 20))
    length = draw(st.integers(1, 70) | st.sampled_from([300, 1500]))
    source = drawn_scale(draw, _FINEST, 0.01)
    bias, bias_option = _numbers(draw, kind, rounding)
    parameters, output = _weights(draw, (depth, length), depth, source, 0, bias)
    tensors = [
        T((batch, length), "int16", scale=source),
        T((batch, depth), "int16", scale=output),
        *parameters,
    ]
    options = {"activation": draw(ACTIVATIONS), **bias_option}
    inputs = (0, 2, 3) if bias is not None else (0, 2, -1)
    return build(tensors, [Op(kind, inputs, (1,), options, version=11)], [0], [1])


def transposed(draw: Draw, kind: str, rounding: str) -> bytes:
    """TRANSPOSE_CONV."""
    padding = draw(PADDINGS)
    height, width = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    high, wide = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    down, across = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    if padding == "SAME":
        rows = height * down - draw(st.integers(0, down - 1))
        columns = width * across - draw(st.integers(0, across - 1))
    else:
        rows, columns = (height - 1) * down + high, (width - 1) * across + wide
    channels, depth, batch = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 2))
    source = drawn_scale(draw, _FINEST, 0.01)
    bias, bias_option = _numbers(draw, kind, rounding)
    parameters, output = _weights(draw, (depth, high, wide, channels), depth, source, 0, bias)
    tensors = [
        T((4,), "int32", data=np.array([batch, rows, columns, depth], np.int32)),
        T((batch, height, width, channels), "int16", scale=source),
        T((batch, rows, columns, depth), "int16", scale=output),
        *parameters,
    ]
    options = {"padding": padding, "stride_h": down, "stride_w": across, "activation": draw(ACTIVATIONS), **bias_option}
    inputs = (0, 3, 1, 4) if bias is not None else (0, 3, 1)
    return build(tensors, [Op(kind, inputs, (2,), options, version=5)], [1], [2])


def binary(draw: Draw, kind: str, rounding: str) -> bytes:
    """ADD, SUB and MUL, also broadcast, also with a constant, also with scales that are powers of two."""
    first = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    second = tuple(size if draw(st.integers(0, 3)) else 1 for size in first)[draw(st.integers(0, len(first) - 1)) :]
    scales = [drawn_scale(draw, 2.0**-20, 2.0**2) for _ in range(2)]
    largest = scales[0] * scales[1] * 30_000 if kind == "MUL" else max(scales)
    output = float(np.float32(largest * 2.0 ** draw(st.floats(-1, 2) | st.floats(-6, 8))))
    if kind != "MUL" and draw(st.integers(0, 3)) == 0:  # as LiteRT's special kernels for powers of two want them
        output = 2.0 ** draw(st.integers(-15, -1))
        scales = [output, output]
        scales[draw(st.integers(0, 1))] = output * 2.0 ** -draw(st.integers(0, 4))
        second = second if kind == "SUB" else first
    elif all(math.log2(size) % 1 == 0 for size in (*scales, output)):
        output = float(np.float32(output * 1.1))
    fixed = random_data(draw).integers(-32768, 32768, second).astype(np.int16) if draw(st.integers(0, 3)) == 0 else None
    zeros = [0, 0, 0] if kind == "MUL" else [_zero_point(draw, rounding) for _ in range(3)]
    tensors = [
        T(first, "int16", scale=scales[0], zero_point=zeros[0]),
        T(second, "int16", scale=scales[1], zero_point=zeros[1], data=fixed),
        T(first, "int16", scale=output, zero_point=zeros[2]),
    ]
    order = draw(st.sampled_from([(0, 1), (1, 0)]))
    given = [0] if fixed is not None else [0, 1]
    version = 5 if kind == "SUB" else 4
    return build(tensors, [Op(kind, order, (2,), {"activation": draw(ACTIVATIONS)}, version=version)], given, [2])


def rescaled(draw: Draw, kind: str, rounding: str) -> bytes:
    """RELU, RELU6 and LEAKY_RELU, and QUANTIZE from and to int8 and int16."""
    source, output = "int16", "int16"
    if kind == "QUANTIZE":
        source, output = draw(st.sampled_from([("int16", "int16"), ("int16", "int8"), ("int8", "int16")]))
    ratio = {"int16int8": 200.0, "int8int16": 0.005}.get(source + output, 1.0)
    first = drawn_scale(draw, 2.0**-18, 2.0**-4)
    second = float(np.float32(first * ratio * 2.0 ** draw(st.floats(-3, 3))))
    free = "litert" if kind in ("RELU", "RELU6") else rounding
    zeros = [draw(st.integers(-128, 127)) if t == "int8" else _zero_point(draw, free) for t in (source, output)]
    options = {"alpha": float(np.float32(draw(st.floats(-1.2, 1.2))))} if kind == "LEAKY_RELU" else {}
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 300)))
    tensors = [
        T(shape, source, scale=first, zero_point=zeros[0]),
        T(shape, output, scale=second, zero_point=zeros[1]),
    ]
    version = 2 if kind == "LEAKY_RELU" else 3
    return build(tensors, [Op(kind, (0,), (1,), options, version=version)], [0], [1])


def curve(draw: Draw, kind: str, rounding: str) -> bytes:
    """LOGISTIC and TANH, of scales that are powers of two or not."""
    source = draw(st.sampled_from([2.0**-12, 2.0**-11, 2.0**-15, 0.0]))
    shape = (1, 2000)
    tensors = [
        T(shape, "int16", scale=source or drawn_scale(draw, 2.0**-20, 2.0)),
        T(shape, "int16", scale=_FINEST),
    ]
    return build(tensors, [Op(kind, (0,), (1,), version=3)], [0], [1])


def pool(draw: Draw, kind: str, rounding: str) -> bytes:
    """AVERAGE_POOL_2D and MAX_POOL_2D."""
    padding = draw(PADDINGS)
    high, wide = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    height, width = draw(st.integers(high, 9)), draw(st.integers(wide, 9))
    down, across = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    batch, channels = draw(st.integers(1, 2)), draw(st.integers(1, 9))
    size = drawn_scale(draw, _FINEST, 0.01)
    rows, columns = windows_along(height, high, down, 1, padding), windows_along(width, wide, across, 1, padding)
    tensors = [
        T((batch, height, width, channels), "int16", scale=size),
        T((batch, rows, columns, channels), "int16", scale=size),
    ]
    options = {
        "padding": padding,
        "stride_h": down,
        "stride_w": across,
        "filter_h": high,
        "filter_w": wide,
        "activation": draw(ACTIVATIONS),
    }
    return build(tensors, [Op(kind, (0,), (1,), options, version=3)], [0], [1])


def mean(draw: Draw, kind: str, rounding: str) -> bytes:
    """MEAN over any axes."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    axes = sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    keep = draw(st.booleans())
    result = tuple(1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)
    source = drawn_scale(draw, _FINEST, 0.01)
    tensors = [
        T(shape, "int16", scale=source),
        T((len(axes),), "int32", data=np.array(axes, np.int32)),
        T(result, "int16", scale=source * draw(st.sampled_from([1.0, 0.7, 2.0]))),
    ]
    return build(tensors, [Op(kind, (0, 1), (2,), {"keep_dims": keep}, version=3)], [0], [2])


def softmax(draw: Draw, kind: str, rounding: str) -> bytes:
    """SOFTMAX."""
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 40)))
    options = {"beta": draw(st.sampled_from([1.0, 0.5, 2.0]))}
    tensors = [T(shape, "int16", scale=drawn_scale(draw, _FINEST, 0.01)), T(shape, "int16", scale=_FINEST)]
    return build(tensors, [Op(kind, (0,), (1,), options, version=3)], [0], [1])


def of_reals(draw: Draw, kind: str, rounding: str) -> bytes:
    """QUANTIZE from float32 and DEQUANTIZE."""
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 300)))
    size = drawn_scale(draw, 2.0**-15, 2.0**-8)
    zero_point = _zero_point(draw, rounding)
    quantised, real = T(shape, "int16", scale=size, zero_point=zero_point), T(shape, "float32")
    tensors = [quantised, real] if kind == "DEQUANTIZE" else [real, quantised]
    return build(tensors, [Op(kind, (0,), (1,), version=3)], [0], [1])


def cast(draw: Draw, kind: str, rounding: str) -> bytes:
    """CAST from or to int16."""
    shape, types = (1, draw(st.integers(1, 99))), ["int16", draw(st.sampled_from(["float32", "int8", "int32"]))]
    tensors = [T(shape, dtype) for dtype in draw(st.permutations(types))]
    return build(tensors, [Op(kind, (0,), (1,), version=1)], [0], [1])


def moved(draw: Draw, kind: str, rounding: str) -> bytes:
    """PAD, CONCATENATION, STRIDED_SLICE, TRANSPOSE and RESHAPE."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    size, zero_point = drawn_scale(draw, _FINEST, 0.1), _zero_point(draw, "tflm") if kind == "PAD" else 0
    rank = len(shape)
    options: dict[str, Any] = {}
    constants: list[list[Any]] = []
    result = list(shape)
    if kind == "PAD":
        around = [[draw(st.integers(0, 3)), draw(st.integers(0, 3))] for _ in shape]
        constants = [around]
        result = [length + sum(pair) for length, pair in zip(shape, around, strict=True)]
    elif kind == "TRANSPOSE":
        order = draw(st.permutations(range(rank)))
        constants = [order]
        result = [shape[axis] for axis in order]
    elif kind == "STRIDED_SLICE":
        begins = [draw(st.integers(0, length - 1)) for length in shape]
        steps = [draw(st.integers(1, 2)) for _ in shape]
        constants = [begins, shape, steps]
        result = [len(range(b, e, s)) for b, e, s in zip(begins, shape, steps, strict=True)]
        options = {"begin_mask": 0, "end_mask": draw(st.integers(0, 2**rank - 1))}
    elif kind == "RESHAPE":
        result = [math.prod(shape)]
        constants = [result]
    if kind == "CONCATENATION":
        axis = draw(st.integers(-rank, rank - 1))
        lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
        parts = [T(tuple(_with(shape, axis, n)), "int16", scale=size) for n in lengths]
        tensors = [*parts, T(tuple(_with(shape, axis, sum(lengths))), "int16", scale=size)]
        places = list(range(len(lengths)))
        operator = Op(kind, tuple(places), (len(parts),), {"axis": axis, "activation": "NONE"}, version=3)
        return build(tensors, [operator], places, [len(parts)])
    arrays = [np.array(values, np.int32) for values in constants]
    tensors = [
        T(tuple(shape), "int16", scale=size, zero_point=zero_point),
        *(T(array.shape, "int32", data=array) for array in arrays),
        T(tuple(result), "int16", scale=size, zero_point=zero_point),
    ]
    last = len(tensors) - 1
    version = 1 if kind == "RESHAPE" else 4
    return build(tensors, [Op(kind, tuple(range(last)), (last,), options, version=version)], [0], [last])


def _with(shape: list[int], axis: int, length: int) -> list[int]:
    changed = list(shape)
    changed[axis] = length
    return changed


def lstm(draw: Draw, kind: str, rounding: str) -> bytes:
    """UNIDIRECTIONAL_SEQUENCE_LSTM, batches and time first, too."""
    batch, steps, cells = (draw(st.integers(1, most)) for most in (2, 6, 6))
    length = draw(st.integers(1, 6) | st.just(600))
    major = draw(st.booleans())
    data = random_data(draw)
    source, hidden = (
        drawn_scale(draw, _FINEST, 0.002),
        draw(st.sampled_from([_FINEST, 0.0])) or drawn_scale(draw, 2.0**-17, 2e-4),
    )
    around = (steps, batch) if major else (batch, steps)
    tensors = [T((*around, length), "int16", scale=source)]
    scales = [drawn_scale(draw, 0.0005, 0.1) for _ in range(8)]
    for gate, size in enumerate(scales):
        shape = (cells, length if gate < 4 else cells)
        tensors.append(T(shape, scale=size, data=data.integers(-127, 128, shape).astype(np.int8)))
    for gate in range(4):
        bias = data.integers(-300_000, 300_000, cells)
        tensors.append(T((cells,), "int64", scale=scales[gate] * source, data=bias))
    tensors += [
        T((batch, cells), "int16", scale=hidden, variable=True),
        T((batch, cells), "int16", scale=2.0 ** -draw(st.integers(9, 15)), variable=True),
        T((*around, cells), "int16", scale=hidden),
        *(T((0,), "int16", scale=2.0**-12) for _ in range(4)),
        T((0,), "int16", scale=hidden),
    ]
    inputs = (*range(9), -1, -1, -1, 9, 10, 11, 12, -1, -1, 13, 14, -1, -1, -1, -1)
    options = {
        "activation": "TANH",
        "cell_clip": draw(st.sampled_from([0.0, 10.0, 1.0, 0.01])),
        "time_major": major,
    }
    return build(tensors, [Op(kind, inputs, (15,), options, intermediates=(16, 17, 18, 19, 20))], [0], [15])


INT16_KINDS: dict[str, Callable[[Draw, str, str], bytes]] = {
    "ADD": binary,
    "AVERAGE_POOL_2D": pool,
    "CONCATENATION": moved,
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": convolution,
    "CAST": cast,
    "DEQUANTIZE": of_reals,
    "FULLY_CONNECTED": dense,
    "LEAKY_RELU": rescaled,
    "LOGISTIC": curve,
    "MAX_POOL_2D": pool,
    "MEAN": mean,
    "MUL": binary,
    "PACK": lambda draw, kind, rounding: packed(draw, kind, "int16"),
    "PAD": moved,
    "QUANTIZE": rescaled,
    "QUANTIZE of float32": of_reals,
    "RELU": rescaled,
    "RELU6": rescaled,
    "RESHAPE": moved,
    "SOFTMAX": softmax,
    "STRIDED_SLICE": moved,
    "SUB": binary,
    "TANH": curve,
    "TRANSPOSE": moved,
    "TRANSPOSE_CONV": transposed,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm,
}
"""For each operator a function that draws a model of it, which is called with what is before the first space."""
