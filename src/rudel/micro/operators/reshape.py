"""RESHAPE, SQUEEZE and EXPAND_DIMS: the same bytes under another shape."""

from rudel.micro.emit import FORWARD, Constant, Context, Kernel, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.checks import arity, require

COPY = Kernel(
    "copy",
    """\
static void rudel_copy(const void *from, void *to, uint32_t bytes)
{
    if (from != to) memmove(to, from, bytes);
}
""",
)


def lower_reshape(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step that copies, and nothing where input and output lie at one place."""
    arity(operator, 1, 2)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    require(
        source.size == output.size and source.dtype == output.dtype,
        operator,
        f"{source.dtype} {list(source.shape)} does not become {output.dtype} {list(output.shape)}",
    )
    return Step(
        operator,
        f"rudel_copy($in0, $out0, {source.bytes}u);",
        (COPY,),
        {} if source.data is None else {"in0": Constant(source.data)},
        overlap={(0, 0): FORWARD},
        alias=True,
    )
