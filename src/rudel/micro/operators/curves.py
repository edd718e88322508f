"""The logistic function and tanh of 16-bit numbers in C: in gemmlowp's fixed point, and interpolated in a table."""

import numpy as np

from rudel.micro.emit import Kernel

SATURATE = Kernel(
    "saturate_short",
    """\
static inline int32_t rudel_saturate_short(int32_t x)
{
    return x < -32768 ? -32768 : x > 32767 ? 32767 : x;
}
""",
)

DIVIDE = Kernel(
    "divide_by_power",
    """\
static inline int32_t rudel_divide_by_power(int32_t x, int32_t exponent)
{
    const int32_t mask = (int32_t)(((uint32_t)1 << exponent) - 1u);
    return (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0));
}
""",
)

FIXED_POINT = Kernel(
    "short_curves",
    """\
/* Fixed-point numbers of 16 bits: raw / 2^(15 - integer bits). */
static int32_t rudel_short_product(int32_t x, int32_t y)
{
    const int32_t product = x * y;
    return rudel_saturate_short((product + (product >= 0 ? 1 << 14 : 1 - (1 << 14))) / 32768);
}

static int32_t rudel_short_exp(int32_t x, int32_t integer_bits)
{
    /* exp(x) for x <= 0: a polynomial for the rest after division by 1/4, and a factor for each bit of the quotient. */
    static const int16_t factors[9] = {25520, 19875, 12055, 4435, 600, 11, 0, 0, 0};
    const int32_t fraction = 15 - integer_bits, quarter = 1 << (fraction - 2);
    const int32_t rest = (x & (quarter - 1)) - quarter, multiples = rest - x;
    const int32_t centred = rest * (1 << integer_bits) + (1 << 12), square = rudel_short_product(centred, centred);
    const int32_t cube = rudel_short_product(square, centred), fourth = rudel_short_product(square, square);
    const int32_t tail = rudel_short_product(rudel_divide_by_power(fourth, 2) + cube, 10923) + square;
    int32_t result = 28918 + rudel_short_product(28918, centred + rudel_divide_by_power(tail, 1));
    if (x == 0) return 32767;
    result = rudel_saturate_short(result);
    for (int32_t i = 0; i < integer_bits + 2; i++) {
        if (multiples & (quarter << i)) result = rudel_short_product(result, factors[i]);
    }
    return integer_bits > 5 && x < -(1 << (fraction + 5)) ? 0 : result;
}

static int32_t rudel_short_inverse(int32_t x)
{
    /* 2 / (1 + x) for x in [0, 1], with two integer bits. */
    const int32_t half = (x + 32768) / 2;
    int32_t guess = 23130 + rudel_short_product(half, -15420);
    for (int32_t i = 0; i < 3; i++) {
        const int32_t rest = (1 << 13) - rudel_short_product(half, guess);
        guess += rudel_saturate_short(rudel_short_product(guess, rest) * 4);
    }
    return guess;
}

static inline int32_t rudel_logistic(int32_t x)
{
    const int32_t below = x < 0 ? x : -x;
    const int32_t upper = rudel_saturate_short(rudel_short_inverse(rudel_short_exp(below, 3)) * 2);
    return x == 0 ? 1 << 14 : x > 0 ? upper : 32767 - upper;
}

static inline int32_t rudel_tanh(int32_t x, int32_t integer_bits)
{
    const int32_t below = x < 0 ? x : -x;
    const int32_t upper = rudel_saturate_short(
        (rudel_short_inverse(rudel_short_exp(below, integer_bits + 1)) - (1 << 13)) * 4);
    return x == 0 ? 0 : x > 0 ? upper : -upper;
}
""",
    (SATURATE, DIVIDE),
)

TABLE_CURVES = Kernel(
    "table_curves",
    """\
/* The table holds the logistic function at multiples of 1/24, times 65536; x is in multiples of 1/12288. */
static inline int32_t rudel_table_logistic(const uint16_t *table, int32_t x)
{
    const uint32_t magnitude = x < 0 ? 0u - (uint32_t)x : (uint32_t)x, place = magnitude >> 9;
    uint32_t value = (uint32_t)0x7FFF << 10;
    if (place < 255u) {
        const uint32_t slope = (uint32_t)(table[place + 1] - table[place]);
        value = ((uint32_t)table[place] << 9) + (magnitude & 511u) * slope;
    }
    value = x >= 0 ? value + (1u << 9) : ((uint32_t)1 << 25) - value + (1u << 9) - 1u;
    return (int32_t)(value >> 10);
}

static inline int32_t rudel_table_tanh(const uint16_t *table, int32_t x)
{
    const uint32_t magnitude = x < 0 ? 0u - (uint32_t)x : (uint32_t)x, place = magnitude >> 8;
    int32_t value = (int32_t)0xFFFF << 8;
    if (place < 255u) {
        const uint32_t slope = (uint32_t)(table[place + 1] - table[place]);
        value = (int32_t)(((uint32_t)table[place] << 8) + (magnitude & 255u) * slope);
    }
    value = x >= 0 ? value - ((int32_t)1 << 23) + (1 << 7) : -value + ((int32_t)1 << 23) + (1 << 7) - 1;
    return value >> 8;
}
""",
)


def logistic_table() -> np.ndarray:
    """Returns the logistic function at multiples of 1/24, times 65536, as TFLM tabulates it.

    Half of what linear interpolation loses in the middle between two entries (an eighth of the second derivative) is
    added; the last entry is what the curve has beyond the table.
    """
    value = 1 / (1 + np.exp(-np.arange(255) / 24))
    bend = value * (1 - value) * (2 * value - 1) / 24**2
    return np.append(np.rint(65536 * (value + bend / 16)), 65535).astype(np.uint16)
