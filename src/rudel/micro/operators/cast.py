"""CAST: numbers of one type as those of another; scales and zero points do not count.

Integers keep their lowest bits, as in C. Reals are cut off towards zero and at the ends of the type; NaN becomes the
greatest integer, or 0 in TensorFlow Lite Micro.
"""

import numpy as np

from rudel.micro.arithmetic import Rounding
from rudel.micro.emit import C_TYPES, Context, Kernel, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.checks import arity, require, same_shape

_TYPES = ("bool", "float32", "int8", "int16", "int32", "uint8")


def lower_cast(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step that converts each element."""
    arity(operator, 1)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    for tensor in (source, output):
        require(tensor.dtype in _TYPES, operator, f"`{tensor.name[:60]}` has type {tensor.dtype}")
    same_shape(source, output, operator)
    kernel = _kernel(source.dtype, output.dtype, context.rounding)
    return Step(operator, f"rudel_{kernel.name}($in0, $out0, {output.size});", (kernel,))


def _kernel(source: str, output: str, rounding: Rounding) -> Kernel:
    name = f"cast_{source}_{output}"
    value = "in[i] != 0" if output == "bool" else f"({C_TYPES[output]})in[i]"
    if source == "float32" and output not in ("bool", "float32"):
        low, high = int(np.iinfo(output).min), int(np.iinfo(output).max)
        least = "INT32_MIN" if output == "int32" else low
        value = f"in[i] < {high + 1}.0f ? (in[i] > {low}.0f ? {value} : {least}) : {high}"
        if rounding == "tflm":
            value = f"in[i] != in[i] ? 0 : {value}"
    return Kernel(
        name,
        f"""\
static void rudel_{name}(const {C_TYPES[source]} *in, {C_TYPES[output]} *out, int32_t count)
{{
    for (int32_t i = 0; i < count; i++) out[i] = {value};
}}
""",
    )
