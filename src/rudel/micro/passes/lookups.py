"""Activations that stand alone: made tables, joined with each other, and joined with what comes before them.

An operator of one int8 is a table of 256 outputs. A table after a table is one table. A table that changes nothing
but cuts off at the ends becomes the limits of the operator before it, and costs nothing.
"""

import numpy as np

from rudel.micro.emit import Context
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.checks import quantised_int8, scales_checked
from rudel.micro.operators.unary import OF_REALS, table_of_reals, unary_table
from rudel.micro.passes.unused import drop_unused

_UNARY = (
    "RELU",
    "RELU6",
    "RELU_N1_TO_1",
    "LEAKY_RELU",
    "GELU",
    "HARD_SWISH",
    "LOGISTIC",
    "TANH",
    "RSQRT",
    "QUANTIZE",
)
_LIMITED = (
    "ADD",
    "AVERAGE_POOL_2D",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "FULLY_CONNECTED",
    "MAX_POOL_2D",
    "MUL",
    "SUB",
    "TRANSPOSE_CONV",
)
_EVERY = np.arange(-128, 128)


def tabulate(graph: Graph, context: Context) -> Graph:
    """Returns a graph in which operators of one int8 are LOOKUPs with the option `table`, int8 (256)."""
    operators: list[Operator] = []
    for operator in graph.operators:
        if (found := _between_reals(operator, graph, context)) is not None:
            operators.append(found)  # what comes before it is unused now
        elif operator.kind in _UNARY and _is_int8(operator, graph):
            with scales_checked(operator):
                table = unary_table(operator, graph, context.rounding)
            options = {"table": table, "of": operator.kind}
            operators.append(
                Operator(operator.index, "LOOKUP", operator.version, operator.inputs, operator.outputs, options)
            )
        else:
            operators.append(operator)
    return drop_unused(graph.replace(operators=operators))


def _between_reals(operator: Operator, graph: Graph, context: Context) -> Operator | None:
    """Returns the LOOKUP for a QUANTIZE after an operator of one float32 after a DEQUANTIZE; None for all else."""
    if operator.kind != "QUANTIZE" or (middle := graph.producer(operator.inputs[0])) is None:
        return None
    if middle.kind not in OF_REALS or (first := graph.producer(middle.inputs[0])) is None:
        return None
    source, output = graph[first.inputs[0]], graph[operator.outputs[0]]
    if first.kind != "DEQUANTIZE" or not source.dtype == output.dtype == "int8":
        return None
    quantised_int8(source, first)
    quantised_int8(output, operator)
    table = table_of_reals(middle.kind, source, output, context.rounding)
    options = {"table": table, "of": middle.kind}
    return Operator(middle.index, "LOOKUP", middle.version, first.inputs, operator.outputs, options)


def join_lookups(graph: Graph) -> Graph:
    """Returns a graph in which no LOOKUP follows a LOOKUP that nothing else reads, and none is a mere clamp of its
    input."""
    while True:
        joined = next((new for operator in graph.operators if (new := _joined(operator, graph)) is not None), None)
        if joined is None:
            return graph
        graph = joined


def _is_int8(operator: Operator, graph: Graph) -> bool:
    tensors = [graph[index] for index in (*operator.inputs, *operator.outputs) if index >= 0]
    return len(tensors) == 2 and all(tensor.dtype == "int8" for tensor in tensors)


def _joined(operator: Operator, graph: Graph) -> Graph | None:
    """Returns a graph with one LOOKUP less, or None."""
    if operator.kind != "LOOKUP":
        return None
    source, output = operator.inputs[0], operator.outputs[0]
    before = graph.producer(source)
    if before is None or source in graph.outputs or len(graph.consumers(source)) != 1:
        return None
    table = operator.options["table"]
    if before.kind == "LOOKUP":
        both = table[before.options["table"].astype(np.int64) + 128]
        new = Operator(
            before.index, "LOOKUP", before.version, before.inputs, (output,), {**before.options, "table": both}
        )
    elif before.kind in _LIMITED and _same_quantisation(graph, source, output):
        low, high = int(table.min()), int(table.max())
        if low > high or not (table == np.clip(_EVERY, low, high)).all():
            return None
        known = before.options.get("limits", (-128, 127))
        # A clamp of a clamp is a clamp with the limits clamped.
        limits = (min(max(known[0], low), high), max(min(known[1], high), low))
        new = Operator(
            before.index, before.kind, before.version, before.inputs, (output,), {**before.options, "limits": limits}
        )
    else:
        return None
    return graph.replace(operators=[new if one is before else one for one in graph.operators if one is not operator])


def _same_quantisation(graph: Graph, first: int, second: int) -> bool:
    a, b = graph[first], graph[second]
    return (
        a.dtype == b.dtype == "int8"
        and a.quantised
        and b.quantised
        and (a.scale, a.zero_point) == (b.scale, b.zero_point)
    )
