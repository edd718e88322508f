"""ADD and SUB of two tensors of the same shape by vectors, four elements at a time."""

from rudel.micro.dsp.instructions import naked
from rudel.micro.emit import FORWARD, Context, Kernel, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.helium.instructions import HELIUM
from rudel.micro.operators.binary import Line, sum_of
from rudel.micro.operators.checks import arity, quantised_int8
from rudel.micro.operators.scalings import output_limits


def lower_sum(operator: Operator, graph: Graph, context: Context) -> Step | None:
    """Makes a step of an ADD or SUB of int8; None where it does not fit these kernels."""
    tensors = [graph[index] for index in (*operator.inputs, *operator.outputs)]
    if len({tensor.shape for tensor in tensors}) > 1 or any(tensor.data is not None for tensor in tensors):
        return None
    arity(operator, 2)
    for tensor in tensors:
        quantised_int8(tensor, operator)
    limits = output_limits(operator, tensors[2])
    found, _ = sum_of(operator, tensors, limits, context.rounding)
    size = tensors[2].size
    if isinstance(found, Line):
        kernel = _LINE
        numbers = (size, found.p, found.q, found.offset, -found.shift, found.zero_point, *limits)
    else:
        exponents = found.first[1], found.second[1], found.result[1]
        if max(*exponents[:2], exponents[2] + 1) > 0 or min(exponents) < -31:
            return None
        kernel = _exact(exponents[0] < 0, exponents[1] < 0, found.sign)
        zero_points = [tensor.zero_point for tensor in tensors]
        pairs = (*found.first, *found.second, *found.result)
        numbers = (size, -zero_points[0], -zero_points[1], *pairs, zero_points[2], *limits)
    return Step(
        operator,
        f"rudel_{kernel.name}($layer, $in0, $in1, $out0);",
        (kernel,),
        tables={"layer": f"static const int32_t $name[{len(numbers)}] = {{{', '.join(map(str, numbers))}}};"},
        overlap={(0, 0): FORWARD, (1, 0): FORWARD},
        macs=size * 2,
        reads=(0, 1),
    )


def _kernel(name: str, comment: str, body: str, plain: str) -> Kernel:
    return Kernel(
        name,
        f"""\
/* {comment} */
#ifdef RUDEL_VECTORS
static RUDEL_OPAQUE void rudel_{name}(const int32_t *p RUDEL_UNREAD, const int8_t *a RUDEL_UNREAD,
                                      const int8_t *b RUDEL_UNREAD, int8_t *out RUDEL_UNREAD)
{{
    __asm__(
{naked(body)}
    );
}}
#else
{plain}#endif
""",
        (HELIUM,),
    )


_LINE = _kernel(
    "vector_sum",
    "Sums on a line: number of elements, both factors, offset, shift, zero point, least and greatest output.",
    """
    push {r4, r5, r6, r7, r8, r9, r10, r11, r12, lr}
    ldm r0, {r4, r5, r6, r7, r8, r9, r10, r11}
    vdup.32 q2, r10
    vdup.32 q3, r11
    wlstp.32 lr, r4, 2f
    1:
    vldrb.s32 q0, [r1], #4
    vmul.i32 q0, q0, r5
    vldrb.s32 q1, [r2], #4
    vmla.s32 q0, q1, r6
    vadd.i32 q0, q0, r7
    vshl.s32 q0, r8
    vadd.i32 q0, q0, r9
    vmax.s32 q0, q0, q2
    vmin.s32 q0, q0, q3
    vstrb.32 q0, [r3], #4
    letp lr, 1b
    2:
    pop {r4, r5, r6, r7, r8, r9, r10, r11, r12, pc}
    """,
    """\
static void rudel_vector_sum(const int32_t *p, const int8_t *a, const int8_t *b, int8_t *out)
{
    for (int32_t left = p[0]; left > 0; left--) {
        const int32_t value = ((*a++ * p[1] + *b++ * p[2] + p[3]) >> -p[4]) + p[5];
        *out++ = (int8_t)(value < p[6] ? p[6] : value > p[7] ? p[7] : value);
    }
}
""",
)


def _exact(first: bool, second: bool, sign: int) -> Kernel:
    """Returns the kernel that takes the interpreter's steps one by one.

    Args:
        first: whether the first input is shifted after its multiplication.
        second: likewise.
        sign: of the second input.
    """

    def scaled(lanes: str, multiplier: str, exponent: str, shifted: bool) -> str:
        shift = f"""
    vshr.s32 q2, {lanes}, #31
    vadd.i32 {lanes}, {lanes}, q2
    vrshl.s32 {lanes}, {exponent}"""
        return f"""
    vqrdmulh.s32 {lanes}, {lanes}, {multiplier}{shift if shifted else ""}"""

    kind = "".join("_shifted" if is_shifted else "_whole" for is_shifted in (first, second))
    name = f"vector_{'sum' if sign > 0 else 'difference'}_exactly{kind}"
    return _kernel(
        name,
        "Sums in the interpreter's own steps: number of elements, both zero points negated, multiplier and exponent\n"
        " * of both inputs and of the sum, zero point, least and greatest output.",
        f"""
    push {{r4, r5, r6, r7, r8, r9, r10, r11, r12, lr}}
    vpush {{d8, d9}}
    ldrd r4, r5, [r0, #40]
    vdup.32 q3, r4
    vdup.32 q4, r5
    ldr lr, [r0]
    adds r0, r0, #4
    ldm r0, {{r4, r5, r6, r7, r8, r9, r10, r11, r12}}
    wlstp.32 lr, lr, 2f
    1:
    vldrb.s32 q0, [r1], #4
    vldrb.s32 q1, [r2], #4
    vadd.i32 q0, q0, r4
    vadd.i32 q1, q1, r5
    vshl.i32 q0, q0, #20
    vshl.i32 q1, q1, #20{scaled("q0", "r6", "r7", first)}{scaled("q1", "r8", "r9", second)}
    {"vadd" if sign > 0 else "vsub"}.i32 q0, q0, q1{scaled("q0", "r10", "r11", True)}
    vadd.i32 q0, q0, r12
    vmax.s32 q0, q0, q3
    vmin.s32 q0, q0, q4
    vstrb.32 q0, [r3], #4
    letp lr, 1b
    2:
    vpop {{d8, d9}}
    pop {{r4, r5, r6, r7, r8, r9, r10, r11, r12, pc}}
    """,
        f"""\
static int32_t rudel_{name}_scaled(int32_t x, int32_t multiplier, int32_t exponent)
{{
    const int64_t high = ((int64_t)x * multiplier + (1 << 30)) >> 31;
    return exponent ? (int32_t)((high + ((int64_t)1 << (-exponent - 1)) - (high < 0)) >> -exponent) : (int32_t)high;
}}

static void rudel_{name}(const int32_t *p, const int8_t *a, const int8_t *b, int8_t *out)
{{
    for (int32_t left = p[0]; left > 0; left--) {{
        const int32_t x = rudel_{name}_scaled((*a++ + p[1]) * (1 << 20), p[3], p[4]);
        const int32_t y = rudel_{name}_scaled((*b++ + p[2]) * (1 << 20), p[5], p[6]);
        const int32_t value = rudel_{name}_scaled(x {"+" if sign > 0 else "-"} y, p[7], p[8]) + p[9];
        *out++ = (int8_t)(value < p[10] ? p[10] : value > p[11] ? p[11] : value);
    }}
}}
""",
    )
