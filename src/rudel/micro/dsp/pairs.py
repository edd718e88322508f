"""Two pixels times all channels, two channels at a time: the inner loop of convolutions."""

import numpy as np

from rudel.micro.dsp.columns import ODD_SHARE, SPREAD, even_sums, packed, padded
from rudel.micro.dsp.instructions import DSP, naked, scale_kernel, scaled
from rudel.micro.dsp.scaling import Scaling, TwiceRounded
from rudel.micro.emit import Bands, Kernel
from rudel.micro.operators.window_sums import Convolution

_STEPS = (32, 8)
"""Columns have a length that is a multiple of one of these: the first that asks for no more zeros than the last."""

_QUAD = """
    ldmia r0!, {r8, r9, r10, r11}
    ldrd r6, r7, [r2], #8
    smlad r3, r6, r9, r3
    smlad r12, r6, r11, r12
    sxtb16 r6, r6
    smlad r4, r7, r9, r4
    smlad r5, r7, r11, r5
    sxtb16 r7, r7
    smlad r3, r6, r8, r3
    smlad r12, r6, r10, r12
    smlad r4, r7, r8, r4
    smlad r5, r7, r10, r5"""
"""Sixteen products: r3, r4 are sums of the first pixel, r12, r5 of the second."""


def step_of(length: int) -> int:
    """Returns what the length of columns has to be a multiple of, where they have so many numbers."""
    return next(step for step in _STEPS if -length % step == -length % _STEPS[-1])


def _body(form: str, step: int) -> str:
    sums = (("r12", "r6", "r9"), ("r3", "r6", "r8"), ("r5", "r7", "r9"), ("r4", "r7", "r8"))
    scale = scaled(form, sums, "r10", ("r0", "r11"))
    return naked(f"""
    push {{r3, r4, r5, r6, r7, r8, r9, r10, r11, lr}}
    ldr r4, [sp, #44]
    add r3, r3, r4
    str r3, [sp]
    mov lr, r0
    1:
    ldrd r3, r4, [r2], #8
    mov r0, lr
    mov r12, r3
    mov r5, r4
    2:{_QUAD * (step // 4)}
    cmp r0, r1
    bne 2b
    ldrd r6, r7, [r2], #8
    ldrd r8, r9, [sp, #44]
    ldr r10, [sp, #40]
    {scale}
    ldr r11, [sp]
    strd r8, r9, [sp, #44]
    cmp r8, r11
    bne 1b
    pop {{r3, r4, r5, r6, r7, r8, r9, r10, r11, pc}}
    """)


def stored(form: str) -> str:
    """Returns C that makes outputs of sums: a and b of the first pixel, c and d of the second, stored before."""
    scale, shift = f"rudel_scale_{form}", ("", "")
    if form == "twice":
        scale, shift = "rudel_scale_rounded_twice", (", after[2]", ", after[3]")
    return "\n        ".join(
        f"*{out}++ = {scale}({sum_}, after[{i}], offset{shift[i]});"
        for sum_, i, out in (("c", 0, "second"), ("a", 0, "first"), ("d", 1, "second"), ("b", 1, "first"))
    )


def pairs_kernel(form: str, step: int) -> Kernel:
    """Returns the kernel for one form of the scaling, and columns whose length is a multiple of a step."""
    name = f"pairs_{form}_{step}"
    return Kernel(
        name,
        f"""\
/* The outputs of two pixels, of which the first is written last. Columns have, for every four inputs, even and odd of
 * the first pixel and of the second. The stream has, for every two channels, their biases, their words of weights by
 * turns, and their multipliers{" and shifts" if form == "twice" else ""}. */
#ifdef RUDEL_ASSEMBLY
static RUDEL_NAKED void rudel_{name}(
    const uint32_t *columns RUDEL_UNUSED, const uint32_t *end RUDEL_UNUSED, const int32_t *stream RUDEL_UNUSED,
    int32_t depth RUDEL_UNUSED, int32_t offset RUDEL_UNUSED, int8_t *first RUDEL_UNUSED, int8_t *second RUDEL_UNUSED)
{{
    __asm__(
{_body(form, step)}
    );
}}
#else
static void rudel_{name}(const uint32_t *columns, const uint32_t *end, const int32_t *stream, int32_t depth,
                          int32_t offset, int8_t *first, int8_t *second)
{{
    for (; depth > 0; depth -= 2) {{
        uint32_t a = (uint32_t)stream[0], b = (uint32_t)stream[1], c = a, d = b;
        stream += 2;
        for (const uint32_t *x = columns; x != end; x += 4, stream += 2) {{
            const uint32_t p = (uint32_t)stream[0], q = (uint32_t)stream[1];
            a = rudel_dual(rudel_evens(p), x[0], rudel_dual(p, x[1], a));
            b = rudel_dual(rudel_evens(q), x[0], rudel_dual(q, x[1], b));
            c = rudel_dual(rudel_evens(p), x[2], rudel_dual(p, x[3], c));
            d = rudel_dual(rudel_evens(q), x[2], rudel_dual(q, x[3], d));
        }}
        const int32_t *const after = stream;
        {stored(form)}
        stream += {4 if form == "twice" else 2};
    }}
}}
#endif
""",
        (scale_kernel(form), SPREAD, DSP),
    )


def pairs_stream(weights: np.ndarray, scaling: Scaling | TwiceRounded) -> np.ndarray:
    """Returns what `rudel_pairs` reads.

    Args:
        weights: int8 (channels, length), an even number of channels.
        scaling: of the channels.

    Returns:
        int32 (words).
    """
    whole = padded(weights, step_of(weights.shape[1]))
    pairs = len(whole) // 2
    bias = scaling.bias - ODD_SHARE * even_sums(whole)
    by_pair = packed(whole).reshape(pairs, 2, -1).transpose(0, 2, 1).reshape(pairs, -1)
    after = scaling.after.reshape(-1, pairs, 2).transpose(1, 0, 2).reshape(pairs, -1)
    return words(np.concatenate([bias.reshape(-1, 2), by_pair.astype(np.int64), after], axis=1))


PIXELS = Kernel(
    "pointwise",
    """\
typedef struct {
    const int32_t *stream;
    int32_t offset, pixels;
    int16_t channels, depth;
} rudel_pixels;
""",
)
"""Fields for windows of one pixel, which need not know rows."""

PIXELS_BANDS = Bands("rudel_pixels", rows=None, in_place=True)


def pixels_table(c: Convolution, offset: int) -> str:
    """Returns C that defines the structure of a layer; offset: of the scaling."""
    _, height, width, channels = c.source
    return f"static const rudel_pixels $name = {{$stream, {offset}, {height * width}, {channels}, {c.output[3]}}};"


def unit_lead(c: Convolution, starts: np.ndarray) -> int:
    """Returns how many bytes the input has to start after the output.

    Args:
        c: a convolution whose pixels are made a few at a time, all that they need of the input being read before.
        starts: the first pixel of each time, int64.
    """
    _, height, width, channels = c.source
    _, rows, columns, depth = c.output
    w = c.window
    y = np.minimum(np.maximum(np.arange(rows) * w.stride_h - w.top, 0), height - 1)
    x = np.minimum(np.maximum(np.arange(columns) * w.stride_w - w.left, 0), width - 1)
    reads = (y[:, None] * width + x[None]).ravel() * channels
    later = np.minimum.accumulate(reads[::-1])[::-1]
    written = starts[1:]
    if not len(written):
        return -height * width * channels
    return int((written * depth - later[written]).max())


def pair_lead(c: Convolution) -> int:
    """Returns the same for a kernel that makes two pixels at a time, wherever rows end."""
    return unit_lead(c, np.arange(0, c.output[1] * c.output[2], 2))


def words(numbers: np.ndarray) -> np.ndarray:
    """Returns numbers, of which only 32 bits matter, as int32 in a row."""
    return (numbers.ravel() & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
