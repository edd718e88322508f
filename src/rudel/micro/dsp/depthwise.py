"""DEPTHWISE_CONV_2D with windows of 3 x 3, one channel after the other; others are those of `depthwise_windows`.

Three rows of a channel are kept in scratch memory as 16-bit numbers, so that neighbours are a pair for a dual
multiplication, whatever the number of channels; then the rows move on by the stride. Where the image is higher than
wide and computed at once, its columns are taken as rows: fewer, longer rows are less work. As each input is read before
the output takes its place, and a channel touches only its own elements, the output may lie where the input lies.
"""

from dataclasses import dataclass

import numpy as np

from rudel.micro.dsp.convolution import channel_scaling
from rudel.micro.dsp.depthwise_windows import windows_step
from rudel.micro.dsp.instructions import DSP, naked, scale_kernel
from rudel.micro.dsp.pairs import words
from rudel.micro.dsp.scaling import Scaling
from rudel.micro.emit import Bands, Constant, Context, Kernel, Overlap, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.depthwise import Depthwise, prepare_depthwise
from rudel.micro.operators.window_sums import Window

SHIFTS = (8, 12)


def lower_depthwise(operator: Operator, graph: Graph, context: Context) -> Step | None:
    """Makes a step of a DEPTHWISE_CONV_2D of int8; None where it does not fit these kernels."""
    d = prepare_depthwise(operator, graph, context)
    if d.source[0] != 1 or max(d.source) >= 1 << 15:
        return None
    scaling = channel_scaling(d, SHIFTS)
    if scaling is None:
        return None
    lines = _lines_of(d, context.in_bands)
    w = lines.window
    small = (w.height, w.width, w.dilation_h, w.dilation_w) == (3, 3, 1, 1) and w.stride_w <= 2 and w.stride_h <= 3
    if small and isinstance(scaling, Scaling):
        return _step(operator, d, lines, scaling)
    return windows_step(operator, d, scaling)


def stream(weights: np.ndarray, scaling: Scaling) -> np.ndarray:
    """Returns what the kernel reads for every channel: a word for each row of the window, bias, multiplier.

    The word has weights 0, 1, 1, 2 of the row as bytes: with zeros in every other place they are 256 times the pairs
    (0, 1) and (1, 2) as 16-bit numbers.

    Args:
        weights: int8 (3, 3, channels).
        scaling: of the channels.

    Returns:
        int32 (words).
    """
    quads = weights.astype(np.int64)[:, [0, 1, 1, 2]].transpose(2, 0, 1) & 0xFF
    rows = (quads << np.array([0, 8, 16, 24])).sum(axis=2)
    return words(np.concatenate([rows, scaling.bias[:, None], scaling.multiplier[:, None]], axis=1))


def _step(operator: Operator, d: Depthwise, lines: "_Lines", scaling: Scaling) -> Step:
    form = scaling.form
    columns, stride = lines.columns, lines.window.stride_w
    # The last pair of outputs reads one word more than its windows.
    length = 2 * (-(-columns // 2) * stride + 1)
    return Step(
        operator,
        f"rudel_depthwise3_{stride}_{form}(&$layer, $in0, $out0, $scratch);",
        (_kernel(stride, form),),
        {"stream": Constant(stream(lines.weights, scaling))},
        {"layer": lines.table(scaling.offset, length)},
        scratch=3 * length * 2,
        overlap={(0, 0): Overlap(together=lines.turned or _reads_ahead(d, columns % 2))},
        macs=d.macs,
        bands=None if lines.turned else Bands("rudel_depthwise3", in_place=True),
    )


@dataclass(frozen=True)
class _Lines:
    """A depthwise convolution as rows to work through, which are those of the image or its columns.

    Attributes:
        turned: whether they are columns.
        window: how windows lie on the rows.
        weights: int8 (height, width, channels) of this window.
        height: how many rows the input has.
        width: how long they are.
        rows: how many rows the output has.
        columns: how long they are.
        channels: how many there are, one byte each.
        zero_point: of the input.
    """

    turned: bool
    window: Window
    weights: np.ndarray
    height: int
    width: int
    rows: int
    columns: int
    channels: int
    zero_point: int

    def table(self, offset: int, length: int) -> str:
        """Returns C that defines the structure of a layer.

        Args:
            offset: of the scaling.
            length: how many numbers a row in scratch memory has.
        """
        w, step = self.window, self.channels
        steps = (step, self.width * step, step, self.columns * step)
        if self.turned:
            steps = (self.height * step, step, self.rows * step, step)
        fields = (
            f"{{$stream, {offset}, {', '.join(map(str, steps))}, {self.height}, {self.channels}, {self.rows}, "
            f"{self.columns}, {length}, {min(self.width, length - w.left)}, {w.stride_h}, {w.top}, {w.left}, "
            f"{self.zero_point}}}"
        )
        return f"static const rudel_depthwise3{'_columns' if self.turned else ''} $name = {fields};"


def _lines_of(d: Depthwise, in_bands: bool) -> _Lines:
    """Returns the rows to work through: the longer side, if outputs can take the places of inputs that way.

    Args:
        d: the depthwise convolution.
        in_bands: whether it is computed in bands, which are of rows of the image.
    """
    w = d.window
    _, height, width, channels = d.source
    _, rows, columns, _ = d.output
    in_place = columns == width and (w.stride_w == 1 or columns == 1) and w.left < w.width
    if height > width and in_place and not in_bands:
        window = Window(w.width, w.height, w.stride_w, w.stride_h, w.dilation_w, w.dilation_h, w.left, w.top)
        weights = d.weights.transpose(1, 0, 2)
        return _Lines(True, window, weights, width, height, columns, rows, channels, d.zero_point)
    return _Lines(False, w, d.weights, height, width, rows, columns, channels, d.zero_point)


def _reads_ahead(d: Depthwise, beyond: int) -> bool:
    """Returns whether every element is read before an output of its channel takes its place, if both start together.

    Args:
        d: the depthwise convolution.
        beyond: how many outputs more are written than a row has.
    """
    w = d.window
    _, height, width, _ = d.source
    _, rows, columns, _ = d.output
    for row in range(rows - 1):
        brought = row * w.stride_h - w.top + w.height
        if brought < height and (row + 1) * columns + beyond > brought * width:
            return False
    return True


_TYPE = Kernel(
    "depthwise3",
    """\
/* `across` is the distance of neighbours in a row of the input, `down` that of rows; likewise of the output. */
typedef struct {
    const int32_t *stream;
    int32_t offset, across, down, out_across, out_down;
    int16_t height, channels, rows, columns, length, filled;
    int16_t stride_h, top, left, zero_point;
} rudel_depthwise3;

/* The same where rows are columns of the picture. */
typedef rudel_depthwise3 rudel_depthwise3_columns;

/* Brings row y of a channel into memory, zero points beyond its ends. */
static void rudel_bring(const rudel_depthwise3 *p, const int8_t *in, int32_t y, int16_t *to)
{
    const int32_t across = p->across;
    if (y < 0 || y >= p->height) {
        for (int32_t i = p->length; i > 0; i--) *to++ = p->zero_point;
        return;
    }
    int32_t left = p->filled;
    in += y * p->down;
    to += p->left;
    for (; left >= 4; left -= 4, to += 4) {
        to[0] = in[0];
        to[1] = in[across];
        in += 2 * across;
        to[2] = in[0];
        to[3] = in[across];
        in += 2 * across;
    }
    for (; left > 0; left--, in += across) *to++ = *in;
}
""",
    (DSP,),
)


_PAIR_OF_ROW = {
    1: """
    ldrd r9, r10, [{row}], #4
    ldrd r11, r12, [r3, #{at}]
    smlad r7, r9, r11, {first}
    smlatb r8, r9, r11, {second}
    smlabt r7, r10, r12, r7
    smlad r8, r10, r12, r8""",
    2: """
    ldrd r9, r10, [{row}], #8
    ldrd r11, r12, [r3, #{at}]
    smlad r7, r9, r11, {first}
    ldr r9, [{row}]
    smlabt r7, r10, r12, r7
    smlad r8, r10, r11, {second}
    smlabt r8, r9, r12, r8""",
}
"""By stride: two neighbouring outputs' products with a row; weights are the words (0, 1) and (1, 2) in r11, r12."""


def _body(stride: int, form: str) -> str:
    products = "".join(
        _PAIR_OF_ROW[stride].format(
            row=f"r{row}", at=8 * row, first="r7" if row else "lr", second="r8" if row else "lr"
        )
        for row in range(3)
    )
    return naked(f"""
    push {{r4, r5, r6, r7, r8, r9, r10, r11, lr}}
    ldrd r4, r5, [sp, #36]
    ldr r6, [sp, #44]
    ldr lr, [r3, #32]
    1:{products}
    ldrd r11, r12, [r3, #24]
    smmla r8, r8, r11, r12
    ssat r8, #8, r8, asr #{form}
    strb r8, [r4, r5]
    smmla r7, r7, r11, r12
    ssat r7, #8, r7, asr #{form}
    strb r7, [r4]
    add r4, r4, r5, lsl #1
    cmp r4, r6
    bne 1b
    pop {{r4, r5, r6, r7, r8, r9, r10, r11, pc}}
    """)


def _kernel(stride: int, form: str) -> Kernel:
    signature = (
        f"rudel_outputs_{stride}_{form}(const int16_t *a, const int16_t *b, const int16_t *c, const uint32_t *k, "
        "int8_t *out, int32_t step, int8_t *end)"
    )
    unused = signature.replace(",", " RUDEL_UNUSED,").replace("*end)", "*end RUDEL_UNUSED)")
    return Kernel(
        f"depthwise3_{stride}_{form}",
        f"""\
/* Outputs of a row, two at a time and the second of them first, `step` bytes apart. k: words of weights, three times
 * (0, 1) and (1, 2), multiplier, offset, bias. */
#ifdef RUDEL_ASSEMBLY
static RUDEL_NAKED void {unused}
{{
    __asm__(
{_body(stride, form)}
    );
}}
#else
static void {signature}
{{
    const int16_t *const rows[3] = {{a, b, c}};
    int32_t at = 0;
    do {{
        for (int32_t i = 1; i >= 0; i--) {{
            uint32_t sum = k[8];
            for (int32_t row = 0; row < 3; row++) {{
                const int16_t *const x = rows[row] + at + {stride} * i;
                sum += (uint32_t)(x[0] * (int16_t)k[2 * row]);
                sum += (uint32_t)(x[1] * (int16_t)k[2 * row + 1]);
                sum += (uint32_t)(x[2] * (int16_t)(k[2 * row + 1] >> 16));
            }}
            out[i * step] = rudel_scale_{form}(sum, (int32_t)k[6], (int32_t)k[7]);
        }}
        at += {2 * stride};
        out += 2 * step;
    }} while (out != end);
}}
#endif

static void rudel_depthwise3_{stride}_{form}(const rudel_depthwise3 *p, const int8_t *in, int8_t *out,
                                             int8_t *scratch)
{{
    const int32_t length = p->length, even = p->columns & ~1, across = p->out_across, down = p->out_down;
    const int contiguous = down == p->columns * across;
    const int32_t *stream = p->stream;
    int16_t *a = (int16_t *)(void *)scratch, *b = a + length, *c = b + length;
    for (int32_t i = 0; i < 3 * length; i++) a[i] = p->zero_point;
    for (int32_t channel = p->channels; channel > 0; channel--, in++) {{
        uint32_t k[9];
        for (int32_t i = 0; i < 3; i++) {{
            const uint32_t word = (uint32_t)*stream++;
            k[2 * i] = (word << 8) & 0xFF00FF00u;
            k[2 * i + 1] = word & 0xFF00FF00u;
        }}
        k[8] = (uint32_t)*stream++;
        k[6] = (uint32_t)*stream++;
        k[7] = (uint32_t)p->offset;
        int32_t y = -p->top, missing = 3;
        int8_t *to = out++;
        for (int32_t row = p->rows; row > 0; row--) {{
            for (; missing > 0; missing--) {{
                int16_t *const oldest = a;
                a = b;
                b = c;
                c = oldest;
                rudel_bring(p, in, y++, c);
            }}
            missing = p->stride_h;
            /* Where a row is of odd length, its last pair puts a number where the next row begins, which that row puts
             * right; the last row has to stop before. */
            const int32_t here = row > 1 && contiguous ? (p->columns + 1) & ~1 : even;
            if (here > 0) rudel_outputs_{stride}_{form}(a, b, c, k, to, across, to + here * across);
            if (here < p->columns) {{
                const int32_t at = even * {stride};
                int8_t *const one = to + even * across;
                rudel_outputs_{stride}_{form}(a + at, b + at, c + at, k, one, 0, one);
            }}
            to += down;
        }}
    }}
}}
""",
        (_TYPE, scale_kernel(form)),
    )
