"""DEPTHWISE_CONV_2D with windows of any size, stride and dilation: four channels at a time, pixel by pixel.

A word has a byte of each of four channels, of the input as of the weights; spread into 16-bit numbers, two channels
each, their products are four multiplications of halves. A window that lies within the input is read where it is: its
elements are at the same distances from its first one for every pixel. Others are gathered into scratch memory first,
with zero points beyond the borders.

Limits: channels by the four, one example.
"""

import numpy as np

from rudel.micro.dsp.instructions import DSP, naked, scale_kernel, scaled
from rudel.micro.dsp.pairs import words
from rudel.micro.dsp.scaling import Scaling, TwiceRounded
from rudel.micro.emit import Bands, Constant, Kernel, Overlap, Step
from rudel.micro.graph import Operator
from rudel.micro.operators.depthwise import Depthwise
from rudel.micro.operators.window_sums import reaches_out


def windows_step(operator: Operator, d: Depthwise, scaling: Scaling | TwiceRounded) -> Step | None:
    """Makes a step of a DEPTHWISE_CONV_2D of int8; None where it does not fit this kernel."""
    w, form = d.window, scaling.form
    _, height, width, channels = d.source
    _, rows, columns, _ = d.output
    small = (w.height, w.width, w.stride_h, w.stride_w, w.dilation_h, w.dilation_w, w.top, w.left)
    if channels % 4 or max(*small, *d.output) >= 1 << 15:
        return None
    taps = w.height * w.width
    down, across = np.arange(w.height) * w.dilation_h, np.arange(w.width) * w.dilation_w
    within = ((down[:, None] * width + across) * channels).ravel()
    fields = (
        f"{{$weights, $stream, $within, $gathered, {scaling.offset}, {height}, {width}, {channels}, {rows}, {columns}, "
        f"{w.height}, {w.width}, {w.stride_h}, {w.stride_w}, {w.dilation_h}, {w.dilation_w}, {w.top}, {w.left}, "
        f"{d.zero_point}}}"
    )
    quads = d.weights.reshape(taps, -1, 4).transpose(1, 0, 2)
    return Step(
        operator,
        f"rudel_depthwise_windows_{form}(&$layer, $in0, $out0, $scratch);",
        (_kernel(form),),
        {
            "weights": Constant(np.ascontiguousarray(quads), alignment=4),
            "stream": Constant(words(np.concatenate([scaling.bias[None], scaling.after]).T)),
            "within": Constant(within.astype(np.int32)),
            "gathered": Constant((np.arange(taps) * channels).astype(np.int32)),
        },
        {"layer": f"static const rudel_depthwise_windows $name = {fields};"},
        scratch=taps * channels if reaches_out(d.source, d.output, w) else 0,
        overlap={(0, 0): Overlap(lead=d.lead)},
        macs=d.macs,
        bands=Bands("rudel_depthwise_windows"),
    )


_TYPE = Kernel(
    "depthwise_windows",
    """\
typedef struct {
    const int8_t *weights;
    const int32_t *stream, *within, *gathered;
    int32_t offset;
    int16_t height, width, channels, rows, columns;
    int16_t window_height, window_width, stride_h, stride_w, dilation_h, dilation_w, top, left, zero_point;
} rudel_depthwise_windows;

/* Gathers the window at (y, x). */
static void rudel_depthwise_gather(const rudel_depthwise_windows *p, const int8_t *in, int32_t y, int32_t x, int8_t *to)
{
    for (int32_t i = 0; i < p->window_height; i++, y += p->dilation_h) {
        for (int32_t j = 0, at = x; j < p->window_width; j++, at += p->dilation_w, to += p->channels) {
            if (y >= 0 && y < p->height && at >= 0 && at < p->width) {
                memcpy(to, in + (y * p->width + at) * p->channels, (size_t)p->channels);
            } else {
                memset(to, p->zero_point, (size_t)p->channels);
            }
        }
    }
}
""",
    (DSP,),
)


def _body(form: str) -> str:
    outputs = "".join(
        f"""
    ldrd r10, r11, [r2], #8
    add {sum_}, r10, {sum_}, lsl #8
    {scaled(form, ((sum_, "r11", "r8"),), "lr", ("r9", "r10"))}"""
        for sum_ in ("r4", "r5", "r6", "r7")
    )
    return naked(f"""
    push {{r1, r2, r4, r5, r6, r7, r8, r9, r10, r11, lr}}
    ldr lr, [sp, #56]
    1:
    movs r4, #0
    movs r5, #0
    movs r6, #0
    movs r7, #0
    2:
    ldr r12, [r1], #4
    ldr r8, [r3], #4
    ldr r9, [r0, r12]
    sxtb16 r10, r8
    sxtb16 r11, r9
    smlabb r4, r10, r11, r4
    smlatt r6, r10, r11, r6
    sxtb16 r10, r8, ror #8
    sxtb16 r11, r9, ror #8
    smlabb r5, r10, r11, r5
    smlatt r7, r10, r11, r7
    cmp r1, r2
    bne 2b
    ldrd r2, r8, [sp, #44]
    {outputs}
    ldr r9, [sp, #52]
    add r0, r0, #4
    strd r2, r8, [sp, #44]
    ldrd r1, r2, [sp]
    cmp r8, r9
    bne 1b
    pop {{r1, r2, r4, r5, r6, r7, r8, r9, r10, r11, pc}}
    """)


def _kernel(form: str) -> Kernel:
    last = ", stream[2]" if form == "twice" else ""
    scale = f"rudel_scale_{'rounded_twice' if form == 'twice' else form}"
    return Kernel(
        f"depthwise_windows_{form}",
        f"""\
/* All channels of a pixel. The table has, for each element of the window, how far it is from the first; the stream has
 * bias, multiplier{" and shift" if form == "twice" else ""} of each channel. */
#ifdef RUDEL_ASSEMBLY
static RUDEL_NAKED void rudel_quads_{form}(
    const int8_t *in RUDEL_UNUSED, const int32_t *table RUDEL_UNUSED, const int32_t *table_end RUDEL_UNUSED,
    const int8_t *weights RUDEL_UNUSED, const int32_t *stream RUDEL_UNUSED, int8_t *out RUDEL_UNUSED,
    int8_t *out_end RUDEL_UNUSED, int32_t offset RUDEL_UNUSED)
{{
    __asm__(
{_body(form)}
    );
}}
#else
static void rudel_quads_{form}(const int8_t *in, const int32_t *table, const int32_t *table_end, const int8_t *weights,
                             const int32_t *stream, int8_t *out, int8_t *out_end, int32_t offset)
{{
    for (; out != out_end; in += 4) {{
        int32_t sums[4] = {{0, 0, 0, 0}};
        for (const int32_t *at = table; at != table_end; at++, weights += 4) {{
            for (int32_t i = 0; i < 4; i++) sums[i] += in[*at + i] * weights[i];
        }}
        for (int32_t i = 0; i < 4; i++, stream += {3 if form == "twice" else 2}) {{
            const uint32_t sum = ((uint32_t)sums[i] << 8) + (uint32_t)stream[0];
            *out++ = {scale}(sum, stream[1], offset{last});
        }}
    }}
}}
#endif

static void rudel_depthwise_windows_{form}(const rudel_depthwise_windows *p, const int8_t *in, int8_t *out,
                                         int8_t *scratch)
{{
    const int32_t channels = p->channels, taps = p->window_height * p->window_width;
    const int32_t high = (p->window_height - 1) * p->dilation_h + 1, wide = (p->window_width - 1) * p->dilation_w + 1;
    int32_t y = -p->top;
    for (int32_t row = p->rows; row > 0; row--, y += p->stride_h) {{
        int32_t x = -p->left;
        for (int32_t column = p->columns; column > 0; column--, x += p->stride_w, out += channels) {{
            const int8_t *from = scratch;
            const int32_t *table = p->gathered;
            if (y >= 0 && x >= 0 && y + high <= p->height && x + wide <= p->width) {{
                from = in + (y * p->width + x) * channels;
                table = p->within;
            }} else {{
                rudel_depthwise_gather(p, in, y, x, scratch);
            }}
            rudel_quads_{form}(from, table, table + taps, p->weights, p->stream, out, out + channels, p->offset);
        }}
    }}
}}
""",
        (_TYPE, scale_kernel(form)),
    )
