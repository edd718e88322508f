"""TRANSPOSE_CONV of int8 and int16: a convolution over the input with zeros between its rows and columns, gathered
as they are needed."""

import numpy as np

from rudel.micro.emit import Constant, Context, Kernel, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.checks import constant, integers, quantised_activations, require
from rudel.micro.operators.convolution import dots, named
from rudel.micro.operators.int16_sums import exceeds_32_bits, int16_reach, plan_int16
from rudel.micro.operators.outputs import element, output_fields
from rudel.micro.operators.scalings import convolution_scaling, output_limits
from rudel.micro.operators.window_sums import Window, bias_of, sums_reach, weight_scales
from rudel.micro.requantisation import plan


def transposed_window(operator: Operator, graph: Graph) -> Window:
    """Checks shapes and options of a TRANSPOSE_CONV of any type, and returns how the window lies on its output."""
    require(
        len(operator.inputs) in (3, 4) and min(operator.inputs[:3]) >= 0,
        operator,
        f"it has {len(operator.inputs)} inputs",
    )
    source, output = graph[operator.inputs[2]], graph[operator.outputs[0]]
    weights = constant(operator, graph, 1, "weights")
    shape = integers(operator, graph, 0, "output sizes")
    require(
        len(source.shape) == len(output.shape) == weights.ndim == 4, operator, "its tensors do not have 4 dimensions"
    )
    require(list(output.shape) == shape, operator, f"its output is {list(output.shape)}, not {shape}")
    require(
        weights.shape[3] == source.shape[3]
        and weights.shape[0] == output.shape[3]
        and source.shape[0] == output.shape[0],
        operator,
        f"weights {list(weights.shape)} do not fit input {list(source.shape)} and output {list(output.shape)}",
    )
    strides = [int(operator.options["stride_h"]), int(operator.options["stride_w"])]
    require(min(strides) > 0 and min(weights.shape) > 0, operator, "a stride or a size is not positive")
    before = []
    for axis in (0, 1):
        size, step = weights.shape[1 + axis], strides[axis]
        same = operator.options["padding"] == "SAME"
        count = -(-output.shape[1 + axis] // step) if same else (output.shape[1 + axis] + step - size) // step
        require(
            count == source.shape[1 + axis],
            operator,
            f"its input has {source.shape[1 + axis]} rows or columns, not {count}",
        )
        before.append(max((count - 1) * step + size - output.shape[1 + axis], 0) // 2 if same else 0)
    return Window(weights.shape[1], weights.shape[2], strides[0], strides[1], 1, 1, before[0], before[1])


def transposed_kernel(form: str, wide: bool = False) -> Kernel:
    """Returns the kernel for one form of requantisation."""
    name, kind, dot = named("transposed", form, wide), element(form), dots(form, wide)
    return Kernel(
        name,
        f"""\
typedef struct {{
    rudel_dense dense;
    int32_t batch, height, width, channels, rows, columns;
    int32_t window_height, window_width, stride_h, stride_w, top, left, zero_point;
}} rudel_{name}_layer;

static void rudel_{name}(const rudel_{name}_layer *p, const {kind} *in, {kind} *out,
                                    {kind} *scratch)
{{
    const int32_t length = p->window_height * p->window_width * p->channels;
    for (int32_t n = 0; n < p->batch; n++, in += p->height * p->width * p->channels) {{
        for (int32_t at = 0; at < p->rows * p->columns; at++, out += p->dense.depth) {{
            {kind} *place = scratch;
            for (int32_t i = 0; i < p->window_height; i++) {{
                const int32_t y = at / p->columns + p->top - i, row = y / p->stride_h;
                for (int32_t j = 0; j < p->window_width; j++) {{
                    const int32_t x = at % p->columns + p->left - j, column = x / p->stride_w;
                    const int within = y >= 0 && x >= 0 && row * p->stride_h == y && column * p->stride_w == x &&
                                       row < p->height && column < p->width;
                    const {kind} *from = within ? in + (row * p->width + column) * p->channels : in;
                    for (int32_t k = 0; k < p->channels; k++) *place++ = within ? from[k] : ({kind})p->zero_point;
                }}
            }}
            rudel_{dot.name}(&p->dense, scratch, 1, length, 0, out);
        }}
    }}
}}
""",
        (dot,),
    )


def lower_transposed(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a TRANSPOSE_CONV of int8 or int16."""
    window = transposed_window(operator, graph)
    kernel, source, output = (graph[i] for i in (*operator.inputs[1:3], operator.outputs[0]))
    quantised_activations(operator, source, output)
    weights = constant(operator, graph, 1, "weights")
    require(weights.dtype == np.int8, operator, f"its weights are {kernel.dtype}, not int8")
    depth = weights.shape[0]
    scales = weight_scales(operator, kernel, depth, axis=0)
    flat = weights.reshape(depth, -1).astype(np.int64)
    item, wide = 1, False
    if source.dtype == "int16":
        bias, r = plan_int16(operator, graph, context.rounding, source, scales, 3)
        item, wide = 2, exceeds_32_bits(int16_reach(flat, np.zeros_like(bias)))
    else:
        # XNNPACK does not take those whose windows leave gaps; LiteRT's own kernel, which rounds twice, then does them.
        gaps = window.height < window.stride_h or window.width < window.stride_w
        rounding = "litert" if gaps and operator.options["padding"] == "SAME" else context.rounding
        scaling = convolution_scaling(rounding, source.scale, scales, output.scale)
        bias = bias_of(operator, graph, 3, depth)
        reach = sums_reach(flat, source.zero_point, bias, operator)
        limits = output_limits(operator, output)
        r = plan(scaling, bias - source.zero_point * flat.sum(axis=1), reach, output.zero_point, limits)
    fields = ", ".join(
        str(value)
        for value in (
            *(*source.shape, *output.shape[1:3], window.height, window.width),
            *(window.stride_h, window.stride_w, window.top, window.left, source.zero_point),
        )
    )
    made = transposed_kernel(r.form, wide)
    scratch = "$scratch" if item == 1 else f"({element(r.form)} *)(void *)($scratch)"
    return Step(
        operator,
        f"rudel_{made.name}(&$layer, $in2, $out0, {scratch});",
        (made,),
        {"weights": Constant(weights), "rows": Constant(r.data)},
        {
            "layer": f"static const rudel_{made.name}_layer $name = "
            f"{{{{$weights, $rows, {depth}, {output_fields(r)}}}, {fields}}};"
        },
        scratch=item * flat.shape[1],
        macs=output.size * flat.shape[1],
        reads=(2,),
    )
