"""Dot products of bytes: two columns with two rows of weights at a time, or one column with four rows.

Sixteen bytes are multiplied and added up by one instruction (VMLADAV). Weights are rows of any length, as the file has
them. Columns of up to 32 bytes stay in registers, with zeros after their ends: what is loaded there after the end of a
row counts nothing, and some zeros after the last row keep that within the array.
"""

import numpy as np

from rudel.micro.dsp.instructions import naked
from rudel.micro.emit import Kernel
from rudel.micro.helium.instructions import HELIUM

VECTOR = 16
BLOCK = 64
"""Sums that are kept at a time, of one column."""


def _plain(rows: str, step: str) -> str:
    """Returns the loop in C for two columns."""
    return f"""\
    for (int32_t row = {rows}; row > 0; row--, weights += {step}, sums++) {{
        sums[0] = sums[{BLOCK}] = 0;
        for (int32_t i = 0; i < length; i++) {{
            sums[0] += first[i] * weights[i];
            sums[{BLOCK}] += second[i] * weights[i];
        }}
    }}
"""


_TWO = naked(f"""
    push {{r4, r5, r6, r7, r8, r9, r10, r11, lr}}
    sub sp, sp, #8
    mov r8, r0
    mov r9, r1
    mov r10, r2
    ldrd r11, r12, [sp, #48]
    ldr r1, [sp, #44]
    strd r1, r3, [sp]
    1:
    ldrd r1, r3, [sp]
    mov r5, r8
    mov r7, r9
    add r3, r1, r3
    movs r0, #0
    movs r2, #0
    rsb r4, r1, r3, lsl #1
    movs r6, #0
    str r4, [sp]
    movs r4, #0
    wlstp.8 lr, r10, 3f
    2:
    vldrb.8 q0, [r1], #16
    vldrb.8 q1, [r5], #16
    vmladava.s8 r0, q0, q1
    vldrb.8 q2, [r3], #16
    vmladava.s8 r2, q2, q1
    vldrb.8 q3, [r7], #16
    vmladava.s8 r4, q0, q3
    vmladava.s8 r6, q2, q3
    letp lr, 2b
    3:
    strd r4, r6, [r12, #{4 * BLOCK}]
    strd r0, r2, [r12], #8
    subs r11, r11, #1
    bne 1b
    add sp, sp, #8
    pop {{r4, r5, r6, r7, r8, r9, r10, r11, pc}}
""")

TWO_COLUMNS = Kernel(
    "vector_two_columns",
    f"""\
/* Sums of two columns with pairs of rows of weights, `step` bytes apart; the second's lie {BLOCK} words further. */
#ifdef RUDEL_VECTORS
static RUDEL_OPAQUE void rudel_vector_pairs(
    const int8_t *first RUDEL_UNREAD, const int8_t *second RUDEL_UNREAD, int32_t length RUDEL_UNREAD,
    int32_t step RUDEL_UNREAD, const int8_t *weights RUDEL_UNREAD, int32_t pairs RUDEL_UNREAD,
    int32_t *sums RUDEL_UNREAD)
{{
    __asm__(
{_TWO}
    );
}}
#else
static void rudel_vector_pairs(const int8_t *first, const int8_t *second, int32_t length, int32_t step,
                               const int8_t *weights, int32_t pairs, int32_t *sums)
{{
{_plain("2 * pairs", "step")}}}
#endif

/* Sums of two columns with some rows of weights. */
static void rudel_vector_two_columns(const int8_t *first, const int8_t *second, int32_t length, const int8_t *weights,
                                     int32_t rows, int32_t *sums)
{{
    const int32_t even = rows & ~1;
    if (even) rudel_vector_pairs(first, second, length, length, weights, even >> 1, sums);
    if (even < rows) rudel_vector_pairs(first, second, length, 0, weights + even * length, 1, sums + even);
}}
""",
    (HELIUM,),
)

_SHORT = 2
"""Columns of so many vectors stay in registers."""


def ready_weights(weights: np.ndarray) -> np.ndarray:
    """Returns rows of weights as kernels want them: int8 in a row, of int8 (rows, length)."""
    rows, length = weights.shape
    vectors = -(-length // VECTOR)
    beyond = length * (rows % 2) + vectors * VECTOR - length if vectors <= _SHORT else 0
    return np.pad(weights.ravel(), (0, beyond))


def columns_kernel(vectors: int) -> Kernel:
    """Returns the kernel for two columns of so many vectors, which has a function of its own name."""
    return _short(vectors) if vectors <= _SHORT else TWO_COLUMNS


def _short(vectors: int) -> Kernel:
    products = []
    for row in (0, 1):
        for part in range(vectors):
            offset = f", #{VECTOR * part}" if part else ""
            products.append(f"vldrb.8 q{4 + 2 * row + part}, [r7{offset}]")
        products.append("add r7, r7, r2")
    for column in (0, 1):
        for row in (0, 1):
            for part in range(vectors):
                added = "a" if part else ""
                result = f"r{(0, 6, 8, 10)[2 * column + row]}"
                products.append(f"vmladav{added}.s8 {result}, q{4 + 2 * row + part}, q{2 * column + part}")
    text = "\n    ".join(products)
    first = "\n    ".join(
        [
            *(f"vctp.8 r2\n    vpst\n    vldrbt.8 q{2 * column}, [r{column}], #16" for column in (0, 1)),
            *(
                ["sub r9, r2, #16", "vctp.8 r9", *(f"vpst\n    vldrbt.8 q{2 * c + 1}, [r{c}]" for c in (0, 1))]
                if vectors == _SHORT
                else []
            ),
        ]
    )
    body = naked(f"""
    push {{r4, r5, r6, r7, r8, r9, r10, r11, lr}}
    vpush {{d8, d9, d10, d11, d12, d13, d14, d15}}
    ldr r5, [sp, #100]
    mov r7, r3
    add lr, r5, #1
    ldr r12, [sp, #104]
    lsr lr, lr, #1
    vmov.i32 q0, #0
    vmov.i32 q1, #0
    vmov.i32 q2, #0
    vmov.i32 q3, #0
    {first}
    dls lr, lr
    1:
    {text}
    strd r8, r10, [r12, #{4 * BLOCK}]
    strd r0, r6, [r12], #8
    le lr, 1b
    vpop {{d8, d9, d10, d11, d12, d13, d14, d15}}
    pop {{r4, r5, r6, r7, r8, r9, r10, r11, pc}}
    """)
    name = f"vector_short_columns{vectors}"
    return Kernel(
        name,
        f"""\
/* Sums of two short columns with some rows of weights; the second's lie {BLOCK} words further. */
#ifdef RUDEL_VECTORS
static RUDEL_OPAQUE void rudel_{name}(
    const int8_t *first RUDEL_UNREAD, const int8_t *second RUDEL_UNREAD, int32_t length RUDEL_UNREAD,
    const int8_t *weights RUDEL_UNREAD, int32_t rows RUDEL_UNREAD, int32_t *sums RUDEL_UNREAD)
{{
    __asm__(
{body}
    );
}}
#else
static void rudel_{name}(const int8_t *first, const int8_t *second, int32_t length, const int8_t *weights, int32_t rows,
                         int32_t *sums)
{{
{_plain("rows", "length")}}}
#endif
""",
        (HELIUM,),
    )


_FOUR = naked("""
    push {r4, r5, r6, r7, r8, r9, r10, r11, lr}
    sub sp, sp, #8
    mov r8, r0
    mov r10, r1
    mov r11, r2
    ldr r12, [sp, #44]
    str r3, [sp]
    1:
    mov r9, r8
    mov r1, r11
    ldr r3, [sp]
    movs r0, #0
    add r5, r1, r3, lsl #1
    movs r2, #0
    add r7, r5, r3
    movs r4, #0
    add r11, r1, r3, lsl #2
    movs r6, #0
    add r3, r1, r3
    wlstp.8 lr, r10, 3f
    2:
    vldrb.8 q0, [r9], #16
    vldrb.8 q1, [r1], #16
    vmladava.s8 r0, q0, q1
    vldrb.8 q2, [r3], #16
    vmladava.s8 r2, q0, q2
    vldrb.8 q3, [r5], #16
    vmladava.s8 r4, q0, q3
    vldrb.8 q1, [r7], #16
    vmladava.s8 r6, q0, q1
    letp lr, 2b
    3:
    strd r0, r2, [r12], #16
    strd r4, r6, [r12, #-8]
    ldr r0, [sp, #48]
    subs r0, r0, #1
    str r0, [sp, #48]
    bne 1b
    add sp, sp, #8
    pop {r4, r5, r6, r7, r8, r9, r10, r11, pc}
""")

ONE_COLUMN = Kernel(
    "vector_one_column",
    f"""\
/* Sums of a column with fours of rows of weights, `step` bytes apart. */
#ifdef RUDEL_VECTORS
static RUDEL_OPAQUE void rudel_vector_fours(
    const int8_t *column RUDEL_UNREAD, int32_t length RUDEL_UNREAD, const int8_t *weights RUDEL_UNREAD,
    int32_t step RUDEL_UNREAD, int32_t *sums RUDEL_UNREAD, int32_t fours RUDEL_UNREAD)
{{
    __asm__(
{_FOUR}
    );
}}
#else
static void rudel_vector_fours(const int8_t *column, int32_t length, const int8_t *weights, int32_t step, int32_t *sums,
                               int32_t fours)
{{
    for (int32_t row = 4 * fours; row > 0; row--, weights += step, sums++) {{
        *sums = 0;
        for (int32_t i = 0; i < length; i++) *sums += column[i] * weights[i];
    }}
}}
#endif

/* Sums of a column with some rows of weights; there has to be room for three more. */
static void rudel_vector_one_column(const int8_t *column, int32_t length, const int8_t *weights, int32_t rows,
                                    int32_t *sums)
{{
    int32_t row = rows & ~3;
    if (row) rudel_vector_fours(column, length, weights, length, sums, row >> 2);
    for (; row < rows; row++) rudel_vector_fours(column, length, weights + row * length, 0, sums + row, 1);
}}
""",
    (HELIUM,),
)
