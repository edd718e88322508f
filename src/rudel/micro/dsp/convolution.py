"""CONV_2D with dual multiplications: windows of two pixels are spread out, and multiplied by all channels."""

from rudel.micro.dsp.columns import SPREAD, packable
from rudel.micro.dsp.instructions import DSP
from rudel.micro.dsp.pairs import (
    PIXELS,
    PIXELS_BANDS,
    pair_lead,
    pairs_kernel,
    pairs_stream,
    pixels_table,
    step_of,
)
from rudel.micro.dsp.scaling import Scaling, TwiceRounded, find_scaling, twice_rounded
from rudel.micro.dsp.strips import strips_step
from rudel.micro.emit import Bands, Constant, Context, Kernel, Overlap, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.depthwise import Depthwise
from rudel.micro.operators.window_sums import Convolution, prepare_convolution

SHIFTS = (12, 8)
"""Tried in this order; a model usually gets along with one, and has then one kernel."""


def channel_scaling(c: Convolution | Depthwise, shifts: tuple[int, ...] = SHIFTS) -> Scaling | TwiceRounded | None:
    """Returns a scaling for all channels of a convolution; None where there is none without further clamping."""
    for shift in shifts:
        scaling = find_scaling(c.requantisation, c.products, shift)
        if scaling is not None:
            return scaling if (scaling.low, scaling.high) == (-128, 127) else None
    return twice_rounded(c.requantisation, c.products)


def lower_convolution(operator: Operator, graph: Graph, context: Context) -> Step | None:
    """Makes a step of a CONV_2D of int8; None where it does not fit these kernels."""
    c = prepare_convolution(operator, graph, context)
    if c.groups > 1 or c.source[0] > 1 or c.output[3] % 2:
        return None
    scaling = channel_scaling(c)
    if scaling is None:
        return None
    if (step := strips_step(operator, c, scaling, _scratch(c))) is not None:
        return step
    if not packable(c.weights):
        return None
    if c.is_pointwise and c.source[3] % 4 == 0:
        return _pointwise(operator, c, scaling)
    return _windows(operator, c, scaling)


def _scratch(c: Convolution) -> int:
    """Returns bytes of scratch memory for the windows of two pixels, and for bytes that are gathered."""
    return _length(c) * (4 if c.source[3] % 4 == 0 else 5)


def _length(c: Convolution) -> int:
    """Returns how many numbers a column has, with zeros that make its length a multiple of a step."""
    length = c.window.height * c.window.width * c.source[3]
    return length + -length % step_of(length)


def _pointwise(operator: Operator, c: Convolution, scaling: Scaling | TwiceRounded) -> Step | None:
    step = step_of(_length(c))
    name = f"{scaling.form}_{step}"
    kernel = Kernel(
        f"pointwise_{name}",
        f"""\
static void rudel_pointwise_{name}(const rudel_pixels *p, const int8_t *in, int8_t *out, int8_t *scratch)
{{
    const int32_t channels = p->channels, depth = p->depth, words = channels >> 2;
    uint32_t *const columns = (uint32_t *)(void *)scratch, *const end = columns + ((channels + 7) & ~7);
    for (int32_t pixels = p->pixels; pixels > 0; pixels -= 2) {{
        int8_t *second = out;
        rudel_spread(in, words, columns);
        in += channels;
        if (pixels > 1) {{
            rudel_spread(in, words, columns + 2);
            in += channels;
            second += depth;
        }}
        rudel_pairs_{name}(columns, end, p->stream, depth, p->offset, out, second);
        out = second + depth;
    }}
}}
""",
        (PIXELS, pairs_kernel(scaling.form, step), SPREAD),
    )
    depth = c.output[3]
    if max(c.source[3], depth) >= 1 << 15:
        return None
    return Step(
        operator,
        f"rudel_pointwise_{name}(&$layer, $in0, $out0, $scratch);",
        (kernel,),
        {"stream": Constant(pairs_stream(c.weights.reshape(depth, -1), scaling))},
        {"layer": pixels_table(c, scaling.offset)},
        scratch=_scratch(c),
        overlap={(0, 0): Overlap(lead=pair_lead(c))},
        macs=c.macs,
        bands=PIXELS_BANDS,
    )


_WINDOW = Kernel(
    "window",
    """\
typedef struct {
    const int32_t *stream;
    int32_t offset;
    int16_t height, width, channels, rows, columns, depth;
    int8_t window_height, window_width, stride_h, stride_w, dilation_h, dilation_w, top, left, zero_point;
} rudel_windows;
""",
)

_WHOLE_WORDS = Kernel(
    "whole_words",
    """\
/* Spreads out the window at (y, x), whose rows are whole words. */
static void rudel_window(const rudel_windows *p, const int8_t *in, int32_t y, int32_t x, int8_t *bytes, uint32_t *to)
{
    const int32_t cell = p->channels >> 2, length = p->window_width * cell;
    const int inside = x >= 0 && x + p->window_width <= p->width && p->dilation_w == 1;
    (void)bytes;
    for (int32_t i = 0; i < p->window_height; i++, y += p->dilation_h) {
        const int within = y >= 0 && y < p->height;
        if (inside && within) {
            to = rudel_spread(in + (y * p->width + x) * p->channels, length, to);
            continue;
        }
        for (int32_t j = 0, at = x; j < p->window_width; j++, at += p->dilation_w) {
            if (within && at >= 0 && at < p->width) {
                to = rudel_spread(in + (y * p->width + at) * p->channels, cell, to);
                continue;
            }
            const uint32_t byte = (uint32_t)p->zero_point & 0xFFu, bytes4 = byte | byte << 8 | byte << 16 | byte << 24;
            const uint32_t odd = rudel_odds(bytes4);
            const uint32_t even = rudel_differences((bytes4 & 0x00FF00FFu) << 8 | 0x007F007Fu, odd);
            for (int32_t k = 0; k < cell; k++, to += 4) {
                to[0] = even;
                to[1] = odd;
            }
        }
    }
}
""",
    (_WINDOW, SPREAD),
)

_PUT = Kernel(
    "put",
    """\
static inline RUDEL_UNUSED int8_t *rudel_put(int8_t *to, const int8_t *from, int32_t bytes)
{
    for (; bytes >= 4; bytes -= 4, from += 4, to += 4) {
        const uint32_t word = rudel_load(from);
        memcpy(to, &word, 4);
    }
    for (; bytes > 0; bytes--) *to++ = *from++;
    return to;
}

static inline RUDEL_UNUSED int8_t *rudel_fill(int8_t *to, int8_t value, int32_t bytes)
{
    for (; bytes > 0; bytes--) *to++ = value;
    return to;
}
""",
    (DSP,),
)

_ROWS_OF_BYTES = Kernel(
    "rows_of_bytes",
    """\
/* Gathers the window at (y, x), whose rows lie in rows of the input, then spreads it out. */
static void rudel_window(const rudel_windows *p, const int8_t *in, int32_t y, int32_t x, int8_t *bytes, uint32_t *to)
{
    const int32_t across = p->window_width, step = p->width * p->channels;
    int32_t before = x < 0 ? -x : 0, after = x + across - p->width;
    before = before > across ? across : before;
    after = after < 0 ? 0 : after > across - before ? across - before : after;
    const int32_t middle = (across - before - after) * p->channels;
    const int8_t *const from = in + (x + before) * p->channels;
    int8_t *at = bytes;
    before *= p->channels;
    after *= p->channels;
    for (int32_t i = 0; i < p->window_height; i++, y += p->dilation_h) {
        if (y < 0 || y >= p->height) {
            at = rudel_fill(at, p->zero_point, before + middle + after);
            continue;
        }
        at = rudel_fill(at, p->zero_point, before);
        at = rudel_put(at, from + y * step, middle);
        at = rudel_fill(at, p->zero_point, after);
    }
    rudel_spread(bytes, (int32_t)(at - bytes + 3) >> 2, to);
}
""",
    (_WINDOW, _PUT, SPREAD),
)

_ANY_BYTES = Kernel(
    "any_bytes",
    """\
/* Gathers the window at (y, x), then spreads it out. */
static void rudel_window(const rudel_windows *p, const int8_t *in, int32_t y, int32_t x, int8_t *bytes, uint32_t *to)
{
    int8_t *at = bytes;
    for (int32_t i = 0; i < p->window_height; i++, y += p->dilation_h) {
        for (int32_t j = 0, column = x; j < p->window_width; j++, column += p->dilation_w) {
            const int within = y >= 0 && y < p->height && column >= 0 && column < p->width;
            const int8_t *const from = within ? in + (y * p->width + column) * p->channels : in;
            for (int32_t k = 0; k < p->channels; k++) *at++ = within ? from[k] : p->zero_point;
        }
    }
    rudel_spread(bytes, (int32_t)(at - bytes + 3) >> 2, to);
}
""",
    (_WINDOW, SPREAD),
)


def _windows(operator: Operator, c: Convolution, scaling: Scaling | TwiceRounded) -> Step | None:
    w, step = c.window, step_of(_length(c))
    name = f"{scaling.form}_{step}"
    _, height, width, channels = c.source
    _, rows, columns, depth = c.output
    small = (w.height, w.width, w.stride_h, w.stride_w, w.dilation_h, w.dilation_w, w.top, w.left)
    if max(height, width, channels, depth) >= 1 << 15 or max(small) >= 1 << 7:
        return None
    kind, gather = ("words", _WHOLE_WORDS)
    if channels % 4:
        kind, gather = ("bytes", _ROWS_OF_BYTES) if w.dilation_w == 1 else ("cells", _ANY_BYTES)
    kernel = Kernel(
        f"windows_{kind}_{name}",
        f"""\
static void rudel_windows_{kind}_{name}(const rudel_windows *p, const int8_t *in, int8_t *out, int8_t *scratch)
{{
    const int32_t length = p->window_height * p->window_width * p->channels;
    uint32_t *const columns = (uint32_t *)(void *)scratch, *const end = columns + ((length + 7) & ~7);
    const int32_t depth = p->depth, pixels = p->rows * p->columns;
    int32_t y = -p->top, x = -p->left, column = p->columns;
    for (int32_t pixel = 0; pixel < pixels; pixel++) {{
        rudel_window_{kind}(p, in, y, x, (int8_t *)end, columns + ((pixel & 1) << 1));
        x += p->stride_w;
        if (--column == 0) {{
            column = p->columns;
            x = -p->left;
            y += p->stride_h;
        }}
        if (pixel & 1 || pixel == pixels - 1) {{
            int8_t *const second = pixel & 1 ? out + depth : out;
            rudel_pairs_{name}(columns, end, p->stream, depth, p->offset, out, second);
            out = second + depth;
        }}
    }}
}}
""",
        (
            pairs_kernel(scaling.form, step),
            Kernel(f"window_{kind}", gather.text.replace("rudel_window(", f"rudel_window_{kind}("), gather.needs),
        ),
    )
    fields = (
        f"{{$stream, {scaling.offset}, {height}, {width}, {channels}, {rows}, {columns}, {depth}, {w.height}, "
        f"{w.width}, {w.stride_h}, {w.stride_w}, {w.dilation_h}, {w.dilation_w}, {w.top}, {w.left}, {c.zero_point}}}"
    )
    return Step(
        operator,
        f"rudel_windows_{kind}_{name}(&$layer, $in0, $out0, $scratch);",
        (kernel,),
        {"stream": Constant(pairs_stream(c.weights.reshape(depth, -1), scaling))},
        {"layer": f"static const rudel_windows $name = {fields};"},
        scratch=_scratch(c),
        overlap={(0, 0): Overlap(lead=pair_lead(c))},
        macs=c.macs,
        bands=Bands("rudel_windows", top="int8_t"),
    )
