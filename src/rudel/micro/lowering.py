"""From operators to steps: which function makes the step of which operator on which target."""

from dataclasses import replace

from rudel.errors import CompileError
from rudel.micro.emit import Constant, Context, Lowering, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.binary import lower_binary
from rudel.micro.operators.convolution import lower_convolution, lower_dense
from rudel.micro.operators.depthwise import lower_depthwise
from rudel.micro.operators.floats import FLOATS, lower_dequantise
from rudel.micro.operators.lookup import lower_lookup
from rudel.micro.operators.lstm import lower_lstm, lower_lstm_float
from rudel.micro.operators.mean import lower_mean
from rudel.micro.operators.movement import (
    lower_concatenation,
    lower_pad,
    lower_resize_nearest,
    lower_strided_slice,
    lower_transpose,
)
from rudel.micro.operators.patches import KIND, lower_patches
from rudel.micro.operators.pool import lower_pool
from rudel.micro.operators.reshape import lower_reshape
from rudel.micro.operators.softmax import lower_softmax
from rudel.micro.operators.svdf import lower_svdf
from rudel.micro.operators.transposed import lower_transposed
from rudel.micro.operators.unary import lower_unary

GENERIC: dict[str, Lowering] = {
    "ADD": lower_binary,
    "AVERAGE_POOL_2D": lower_pool,
    "CONCATENATION": lower_concatenation,
    "CONV_2D": lower_convolution,
    "DEQUANTIZE": lower_dequantise,
    "DEPTHWISE_CONV_2D": lower_depthwise,
    "EXPAND_DIMS": lower_reshape,
    "FULLY_CONNECTED": lower_dense,
    "HARD_SWISH": lower_unary,
    "LEAKY_RELU": lower_unary,
    "LOGISTIC": lower_unary,
    "LOOKUP": lower_lookup,
    "MAX_POOL_2D": lower_pool,
    "MEAN": lower_mean,
    "MUL": lower_binary,
    "PAD": lower_pad,
    KIND: lambda operator, graph, context: lower_patches(operator, graph, context, lower),
    "QUANTIZE": lower_unary,
    "RELU": lower_unary,
    "RELU6": lower_unary,
    "RELU_N1_TO_1": lower_unary,
    "RESHAPE": lower_reshape,
    "RESIZE_NEAREST_NEIGHBOR": lower_resize_nearest,
    "SOFTMAX": lower_softmax,
    "SQUEEZE": lower_reshape,
    "STRIDED_SLICE": lower_strided_slice,
    "SUB": lower_binary,
    "SVDF": lower_svdf,
    "TANH": lower_unary,
    "TRANSPOSE": lower_transpose,
    "TRANSPOSE_CONV": lower_transposed,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lower_lstm,
}


def lower(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes the step of an operator: with the target's own kernel where there is one, else with plain C.

    Raises:
        CompileError: nobody knows the operator, or what its tensors are.
    """
    for table in _tables(operator, graph, context):
        if operator.kind in table:
            step = table[operator.kind](operator, graph, context)
            if step is not None:
                return _with_constant_inputs(step, graph)
    raise CompileError(
        f"Operator {operator.index} is {operator.kind}, version {operator.version}, which is not supported; "
        f"supported are {', '.join(sorted(kind for kind in GENERIC if kind not in MADE_UP))}."
    )


def _with_constant_inputs(step: Step, graph: Graph) -> Step:
    """Returns a step that has an array for each input that it reads and that is constant."""
    values = {f"in{position}": graph.constant(step.operator.inputs[position]) for position in step.reads}
    arrays = {
        name: Constant(value) for name, value in values.items() if value is not None and name not in step.constants
    }
    return replace(step, constants={**arrays, **step.constants}) if arrays else step


MADE_UP = ("LOOKUP", KIND)
"""Kinds that passes make and files do not have."""


def _tables(operator: Operator, graph: Graph, context: Context) -> list[dict[str, Lowering]]:
    """Returns where to look for an operator, the best first."""
    main = 2 if operator.kind == "TRANSPOSE_CONV" else 0
    inputs = operator.inputs[main : main + 1]
    if inputs and inputs[0] >= 0 and graph[inputs[0]].dtype == "float32":
        return [{**FLOATS, "UNIDIRECTIONAL_SEQUENCE_LSTM": lower_lstm_float}, GENERIC]
    if context.target.dsp:
        try:
            from rudel.micro.dsp import LOWERINGS
        except ImportError:
            return [GENERIC]
        return [LOWERINGS, GENERIC]
    return [GENERIC]
