"""CONV_2D by vectors: the windows of two pixels are gathered, and multiplied by all channels."""

from rudel.micro.dsp.pairs import pair_lead
from rudel.micro.emit import Bands, Constant, Context, Kernel, Overlap, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.helium.instructions import MOVE
from rudel.micro.helium.outputs import SCALING, outputs_kernel, vector_scaling
from rudel.micro.helium.products import BLOCK, VECTOR, columns_kernel, ready_weights
from rudel.micro.operators.window_sums import prepare_convolution


def lower_convolution(operator: Operator, graph: Graph, context: Context) -> Step | None:
    """Makes a step of a CONV_2D of int8; None where it does not fit this kernel."""
    c = prepare_convolution(operator, graph, context)
    w = c.window
    small = (w.height, w.width, w.stride_h, w.stride_w, w.dilation_h, w.dilation_w, w.top, w.left)
    if c.groups > 1 or c.source[0] > 1 or max(*small, *c.source, *c.output) >= 1 << 15:
        return None
    scaling = vector_scaling(c.requantisation, c.products)
    if scaling is None:
        return None
    length = w.height * w.width * c.source[3]
    kernel = _kernel(-(-length // VECTOR), scaling.form)
    fields = (
        f"{{{scaling.fields}, $weights, {', '.join(map(str, c.source[1:]))}, {', '.join(map(str, c.output[1:]))}, "
        f"{', '.join(map(str, small))}, {c.zero_point}}}"
    )
    return Step(
        operator,
        f"rudel_{kernel.name}(&$layer, $in0, $out0, $scratch);",
        (kernel,),
        {
            "weights": Constant(ready_weights(c.weights.reshape(c.output[3], length))),
            "parameters": Constant(scaling.parameters()),
        },
        {"layer": f"static const rudel_vector_windows $name = {fields};"},
        scratch=2 * length,
        overlap={(0, 0): Overlap(lead=pair_lead(c))},
        macs=c.macs,
        bands=Bands("rudel_vector_windows", in_place=c.is_pointwise),
    )


_GATHER = Kernel(
    "vector_windows",
    """\
typedef struct {
    rudel_vector_scaling scaling;
    const int8_t *weights;
    int16_t height, width, channels, rows, columns, depth;
    int16_t window_height, window_width, stride_h, stride_w, dilation_h, dilation_w, top, left, zero_point;
} rudel_vector_windows;

/* How many of some elements, `step` apart from `start` on, lie before `limit`. */
static int32_t rudel_vector_before(int32_t start, int32_t step, int32_t count, int32_t limit)
{
    const int32_t found = start >= limit ? 0 : (limit - start + step - 1) / step;
    return found < count ? found : count;
}

/* Gathers the window at (y, x), with zero points beyond the borders. */
static void rudel_vector_gather(const rudel_vector_windows *p, const int8_t *in, int32_t y, int32_t x, int8_t *to)
{
    const int32_t channels = p->channels, across = p->window_width * channels;
    const int32_t down = p->dilation_h * p->width * channels;
    const int32_t high = (p->window_height - 1) * p->dilation_h + 1, wide = (p->window_width - 1) * p->dilation_w + 1;
    if (p->dilation_w == 1 && y >= 0 && x >= 0 && y + high <= p->height && x + wide <= p->width) {
        rudel_vector_copy(to, across, in + (y * p->width + x) * channels, down, across, p->window_height);
        return;
    }
    const int32_t above = rudel_vector_before(y, p->dilation_h, p->window_height, 0);
    const int32_t rows = rudel_vector_before(y, p->dilation_h, p->window_height, p->height) - above;
    const int32_t before = rudel_vector_before(x, p->dilation_w, p->window_width, 0);
    const int32_t after = rudel_vector_before(x, p->dilation_w, p->window_width, p->width);
    rudel_vector_fill(to, p->zero_point, p->window_height * across);
    if (rows <= 0 || after <= before) return;
    const int32_t piece = p->dilation_w == 1 ? after - before : 1;
    in += ((y + above * p->dilation_h) * p->width + x) * channels;
    to += above * across;
    for (int32_t j = before; j < after; j += piece) {
        rudel_vector_copy(to + j * channels, across, in + j * p->dilation_w * channels, down, piece * channels, rows);
    }
}
""",
    (SCALING, MOVE),
)


def _kernel(vectors: int, form: str) -> Kernel:
    columns = columns_kernel(vectors)
    name = f"vector_windows_{form}_of_{columns.name.removeprefix('vector_')}"
    return Kernel(
        name,
        f"""\
static void rudel_{name}(const rudel_vector_windows *p, const int8_t *in, int8_t *out, int8_t *scratch)
{{
    const int32_t length = p->window_height * p->window_width * p->channels, depth = p->depth, columns = p->columns;
    const int pointwise = p->window_height * p->window_width == 1 && p->stride_h == 1 && p->stride_w == 1 &&
                          p->rows == p->height && p->columns == p->width;
    int32_t sums[2 * {BLOCK}], y = -p->top, x = -p->left, column = columns;
    for (int32_t pixels = p->rows * columns; pixels > 0; pixels -= 2) {{
        const int32_t here = pixels < 2 ? 1 : 2;
        if (pointwise) {{
            rudel_vector_copy(scratch, 0, in, 0, here * length, 1);
            in += 2 * length;
        }} else {{
            for (int32_t i = 0; i < here; i++) {{
                rudel_vector_gather(p, in, y, x, scratch + i * length);
                x += p->stride_w;
                if (--column == 0) {{
                    column = columns;
                    x = -p->left;
                    y += p->stride_h;
                }}
            }}
        }}
        const int8_t *const second = here == 2 ? scratch + length : scratch, *weights = p->weights;
        const int32_t *at = p->scaling.parameters;
        int8_t *to = out;
        for (int32_t left = depth; left > 0; left -= {BLOCK}, to += {BLOCK}) {{
            const int32_t rows = left < {BLOCK} ? left : {BLOCK};
            rudel_{columns.name}(scratch, second, length, weights, rows, sums);
            if (here == 2) rudel_vector_outputs_{form}(sums + {BLOCK}, at, rows, &p->scaling, to + depth);
            at = rudel_vector_outputs_{form}(sums, at, rows, &p->scaling, to);
            weights += rows * length;
        }}
        out += 2 * depth;
    }}
}}
""",
        (outputs_kernel(form), columns, _GATHER),
    )
