"""Operators of float32, in plain loops: they compile, and are slow next to int8 on a core without a floating-point
unit.

Sums are made in the order of the weights, in single precision; results agree with LiteRT's within rounding.
"""

import math

import numpy as np

from rudel.c_literals import float_literal
from rudel.micro.emit import FORWARD, Constant, Context, Kernel, Overlap, Step
from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.operators.broadcast import BROADCAST, broadcast_fields, broadcast_loop
from rudel.micro.operators.checks import (
    arity,
    constant,
    quantised_int8,
    quantised_int16,
    require,
    same_shape,
    unsupported,
)
from rudel.micro.operators.mean import reduction
from rudel.micro.operators.pool import pool_window
from rudel.micro.operators.window_sums import window_lead, window_of

_LARGEST = float(np.finfo(np.float32).max)
_RANGES = {"NONE": (-_LARGEST, _LARGEST), "RELU": (0.0, _LARGEST), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}


def _range(operator: Operator) -> str:
    activation = operator.options["activation"]
    if activation not in _RANGES:
        raise unsupported(operator, f"the activation {activation}")
    return ", ".join(float_literal(value) for value in _RANGES[activation])


def _floats(operator: Operator, *tensors: Tensor) -> None:
    for tensor in tensors:
        require(
            tensor.dtype == "float32", operator, f"`{tensor.name[:60]}` has type {tensor.dtype}, others are float32"
        )


def _biases(operator: Operator, graph: Graph, position: int, depth: int) -> np.ndarray:
    """The biases, float32 (depth,), zeros where there are none."""
    if len(operator.inputs) <= position or operator.inputs[position] < 0:
        return np.zeros(depth, np.float32)
    bias = constant(operator, graph, position, "biases").ravel()
    require(bias.dtype == np.float32 and bias.size == depth, operator, "its biases do not fit")
    return bias


_CLAMP = Kernel(
    "clamp_float",
    """\
static inline float rudel_clamp_float(float value, float low, float high)
{
    value = value < low ? low : value;
    return value > high ? high : value;
}
""",
)

_CONVOLUTION = Kernel(
    "convolution_float",
    """\
typedef struct {
    const float *weights, *bias;
    int32_t batch, height, width, channels, rows, columns, depth, groups;
    int32_t window_height, window_width, stride_h, stride_w, dilation_h, dilation_w, top, left;
    float low, high;
} rudel_convolution_float_layer;

static void rudel_convolution_float(const rudel_convolution_float_layer *p, const float *in, float *out)
{
    const int32_t own = p->channels / p->groups, each = p->depth / p->groups;
    for (int32_t n = 0; n < p->batch; n++, in += p->height * p->width * p->channels) {
        for (int32_t at = 0; at < p->rows * p->columns; at++) {
            const int32_t y = at / p->columns * p->stride_h - p->top, x = at % p->columns * p->stride_w - p->left;
            const float *w = p->weights;
            for (int32_t d = 0; d < p->depth; d++) {
                float sum = p->bias[d];
                for (int32_t i = 0; i < p->window_height; i++) {
                    const int32_t row = y + i * p->dilation_h;
                    for (int32_t j = 0; j < p->window_width; j++, w += own) {
                        const int32_t column = x + j * p->dilation_w;
                        if (row >= 0 && row < p->height && column >= 0 && column < p->width) {
                            const float *v = in + (row * p->width + column) * p->channels + d / each * own;
                            for (int32_t k = 0; k < own; k++) sum += v[k] * w[k];
                        }
                    }
                }
                *out++ = rudel_clamp_float(sum, p->low, p->high);
            }
        }
    }
}
""",
    (_CLAMP,),
)


def lower_convolution(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a CONV_2D, DEPTHWISE_CONV_2D or FULLY_CONNECTED of float32."""
    arity(operator, 2, 3)
    source, kernel, output = (graph[i] for i in (*operator.inputs[:2], operator.outputs[0]))
    _floats(operator, source, kernel, output)
    weights = constant(operator, graph, 1, "weights")
    if operator.kind == "FULLY_CONNECTED":
        require(
            weights.ndim == 2 and weights.size > 0 and source.size % weights.shape[1] == 0,
            operator,
            "its weights do not fit",
        )
        batch = source.size // weights.shape[1]
        shape, result = (1, 1, batch, weights.shape[1]), (1, 1, batch, weights.shape[0])
        weights = weights.reshape(weights.shape[0], 1, 1, weights.shape[1])
        options = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
        operator = operator.with_options(**options)
    else:
        require(
            len(source.shape) == len(output.shape) == weights.ndim == 4,
            operator,
            "its tensors do not have 4 dimensions",
        )
        shape, result = source.shape, output.shape
        if operator.kind == "DEPTHWISE_CONV_2D":
            require(weights.shape[0] == 1, operator, "its weights do not fit")
            weights = np.ascontiguousarray(weights[0].transpose(2, 0, 1))[..., None]
    require(
        weights.shape[3] > 0 and shape[3] % weights.shape[3] == 0 and math.prod(result) == output.size,
        operator,
        f"weights {list(weights.shape)} do not fit input {list(shape)}",
    )
    groups = shape[3] // weights.shape[3]
    require(
        weights.shape[0] % groups == 0 and weights.shape[0] == result[3] and shape[0] == result[0],
        operator,
        f"weights {list(weights.shape)} do not fit output {list(output.shape)}",
    )
    window = window_of(operator, shape, result, weights.shape[1:3])
    bias = _biases(operator, graph, 2, weights.shape[0])
    fields = ", ".join(
        str(value)
        for value in (
            *(*shape, *result[1:], groups, window.height, window.width, window.stride_h, window.stride_w),
            *(window.dilation_h, window.dilation_w, window.top, window.left),
        )
    )
    return Step(
        operator,
        "rudel_convolution_float(&$layer, $in0, $out0);",
        (_CONVOLUTION,),
        {"weights": Constant(weights), "bias": Constant(bias)},
        {
            "layer": "static const rudel_convolution_float_layer $name = "
            f"{{$weights, $bias, {fields}, {_range(operator)}}};"
        },
        overlap={(0, 0): Overlap(lead=window_lead(shape, result, window, 4))},
        macs=math.prod(result) * int(np.prod(weights.shape[1:])),
    )


_TRANSPOSED = Kernel(
    "transposed_float",
    """\
typedef struct {
    const float *weights, *bias;
    int32_t batch, height, width, channels, rows, columns, depth;
    int32_t window_height, window_width, stride_h, stride_w, top, left;
    float low, high;
} rudel_transposed_float_layer;

static void rudel_transposed_float(const rudel_transposed_float_layer *p, const float *in, float *out)
{
    for (int32_t n = 0; n < p->batch; n++, in += p->height * p->width * p->channels) {
        for (int32_t at = 0; at < p->rows * p->columns; at++) {
            const float *w = p->weights;
            for (int32_t d = 0; d < p->depth; d++) {
                float sum = p->bias[d];
                for (int32_t i = 0; i < p->window_height; i++) {
                    const int32_t y = at / p->columns + p->top - i;
                    for (int32_t j = 0; j < p->window_width; j++, w += p->channels) {
                        const int32_t x = at % p->columns + p->left - j;
                        const int32_t row = y / p->stride_h, column = x / p->stride_w;
                        if (y >= 0 && x >= 0 && y % p->stride_h == 0 && x % p->stride_w == 0 && row < p->height &&
                            column < p->width) {
                            const float *v = in + (row * p->width + column) * p->channels;
                            for (int32_t k = 0; k < p->channels; k++) sum += v[k] * w[k];
                        }
                    }
                }
                *out++ = rudel_clamp_float(sum, p->low, p->high);
            }
        }
    }
}
""",
    (_CLAMP,),
)


def lower_transposed(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a TRANSPOSE_CONV of float32."""
    from rudel.micro.operators.transposed import transposed_window

    source, output = graph[operator.inputs[2]], graph[operator.outputs[0]]
    weights = constant(operator, graph, 1, "weights")
    _floats(operator, source, output, graph[operator.inputs[1]])
    window = transposed_window(operator, graph)
    bias = _biases(operator, graph, 3, weights.shape[0])
    fields = ", ".join(
        str(value)
        for value in (
            *(*source.shape, *output.shape[1:], window.height, window.width),
            *(window.stride_h, window.stride_w, window.top, window.left),
        )
    )
    return Step(
        operator,
        "rudel_transposed_float(&$layer, $in2, $out0);",
        (_TRANSPOSED,),
        {"weights": Constant(weights), "bias": Constant(bias)},
        {
            "layer": "static const rudel_transposed_float_layer $name = "
            f"{{$weights, $bias, {fields}, {_range(operator)}}};"
        },
        macs=output.size * int(np.prod(weights.shape[1:])),
        reads=(2,),
    )


def _pool(name: str, start: str, take: str, finish: str) -> Kernel:
    return Kernel(
        name,
        f"""\
static void rudel_{name}(const int32_t *p, float low, float high, const float *in, float *out)
{{
    const int32_t height = p[1], width = p[2], channels = p[3], rows = p[4], columns = p[5];
    for (int32_t n = 0; n < p[0]; n++, in += height * width * channels) {{
        for (int32_t at = 0; at < rows * columns * channels; at++) {{
            const int32_t y = at / channels / columns * p[8] - p[10], x = at / channels % columns * p[9] - p[11];
            int32_t count = 0;
            float value = {start};
            for (int32_t i = y < 0 ? 0 : y; i < y + p[6] && i < height; i++) {{
                for (int32_t j = x < 0 ? 0 : x; j < x + p[7] && j < width; j++, count++) {{
                    const float v = in[(i * width + j) * channels + at % channels];
                    {take};
                }}
            }}
            {finish};
            *out++ = rudel_clamp_float(value, low, high);
        }}
    }}
}}
""",
        (_CLAMP,),
    )


_POOLS = {
    "AVERAGE_POOL_2D": _pool("average_pool_float", "0.0f", "value += v", "value /= (float)count"),
    "MAX_POOL_2D": _pool("max_pool_float", float_literal(-_LARGEST), "value = v > value ? v : value", "(void)count"),
}


def lower_pool(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a pool of float32."""
    w = pool_window(operator, graph)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    _floats(operator, source, output)
    kernel = _POOLS[operator.kind]
    values = (*source.shape, *output.shape[1:3], w.height, w.width, w.stride_h, w.stride_w, w.top, w.left)
    return Step(
        operator,
        f"rudel_{kernel.name}($layer, {_range(operator)}, $in0, $out0);",
        (kernel,),
        tables={"layer": f"static const int32_t $name[12] = {{{', '.join(map(str, values))}}};"},
        overlap={(0, 0): Overlap(lead=window_lead(source.shape, output.shape, w, 4))},
        macs=output.size * w.height * w.width,
    )


def _binary(name: str, sign: str) -> Kernel:
    return Kernel(
        name,
        f"typedef struct {{\n    rudel_broadcast shape;\n    float low, high;\n}} rudel_{name}_layer;\n\n"
        + broadcast_loop(name, "float", f"            *out++ = rudel_clamp_float(*a {sign} *b, p->low, p->high);\n"),
        (BROADCAST, _CLAMP),
    )


_BINARY = {
    "ADD": _binary("add_float", "+"),
    "SUB": _binary("subtract_float", "-"),
    "MUL": _binary("multiply_float", "*"),
}


def lower_binary(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of an ADD, SUB or MUL of float32."""
    arity(operator, 2)
    first, second, output = (graph[index] for index in (*operator.inputs, *operator.outputs))
    _floats(operator, first, second, output)
    kernel = _BINARY[operator.kind]
    fields = broadcast_fields(operator, first, second, output)
    return Step(
        operator,
        f"rudel_{kernel.name}(&$layer, $in0, $in1, $out0);",
        (kernel,),
        {f"in{position}": Constant(t.data) for position, t in enumerate((first, second)) if t.data is not None},
        {"layer": f"static const rudel_{kernel.name}_layer $name = {{{fields}, {_range(operator)}}};"},
        overlap={(n, 0): FORWARD for n, tensor in enumerate((first, second)) if tensor.size == output.size},
        macs=output.size,
        reads=(0, 1),
    )


def _unary(name: str, expression: str, *headers: str) -> Kernel:
    return Kernel(
        name,
        f"""\
static void rudel_{name}(const float *in, float *out, int32_t count, float alpha)
{{
    (void)alpha;
    for (int32_t i = 0; i < count; i++) {{
        const float x = in[i];
        out[i] = {expression};
    }}
}}
""",
        headers=headers,
    )


_UNARY = {
    "RELU": _unary("relu_float", "x > 0.0f ? x : 0.0f"),
    "RELU6": _unary("relu6_float", "x < 0.0f ? 0.0f : x > 6.0f ? 6.0f : x"),
    "RELU_N1_TO_1": _unary("relu1_float", "x < -1.0f ? -1.0f : x > 1.0f ? 1.0f : x"),
    "LEAKY_RELU": _unary("leaky_relu_float", "x > 0.0f ? x : x * alpha"),
    "ELU": _unary("elu_float", "x < 0.0f ? expm1f(x) : x", "math.h"),
    "NEG": _unary("negate_float", "-x"),
    "LOGISTIC": _unary("logistic_float", "1.0f / (1.0f + expf(-x))", "math.h"),
    "TANH": _unary("tanh_float", "tanhf(x)", "math.h"),
    "HARD_SWISH": _unary("hard_swish_float", "x * (x + 3.0f < 0.0f ? 0.0f : x + 3.0f > 6.0f ? 6.0f : x + 3.0f) / 6.0f"),
}


def lower_unary(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of an operator of one float32."""
    arity(operator, 1)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    _floats(operator, source, output)
    same_shape(source, output, operator)
    kernel = _UNARY[operator.kind]
    alpha = float_literal(operator.options.get("alpha", 0.0))
    call = f"rudel_{kernel.name}($in0, $out0, {output.size}, {alpha});"
    return Step(operator, call, (kernel,), overlap={(0, 0): FORWARD})


_SOFTMAX = Kernel(
    "softmax_float",
    """\
static void rudel_softmax_float(const float *in, float *out, int32_t rows, int32_t depth, float beta)
{
    for (; rows > 0; rows--, in += depth, out += depth) {
        float most = in[0], sum = 0.0f;
        for (int32_t i = 1; i < depth; i++) most = in[i] > most ? in[i] : most;
        for (int32_t i = 0; i < depth; i++) {
            out[i] = expf((in[i] - most) * beta);
            sum += out[i];
        }
        for (int32_t i = 0; i < depth; i++) out[i] /= sum;
    }
}
""",
    headers=("math.h",),
)


def lower_softmax(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a SOFTMAX of float32."""
    arity(operator, 1)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    _floats(operator, source, output)
    same_shape(source, output, operator)
    depth = source.shape[-1] if source.shape else 1
    call = (
        f"rudel_softmax_float($in0, $out0, {source.size // depth}, {depth}, {float_literal(operator.options['beta'])});"
    )
    return Step(operator, call, (_SOFTMAX,), overlap={(0, 0): FORWARD})


_MEAN = Kernel(
    "mean_float",
    """\
static void rudel_mean_float(const int32_t *p, const float *in, float *out)
{
    const int32_t *kept = p, *between = p + 4, *summed = p + 8, *apart = p + 12;
    for (int32_t at = 0; at < kept[0] * kept[1] * kept[2] * kept[3]; at++) {
        const int32_t i = at / (kept[1] * kept[2] * kept[3]), j = at / (kept[2] * kept[3]) % kept[1];
        const float *from = in + i * between[0] + j * between[1] + at / kept[3] % kept[2] * between[2];
        const int32_t count = summed[0] * summed[1] * summed[2] * summed[3];
        float sum = 0.0f;
        from += at % kept[3] * between[3];
        for (int32_t s = 0; s < count; s++) {
            sum += from[s / (summed[1] * summed[2] * summed[3]) * apart[0] +
                        s / (summed[2] * summed[3]) % summed[1] * apart[1] + s / summed[3] % summed[2] * apart[2] +
                        s % summed[3] * apart[3]];
        }
        *out++ = sum / (float)count;
    }
}
""",
)


def lower_mean(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a MEAN of float32."""
    *lists, _ = reduction(operator, graph)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    _floats(operator, source, output)
    values = ", ".join(str(value) for row in lists for value in row)  # type: ignore[union-attr]  # the four lists
    return Step(
        operator,
        "rudel_mean_float($layer, $in0, $out0);",
        (_MEAN,),
        tables={"layer": f"static const int32_t $name[16] = {{{values}}};"},
        macs=source.size,
    )


def _quantise(name: str, nearest: str, kind: str = "int8", real: str = "float") -> Kernel:
    info = np.iinfo(kind)
    beyond = {"int8": "1024.0f", "int16": "131072.0f"}[kind]
    of_input = "in[i] * scale" if name.endswith("even") else f"{'' if real == 'float' else '(double)'}in[i] / scale"
    return Kernel(
        name,
        f"""\
static void rudel_{name}(const float *in, {kind}_t *out, int32_t count, float scale, int32_t zero_point)
{{
    for (int32_t i = 0; i < count; i++) {{
        {real} x = {of_input};
        x = x < -{beyond} ? -{beyond} : x > {beyond} ? {beyond} : x;
        int32_t value = (int32_t)x;
        const {real} rest = x - ({real})value;
{nearest}        value += zero_point;
        out[i] = ({kind}_t)(value < {info.min} ? {info.min} : value > {info.max} ? {info.max} : value);
    }}
}}
""",
    )


_AWAY = "        value += (rest >= 0.5f) - (rest <= -0.5f);\n"
_QUANTISE = _quantise("quantise", _AWAY)
_QUANTISE_INT16 = _quantise("quantise_int16", _AWAY, "int16")
_EVEN = """\
        value += rest > 0.5f || (rest == 0.5f && (value & 1));
        value -= rest < -0.5f || (rest == -0.5f && (value & 1));
"""
_QUANTISE_EVEN = _quantise("quantise_even", _EVEN)
_QUANTISE_INT16_EVEN = _quantise("quantise_int16_even", _EVEN, "int16")
_QUANTISE_INT16_DOUBLE = _quantise("quantise_int16_double", _AWAY, "int16", "double")
_AT_ONCE = 8
"""int16 numbers that LiteRT's kernel for speed makes at once, by XNNPACK's rounding; the rest in double precision."""


def _dequantise(name: str, kind: str) -> Kernel:
    return Kernel(
        name,
        f"""\
static void rudel_{name}(const {kind} *in, float *out, int32_t count, float scale, int32_t zero_point)
{{
    for (int32_t i = 0; i < count; i++) out[i] = scale * (float)(in[i] - zero_point);
}}
""",
    )


_DEQUANTISE = {"int8": _dequantise("dequantise", "int8_t"), "int16": _dequantise("dequantise_int16", "int16_t")}


def lower_quantise(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a QUANTIZE from float32 to int8 or int16."""
    arity(operator, 1)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    _floats(operator, source)
    if output.dtype == "int16":
        quantised_int16(output, operator, symmetric=False)
    else:
        quantised_int8(output, operator)
    same_shape(source, output, operator)
    inverse, count = float_literal(np.float32(1) / np.float32(output.scale)), output.size
    scale, zero_point = float_literal(output.scale), output.zero_point
    if context.rounding != "xnnpack":
        parts = [(_QUANTISE_INT16 if output.dtype == "int16" else _QUANTISE, 0, count, scale)]
    elif output.dtype == "int8":
        parts = [(_QUANTISE_EVEN, 0, count, inverse)]
    else:
        rest = count % _AT_ONCE
        parts = [
            (_QUANTISE_INT16_EVEN, 0, count - rest, inverse),
            (_QUANTISE_INT16_DOUBLE, count - rest, rest, scale),
        ]
    parts = [part for part in parts if part[2]]
    calls = [
        f"rudel_{kernel.name}({f'$in0 + {start}, $out0 + {start}' if start else '$in0, $out0'}, {size}, {factor}, "
        f"{zero_point});"
        for kernel, start, size, factor in parts
    ]
    return Step(operator, "\n    ".join(calls), tuple(part[0] for part in parts), overlap={(0, 0): FORWARD})


def lower_dequantise(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a DEQUANTIZE from int8 or int16 to float32."""
    arity(operator, 1)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    if source.dtype == "int16":
        quantised_int16(source, operator, symmetric=context.rounding != "tflm")
    else:
        quantised_int8(source, operator)
    _floats(operator, output)
    same_shape(source, output, operator)
    kernel = _DEQUANTISE[source.dtype]
    call = f"rudel_{kernel.name}($in0, $out0, {output.size}, {float_literal(source.scale)}, {source.zero_point});"
    return Step(operator, call, (kernel,))
