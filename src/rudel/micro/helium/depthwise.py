"""DEPTHWISE_CONV_2D by vectors: sixteen channels at a time, pixel by pixel.

Products of bytes have 16 bits (VMULLB, VMULLT), and those of some elements of the window are added up with 16 bits, as
many as cannot overflow with the weights that there are; then 32 bits take over. An element beyond the border is read
from a row of zero points.

Limits: channels by the four, one example, no more than 32 elements.
"""

import numpy as np

from rudel.micro.dsp.instructions import naked
from rudel.micro.emit import Bands, Constant, Context, Kernel, Overlap, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.helium.instructions import MOVE
from rudel.micro.helium.outputs import LANES, NUMBERS, SCALED, SCALING, scaled_kernel, vector_scaling
from rudel.micro.operators.depthwise import prepare_depthwise
from rudel.micro.operators.window_sums import reaches_out

_BLOCK = 16
_MOST = 32
_ORDER = (0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15)
"""The channels of a block as their sums lie in four vectors: widening takes even and odd places apart, twice."""


def lower_depthwise(operator: Operator, graph: Graph, context: Context) -> Step | None:
    """Makes a step of a DEPTHWISE_CONV_2D of int8; None where it does not fit this kernel."""
    d = prepare_depthwise(operator, graph, context)
    w, channels = d.window, d.source[3]
    taps = w.height * w.width
    small = (w.height, w.width, w.stride_h, w.stride_w, w.dilation_h, w.dilation_w, w.top, w.left)
    if d.source[0] > 1 or channels % 4 or max(*small, *d.source, *d.output) >= 1 << 15:
        return None
    scaling = vector_scaling(d.requantisation, d.products)
    if scaling is None or taps > _MOST:
        return None
    weights = d.weights.reshape(taps, channels)
    kernel = (taps, _together(weights), scaling.form)
    name = "_".join(map(str, kernel))
    fields = (
        f"{{{scaling.fields}, $weights, {', '.join(map(str, d.source[1:]))}, {d.output[1]}, {d.output[2]}, "
        f"{_BLOCK // channels if w.stride_w == 1 and _BLOCK % channels == 0 else 1}, {', '.join(map(str, small))}, "
        f"{d.zero_point}}}"
    )
    return Step(
        operator,
        f"rudel_vector_depthwise_{name}(&$layer, $in0, $out0, $scratch);",
        (_kernel(*kernel),),
        {"weights": Constant(_blocks(weights)), "parameters": Constant(scaling.parameters(_ORDER))},
        {"layer": f"static const rudel_vector_depthwise $name = {fields};"},
        scratch=channels if reaches_out(d.source, d.output, w) else 0,
        overlap={(0, 0): Overlap(lead=d.lead)},
        macs=d.macs,
        bands=Bands("rudel_vector_depthwise"),
    )


def _together(weights: np.ndarray) -> int:
    """Returns how many products in a row are added up with 16 bits; weights: int8 (taps, channels)."""
    wide = weights.astype(np.int64)
    least, most = np.minimum(wide * 127, wide * -128), np.maximum(wide * 127, wide * -128)
    found = 1
    for count in (2, 3, 4):
        starts = np.arange(0, len(wide), count)
        low, high = (np.add.reduceat(side, starts, axis=0) for side in (least, most))
        if low.min() >= -(1 << 15) and high.max() < 1 << 15:
            found = count
    return found


def _blocks(weights: np.ndarray) -> np.ndarray:
    """Returns weights by blocks of channels, the first repeated after the last: int8 (blocks, taps, 16)."""
    taps, channels = weights.shape
    whole = np.pad(weights, [(0, 0), (0, -channels % _BLOCK)], mode="wrap")
    return np.ascontiguousarray(whole.reshape(taps, -1, _BLOCK).transpose(1, 0, 2))


_TYPE = Kernel(
    "vector_depthwise",
    """\
typedef struct {
    rudel_vector_scaling scaling;
    const int8_t *weights;
    int16_t height, width, channels, rows, columns, folded;
    int16_t window_height, window_width, stride_h, stride_w, dilation_h, dilation_w, top, left, zero_point;
} rudel_vector_depthwise;

/* Puts the places of a window's elements: those of the one at (y, x), or `beyond` where they lie beyond the border. */
static void rudel_vector_places(const rudel_vector_depthwise *p, const int8_t *in, int32_t y, int32_t x,
                                const int8_t *beyond, const int8_t **places)
{
    const int32_t down = p->dilation_h * p->width * p->channels, across = p->dilation_w * p->channels;
    int32_t from = (y * p->width + x) * p->channels;
    for (int32_t i = p->window_height; i > 0; i--, y += p->dilation_h, from += down) {
        int32_t place = from, at = x;
        const int within = y >= 0 && y < p->height;
        for (int32_t j = p->window_width; j > 0; j--, at += p->dilation_w, place += across) {
            *places++ = within && at >= 0 && at < p->width ? in + place : beyond;
        }
    }
}
""",
    (SCALING, MOVE),
)

_FIRST = """
    vldrb.8 q0, [{place}]
    vldrb.8 q1, [r2], #16
    vmullb.s8 q2, q0, q1
    vmullt.s8 q3, q0, q1"""

_LATER = """
    vldrb.8 q1, [r2]
    vldrb.8 q0, [{place}]
    vmullb.s8 q1, q0, q1
    vadd.i16 q2, q2, q1
    vldrb.8 q1, [r2], #16
    vmullt.s8 q1, q0, q1
    vadd.i16 q3, q3, q1"""

_BEGUN = """
    vmovlb.s16 q4, q2
    vmovlt.s16 q5, q2
    vmovlb.s16 q6, q3
    vmovlt.s16 q7, q3"""

_WIDENED = """
    vmovlb.s16 q0, q2
    vmovlt.s16 q1, q2
    vadd.i32 q4, q4, q0
    vmovlb.s16 q0, q3
    vadd.i32 q5, q5, q1
    vmovlt.s16 q1, q3
    vadd.i32 q6, q6, q0
    vadd.i32 q7, q7, q1"""


def _sums(taps: int, together: int) -> str:
    """Returns assembly of the sums of sixteen channels."""
    lines = "\n    mov r9, r0"
    for tap in range(taps):
        if tap % 2 == 0:
            lines += "\n    ldrd r8, r10, [r9], #8\n    add r10, r10, r3" if tap + 1 < taps else "\n    ldr r8, [r9]"
            lines += "\n    add r8, r8, r3"
        lines += (_LATER if tap % together else _FIRST).format(place="r10" if tap % 2 else "r8")
        if tap + 1 == taps or (tap + 1) % together == 0:
            lines += _BEGUN if tap < together else _WIDENED
    return lines


def _body(taps: int, together: int, form: str) -> str:
    outputs = "".join(
        SCALED[form].format(free="q0", sums=sums, parameters="r4", unit="r11", add="r6", shift="r7")
        + f"\n    vqmovn{half}.s32 {narrow}, q0"
        for sums, half, narrow in (("q4", "b", "q2"), ("q5", "t", "q2"), ("q6", "b", "q3"), ("q7", "t", "q3"))
    )
    return naked(f"""
    push {{r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, lr}}
    vpush {{d8, d9, d10, d11, d12, d13, d14, d15}}
    ldr r12, [sp, #112]
    ldr r5, [sp, #120]
    ldr r6, [r12, #4]
    ldr r7, [r12, #8]
    mov r11, #256
    1:
    ldr r8, [sp, #68]
    ldr r2, [sp, #116]
    ldr r4, [r12]
    mov r3, r1
    wlstp.8 lr, r8, 3f
    2:{_sums(taps, together)}
    {outputs}
    ldrd r8, r10, [r12, #12]
    vqmovnb.s16 q2, q2
    vqmovnt.s16 q2, q3
    vdup.8 q0, r8
    vdup.8 q1, r10
    vmax.s8 q2, q2, q0
    vmin.s8 q2, q2, q1
    vstrb.8 q2, [r5], #16
    add r3, r3, #16
    letp lr, 2b
    3:
    ldr r8, [sp, #64]
    ldrd r9, r10, [sp, #120]
    add r1, r1, r8
    ldr r8, [sp, #68]
    add r5, r9, r8
    subs r10, r10, #1
    strd r5, r10, [sp, #120]
    bne 1b
    vpop {{d8, d9, d10, d11, d12, d13, d14, d15}}
    pop {{r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, pc}}
    """)


def _kernel(taps: int, together: int, form: str) -> Kernel:
    name = f"{taps}_{together}_{form}"
    numbers = LANES * NUMBERS[form]
    return Kernel(
        f"vector_depthwise_{name}",
        f"""\
/* Some pixels of a row, `step` bytes apart: the elements of the first's window are at `at` from the places. There are
 * `lanes` channels, or twice as many of two pixels together. */
#ifdef RUDEL_VECTORS
static RUDEL_OPAQUE void rudel_vector_pixels_{name}(
    const int8_t *const *places RUDEL_UNREAD, int32_t at RUDEL_UNREAD, int32_t step RUDEL_UNREAD,
    int32_t lanes RUDEL_UNREAD, const rudel_vector_scaling *s RUDEL_UNREAD, const int8_t *weights RUDEL_UNREAD,
    int8_t *out RUDEL_UNREAD, int32_t pixels RUDEL_UNREAD)
{{
    __asm__(
{_body(taps, together, form)}
    );
}}
#else
static void rudel_vector_pixels_{name}(const int8_t *const *places, int32_t at, int32_t step, int32_t lanes,
                             const rudel_vector_scaling *s, const int8_t *weights, int8_t *out, int32_t pixels)
{{
    for (; pixels > 0; pixels--, at += step) {{
        for (int32_t k = 0; k < lanes; k++) {{
            const int32_t block = k >> 4, lane = k & {_BLOCK - 1}, vector = (lane & 1) << 1 | (lane & 2) >> 1;
            const int32_t *const parameters = s->parameters + (block << 2 | vector) * {numbers} + (lane >> 2);
            const int8_t *weight = weights + block * {taps * _BLOCK} + lane;
            int32_t sum = 0;
            for (int32_t i = 0; i < {taps}; i++, weight += {_BLOCK}) sum += places[i][at + k] * *weight;
            *out++ = rudel_vector_scaled_{form}(sum, parameters, s);
        }}
    }}
}}
#endif

static void rudel_vector_depthwise_{name}(const rudel_vector_depthwise *p, const int8_t *in, int8_t *out,
                                          int8_t *scratch)
{{
    const int32_t channels = p->channels, step = p->stride_w * channels, folded = p->folded;
    const int32_t high = (p->window_height - 1) * p->dilation_h + 1, wide = (p->window_width - 1) * p->dilation_w + 1;
    const int32_t room = p->width - wide + p->left, inner = (p->left + p->stride_w - 1) / p->stride_w;
    int32_t outer = room < 0 ? 0 : room / p->stride_w + 1;
    const int8_t *inside[{taps}], *border[{taps}];
    outer = outer > p->columns ? p->columns : outer;
    for (int32_t i = 0, y = 0; y < p->window_height; y++) {{
        for (int32_t x = 0; x < p->window_width; x++, i++) {{
            inside[i] = in + (y * p->dilation_h * p->width + x * p->dilation_w) * channels;
        }}
    }}
    for (int32_t row = 0, y = -p->top; row < p->rows; row++, y += p->stride_h) {{
        const int within = y >= 0 && y + high <= p->height;
        for (int32_t column = 0; column < p->columns;) {{
            const int32_t x = column * p->stride_w - p->left, at = (y * p->width + x) * channels;
            const int8_t *const *places = inside;
            int32_t pixels = 1, together = 1;
            if (within && column >= inner && column < outer) {{
                together = column + folded <= outer ? folded : 1;
                pixels = (outer - column) / together;
            }} else {{
                rudel_vector_fill(scratch, p->zero_point, channels);
                rudel_vector_places(p, in, y, x, scratch, border);
                places = border;
            }}
            rudel_vector_pixels_{name}(places, places == border ? 0 : at, together * step, together * channels,
                                       &p->scaling, p->weights, out, pixels);
            column += pixels * together;
            out += pixels * together * channels;
        }}
    }}
}}
""",
        (scaled_kernel(form), _TYPE),
    )
