"""Operators of one int8 input that treat each element alike: a table of 256 outputs, made when the model is
compiled."""

import numpy as np

from rudel.micro.emit import FORWARD, Constant, Context, Kernel, Step
from rudel.micro.graph import Graph, Operator

LOOKUP = Kernel(
    "lookup",
    """\
static void rudel_lookup(const int8_t *table, const int8_t *in, int8_t *out, int32_t count)
{
    for (int32_t i = 0; i < count; i++) out[i] = table[in[i] + 128];
}
""",
)


def lookup_step(operator: Operator, graph: Graph, table: np.ndarray) -> Step:
    """Makes a step that looks elements up; table: int8 (256), its first entry for -128."""
    return Step(
        operator,
        f"rudel_lookup($table, $in0, $out0, {graph[operator.outputs[0]].size});",
        (LOOKUP,),
        {"table": Constant(table.astype(np.int8))},
        overlap={(0, 0): FORWARD},
    )


def lower_lookup(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a LOOKUP, which passes make of other operators; its option `table` is int8 (256)."""
    return lookup_step(operator, graph, operator.options["table"])
