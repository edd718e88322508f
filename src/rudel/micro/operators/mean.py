"""MEAN of int8 and int16 over any dimensions."""

import math

import numpy as np

from rudel.micro.arithmetic import Rounding, Scaling, multiply, quantise_multiplier
from rudel.micro.emit import Constant, Context, Kernel, Step
from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.int16_requantisation import twice
from rudel.micro.operators.checks import bounds_of, integers, quantised_activations, require
from rudel.micro.operators.movement import strides
from rudel.micro.operators.outputs import FORMS, element, output_fields
from rudel.micro.requantisation import plan

_RANK = 4


def reduction(operator: Operator, graph: Graph) -> tuple[list[int], list[int], list[int], list[int], int]:
    """Returns how a MEAN runs through its input.

    Returns:
        Sizes and strides of the dimensions that stay, sizes and strides of those that are summed, four each, and how
        many elements make one mean.

    Raises:
        CompileError: axes or shapes that do not fit.
    """
    require(len(operator.inputs) == 2 and min(operator.inputs) >= 0, operator, f"it has {len(operator.inputs)} inputs")
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    rank = len(source.shape)
    axes = integers(operator, graph, 1, "axes")
    require(all(-rank <= axis < rank for axis in axes) and axes != [], operator, f"its axes are {axes}")
    summed = {axis % rank for axis in axes}
    kept = math.prod(size for axis, size in enumerate(source.shape) if axis not in summed)
    require(output.size == kept, operator, f"its output {list(output.shape)} does not fit input {list(source.shape)}")
    parts = []
    for chosen in (False, True):
        merged: list[tuple[int, int]] = []
        for axis, (size, stride) in enumerate(zip(source.shape, strides(source.shape), strict=True)):
            if (axis in summed) != chosen or size == 1:
                continue
            if merged and merged[-1][1] == size * stride:
                merged[-1] = (merged[-1][0] * size, stride)
            else:
                merged.append((size, stride))
        require(len(merged) <= _RANK, operator, "it has too many dimensions")
        merged = [(1, 0)] * (_RANK - len(merged)) + merged
        parts += [[size for size, _ in merged], [stride for _, stride in merged]]
    return (*parts, source.size // output.size)  # type: ignore[return-value]  # four lists


def _scaling(rounding: Rounding, source: Tensor, output: Tensor, count: int) -> Scaling:
    multiplier, exponent = quantise_multiplier(source.scale / output.scale)
    if rounding == "xnnpack":
        return _single_scaling(source, output, count)
    shift = min(count.bit_length() - 1, 32, 31 + exponent)
    scaled = np.array([(multiplier << shift) // count], np.int64)
    exponents = np.array([exponent - shift], np.int64)

    def apply(accumulators: np.ndarray) -> np.ndarray:
        return multiply(accumulators, scaled[:, None], exponents[:, None])

    return Scaling(np.array([source.scale / output.scale / count]), apply, (scaled, exponents))


def _single_scaling(source: Tensor, output: Tensor, count: int) -> Scaling:
    """Returns XNNPACK's scaling: a float32 holds both zero points, too, before it is rounded half to even."""
    zeros = source.zero_point * count
    factor = np.float32(source.scale) / np.float32(output.scale) * (np.float32(1) / np.float32(count))
    offset = np.float32(output.zero_point) - np.float32(zeros) * factor

    def apply(accumulators: np.ndarray) -> np.ndarray:
        numbers = (accumulators + zeros).astype(np.float32) * factor + offset
        return np.rint(np.clip(numbers, -(2.0**40), 2.0**40)).astype(np.int64) - output.zero_point

    return Scaling(np.array([factor], np.float64), apply)


def mean_kernel(form: str) -> Kernel:
    """Returns the kernel for one form of requantisation."""
    kind = element(form)
    return Kernel(
        f"mean_{form}",
        f"""\
typedef struct {{
    const int32_t *rows;
    rudel_output output;
    int32_t kept[4], between[4], summed[4], apart[4];
}} rudel_mean_{form}_layer;

static int32_t rudel_total_{form}(const rudel_mean_{form}_layer *p, const {kind} *in)
{{
    const int32_t *n = p->summed, *s = p->apart;
    int32_t total = 0;
    for (int32_t i = 0; i < n[0]; i++) {{
        for (int32_t j = 0; j < n[1]; j++) {{
            for (int32_t k = 0; k < n[2]; k++) {{
                for (int32_t l = 0; l < n[3]; l++) total += in[i * s[0] + j * s[1] + k * s[2] + l * s[3]];
            }}
        }}
    }}
    return total;
}}

static void rudel_mean_{form}(const rudel_mean_{form}_layer *p, const {kind} *in, {kind} *out)
{{
    const int32_t *n = p->kept, *s = p->between;
    for (int32_t i = 0; i < n[0]; i++) {{
        for (int32_t j = 0; j < n[1]; j++) {{
            for (int32_t k = 0; k < n[2]; k++) {{
                for (int32_t l = 0; l < n[3]; l++) {{
                    const {kind} *from = in + i * s[0] + j * s[1] + k * s[2] + l * s[3];
                    *out++ = rudel_{form}(rudel_total_{form}(p, from), p->rows, &p->output);
                }}
            }}
        }}
    }}
}}
""",
        (FORMS[form],),
    )


def lower_mean(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a MEAN of int8 or int16."""
    kept, between, summed, apart, count = reduction(operator, graph)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    quantised_activations(operator, source, output)
    low, high = bounds_of(source)
    require(count < (1 << 22 if source.dtype == "int8" else 1 << 16), operator, f"it is the mean of {count:,} elements")
    bias = np.array([-source.zero_point * count], np.int64)
    rounding = "litert" if source.dtype == "int16" else context.rounding
    scaling = _scaling(rounding, source, output, count)
    if source.dtype == "int16":
        requantisation = twice(scaling, bias, (low, high))
    else:
        reach = (np.array([low * count]) + bias, np.array([high * count]) + bias)
        requantisation = plan(scaling, bias, reach, output.zero_point, (low, high))
    lists = ", ".join("{" + ", ".join(map(str, values)) + "}" for values in (kept, between, summed, apart))
    kernel = mean_kernel(requantisation.form)
    return Step(
        operator,
        f"rudel_{kernel.name}(&$layer, $in0, $out0);",
        (kernel,),
        {"rows": Constant(requantisation.data)},
        {
            "layer": f"static const rudel_{kernel.name}_layer $name = "
            f"{{$rows, {output_fields(requantisation)}, {lists}}};"
        },
        macs=source.size,
    )
