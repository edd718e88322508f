"""DEPTHWISE_CONV_2D of int8 and int16 with one output channel for each input channel."""

from dataclasses import dataclass

import numpy as np

from rudel.micro.emit import Bands, Constant, Context, Kernel, Overlap, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.checks import constant, require
from rudel.micro.operators.convolution import named
from rudel.micro.operators.outputs import FORMS, OUTPUT, element, output_fields, row_length
from rudel.micro.operators.scalings import convolution_scaling
from rudel.micro.operators.window_sums import WindowSums, sums_of, tensors_of, weight_scales, window_of


@dataclass(frozen=True, kw_only=True)
class Depthwise(WindowSums):
    """A depthwise convolution, of as many output as input channels; its weights are (height, width, channels)."""

    @property
    def macs(self) -> int:
        """Multiplications and additions, padding counted in."""
        return int(np.prod(self.output)) * self.window.height * self.window.width


def prepare_depthwise(operator: Operator, graph: Graph, context: Context) -> Depthwise:
    """Checks a DEPTHWISE_CONV_2D of int8 or int16 and computes what its C needs.

    Raises:
        CompileError: shapes, types or options that do not fit.
    """
    source, kernel, output = tensors_of(operator, graph)
    weights = constant(operator, graph, 1, "weights")
    require(
        weights.dtype == np.int8 and weights.ndim == 4 and weights.shape[0] == 1,
        operator,
        "its weights are not int8, 1hwc",
    )
    channels = source.shape[3]
    require(
        weights.shape[3] == channels == output.shape[3] and source.shape[0] == output.shape[0],
        operator,
        f"weights {list(weights.shape)} do not fit input {list(source.shape)} and output {list(output.shape)}",
    )
    window = window_of(operator, source.shape, output.shape, weights.shape[1:3])
    scales = weight_scales(operator, kernel, channels, axis=3)
    return Depthwise(
        source=(source.shape[0], source.shape[1], source.shape[2], channels),
        output=(output.shape[0], output.shape[1], output.shape[2], channels),
        window=window,
        weights=weights[0],
        **sums_of(operator, graph, context, weights.reshape(-1, channels).T, scales, convolution_scaling),
    )


_TYPE = Kernel(
    "depthwise_type",
    """\
typedef struct {
    const int8_t *weights;
    const int32_t *rows;
    rudel_output output;
    int32_t batch, height, width, channels, rows_out, columns_out;
    int32_t window_height, window_width, stride_h, stride_w, dilation_h, dilation_w, top, left, zero_point;
} rudel_depthwise;
""",
    (OUTPUT,),
)


def depthwise_kernel(form: str, wide: bool = False) -> Kernel:
    """Returns the kernel for one form of requantisation."""
    name, kind, sums = named("depthwise", form, wide), element(form), "int64_t" if wide else "int32_t"
    return Kernel(
        name,
        f"""\
static void rudel_{name}(const rudel_depthwise *p, const {kind} *in, {kind} *out)
{{
    const int32_t channels = p->channels, skip = {row_length(form, "p->output")};
    const int32_t across = p->dilation_w * channels, down = p->dilation_h * p->width * channels;
    for (int32_t n = 0; n < p->batch; n++, in += p->height * p->width * channels) {{
        for (int32_t row = 0; row < p->rows_out; row++) {{
            const int32_t y = row * p->stride_h - p->top;
            for (int32_t column = 0; column < p->columns_out; column++) {{
                const int32_t x = column * p->stride_w - p->left;
                const int32_t *q = p->rows;
                for (int32_t c = 0; c < channels; c += 4) {{
                    const int32_t count = channels - c < 4 ? channels - c : 4;
                    {sums} sums[4] = {{0, 0, 0, 0}};
                    const int8_t *w = p->weights + c;
                    const int32_t start = (y * p->width + x) * channels + c;
                    for (int32_t i = 0, at_row = y; i < p->window_height; i++, at_row += p->dilation_h) {{
                        const int out_of_rows = at_row < 0 || at_row >= p->height;
                        for (int32_t j = 0, at = x; j < p->window_width; j++, at += p->dilation_w, w += channels) {{
                            if (out_of_rows || at < 0 || at >= p->width) {{
                                for (int32_t k = 0; k < count; k++) sums[k] += p->zero_point * w[k];
                            }} else {{
                                const {kind} *v = in + start + i * down + j * across;
                                if (count == 4) {{
                                    sums[0] += (int32_t)v[0] * w[0];
                                    sums[1] += (int32_t)v[1] * w[1];
                                    sums[2] += (int32_t)v[2] * w[2];
                                    sums[3] += (int32_t)v[3] * w[3];
                                }} else {{
                                    for (int32_t k = 0; k < count; k++) sums[k] += (int32_t)v[k] * w[k];
                                }}
                            }}
                        }}
                    }}
                    for (int32_t k = 0; k < count; k++, q += skip) *out++ = rudel_{form}(sums[k], q, &p->output);
                }}
            }}
        }}
    }}
}}
""",
        (FORMS[form], _TYPE),
    )


def lower_depthwise(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a DEPTHWISE_CONV_2D of int8 or int16."""
    d = prepare_depthwise(operator, graph, context)
    w, form = d.window, d.requantisation.form
    batch, height, width, channels = d.source
    fields = (
        f"{{$weights, $rows, {output_fields(d.requantisation)}, {batch}, {height}, {width}, {channels}, {d.output[1]}, "
        f"{d.output[2]}, {w.height}, {w.width}, {w.stride_h}, {w.stride_w}, {w.dilation_h}, {w.dilation_w}, {w.top}, "
        f"{w.left}, {d.zero_point}}}"
    )
    kernel = depthwise_kernel(form, d.wide)
    return Step(
        operator,
        f"rudel_{kernel.name}(&$layer, $in0, $out0);",
        (kernel,),
        {"weights": Constant(d.weights), "rows": Constant(d.requantisation.data)},
        {"layer": f"static const rudel_depthwise $name = {fields};"},
        overlap={(0, 0): Overlap(lead=d.lead)},
        macs=d.macs,
        bands=None if d.item == 2 else Bands("rudel_depthwise", rows="rows_out"),
    )
