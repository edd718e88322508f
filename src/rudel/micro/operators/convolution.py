"""CONV_2D, FULLY_CONNECTED and TRANSPOSE_CONV of int8 and int16: dot products over windows.

A window that lies within the input is a few rows of contiguous bytes, which are multiplied where they are; others are
gathered into scratch memory first, padded with the input's zero point. So one function computes all dot products.
"""

import numpy as np

from rudel.micro.emit import Bands, Constant, Context, Kernel, Overlap, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.outputs import FORMS, element, output_fields, row_length
from rudel.micro.operators.window_sums import Convolution, prepare_convolution, reaches_out

DENSE = Kernel(
    "dense_type",
    """\
typedef struct {
    const int8_t *weights;
    const int32_t *rows;
    int32_t depth;
    rudel_output output;
} rudel_dense;
""",
    (FORMS["line"].needs[0],),
)


def dots(form: str, wide: bool = False) -> Kernel:
    """Returns the kernel of dot products: windows of some rows against all channels, four at a time."""
    skip = row_length(form, "d->output")
    if form == "table":
        skip = f"({skip})"
    name, kind, sums = named("dots", form, wide), element(form), "int64_t" if wide else "int32_t"
    return Kernel(
        name,
        f"""\
static void rudel_{name}(const rudel_dense *d, const {kind} *window, int32_t rows, int32_t length, int32_t step,
                              {kind} *out)
{{
    const int8_t *w = d->weights;
    const int32_t *q = d->rows;
    const int32_t size = rows * length, skip = {skip};
    int32_t left = d->depth;
    for (; left >= 4; left -= 4) {{
        {sums} a = 0, b = 0, c = 0, e = 0;
        const {kind} *x = window;
        for (int32_t row = 0; row < rows; row++, x += step - length) {{
            for (int32_t i = 0; i < length; i++, w++) {{
                const int32_t v = *x++;
                a += v * w[0];
                b += v * w[size];
                c += v * w[2 * size];
                e += v * w[3 * size];
            }}
        }}
        w += 3 * size;
        *out++ = rudel_{form}(a, q, &d->output), q += skip;
        *out++ = rudel_{form}(b, q, &d->output), q += skip;
        *out++ = rudel_{form}(c, q, &d->output), q += skip;
        *out++ = rudel_{form}(e, q, &d->output), q += skip;
    }}
    for (; left > 0; left--) {{
        {sums} a = 0;
        const {kind} *x = window;
        for (int32_t row = 0; row < rows; row++, x += step - length) {{
            for (int32_t i = 0; i < length; i++) a += (int32_t)*x++ * *w++;
        }}
        *out++ = rudel_{form}(a, q, &d->output), q += skip;
    }}
}}
""",
        (FORMS[form], DENSE),
    )


def named(base: str, form: str, wide: bool) -> str:
    """Returns the name of a kernel for a form of requantisation, and sums of 64 bits where it is `wide`."""
    return f"{base}_{form}_wide" if wide else f"{base}_{form}"


CONVOLUTION = Kernel(
    "convolution_type",
    """\
typedef struct {
    rudel_dense dense;
    int32_t batch, height, width, channels, rows, columns;
    int32_t window_height, window_width, stride_h, stride_w, dilation_h, dilation_w, top, left, groups, zero_point;
} rudel_convolution;
""",
    (DENSE,),
)


def _gather(kind: str) -> Kernel:
    """Returns the kernel that copies a window, padded, for elements of a C type."""
    name, copy = "gather", "for (int32_t k = 0; k < channels; k++) *out++ = within ? from[k] : (int8_t)p->zero_point;"
    if kind == "int16_t":  # whose zero point is 0
        name, copy = "gather_int16", "memcpy(out, from, 2u * (uint32_t)channels);\n            out += channels;"
        copy = "if (!within) memset(out, 0, 2u * (uint32_t)channels);\n            else " + copy
    return Kernel(
        name,
        f"""\
static void rudel_{name}(const rudel_convolution *p, const {kind} *in, int32_t y, int32_t x, int32_t channels,
                         {kind} *out)
{{
    for (int32_t i = 0; i < p->window_height; i++) {{
        const int32_t row = y + i * p->dilation_h;
        for (int32_t j = 0; j < p->window_width; j++) {{
            const int32_t column = x + j * p->dilation_w;
            const int within = row >= 0 && row < p->height && column >= 0 && column < p->width;
            const {kind} *from = within ? in + (row * p->width + column) * p->channels : in;
            {copy}
        }}
    }}
}}
""",
        (CONVOLUTION,),
    )


def convolution_kernel(form: str, wide: bool = False, dot: Kernel | None = None) -> Kernel:
    """Returns the kernel of CONV_2D for one form of requantisation.

    Args:
        form: of requantisation.
        wide: whether sums have 64 bits.
        dot: a kernel of dot products that wants windows by their rows, gathered ones, too; by default `dots`.
    """
    kind = element(form)
    name = f"convolution_{dot.name}" if dot else named("convolution", form, wide)
    gathered = "p->window_height, length, length" if dot else "1, p->window_height * length, 0"
    dot, gather = dot or dots(form, wide), _gather(kind)
    return Kernel(
        name,
        f"""\
static void rudel_{name}(const rudel_convolution *p, const {kind} *in, {kind} *out, {kind} *scratch)
{{
    const int32_t high = (p->window_height - 1) * p->dilation_h + 1, wide = (p->window_width - 1) * p->dilation_w + 1;
    const int32_t channels = p->channels / p->groups, length = p->window_width * channels;
    const int32_t direct = p->groups == 1 && (p->dilation_w == 1 || p->window_width == 1);
    rudel_dense dense = p->dense;
    const int32_t row_length = {row_length(form, "dense.output")};
    for (int32_t n = 0; n < p->batch; n++, in += p->height * p->width * p->channels) {{
        for (int32_t row = 0; row < p->rows; row++) {{
            const int32_t y = row * p->stride_h - p->top;
            for (int32_t column = 0; column < p->columns; column++) {{
                const int32_t x = column * p->stride_w - p->left;
                if (direct && y >= 0 && x >= 0 && y + high <= p->height && x + wide <= p->width) {{
                    const int32_t step = p->dilation_h * p->width * channels;
                    rudel_{dot.name}(&dense, in + (y * p->width + x) * channels, p->window_height, length, step, out);
                    out += dense.depth;
                    continue;
                }}
                for (int32_t group = 0; group < p->groups; group++) {{
                    rudel_{gather.name}(p, in + group * channels, y, x, channels, scratch);
                    rudel_{dot.name}(&dense, scratch, {gathered}, out);
                    out += dense.depth;
                    dense.weights += dense.depth * p->window_height * length;
                    dense.rows += dense.depth * row_length;
                }}
                dense = p->dense;
            }}
        }}
    }}
}}
""",
        (dot, gather),
    )


def lower_convolution(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a CONV_2D of int8 or int16."""
    c = prepare_convolution(operator, graph, context)
    return convolution_step(operator, c, convolution_kernel(c.requantisation.form, c.wide), c.weights)


def convolution_step(operator: Operator, c: Convolution, kernel: Kernel, weights: np.ndarray) -> Step:
    """Makes a step of a CONV_2D by a kernel.

    Args:
        operator: the CONV_2D.
        c: the same, prepared.
        kernel: one of `convolution_kernel`.
        weights: int8, in the kernel's order.
    """
    w = c.window
    per_group = c.weights.shape[0] // c.groups
    gathers = c.groups > 1 or (w.dilation_w > 1 and w.width > 1) or reaches_out(c.source, c.output, w)
    batch, height, width, channels = c.source
    fields = (
        f"{{{{$weights, $rows, {per_group}, {output_fields(c.requantisation)}}}, {batch}, {height}, {width}, "
        f"{channels}, {c.output[1]}, {c.output[2]}, {w.height}, {w.width}, {w.stride_h}, {w.stride_w}, {w.dilation_h}, "
        f"{w.dilation_w}, {w.top}, {w.left}, {c.groups}, {c.zero_point}}}"
    )
    scratch = "$scratch" if c.item == 1 else "(int16_t *)(void *)($scratch)"
    return Step(
        operator,
        f"rudel_{kernel.name}(&$layer, $in0, $out0, {scratch});",
        (kernel,),
        {"weights": Constant(weights), "rows": Constant(c.requantisation.data)},
        {"layer": f"static const rudel_convolution $name = {fields};"},
        scratch=c.item * int(np.prod(c.weights.shape[1:])) if gathers else 0,
        overlap={(0, 0): Overlap(lead=c.lead)},
        macs=c.macs,
        bands=Bands("rudel_convolution") if c.item == 1 else None,
    )


def lower_dense(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a FULLY_CONNECTED of int8 or int16."""
    c = prepare_convolution(operator, graph, context)
    return dense_step(operator, c, dots(c.requantisation.form, c.wide), c.weights)


def dense_step(operator: Operator, c: Convolution, kernel: Kernel, weights: np.ndarray) -> Step:
    """Makes a step of a FULLY_CONNECTED by a kernel of dot products; the arguments are those of `convolution_step`."""
    batch, length, depth = c.source[2], c.source[3], c.output[3]
    fields = f"{{$weights, $rows, {depth}, {output_fields(c.requantisation)}}}"
    call = f"rudel_{kernel.name}(&$layer, $in0, 1, {length}, 0, $out0);"
    if batch > 1:
        call = (
            f"for (int32_t i = 0; i < {batch}; i++) "
            f"rudel_{kernel.name}(&$layer, $in0 + i * {length}, 1, {length}, 0, $out0 + i * {depth});"
        )
    return Step(
        operator,
        call,
        (kernel,),
        {"weights": Constant(weights), "rows": Constant(c.requantisation.data)},
        {"layer": f"static const rudel_dense $name = {fields};"},
        overlap={(0, 0): Overlap(lead=c.lead)},
        macs=c.macs,
    )
