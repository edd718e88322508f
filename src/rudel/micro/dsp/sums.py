"""ADD and SUB of two tensors of one shape, four outputs at a time: two multiplications and a shift that saturates."""

from rudel.micro.dsp.instructions import DSP
from rudel.micro.emit import FORWARD, Context, Kernel, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.binary import Line, sum_of
from rudel.micro.operators.checks import arity, quantised_int8
from rudel.micro.operators.scalings import output_limits


def lower_sum(operator: Operator, graph: Graph, context: Context) -> Step | None:
    """Makes a step of an ADD or a SUB of int8; None where it does not fit this kernel."""
    arity(operator, 2)
    tensors = [graph[index] for index in (*operator.inputs, *operator.outputs)]
    for tensor in tensors:
        quantised_int8(tensor, operator)
    limits = output_limits(operator, tensors[2])
    if any(tensor.shape != tensors[2].shape or tensor.data is not None for tensor in tensors) or limits != (-128, 127):
        return None
    line, _ = sum_of(operator, tensors, limits, context.rounding)
    if not isinstance(line, Line) or line.zero_point:
        return None
    fields = f"{{{line.p}, {line.q}, {line.offset}, {tensors[2].size}}}"
    return Step(
        operator,
        f"rudel_sum_{line.shift}(&$layer, $in0, $in1, $out0);",
        (_kernel(line.shift),),
        tables={"layer": f"static const rudel_sum $name = {fields};"},
        overlap={(0, 0): FORWARD, (1, 0): FORWARD},
        macs=2 * tensors[2].size,
        reads=(0, 1),
    )


_TYPE = Kernel(
    "sum",
    """\
typedef struct {
    int32_t p, q, offset, count;
} rudel_sum;
""",
)


def _kernel(shift: int) -> Kernel:
    return Kernel(
        f"sum_{shift}",
        f"""\
static inline RUDEL_UNUSED int8_t rudel_shifted_{shift}(int32_t value)
{{
#ifdef RUDEL_ASSEMBLY
    __asm__("ssat %0, #8, %0, asr #{shift}" : "+r"(value) : : "cc");
#else
    value >>= {shift};
    value = value < -128 ? -128 : value > 127 ? 127 : value;
#endif
    return (int8_t)value;
}}

static void rudel_sum_{shift}(const rudel_sum *layer, const int8_t *a, const int8_t *b, int8_t *out)
{{
    const int32_t p = layer->p, q = layer->q, offset = layer->offset;
    int32_t left = layer->count;
    for (; left >= 4; left -= 4, a += 4, b += 4, out += 4) {{
        out[0] = rudel_shifted_{shift}(a[0] * p + b[0] * q + offset);
        out[1] = rudel_shifted_{shift}(a[1] * p + b[1] * q + offset);
        out[2] = rudel_shifted_{shift}(a[2] * p + b[2] * q + offset);
        out[3] = rudel_shifted_{shift}(a[3] * p + b[3] * q + offset);
    }}
    for (; left > 0; left--) *out++ = rudel_shifted_{shift}(*a++ * p + *b++ * q + offset);
}}
""",
        (_TYPE, DSP),
    )
