"""Operators that make each int16 of one or two numbers: ADD, SUB, MUL, RELU, RELU6, LEAKY_RELU, LOGISTIC, TANH and
QUANTIZE between integers.

Sums, products and scaled numbers are rounded twice, as those of int8 are. Curves are interpolated in a table of the
logistic function; LiteRT's kernels for speed compute them in gemmlowp's fixed point where the input has 12 bits
after the point.
"""

import math

import numpy as np

from rudel.micro.arithmetic import half_away, quantise_multiplier
from rudel.micro.emit import FORWARD, Constant, Context, Kernel, Overlap, Step
from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.operators.broadcast import BROADCAST, broadcast_fields, broadcast_loop
from rudel.micro.operators.checks import (
    arity,
    bounds_of,
    quantised_int8,
    quantised_int16,
    require,
    same_shape,
)
from rudel.micro.operators.curves import DIVIDE, FIXED_POINT, TABLE_CURVES, logistic_table
from rudel.micro.operators.outputs import CLAMP_INT16, TWICE
from rudel.micro.operators.scalings import multiplier_below_one, output_limits

_BITS = 15
"""Bits by which inputs of ADD and SUB are shifted to the left before they are scaled."""

_AT_ONCE = 16
"""Elements that LiteRT's kernel for speed adds at once, scaling inputs with one rounding; the rest with two."""


def _sum(name: str, sign: str) -> Kernel:
    shifted = "rudel_scale_twice((int32_t)((uint32_t)(*{0} - p->{1}_zero) << p->bits), p->{1}, p->{1}_exponent)"
    return Kernel(
        name,
        f"""\
typedef struct {{
    rudel_broadcast shape;
    int32_t first, first_exponent, second, second_exponent, result, result_exponent;
    int32_t first_zero, second_zero, bits;
    rudel_output output;
}} rudel_{name}_layer;

"""
        + broadcast_loop(
            name,
            "int16_t",
            f"""\
            const int32_t x = {shifted.format("a", "first")};
            const int32_t y = {shifted.format("b", "second")};
            const int32_t value = rudel_scale_twice(x {sign} y, p->result, p->result_exponent);
            *out++ = rudel_clamp_int16(value + p->output.zero_point, &p->output);
""",
        ),
        (BROADCAST, TWICE, CLAMP_INT16),
    )


_SUMS = {"ADD": _sum("add_int16", "+"), "SUB": _sum("subtract_int16", "-")}


def _shifted(name: str, sign: str) -> Kernel:
    return Kernel(
        name,
        f"""\
typedef struct {{
    rudel_broadcast shape;
    int32_t first, second;
    rudel_output output;
}} rudel_{name}_layer;

"""
        + broadcast_loop(
            name,
            "int16_t",
            f"""\
            const int32_t x = rudel_divide_by_power(*a, p->first), y = rudel_divide_by_power(*b, p->second);
            *out++ = rudel_clamp_int16(x {sign} y, &p->output);
""",
        ),
        (BROADCAST, DIVIDE, CLAMP_INT16),
    )


_SHIFTED = {"ADD": _shifted("add_shifted", "+"), "SUB": _shifted("subtract_shifted", "-")}

_PRODUCT = Kernel(
    "multiply_int16",
    """\
typedef struct {
    rudel_broadcast shape;
    int32_t factor, exponent;
    rudel_output output;
} rudel_multiply_int16_layer;

"""
    + broadcast_loop(
        "multiply_int16",
        "int16_t",
        """\
            const int32_t value = rudel_scale_twice((int32_t)*a * *b, p->factor, p->exponent);
            *out++ = rudel_clamp_int16(value, &p->output);
""",
    ),
    (BROADCAST, TWICE, CLAMP_INT16),
)


def lower_binary(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of an ADD, a SUB or a MUL of int16."""
    arity(operator, 2)
    first, second, output = tensors = [graph[index] for index in (*operator.inputs, *operator.outputs)]
    for tensor in tensors:
        quantised_int16(tensor, operator, symmetric=operator.kind == "MUL" or context.rounding != "tflm")
    low, high = output_limits(operator, output)
    shape, end = broadcast_fields(operator, first, second, output), f"{{0, {output.zero_point}, {low}, {high}}}"
    values: list[int] = []
    at_once = 0
    if operator.kind == "MUL":
        kernel = _PRODUCT
        number = float if context.rounding == "tflm" else np.float32
        factor = number(first.scale) * number(second.scale) / number(output.scale)
        values += quantise_multiplier(float(factor))
    elif context.rounding != "tflm" and (shifts := _shifts(operator, first, second, output)):
        kernel = _SHIFTED[operator.kind]
        values += shifts
    else:
        kernel = _SUMS[operator.kind]
        twice = 2.0 * max(first.scale, second.scale)
        for real in (first.scale / twice, second.scale / twice):
            values += quantise_multiplier(real)
        values += multiplier_below_one(operator, twice / ((1 << _BITS) * output.scale))
        values += [first.zero_point, second.zero_point, _BITS]
        if operator.kind == "ADD" and context.rounding == "xnnpack" and first.size == second.size == output.size:
            at_once = output.size - output.size % _AT_ONCE
    call = f"rudel_{kernel.name}(&$layer, $in0, $in1, $out0);"
    layers = {"layer": (shape, values)}
    if at_once:
        shifted = [*values]
        shifted[1], shifted[3], shifted[8] = values[1] + _BITS, values[3] + _BITS, 0
        layers = {"layer": (_along(at_once), shifted)}
        if left := output.size - at_once:
            layers["rest"] = (_along(left), values)
            places = ", ".join(f"{place} + {at_once}" for place in ("$in0", "$in1", "$out0"))
            call += f"\n    rudel_{kernel.name}(&$rest, {places});"
    return Step(
        operator,
        call,
        (kernel,),
        {f"in{position}": Constant(t.data) for position, t in enumerate((first, second)) if t.data is not None},
        {
            key: f"static const rudel_{kernel.name}_layer $name = {{{', '.join(map(str, (along, *numbers, end)))}}};"
            for key, (along, numbers) in layers.items()
        },
        overlap={(n, 0): FORWARD for n, tensor in enumerate((first, second)) if tensor.size == output.size},
        macs=output.size * (1 if operator.kind == "MUL" else 2),
        reads=(0, 1),
    )


def _along(count: int) -> str:
    """Returns the initialiser of a `rudel_broadcast` of as many elements of both inputs."""
    return f"{{{{1, 1, 1, {count}}}, {{0, 0, 0, 1}}, {{0, 0, 0, 1}}}}"


def _shifts(operator: Operator, first: Tensor, second: Tensor, output: Tensor) -> tuple[int, int] | None:
    """Returns by how many bits LiteRT shifts both inputs to the right, or None where it scales them.

    Raises:
        CompileError: all scales are powers of two, and LiteRT refuses them.
    """
    powers = [math.log2(tensor.scale) for tensor in (first, second, output)]
    if not operator.options["by_shifts"] or any(abs(power - round(power)) >= 1e-3 for power in powers):
        return None
    shifts = (round(powers[2]) - round(powers[0]), round(powers[2]) - round(powers[1]))
    require(
        min(shifts) == 0 and (operator.kind == "SUB" or first.shape == second.shape),
        operator,
        "all its scales are powers of two, for which LiteRT takes inputs of one shape only, one of which has the "
        "output's scale and the other no greater one: use the rounding `tflm`",
    )
    return shifts


def _rescale(source: str, output: str) -> Kernel:
    """Returns the kernel that scales numbers, those below the zero point by another factor, and clamps them."""
    name = f"rescale_{source}_{output}"
    return Kernel(
        name,
        f"""\
typedef struct {{
    int32_t positive, positive_exponent, negative, negative_exponent, zero, zero_point, low, high, count;
}} rudel_{name}_layer;

static void rudel_{name}(const rudel_{name}_layer *p, const {source}_t *in, {output}_t *out)
{{
    for (int32_t i = 0; i < p->count; i++) {{
        const int32_t x = in[i] - p->zero;
        int32_t value = x >= 0 ? rudel_scale_twice(x, p->positive, p->positive_exponent)
                               : rudel_scale_twice(x, p->negative, p->negative_exponent);
        value += p->zero_point;
        value = value < p->low ? p->low : value;
        out[i] = ({output}_t)(value > p->high ? p->high : value);
    }}
}}
""",
        (TWICE,),
    )


def lower_rescale(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a RELU, RELU6 or LEAKY_RELU of int16, or of a QUANTIZE from or to int16."""
    arity(operator, 1)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    same_shape(source, output, operator)
    for tensor in (source, output):
        if operator.kind != "QUANTIZE" or tensor.dtype not in ("int8", "int32"):
            free = context.rounding == "tflm" and operator.kind in ("QUANTIZE", "LEAKY_RELU")
            quantised_int16(tensor, operator, symmetric=not free)
        elif tensor.dtype == "int8":
            quantised_int8(tensor, operator)
        else:
            require(tensor.quantised, operator, f"`{tensor.name[:60]}` has no quantisation")
    # LiteRT divides scales in single precision, but those of QUANTIZE; TFLM all in double precision.
    number = float if operator.kind == "QUANTIZE" or context.rounding == "tflm" else np.float32
    positive = negative = quantise_multiplier(float(number(source.scale) / number(output.scale)))
    low, high = bounds_of(output)
    if operator.kind == "LEAKY_RELU":
        slope = float(number(source.scale) * number(operator.options["alpha"]) / number(output.scale))
        multiplier, exponent = quantise_multiplier(abs(slope))
        negative = (int(math.copysign(multiplier, slope)), exponent)
    elif operator.kind == "RELU6" and context.rounding == "tflm":
        # TFLM cuts off at 6 in the quantisation of the input, and does not scale.
        positive = negative = quantise_multiplier(1.0)
        low, high = source.zero_point, min(source.zero_point + _quantised(6.0, source), high)
        output = source
    elif operator.kind != "QUANTIZE":
        low = max(low, output.zero_point)
        high = min(high, output.zero_point + _quantised(6.0, output)) if operator.kind == "RELU6" else high
    numbers = (*positive, *negative, source.zero_point, output.zero_point, low, high, source.size)
    kernel = _rescale(source.dtype, graph[operator.outputs[0]].dtype)
    shrinks = output.bytes <= source.bytes
    return Step(
        operator,
        f"rudel_{kernel.name}(&$layer, $in0, $out0);",
        (kernel,),
        tables={"layer": f"static const rudel_{kernel.name}_layer $name = {{{', '.join(map(str, numbers))}}};"},
        overlap={(0, 0): FORWARD if shrinks else Overlap()},
    )


def _quantised(value: float, tensor: Tensor) -> int:
    """Returns how many steps from a tensor's zero point a real is."""
    return half_away(min(float(np.float32(value) / np.float32(tensor.scale)), 1e6))


def _table_curve(kind: str) -> Kernel:
    name = f"{kind.lower()}_int16"
    return Kernel(
        name,
        f"""\
static void rudel_{name}(const uint16_t *table, const int16_t *in, int16_t *out, int32_t count, int32_t factor,
                         int32_t shift)
{{
    const uint32_t half = shift ? (uint32_t)1 << (shift - 1) : 0u;
    for (int32_t i = 0; i < count; i++) {{
        const int32_t x = (int32_t)((uint32_t)in[i] * (uint32_t)factor + half) >> shift;
        out[i] = (int16_t)rudel_table_{kind.lower()}(table, x);
    }}
}}
""",
        (TABLE_CURVES,),
    )


def _fixed_point_curve(kind: str) -> Kernel:
    name = f"{kind.lower()}_fixed"
    value = "rudel_logistic(x)" if kind == "LOGISTIC" else "rudel_tanh(x, 3)"
    return Kernel(
        name,
        f"""\
static void rudel_{name}(const int16_t *in, int16_t *out, int32_t count, int32_t shift)
{{
    for (int32_t i = 0; i < count; i++) {{
        const int32_t x = rudel_saturate_short((int32_t)in[i] * (1 << shift));
        out[i] = (int16_t){value};
    }}
}}
""",
        (FIXED_POINT,),
    )


def lower_curve(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a LOGISTIC or a TANH of int16."""
    arity(operator, 1)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    same_shape(source, output, operator)
    for tensor in (source, output):
        quantised_int16(tensor, operator)
    require(
        abs(math.log2(output.scale) + 15) < 1e-3,
        operator,
        f"its output has scale {output.scale:.6g}, not 1/32768",
    )
    factor, shift = _input_factor(source, operator.kind)
    if context.rounding == "xnnpack" and shift == 0 and factor in (3, 6):
        kernel = _fixed_point_curve(operator.kind)
        call = f"rudel_{kernel.name}($in0, $out0, {output.size}, {factor // 6});"
        return Step(operator, call, (kernel,), overlap={(0, 0): FORWARD})
    kernel = _table_curve(operator.kind)
    return Step(
        operator,
        f"rudel_{kernel.name}($table, $in0, $out0, {output.size}, {factor}, {shift});",
        (kernel,),
        {"table": Constant(logistic_table())},
        overlap={(0, 0): FORWARD},
    )


def _input_factor(source: Tensor, kind: str) -> tuple[int, int]:
    """Returns the factor and the shift to the right that bring an input to multiples of 1/12288."""
    power = math.log2(source.scale)
    left = 12 + round(power)
    if abs(power - round(power)) < 1e-3 and left in ((0,) if kind == "LOGISTIC" else (0, 1)):
        return 3 << left, 0
    real, shift = source.scale * 4096.0 * 3.0, 0
    while real <= 32767.0 / 2.0 and shift <= 30:
        real, shift = real * 2.0, shift + 1
    return int(real), shift
