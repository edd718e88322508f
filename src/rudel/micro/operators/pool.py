"""AVERAGE_POOL_2D and MAX_POOL_2D of int8 and int16: input and output have one quantisation, so zero points do not
matter."""

import numpy as np

from rudel.micro.emit import Bands, Context, Kernel, Overlap, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.checks import arity, quantised_activations, require
from rudel.micro.operators.scalings import output_limits
from rudel.micro.operators.window_sums import Window, window_lead, window_of

_TYPE = Kernel(
    "pool_type",
    """\
typedef struct {
    int32_t batch, height, width, channels, rows, columns;
    int32_t window_height, window_width, stride_h, stride_w, top, left, low, high;
} rudel_pool;
""",
)

_LOOP = """\
static void rudel_{name}(const rudel_pool *p, const {kind} *in, {kind} *out)
{{
    for (int32_t n = 0; n < p->batch; n++, in += p->height * p->width * p->channels) {{
        for (int32_t row = 0; row < p->rows; row++) {{
            const int32_t y = row * p->stride_h - p->top, y0 = y < 0 ? 0 : y;
            const int32_t y1 = y + p->window_height > p->height ? p->height : y + p->window_height;
            for (int32_t column = 0; column < p->columns; column++) {{
                const int32_t x = column * p->stride_w - p->left, x0 = x < 0 ? 0 : x;
                const int32_t x1 = x + p->window_width > p->width ? p->width : x + p->window_width;
{count}                for (int32_t c = 0; c < p->channels; c++) {{
                    int32_t value = {start};
                    for (int32_t i = y0; i < y1; i++) {{
                        const {kind} *v = in + (i * p->width + x0) * p->channels + c;
                        for (int32_t j = x0; j < x1; j++, v += p->channels) {take};
                    }}
{finish}                    value = value < p->low ? p->low : value;
                    *out++ = ({kind})(value > p->high ? p->high : value);
                }}
            }}
        }}
    }}
}}
"""


def _average(name: str, kind: str) -> Kernel:
    text = _LOOP.format(
        name=name,
        kind=kind,
        count="                const int32_t count = (y1 - y0) * (x1 - x0);\n",
        start="0",
        take="value += *v",
        finish="                    value = (value > 0 ? value + count / 2 : value - count / 2) / count;\n",
    )
    return Kernel(name, text, (_TYPE,))


def _most(name: str, kind: str, least: int) -> Kernel:
    take = "value = *v > value ? *v : value"
    return Kernel(name, _LOOP.format(name=name, kind=kind, count="", start=least, take=take, finish=""), (_TYPE,))


_KERNELS = {
    ("AVERAGE_POOL_2D", "int8"): _average("average_pool", "int8_t"),
    ("AVERAGE_POOL_2D", "int16"): _average("average_pool_int16", "int16_t"),
    ("MAX_POOL_2D", "int8"): _most("max_pool", "int8_t", -128),
    ("MAX_POOL_2D", "int16"): _most("max_pool_int16", "int16_t", -32768),
}


def pool_window(operator: Operator, graph: Graph) -> Window:
    """Checks the tensors and options of a pool of either type, and returns how its windows lie."""
    arity(operator, 1)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    for tensor in (source, output):
        require(
            len(tensor.shape) == 4, operator, f"the shape {list(tensor.shape)} is not batch, height, width, channels"
        )
    size = (int(operator.options["filter_h"]), int(operator.options["filter_w"]))
    require(
        source.shape[0] == output.shape[0] and source.shape[3] == output.shape[3],
        operator,
        f"input {list(source.shape)} and output {list(output.shape)} do not fit",
    )
    return window_of(operator, source.shape, output.shape, size)


def lower_pool(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a pool of int8 or int16."""
    w = pool_window(operator, graph)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    quantised_activations(operator, source, output)
    require(
        abs(source.scale - output.scale) <= 1e-6 and source.zero_point == output.zero_point,
        operator,
        "its input and output are quantised differently",
    )
    low, high = output_limits(operator, output)
    require(w.height * w.width < 1 << 15, operator, f"its window has {w.height * w.width:,} elements")
    kernel = _KERNELS[operator.kind, source.dtype]
    batch, height, width, channels = source.shape
    fields = (
        f"{{{batch}, {height}, {width}, {channels}, {output.shape[1]}, {output.shape[2]}, {w.height}, {w.width}, "
        f"{w.stride_h}, {w.stride_w}, {w.top}, {w.left}, {low}, {high}}}"
    )
    return Step(
        operator,
        f"rudel_{kernel.name}(&$layer, $in0, $out0);",
        (kernel,),
        tables={"layer": f"static const rudel_pool $name = {fields};"},
        overlap={(0, 0): Overlap(lead=window_lead(source.shape, output.shape, w, np.dtype(source.dtype).itemsize))},
        macs=output.size * w.height * w.width,
        bands=Bands("rudel_pool") if source.dtype == "int8" else None,
    )
