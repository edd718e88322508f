"""ADD, SUB, MUL, SQUARED_DIFFERENCE and PRELU of int8, with broadcasting.

A sum has only 65,536 possible pairs of inputs, so the cheap form, `(a * p + b * q + offset) >> shift`, is held
against what the interpreter does for every one of them; where they differ anywhere, the interpreter's steps are taken
one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rudel.micro.arithmetic import (
    Rounding,
    multiply,
    quantise_multiplier,
    scaling_to_even,
    scaling_twice,
)
from rudel.micro.emit import FORWARD, Constant, Context, Kernel, Step
from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.operators.broadcast import BROADCAST, broadcast_fields, broadcast_loop
from rudel.micro.operators.checks import arity, quantised_int8, require
from rudel.micro.operators.lookup import lookup_step
from rudel.micro.operators.outputs import FORMS, TWICE, output_fields
from rudel.micro.operators.scalings import multiplier_below_one, output_limits
from rudel.micro.requantisation import evaluate, plan

_VALUES = np.arange(-128, 128, dtype=np.int64)

_AROUND = sorted(((p, q) for p in range(-2, 3) for q in range(-2, 3)), key=lambda pair: abs(pair[0]) + abs(pair[1]))
"""Distances from the nearest whole numbers at which multipliers are looked for, in this order."""


@dataclass(frozen=True)
class Sum:
    """An interpreter's sum of two numbers: multipliers and exponents of both inputs and of the sum, rounded twice."""

    first: tuple[int, int]
    second: tuple[int, int]
    result: tuple[int, int]
    sign: int

    def outputs(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Returns outputs without zero point; a, b: int64 without zero points."""
        total = multiply(a << 20, *self.first) + self.sign * multiply(b << 20, *self.second)
        return multiply(total, *self.result)


def lower_binary(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of an ADD, SUB, MUL or SQUARED_DIFFERENCE of int8."""
    arity(operator, 2)
    tensors = [graph[index] for index in (*operator.inputs, *operator.outputs)]
    for tensor in tensors:
        quantised_int8(tensor, operator)
    first, second, output = tensors
    limits = output_limits(operator, output) if "activation" in operator.options else (-128, 127)
    fields = broadcast_fields(operator, first, second, output)
    make = {"MUL": _product, "SQUARED_DIFFERENCE": _squared_difference}.get(operator.kind, _sum)
    kernel, parameters, table = make(operator, first, second, output, limits, context.rounding)
    for position, tensor in enumerate((first, second)):
        if tensor.data is not None and tensor.size == 1:
            column = int(tensor.data.ravel()[0]) + 128
            single = Operator(
                operator.index, operator.kind, operator.version, (operator.inputs[1 - position],), operator.outputs
            )
            return lookup_step(single, graph, table[:, column] if position else table[column])
    constants = {f"in{position}": Constant(t.data) for position, t in enumerate((first, second)) if t.data is not None}
    if "rows" in parameters:
        constants["rows"] = Constant(parameters.pop("rows"))
    return Step(
        operator,
        f"rudel_{kernel.name}(&$layer, $in0, $in1, $out0);",
        (kernel,),
        constants,
        {"layer": f"static const rudel_{kernel.name}_layer $name = {{{fields}, {parameters['fields']}}};"},
        overlap={
            (position, 0): FORWARD for position, tensor in enumerate((first, second)) if tensor.size == output.size
        },
        macs=output.size * (1 if operator.kind == "MUL" else 2),
        reads=(0, 1),
    )


@dataclass(frozen=True)
class Line:
    """A sum as `saturate(((a * p + b * q + offset) >> shift) + zero_point)`, of inputs as they are."""

    p: int
    q: int
    offset: int
    shift: int
    zero_point: int = 0


def sum_of(
    operator: Operator, tensors: Sequence[Tensor], limits: tuple[int, int], rounding: Rounding
) -> tuple[Line | Sum, np.ndarray]:
    """Returns how an ADD or a SUB is computed, and what comes of it.

    Args:
        operator: it.
        tensors: both inputs and the output, of int8.
        limits: the least and the greatest output.
        rounding: whose bits.

    Returns:
        A way that gives the same bits, the line where there is one, and int64 (256, 256): outputs, whose rows go with
        the first input.
    """
    first, second, output = tensors
    sign = -1 if operator.kind == "SUB" else 1
    a, b = np.meshgrid(_VALUES - first.zero_point, _VALUES - second.zero_point, indexing="ij")
    single = _single_line(first, second, output, sign) if rounding == "xnnpack" else None
    if single is not None:
        p, q, offset, shift = single
        table = np.clip(((a * p + b * q + offset) >> shift) + output.zero_point, *limits)
        base = offset - p * first.zero_point - q * second.zero_point
        return Line(p, q, base, shift, output.zero_point), table
    twice = 2.0 * max(first.scale, second.scale)
    exact = Sum(
        quantise_multiplier(first.scale / twice),
        quantise_multiplier(second.scale / twice),
        multiplier_below_one(operator, twice / ((1 << 20) * output.scale)),
        sign,
    )
    table = exact.outputs(a, b) + output.zero_point
    require(
        rounding != "xnnpack" or bool((np.abs(table) < 1 << 15).all()),
        operator,
        "its inputs' scales are so much greater than its output's that LiteRT's result depends on the processor; "
        "use another rounding",
    )
    table = np.clip(table, *limits)
    found = _fitting_line(first.scale / output.scale, sign * second.scale / output.scale, table, limits)
    return (exact if found is None else Line(*found)), table


def _sum(operator: Operator, first: Tensor, second: Tensor, output: Tensor, limits, rounding: Rounding):
    way, table = sum_of(operator, (first, second, output), limits, rounding)
    if isinstance(way, Line):
        numbers = (way.p, way.q, way.offset, way.shift, way.zero_point, *limits)
        return _LINE, {"fields": ", ".join(map(str, numbers))}, table
    zeros = (first.zero_point, second.zero_point, output.zero_point)
    numbers = (*way.first, *way.second, *way.result, *zeros, *limits)
    return _EXACT[way.sign], {"fields": ", ".join(map(str, numbers))}, table


def _single_line(first: Tensor, second: Tensor, output: Tensor, sign: int) -> tuple[int, int, int, int] | None:
    """Returns XNNPACK's own line (for tensors without zero points), or None where it does not take the operator.

    The zero point of the output is no part of the offset, which 32 bits could not hold then.
    """
    ratios = [np.float32(tensor.scale) / np.float32(output.scale) for tensor in (first, second)]
    if not all(2.0**-10 <= ratio < 2.0**8 for ratio in ratios):
        return None
    shift = 20 - int(np.floor(np.log2(float(max(ratios)))))
    p, q = (int(np.rint(float(ratio) * 2.0**shift)) for ratio in ratios)
    return p, sign * q, 1 << (shift - 1), shift


def _fitting_line(
    first: float, second: float, table: np.ndarray, limits: tuple[int, int]
) -> tuple[int, int, int, int] | None:
    """Looks for p, q, offset and shift in 32 bits that give the table; its rows go with the first input."""
    largest = max(abs(first), abs(second))
    a, b = _VALUES[:, None], _VALUES[None]
    above, below = table > limits[0], table < limits[1]
    if not 0 < largest < 2.0**20:
        return None
    finest = int(np.floor(np.log2((1 << 32) / (2 * 128 * largest + 256))))
    for shift in range(min(finest, 30), max(finest - 4, 0), -1):
        for dp, dq in _AROUND:
            p, q = round(first * 2.0**shift) + dp, round(second * 2.0**shift) + dq
            values = a * p + b * q
            low = int(np.where(above, (table << shift) - values, -(1 << 40)).max())
            high = int(np.where(below, ((table + 1) << shift) - 1 - values, 1 << 40).min())
            if low <= high:
                offset = low + (high - low) // 2 if high < 1 << 39 and low > -(1 << 39) else max(min(0, high), low)
                if np.abs(values + offset).max() < 1 << 31 and abs(offset) + 128 * (abs(p) + abs(q)) < 1 << 31:
                    return p, q, offset, shift
    return None


def _product(operator: Operator, first: Tensor, second: Tensor, output: Tensor, limits, rounding: Rounding):
    a, b = _VALUES - first.zero_point, _VALUES - second.zero_point
    products = np.multiply.outer(a, b)
    number = float if rounding == "tflm" else np.float32
    factor = number(first.scale) * number(second.scale) / number(output.scale)
    scaling = (scaling_to_even if rounding == "xnnpack" else scaling_twice)(np.array([factor]))
    reach = (products.min(keepdims=True)[0], products.max(keepdims=True)[0])
    requantisation = plan(scaling, np.zeros(1, np.int64), reach, output.zero_point, limits)
    table = evaluate(requantisation, products.reshape(1, -1)).reshape(256, 256)
    fields = f"{output_fields(requantisation)}, $rows, {first.zero_point}, {second.zero_point}"
    return _multiply(requantisation.form), {"fields": fields, "rows": requantisation.data}, table


def _squared_difference(operator: Operator, first: Tensor, second: Tensor, output: Tensor, limits, rounding: Rounding):
    a, b = np.meshgrid(_VALUES - first.zero_point, _VALUES - second.zero_point, indexing="ij")
    twice = 2.0 * max(first.scale, second.scale)
    parts = [quantise_multiplier(tensor.scale / twice) for tensor in (first, second)]
    factor = twice * twice / ((1 << 14) * output.scale)
    result = quantise_multiplier(factor) if rounding == "tflm" else multiplier_below_one(operator, factor)
    difference = multiply(a << 7, *parts[0]) - multiply(b << 7, *parts[1])
    table = np.clip(multiply(difference * difference, *result) + output.zero_point, *limits)
    numbers = (*parts[0], *parts[1], *result, first.zero_point, second.zero_point, output.zero_point, *limits)
    return _SQUARED_DIFFERENCE, {"fields": ", ".join(map(str, numbers))}, table


def lower_prelu(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a PRELU of int8: what is negative is multiplied by a slope, one for all or for each channel."""
    arity(operator, 2)
    source, slopes, output = (graph[index] for index in (*operator.inputs, *operator.outputs))
    for tensor in (source, slopes, output):
        quantised_int8(tensor, operator)
    positive = quantise_multiplier(float(np.float32(source.scale) / np.float32(output.scale)))
    negative = quantise_multiplier(
        float(np.float32(source.scale) * np.float32(slopes.scale) / np.float32(output.scale))
    )
    numbers = (*positive, *negative, source.zero_point, slopes.zero_point, output.zero_point)
    fields = f"{broadcast_fields(operator, source, slopes, output)}, {', '.join(map(str, numbers))}"
    return Step(
        operator,
        "rudel_prelu(&$layer, $in0, $in1, $out0);",
        (_PRELU,),
        {} if slopes.data is None else {"in1": Constant(slopes.data)},
        {"layer": f"static const rudel_prelu_layer $name = {{{fields}}};"},
        overlap={(0, 0): FORWARD} if source.size == output.size else {},
        macs=output.size,
        reads=(0, 1),
    )


_LINE = Kernel(
    "add",
    """\
typedef struct {
    rudel_broadcast shape;
    int32_t p, q, offset, shift, zero_point, low, high;
} rudel_add_layer;

"""
    + broadcast_loop(
        "add",
        "int8_t",
        """\
            int32_t value = ((*a * p_a + *b * p_b + offset) >> shift) + zero_point;
            value = value < low ? low : value;
            *out++ = (int8_t)(value > high ? high : value);
""",
        """    const int32_t p_a = p->p, p_b = p->q, offset = p->offset, shift = p->shift, zero_point = p->zero_point;
    const int32_t low = p->low, high = p->high;
""",
    ),
    (BROADCAST,),
)


def _exact(name: str, sign: str) -> Kernel:
    return Kernel(
        name,
        f"""\
typedef struct {{
    rudel_broadcast shape;
    int32_t first, first_exponent, second, second_exponent, result, result_exponent;
    int32_t first_zero, second_zero, zero_point, low, high;
}} rudel_{name}_layer;

"""
        + broadcast_loop(
            name,
            "int8_t",
            f"""\
            const int32_t x = rudel_scale_twice((*a - p->first_zero) * unit, p->first, p->first_exponent);
            const int32_t y = rudel_scale_twice((*b - p->second_zero) * unit, p->second, p->second_exponent);
            int32_t value = rudel_scale_twice(x {sign} y, p->result, p->result_exponent) + p->zero_point;
            value = value < p->low ? p->low : value;
            *out++ = (int8_t)(value > p->high ? p->high : value);
""",
            "    const int32_t unit = (int32_t)1 << 20;\n",
        ),
        (BROADCAST, TWICE),
    )


_EXACT = {1: _exact("add_exactly", "+"), -1: _exact("subtract_exactly", "-")}


_SQUARED_DIFFERENCE = Kernel(
    "squared_difference",
    """\
typedef struct {
    rudel_broadcast shape;
    int32_t first, first_exponent, second, second_exponent, result, result_exponent;
    int32_t first_zero, second_zero, zero_point, low, high;
} rudel_squared_difference_layer;

"""
    + broadcast_loop(
        "squared_difference",
        "int8_t",
        """\
            const int32_t x = rudel_scale_twice((*a - p->first_zero) * (1 << 7), p->first, p->first_exponent) -
                              rudel_scale_twice((*b - p->second_zero) * (1 << 7), p->second, p->second_exponent);
            int32_t value = rudel_scale_twice(x * x, p->result, p->result_exponent) + p->zero_point;
            value = value < p->low ? p->low : value;
            *out++ = (int8_t)(value > p->high ? p->high : value);
""",
    ),
    (BROADCAST, TWICE),
)

_PRELU = Kernel(
    "prelu",
    """\
typedef struct {
    rudel_broadcast shape;
    int32_t positive, positive_exponent, negative, negative_exponent, zero, slope_zero, zero_point;
} rudel_prelu_layer;

"""
    + broadcast_loop(
        "prelu",
        "int8_t",
        """\
            const int32_t x = *a - p->zero;
            int32_t value = x >= 0 ? rudel_scale_twice(x, p->positive, p->positive_exponent)
                                   : rudel_scale_twice(x * (*b - p->slope_zero), p->negative, p->negative_exponent);
            value += p->zero_point;
            value = value < -128 ? -128 : value;
            *out++ = (int8_t)(value > 127 ? 127 : value);
""",
    ),
    (BROADCAST, TWICE),
)


def _multiply(form: str) -> Kernel:
    name = f"multiply_{form}"
    return Kernel(
        name,
        f"""\
typedef struct {{
    rudel_broadcast shape;
    rudel_output output;
    const int32_t *rows;
    int32_t first_zero, second_zero;
}} rudel_{name}_layer;

"""
        + broadcast_loop(
            name,
            "int8_t",
            f"            *out++ = rudel_{form}((*a - p->first_zero) * (*b - p->second_zero), p->rows, &p->output);\n",
        ),
        (BROADCAST, FORMS[form]),
    )
