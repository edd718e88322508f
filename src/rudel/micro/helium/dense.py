"""FULLY_CONNECTED by vectors: four outputs at a time."""

from rudel.micro.emit import Constant, Context, Kernel, Overlap, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.helium.outputs import SCALING, outputs_kernel, vector_scaling
from rudel.micro.helium.products import BLOCK, ONE_COLUMN
from rudel.micro.operators.window_sums import prepare_convolution


def lower_dense(operator: Operator, graph: Graph, context: Context) -> Step | None:
    """Makes a step of a FULLY_CONNECTED of int8; None where it does not fit this kernel."""
    c = prepare_convolution(operator, graph, context)
    scaling = vector_scaling(c.requantisation, c.products)
    if scaling is None:
        return None
    form, batch, length, depth = scaling.form, c.source[2], c.source[3], c.output[3]
    call = f"rudel_vector_dense_{form}(&$layer, $in0, $out0);"
    if batch > 1:
        call = (
            f"for (int32_t i = 0; i < {batch}; i++) "
            f"rudel_vector_dense_{form}(&$layer, $in0 + i * {length}, $out0 + i * {depth});"
        )
    return Step(
        operator,
        call,
        (_kernel(form),),
        {"weights": Constant(c.weights), "parameters": Constant(scaling.parameters())},
        {"layer": f"static const rudel_vector_dense $name = {{{scaling.fields}, $weights, {length}, {depth}}};"},
        overlap={(0, 0): Overlap()},
        macs=c.macs,
    )


_TYPE = Kernel(
    "vector_dense",
    """\
typedef struct {
    rudel_vector_scaling scaling;
    const int8_t *weights;
    int32_t length, depth;
} rudel_vector_dense;
""",
    (SCALING,),
)


def _kernel(form: str) -> Kernel:
    outputs = outputs_kernel(form)
    return Kernel(
        f"vector_dense_{form}",
        f"""\
static void rudel_vector_dense_{form}(const rudel_vector_dense *p, const int8_t *in, int8_t *out)
{{
    int32_t sums[{BLOCK} + 3];
    const int8_t *weights = p->weights;
    const int32_t *at = p->scaling.parameters;
    for (int32_t left = p->depth; left > 0; left -= {BLOCK}, out += {BLOCK}) {{
        const int32_t rows = left < {BLOCK} ? left : {BLOCK};
        rudel_vector_one_column(in, p->length, weights, rows, sums);
        at = rudel_vector_outputs_{form}(sums, at, rows, &p->scaling, out);
        weights += rows * p->length;
    }}
}}
""",
        (outputs, ONE_COLUMN, _TYPE),
    )
