"""SOFTMAX of int8: exponentials from a table, one division for each row.

LiteRT's reference kernel and TFLM compute in fixed point. XNNPACK does not take the operator, and LiteRT's own
optimised kernel computes in single precision then: the exponentials are added one after the other in the order of the
row, and what is rounded, half away from zero, is their product with 1 / (sum * scale of the output).
"""

import numpy as np

from rudel.c_literals import float_literal
from rudel.micro.arithmetic import divide_by_power, multiply, quantise_multiplier
from rudel.micro.emit import FORWARD, Constant, Context, Kernel, Step
from rudel.micro.fixed_point import exp_of_negative
from rudel.micro.graph import Graph, Operator
from rudel.micro.libm import expf
from rudel.micro.operators.checks import arity, quantised_int8, require, same_shape

_INTEGER_BITS = 5

_SOFTMAX = Kernel(
    "softmax",
    """\
static int32_t rudel_high_product(int32_t x, int32_t y)
{
    return (int32_t)(((int64_t)x * y + ((int32_t)1 << 30)) >> 31);
}

static void rudel_softmax(const int32_t *exponentials, int32_t known, const int8_t *in, int8_t *out, int32_t rows,
                          int32_t depth)
{
    for (; rows > 0; rows--, in += depth, out += depth) {
        int32_t most = -128, sum = 0, over = 0, half, guess;
        for (int32_t i = 0; i < depth; i++) most = in[i] > most ? in[i] : most;
        for (int32_t i = 0; i < depth; i++) {
            const int32_t below = most - in[i];
            if (below < known) sum += (int32_t)(((uint32_t)exponentials[below] + (1u << 11)) >> 12);
        }
        while (((uint32_t)sum << over) < 0x80000000u) over++;
        /* sum * 2^over is 1 + x with x in [0, 1), and half of it the denominator of Newton's steps for 1 / (1 + x). */
        half = (int32_t)(((uint32_t)sum << over) & 0x7FFFFFFFu);
        half = (int32_t)(((int64_t)half + 0x7FFFFFFF + 1) / 2);
        guess = 1515870810 + rudel_high_product(half, -1010580540);
        for (int32_t i = 0; i < 3; i++) {
            const int32_t rest = ((int32_t)1 << 29) - rudel_high_product(half, guess);
            guess += (int32_t)((uint32_t)rudel_high_product(guess, rest) << 2);
        }
        guess = guess > 0x3FFFFFFF ? 0x7FFFFFFF : guess * 2;
        for (int32_t i = 0; i < depth; i++) {
            const int32_t below = most - in[i], shift = 12 - over + 23;
            int32_t value = 0;
            if (below < known) {
                value = rudel_high_product(guess, exponentials[below]);
                value = shift > 31 ? 0 : (value >> shift) + ((value >> (shift - 1)) & 1);
            }
            out[i] = (int8_t)(value > 255 ? 127 : value - 128);
        }
    }
}
""",
)


# Rounding doubles first, and takes no difference, so that no compiler can fuse it with the product.
_SOFTMAX_SINGLE = Kernel(
    "softmax_single",
    """\
static void rudel_softmax_single(const float *exponentials, int32_t known, float scale, const int8_t *in, int8_t *out,
                                 int32_t rows, int32_t depth)
{
    for (; rows > 0; rows--, in += depth, out += depth) {
        int32_t most = -128;
        float sum = 0.0f, factor;
        for (int32_t i = 0; i < depth; i++) most = in[i] > most ? in[i] : most;
        for (int32_t i = 0; i < depth; i++) {
            const int32_t below = most - in[i];
            if (below < known) sum += exponentials[below];
        }
        factor = 1.0f / (sum * scale);
        for (int32_t i = 0; i < depth; i++) {
            const int32_t below = most - in[i];
            const int32_t halves = below < known ? (int32_t)(exponentials[below] * factor * 2.0f) : 0;
            const int32_t value = (halves + 1) >> 1;
            out[i] = (int8_t)(value > 255 ? 127 : value - 128);
        }
    }
}
""",
)


def exponentials(scale: float, beta: float) -> np.ndarray:
    """Returns exp(-n * scale * beta) without integer bits for n = 0, 1, ..., int64, as far as it is not taken for 0.

    Where scale * beta is 16 or more, interpreters take all but the first for 0; here the second is less than 2**-23.
    """
    real = min(float(np.float32(beta)) * float(np.float32(scale)) * (1 << (31 - _INTEGER_BITS)), (1 << 30) - 1.0)
    multiplier, exponent = quantise_multiplier(real)
    radius = int(((1 << _INTEGER_BITS) - 1) * (1 << (31 - _INTEGER_BITS)) / (1 << exponent))
    below = np.arange(min(radius, 255) + 1, dtype=np.int64)
    return exp_of_negative(multiply(-below, multiplier, exponent), _INTEGER_BITS)


def single_exponentials(scale: float, beta: float) -> np.ndarray:
    """Returns exp(-n * scale * beta) for n = 0, 1, ..., float32, as far as it is not 0; exponents are float32 too."""
    table = expf(-np.float32(scale) * np.float32(beta) * np.arange(256, dtype=np.float32))
    return table[: int(np.count_nonzero(table))]


def lower_softmax(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a SOFTMAX of int8."""
    arity(operator, 1)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    quantised_int8(source, operator)
    quantised_int8(output, operator)
    same_shape(source, output, operator)
    require(
        output.zero_point == -128 and abs(output.scale - 1 / 256) < 0.001 / 256,
        operator,
        f"its output has scale {output.scale:.6g} and zero point {output.zero_point}, not 1/256 and -128",
    )
    depth = source.shape[-1] if source.shape else 1
    if context.rounding == "xnnpack":
        single = single_exponentials(source.scale, operator.options["beta"])
        size = f"{source.size // depth}, {depth}"
        return Step(
            operator,
            f"rudel_softmax_single($table, {len(single)}, {float_literal(output.scale)}, $in0, $out0, {size});",
            (_SOFTMAX_SINGLE,),
            {"table": Constant(single)},
            overlap={(0, 0): FORWARD},
            macs=0,
        )
    table = exponentials(source.scale, operator.options["beta"])
    # An exponential that vanishes in the sum is below 2**-20 and vanishes in outputs of 8 bits as well.
    table = table[: int(np.count_nonzero(divide_by_power(table, 12)))]
    return Step(
        operator,
        f"rudel_softmax($table, {len(table)}, $in0, $out0, {source.size // depth}, {depth});",
        (_SOFTMAX,),
        {"table": Constant(table.astype(np.int32))},
        overlap={(0, 0): FORWARD},
        macs=0,
    )
