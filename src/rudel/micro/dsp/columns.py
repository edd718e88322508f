"""Inputs and weights as the dual multiplications want them.

Four weights b0 b1 b2 b3 are a word. Its halves, read as 16-bit numbers, are 256 * b1 + b0 and 256 * b3 + b2, if b1 and
b3 are stored one less where b0 and b2 are negative; so one word serves twice: as it is, and with its even bytes spread
out (SXTB16). Four inputs x0 x1 x2 x3 become two words of 16-bit numbers:

    odd = (x1, x3)        even = (256 * x0 - x1 + 127, 256 * x2 - x3 + 127)

and `word * odd + spread(word) * even` is 256 times the sum of products, plus 127 * (b0 + b2), which biases make up for.
Every number fits its 16 bits. That is three instructions for four products, where spreading both halves takes four.
"""

import numpy as np

from rudel.micro.dsp.instructions import DSP, naked
from rudel.micro.emit import Kernel

ODD_SHARE = 127


def packed(weights: np.ndarray) -> np.ndarray:
    """Makes words of weights.

    Args:
        weights: int8 (..., length), the length a multiple of 4.

    Returns:
        uint32 (..., length / 4).
    """
    quads = weights.astype(np.int64).reshape(*weights.shape[:-1], -1, 4)
    halves = (quads[..., 1::2] * 256 + quads[..., ::2]) & 0xFFFF
    return (halves[..., 0] | (halves[..., 1] << 16)).astype(np.uint32)


def packable(weights: np.ndarray) -> bool:
    """Returns whether all halves fit 16 bits: -128 has no place for the borrow of a negative neighbour."""
    return bool(weights.min(initial=0) > -128)


def even_sums(weights: np.ndarray) -> np.ndarray:
    """Returns the sums of weights at even places, int64 (...), of int8 (..., length)."""
    return weights[..., ::2].astype(np.int64).sum(axis=-1)


def padded(weights: np.ndarray, multiple: int) -> np.ndarray:
    """Returns weights (..., length) with zeros appended up to a multiple of a length."""
    missing = -weights.shape[-1] % multiple
    return np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, missing)])


_WORD = """
    ldr r3, [r0], #4
    sxtb16 r12, r3, ror #8
    and r3, r3, #0x00FF00FF
    orr r3, r4, r3, lsl #8
    ssub16 r3, r3, r12
    strd r3, r12, [r2], #16"""

_BODY = naked(f"""
    push {{r4, lr}}
    mov r4, #0x007F007F
    lsrs r1, r1, #1
    bcc 1f{_WORD}
    cbz r1, 2f
    1:{_WORD}{_WORD}
    subs r1, r1, #1
    bne 1b
    2:
    mov r0, r2
    pop {{r4, pc}}
""")

SPREAD = Kernel(
    "spread",
    f"""\
/* Spreads out some words of inputs, two words for each, even and odd, and leaves room for two before the next. Returns
 * where the next would be. */
#ifdef RUDEL_ASSEMBLY
static RUDEL_NAKED uint32_t *rudel_spread(const int8_t *from RUDEL_UNUSED, int32_t words RUDEL_UNUSED,
                                          uint32_t *to RUDEL_UNUSED)
{{
    __asm__(
{_BODY}
    );
}}
#else
static uint32_t *rudel_spread(const int8_t *from, int32_t words, uint32_t *to)
{{
    for (; words > 0; words--, from += 4, to += 4) {{
        const uint32_t bytes = rudel_load(from);
        to[1] = rudel_odds(bytes);
        to[0] = rudel_differences((bytes & 0x00FF00FFu) << 8 | 0x007F007Fu, to[1]);
    }}
    return to;
}}
#endif
""",
    (DSP,),
)
