"""CONV_2D of inputs that are widened to 16 bits once, and weights that are stored so: windows are read where they lie.

A strip has the rows that a few neighbouring pixels of the output need, as 16-bit numbers with zero points beyond the
borders. Each row of a window is contiguous in it, so two numbers are a word for a dual multiplication, and nothing is
gathered. Weights are 256 times themselves, as the scaling wants it. That is eleven instructions for sixteen products,
unrolled for the shape of the window. Where a row has an odd length, the last word's other weight is 0.

Weights take twice their bytes, so this is for layers that use each of them often, and for few channels, where the
kernel of `rudel.micro.dsp.pairs` would gather byte by byte.
"""

from dataclasses import dataclass

import numpy as np

from rudel.micro.dsp.instructions import DSP, naked, scale_kernel, scaled
from rudel.micro.dsp.pairs import PIXELS, PIXELS_BANDS, pair_lead, pixels_table, stored, unit_lead, words
from rudel.micro.dsp.scaling import FRACTION_BITS, Scaling, TwiceRounded
from rudel.micro.emit import Bands, Constant, Kernel, Overlap, Step
from rudel.micro.graph import Operator
from rudel.micro.operators.window_sums import Convolution

_FEW_CHANNELS = 3
_OFTEN = 256
"""Layers with so many output pixels use their weights often enough to store them twice as large."""

_SMALL_SCRATCH = 384
"""Bytes of scratch memory that layers of few channels may take: they are first ones, whose inputs are small."""

_NARROW = 8
"""Below so many columns, an odd one costs too much: two pixels are computed for it."""

_LONGEST_ROW = 24
"""Words of a row of a window, which is unrolled, and of all rows if they are to be."""

_LONGEST_PIXEL = 8
"""Words of a window of one pixel: nothing would be gathered for it, which the other kernel's fewer loads outweigh."""


@dataclass(frozen=True)
class _Shape:
    """The shape that a kernel is made for.

    Attributes:
        rows: of the window.
        row_words: words of inputs in each of them.
        pitch: bytes from row to row.
        second: bytes from the window of a pixel to that of the next.
        form: of the scaling.
    """

    rows: int
    row_words: int
    pitch: int
    second: int
    form: str

    @property
    def name(self) -> str:
        return f"strip_{self.rows}x{self.row_words}_{self.pitch}_{self.second}_{self.form}"


def strips_step(operator: Operator, c: Convolution, scaling: Scaling | TwiceRounded, scratch: int) -> Step | None:
    """Makes a step of a CONV_2D of int8; None where it does not fit this kernel, or is not worth the flash.

    Args:
        operator: the layer.
        c: the same, prepared; one group, one example, an even number of output channels.
        scaling: of the channels.
        scratch: bytes of scratch memory that another kernel takes.
    """
    w = c.window
    _, height, width, channels = c.source
    _, rows, columns, depth = c.output
    length, step = w.width * channels, w.stride_w * channels
    row_words = (length + 1) // 2
    if w.dilation_w > 1 and w.width > 1:
        return None
    if channels > _FEW_CHANNELS and rows * columns < _OFTEN:
        return None
    if columns % 2 and columns < _NARROW:
        return None
    quads = channels % 4 == 0
    pointwise = c.is_pointwise and quads
    block, numbers = _block(columns, w.height, row_words, step, scratch if quads else max(scratch, _SMALL_SCRATCH))
    small = (w.height, w.stride_h, w.dilation_h, w.top)
    if (
        row_words > (_LONGEST_PIXEL if pointwise else _LONGEST_ROW)
        or max(height, columns, rows, depth, block * step, w.left * channels, *small) >= 1 << 15
        or max(width * channels, w.height * numbers * 2) >= 1 << 12
    ):
        return None
    shape = _Shape(w.height, row_words, numbers * 2, step * 2, scaling.form)
    kind = "quads" if quads else "numbers"
    if pointwise:
        return _pixels_step(operator, c, scaling, shape)
    fields = (
        f"{{$stream, {scaling.offset}, {width * channels}, {w.left * channels}, {block * step}, {height}, {rows}, "
        f"{columns}, {depth}, {block}, {w.height}, {w.stride_h}, {w.dilation_h}, {w.top}, {c.zero_point}}}"
    )
    starts = (np.arange(rows)[:, None] * columns + np.arange(0, columns, block)).ravel()
    return Step(
        operator,
        f"rudel_{shape.name}_{kind}(&$layer, $in0, $out0, $scratch);",
        (_layer_kernel(shape, kind),),
        {"stream": Constant(_stream(c.weights, scaling, quads))},
        {"layer": f"static const rudel_strips $name = {fields};"},
        scratch=shape.rows * shape.pitch,
        overlap={(0, 0): Overlap(lead=unit_lead(c, starts))},
        macs=c.macs,
        bands=Bands("rudel_strips"),
    )


def _pixels_step(operator: Operator, c: Convolution, scaling: Scaling | TwiceRounded, shape: _Shape) -> Step:
    """Makes the step of windows of one pixel: a strip has two, wherever rows end."""
    return Step(
        operator,
        f"rudel_{shape.name}_pixels(&$layer, $in0, $out0, $scratch);",
        (_pixels_kernel(shape),),
        {"stream": Constant(_stream(c.weights, scaling, quads=True))},
        {"layer": pixels_table(c, scaling.offset)},
        scratch=2 * shape.second,
        overlap={(0, 0): Overlap(lead=pair_lead(c))},
        macs=c.macs,
        bands=PIXELS_BANDS,
    )


def _block(columns: int, rows: int, row_words: int, step: int, scratch: int) -> tuple[int, int]:
    """Returns how many pixels have a strip in common, an even number, and how many numbers its rows then have."""

    def numbers(block: int) -> int:
        return ((block - 1) * step + 2 * row_words + 1) // 2 * 2

    block = 2
    while block < columns and numbers(block + 2) * rows * 2 <= scratch:
        block += 2
    return block, numbers(block)


def _stream(weights: np.ndarray, scaling: Scaling | TwiceRounded, quads: bool) -> np.ndarray:
    """Returns, for every two channels: biases, two words of weights of each by turns, and what their scaling needs.

    Args:
        weights: int8 (channels, height, width, channels of the input).
        scaling: of the channels.
        quads: whether of every four inputs the first and third, and the second and fourth are a word.

    Returns:
        int32 (words).
    """
    depth, height = weights.shape[:2]
    flat = weights.reshape(depth, height, -1).astype(np.int64) << FRACTION_BITS
    flat = np.pad(flat, ((0, 0), (0, 0), (0, flat.shape[2] % 2)))
    if quads:
        flat = flat.reshape(depth, height, -1, 4)[..., [0, 2, 1, 3]]
    halves = flat.reshape(depth // 2, 2, height, -1, 2) & 0xFFFF
    pairs = halves[..., 0] | halves[..., 1] << 16
    blocks = [
        pairs[..., at : at + 2].transpose(0, 2, 1, 3).reshape(depth // 2, height, -1)
        for at in range(0, pairs.shape[3], 2)
    ]
    by_pair = np.concatenate(blocks, axis=2).reshape(depth // 2, -1)
    after = scaling.after.reshape(-1, depth // 2, 2).transpose(1, 0, 2).reshape(depth // 2, -1)
    return words(np.concatenate([scaling.bias.reshape(-1, 2), by_pair, after], axis=1))


def _products(shape: _Shape, row: int) -> str:
    """Returns assembly for a row of the windows of two pixels and two channels: sums r3, r4 and r12, r5."""
    lines = []
    for word in range(0, shape.row_words, 2):
        at = row * shape.pitch + 4 * word
        two = word + 1 < shape.row_words
        if not two:
            lines += [f"ldr r6, [r0, #{at}]", f"ldr r8, [r0, #{at + shape.second}]", "ldmia r2!, {r1, r11}"]
        else:
            lines.append(f"ldrd r6, r7, [r0, #{at}]" if at <= 1020 else _two_loads("r6", "r7", at))
            second = at + shape.second
            aligned = second % 4 == 0 and second <= 1020
            lines.append(f"ldrd r8, r9, [r0, #{second}]" if aligned else _two_loads("r8", "r9", second))
            lines.append("ldmia r2!, {r1, r10, r11, lr}")
        for first, second_, weights in (("r6", "r8", ("r1", "r11")), ("r7", "r9", ("r10", "lr")))[: 1 + two]:
            lines += [
                f"smlad r3, {first}, {weights[0]}, r3",
                f"smlad r4, {first}, {weights[1]}, r4",
                f"smlad r12, {second_}, {weights[0]}, r12",
                f"smlad r5, {second_}, {weights[1]}, r5",
            ]
    return "\n".join(lines)


def _two_loads(low: str, high: str, at: int) -> str:
    return f"ldr {low}, [r0, #{at}]\nldr {high}, [r0, #{at + 4}]"


def _body(shape: _Shape) -> str:
    size = shape.rows * shape.pitch
    if shape.rows * shape.row_words <= _LONGEST_ROW:
        before, products = "", "\n".join(_products(shape, row) for row in range(shape.rows))
    else:
        before = f"add r6, r0, #{size}\nstr r6, [sp]"
        products = f"""
            2:
            {_products(shape, 0)}
            add r0, r0, #{shape.pitch}
            ldr r6, [sp]
            cmp r0, r6
            bne 2b
            sub r0, r0, #{size}"""
    sums = (("r12", "r6", "r9"), ("r3", "r6", "r8"), ("r5", "r7", "r9"), ("r4", "r7", "r8"))
    return naked(f"""
    push {{r0, r1, r3, r4, r5, r6, r7, r8, r9, r10, r11, lr}}
    ldr r4, [sp, #48]
    add r4, r4, r1
    str r4, [sp, #4]
    {before}
    1:
    ldrd r3, r4, [r2], #8
    mov r12, r3
    mov r5, r4
    {products}
    ldrd r6, r7, [r2], #8
    ldrd r8, r9, [sp, #48]
    ldrd r1, r10, [sp, #4]
    {scaled(shape.form, sums, "r10", ("lr", "r11"))}
    strd r8, r9, [sp, #48]
    cmp r8, r1
    bne 1b
    pop {{r0, r1, r3, r4, r5, r6, r7, r8, r9, r10, r11, pc}}
    """)


def _strip_kernel(shape: _Shape) -> Kernel:
    return Kernel(
        shape.name,
        f"""\
/* The outputs of two pixels, of which the first is written last: windows of {shape.rows} rows of {shape.row_words}
 * words, {shape.pitch} bytes apart, the second pixel's {shape.second} bytes after the first one's. */
#ifdef RUDEL_ASSEMBLY
static RUDEL_NAKED void rudel_{shape.name}(
    const int16_t *strip RUDEL_UNUSED, int32_t depth RUDEL_UNUSED, const int32_t *stream RUDEL_UNUSED,
    int32_t offset RUDEL_UNUSED, int8_t *first RUDEL_UNUSED, int8_t *second RUDEL_UNUSED)
{{
    __asm__(
{_body(shape)}
    );
}}
#else
static void rudel_{shape.name}(const int16_t *strip, int32_t depth, const int32_t *stream, int32_t offset,
    int8_t *first, int8_t *second)
{{
    for (; depth > 0; depth -= 2) {{
        uint32_t a = (uint32_t)stream[0], b = (uint32_t)stream[1], c = a, d = b;
        stream += 2;
        for (int32_t row = 0; row < {shape.rows}; row++) {{
            const int8_t *const x = (const int8_t *)strip + row * {shape.pitch};
            for (int32_t word = 0; word < {shape.row_words}; word++) {{
                const int32_t paired = (word | 1) < {shape.row_words} ? 2 : 1;
                const uint32_t p = (uint32_t)stream[0], q = (uint32_t)stream[paired];
                const uint32_t one = rudel_load(x + 4 * word), two = rudel_load(x + 4 * word + {shape.second});
                a = rudel_dual(p, one, a);
                b = rudel_dual(q, one, b);
                c = rudel_dual(p, two, c);
                d = rudel_dual(q, two, d);
                stream += word & 1 ? 3 : paired == 1 ? 2 : 1;
            }}
        }}
        const int32_t *const after = stream;
        {stored(shape.form)}
        stream += {4 if shape.form == "twice" else 2};
    }}
}}
#endif
""",
        (scale_kernel(shape.form), DSP),
    )


_QUADS = naked("""
    1:
    ldr r3, [r0], #4
    sxtb16 r12, r3
    sxtb16 r3, r3, ror #8
    strd r12, r3, [r2], #8
    subs r1, r1, #4
    bgt 1b
    bx lr
""")

_FOUR_NUMBERS = """
    ldr r3, [r0], #4
    sxtb16 r12, r3
    sxtb16 r3, r3, ror #8
    pkhbt r4, r12, r3, lsl #16
    pkhtb r3, r3, r12, asr #16
    str r4, [r2], #4
    str r3, [r2], #4"""

_NUMBERS = naked(f"""
    push {{r4, lr}}
    subs r1, r1, #8
    blt 2f
    1:{_FOUR_NUMBERS}{_FOUR_NUMBERS}
    subs r1, r1, #8
    bge 1b
    2:
    adds r1, r1, #8
    beq 4f
    3:
    ldrsb r3, [r0], #1
    strh r3, [r2], #2
    subs r1, r1, #1
    bne 3b
    4:
    pop {{r4, pc}}
""")

_ORDERED = {"quads": "(i & ~3) + 2 * (i & 1) + ((i >> 1) & 1)", "numbers": "i"}
"""Index in a row of the number that comes i-th."""


_TYPE = Kernel(
    "strips",
    """\
/* `width`, `left` and `step`, from strip to strip, in numbers. */
typedef struct {
    const int32_t *stream;
    int32_t offset;
    int16_t width, left, step, height, rows, columns, depth, block;
    int16_t window_height, stride_h, dilation_h, top, zero_point;
} rudel_strips;
""",
)


def _widen_kernel(kind: str) -> Kernel:
    return Kernel(
        f"widen_{kind}",
        f"""\
/* Widens some numbers, at least one. */
#ifdef RUDEL_ASSEMBLY
static RUDEL_NAKED void rudel_widen_{kind}(const int8_t *from RUDEL_UNUSED, int32_t count RUDEL_UNUSED,
                                         int16_t *to RUDEL_UNUSED)
{{
    __asm__(
{_QUADS if kind == "quads" else _NUMBERS}
    );
}}
#else
static void rudel_widen_{kind}(const int8_t *from, int32_t count, int16_t *to)
{{
    for (int32_t i = 0; i < count; i++) to[i] = from[{_ORDERED[kind]}];
}}
#endif
""",
        (DSP,),
    )


def _strip_of_kernel(kind: str) -> Kernel:
    return Kernel(
        f"strip_of_{kind}",
        f"""\
/* Brings a strip whose first number is number x of row y of the input. */
static void rudel_strip_of_{kind}(const rudel_strips *p, const int8_t *in, int32_t y, int32_t x, int32_t numbers,
                                int16_t *to)
{{
    const int32_t width = p->width, before = x < 0 ? (-x < numbers ? -x : numbers) : 0;
    const int32_t end = width - x < numbers ? width - x : numbers;
    for (int32_t row = p->window_height; row > 0; row--, y += p->dilation_h, to += numbers) {{
        int32_t filled = 0;
        if (y >= 0 && y < p->height && before < end) {{
            rudel_widen_{kind}(in + y * width + x + before, end - before, to + before);
            for (; filled < before; filled++) to[filled] = p->zero_point;
            filled = end;
        }}
        for (; filled < numbers; filled++) to[filled] = p->zero_point;
    }}
}}
""",
        (_TYPE, _widen_kernel(kind)),
    )


def _layer_kernel(shape: _Shape, kind: str) -> Kernel:
    return Kernel(
        f"{shape.name}_{kind}",
        f"""\
static void rudel_{shape.name}_{kind}(const rudel_strips *p, const int8_t *in, int8_t *out, int8_t *scratch)
{{
    int16_t *const strip = (int16_t *)(void *)scratch;
    const int32_t depth = p->depth;
    int32_t y = -p->top;
    for (int32_t row = p->rows; row > 0; row--, y += p->stride_h) {{
        int32_t x = -p->left;
        for (int32_t columns = p->columns; columns > 0; columns -= p->block, x += p->step) {{
            const int16_t *at = strip;
            rudel_strip_of_{kind}(p, in, y, x, {shape.pitch // 2}, strip);
            for (int32_t left = columns < p->block ? columns : p->block; left > 0; left -= 2, at += {shape.second}) {{
                int8_t *const second = left > 1 ? out + depth : out;
                rudel_{shape.name}(at, depth, p->stream, p->offset, out, second);
                out = second + depth;
            }}
        }}
    }}
}}
""",
        (_strip_kernel(shape), _strip_of_kernel(kind)),
    )


def _pixels_kernel(shape: _Shape) -> Kernel:
    return Kernel(
        f"{shape.name}_pixels",
        f"""\
static void rudel_{shape.name}_pixels(const rudel_pixels *p, const int8_t *in, int8_t *out, int8_t *scratch)
{{
    int16_t *const strip = (int16_t *)(void *)scratch;
    const int32_t depth = p->depth;
    for (int32_t left = p->pixels; left > 0; left -= 2, in += {shape.second}) {{
        int8_t *const second = left > 1 ? out + depth : out;
        rudel_widen_quads(in, left > 1 ? {shape.second} : {shape.second // 2}, strip);
        rudel_{shape.name}(strip, depth, p->stream, p->offset, out, second);
        out = second + depth;
    }}
}}
""",
        (PIXELS, _strip_kernel(shape), _widen_kernel("quads")),
    )
