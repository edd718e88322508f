"""FULLY_CONNECTED with dual multiplications: four outputs at a time.

Inputs are spread out before, where memory for that makes no arena larger, or as they are read.
"""

import numpy as np

from rudel.micro.dsp.columns import ODD_SHARE, SPREAD, even_sums, packable, packed, padded
from rudel.micro.dsp.convolution import channel_scaling
from rudel.micro.dsp.instructions import DSP, naked, scale_kernel, scaled
from rudel.micro.dsp.pairs import words
from rudel.micro.dsp.scaling import Scaling, TwiceRounded
from rudel.micro.emit import Constant, Context, Kernel, Overlap, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.window_sums import prepare_convolution

_STEP = 8
_ROWS = 4


def lower_dense(operator: Operator, graph: Graph, context: Context) -> Step | None:
    """Makes a step of a FULLY_CONNECTED of int8; None where it does not fit this kernel."""
    c = prepare_convolution(operator, graph, context)
    if c.source[2] > 1 or not packable(c.weights):
        return None
    scaling = channel_scaling(c)
    if scaling is None:
        return None
    form = scaling.form
    channels, depth = c.source[3], c.output[3]
    weights = padded(c.weights.reshape(depth, channels), _STEP)
    length, whole = weights.shape[1], depth - depth % _ROWS
    calls, kernels = [], []
    source, ready = "$in0", whole and length == channels and _has_room(graph, operator, 4 * length)
    if ready:
        calls += [
            f"rudel_spread($in0, {length // 4}, (uint32_t *)(void *)($scratch));",
            f"rudel_dense4_ready_{form}($scratch, $scratch + {4 * length}, $stream, {scaling.offset}, $out0, "
            f"$out0 + {whole});",
        ]
        kernels += [SPREAD, _four(form, ready=True)]
    if length != channels:
        calls.append(f"rudel_copied($in0, {channels}, $scratch);")
        kernels.append(_COPY)
        source = "$scratch"
    at = 0
    if whole and not ready:
        calls.append(
            f"rudel_dense4_{form}({source}, {source} + {length}, $stream, {scaling.offset}, $out0, $out0 + {whole});"
        )
        kernels.append(_four(form, ready=False))
    if whole:
        at = whole * (length // 4 + 1 + len(scaling.after))
    if whole < depth:
        calls.append(
            f"rudel_dense1_{form}({source}, {source} + {length}, $stream + {at}, {scaling.offset}, $out0 + {whole}, "
            f"$out0 + {depth});"
        )
        kernels.append(_one(form))
    return Step(
        operator,
        "\n".join(calls),
        tuple(kernels),
        {"stream": Constant(_stream(weights, scaling))},
        scratch=4 * length if ready else length if length != channels else 0,
        overlap={(0, 0): Overlap()},
        macs=c.macs,
    )


def _has_room(graph: Graph, operator: Operator, scratch: int) -> bool:
    """Returns whether scratch memory for an operator makes no arena larger: another one's tensors take as much."""

    def taken(one: Operator) -> int:
        return sum(graph[i].bytes for i in (*one.inputs, *one.outputs) if i >= 0 and graph[i].data is None)

    return taken(operator) + scratch <= max(taken(one) for one in graph.operators)


def _stream(weights: np.ndarray, scaling: Scaling | TwiceRounded) -> np.ndarray:
    """Returns, for every four outputs and then for each that is left: biases, words of weights by turns, the rest."""
    bias = scaling.bias - ODD_SHARE * even_sums(weights)
    rows = packed(weights).astype(np.int64)
    whole = len(rows) - len(rows) % _ROWS
    parts = []
    for start in [*range(0, whole, _ROWS), *range(whole, len(rows))]:
        block = slice(start, start + (_ROWS if start < whole else 1))
        parts += [bias[block], rows[block].T.ravel(), scaling.after[:, block].ravel()]
    return words(np.concatenate(parts))


_COPY = Kernel(
    "copied",
    """\
static void rudel_copied(const int8_t *from, int32_t bytes, int8_t *to)
{
    do *to++ = *from++;
    while (--bytes);
}
""",
)

_SPREAD_HERE = """
    ldr r11, [r0], #4
    ldmia r2!, {r7, r8, r9, r10}
    sxtb16 r12, r11, ror #8
    and r11, r11, #0x00FF00FF
    orr r11, lr, r11, lsl #8
    ssub16 r11, r11, r12"""
"""Four inputs and sixteen weights; lr is 127 twice."""

_SPREAD_BEFORE = """
    ldrd r11, r12, [r0], #16
    ldmia r2!, {r7, r8, r9, r10}"""
"""The same of inputs that `rudel_spread` has spread out."""

_PRODUCTS = """
    smlad r3, r7, r12, r3
    sxtb16 r7, r7
    smlad r4, r8, r12, r4
    sxtb16 r8, r8
    smlad r5, r9, r12, r5
    sxtb16 r9, r9
    smlad r6, r10, r12, r6
    sxtb16 r10, r10
    smlad r3, r7, r11, r3
    smlad r4, r8, r11, r4
    smlad r5, r9, r11, r5
    smlad r6, r10, r11, r6"""
"""Sixteen products of four inputs."""


def _body(form: str, ready: bool) -> str:
    quad = (_SPREAD_BEFORE if ready else _SPREAD_HERE) + _PRODUCTS
    scale = scaled(form, tuple((f"r{i}", f"r{i + 4}", "r12") for i in (3, 4, 5, 6)), "r11", ("r0", "lr"))
    return naked(f"""
    push {{r0, r3, r4, r5, r6, r7, r8, r9, r10, r11, lr}}
    1:
    ldmia r2!, {{r3, r4, r5, r6}}
    ldr r0, [sp]
    mov lr, #0x007F007F
    2:{quad}{quad}
    cmp r0, r1
    bne 2b
    ldmia r2!, {{r7, r8, r9, r10}}
    ldr r11, [sp, #4]
    ldr r12, [sp, #44]
    {scale}
    ldr r3, [sp, #48]
    str r12, [sp, #44]
    cmp r12, r3
    bne 1b
    pop {{r0, r3, r4, r5, r6, r7, r8, r9, r10, r11, pc}}
    """)


def _plain(name: str, rows: int, form: str, *, ready: bool = False) -> str:
    """Returns the loop in C, for some outputs at a time."""
    scale = f"rudel_scale_{form}(sums[i], *stream, offset)"
    if form == "twice":
        scale = f"rudel_scale_rounded_twice(sums[i], *stream, offset, stream[{rows}])"
    extra = rows if form == "twice" else 0
    step = 16 if ready else 4
    spread = """\
            const uint32_t bytes = rudel_load(x), odd = rudel_odds(bytes);
            const uint32_t even = rudel_differences((bytes & 0x00FF00FFu) << 8 | 0x007F007Fu, odd);
"""
    if ready:
        spread = "            const uint32_t even = rudel_load(x), odd = rudel_load(x + 4);\n"
    return f"""\
static void {name}(const int8_t *in, const int8_t *end, const int32_t *stream, int32_t offset, int8_t *out,
                   int8_t *last)
{{
    do {{
        uint32_t sums[{rows}];
        for (int32_t i = 0; i < {rows}; i++) sums[i] = (uint32_t)*stream++;
        for (const int8_t *x = in; x != end; x += {step}) {{
{spread}            for (int32_t i = 0; i < {rows}; i++, stream++) {{
                sums[i] = rudel_dual(rudel_evens((uint32_t)*stream), even, rudel_dual((uint32_t)*stream, odd, sums[i]));
            }}
        }}
        for (int32_t i = 0; i < {rows}; i++, stream++) *out++ = {scale};
        stream += {extra};
    }} while (out != last);
}}
"""


def _four(form: str, *, ready: bool) -> Kernel:
    name = f"rudel_dense4_ready_{form}" if ready else f"rudel_dense4_{form}"
    return Kernel(
        name.removeprefix("rudel_"),
        f"""\
/* Some outputs, four at a time. The stream has, for every four, their biases, their words of weights by turns, and
 * what their scaling needs. */
#ifdef RUDEL_ASSEMBLY
static RUDEL_NAKED void {name}(
    const int8_t *in RUDEL_UNUSED, const int8_t *end RUDEL_UNUSED, const int32_t *stream RUDEL_UNUSED,
    int32_t offset RUDEL_UNUSED, int8_t *out RUDEL_UNUSED, int8_t *last RUDEL_UNUSED)
{{
    __asm__(
{_body(form, ready)}
    );
}}
#else
{_plain(name, 4, form, ready=ready)}#endif
""",
        (scale_kernel(form), DSP),
    )


def _one(form: str) -> Kernel:
    return Kernel(f"dense1_{form}", _plain(f"rudel_dense1_{form}", 1, form), (scale_kernel(form), DSP))
