"""SOFTMAX of int16: exponentials and the reciprocal of their sum are interpolated in tables of 513 entries."""

from collections.abc import Callable

import numpy as np

from rudel.micro.arithmetic import quantise_multiplier
from rudel.micro.emit import FORWARD, Constant, Context, Kernel, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.checks import arity, quantised_int16, require, same_shape
from rudel.micro.operators.outputs import TWICE

_SOFTMAX = Kernel(
    "softmax_int16",
    """\
static int32_t rudel_interpolated(const int16_t *table, int32_t x)
{
    const int16_t *at = table + 256 + (x >> 7);
    return at[0] + (((at[1] - at[0]) * (x & 127) + 64) >> 7);
}

static void rudel_softmax_int16(const int16_t *exponentials, const int16_t *reciprocals, int32_t factor,
                                int32_t exponent, const int16_t *in, int16_t *out, int32_t rows, int32_t depth)
{
    for (; rows > 0; rows--, in += depth, out += depth) {
        int32_t most = -32768, bits = 0, place, reciprocal;
        uint32_t sum = 0;
        for (int32_t i = 0; i < depth; i++) most = in[i] > most ? in[i] : most;
        for (int32_t i = 0; i < depth; i++) {
            const int32_t below = rudel_scale_twice(in[i] - most, factor, exponent) + 32767;
            const int32_t value = rudel_interpolated(exponentials, below < -32768 ? -32768 : below);
            out[i] = (int16_t)value;
            sum += (uint32_t)value;
        }
        while (bits < 32 && sum >> bits) bits++;
        /* sum / 2^(bits - 1) is 1 + x with x in [0, 1); the table holds 1 / (1 + x). */
        place = (int32_t)((((uint64_t)sum << (31 - bits)) + (1u << 13)) >> 14) - ((int32_t)3 << 15);
        reciprocal = rudel_interpolated(reciprocals, place > 32767 ? 32767 : place);
        for (int32_t i = 0; i < depth; i++) {
            const int64_t value = ((int64_t)out[i] * reciprocal + ((int64_t)1 << (bits - 2))) >> (bits - 1);
            out[i] = (int16_t)(value > 32767 ? 32767 : value);
        }
    }
}
""",
    (TWICE,),
)


def _table(function: Callable[[np.ndarray], np.ndarray], low: float, high: float, dtype: type) -> np.ndarray:
    """Returns a function of reals at 513 places, times 32768, int16.

    From each entry half of what linear interpolation is wrong by in the middle to the next one is taken.

    Args:
        function: of arrays.
        low: the first place.
        high: the last one.
        dtype: what is computed with.
    """
    places = dtype(low) + np.arange(513, dtype=dtype) * dtype((high - low) / 512)
    values = _nearest(function(places) * dtype(32768))
    between = _nearest((function(places[1:]) * dtype(32768) + values[:-1]) / dtype(2))
    middle = _nearest(function(places[:-1] + dtype((high - low) / 1024)) * dtype(32768))
    values[:-1] -= _nearest((between - middle) / dtype(2))
    return np.clip(values, -32768, 32767).astype(np.int16)


def _nearest(values: np.ndarray) -> np.ndarray:
    """Returns the nearest integers, halves away from zero, in the same type."""
    return np.copysign(np.floor(np.abs(values) + values.dtype.type(0.5)), values)


def lower_softmax(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of a SOFTMAX of int16."""
    arity(operator, 1)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    for tensor in (source, output):
        quantised_int16(tensor, operator)
    same_shape(source, output, operator)
    require(abs(output.scale * 32768 - 1) < 0.001, operator, f"its output has scale {output.scale:.6g}, not 1/32768")
    depth = source.shape[-1] if source.shape else 1
    factor, exponent = quantise_multiplier(source.scale * float(np.float32(operator.options["beta"])) / (10.0 / 65535))
    # TFLM tabulates in single precision, which shows in the reciprocals only.
    dtype = np.float32 if context.rounding == "tflm" else np.float64
    return Step(
        operator,
        f"rudel_softmax_int16($exponentials, $reciprocals, {factor}, {exponent}, $in0, $out0, "
        f"{source.size // depth}, {depth});",
        (_SOFTMAX,),
        {
            "exponentials": Constant(_table(np.exp, -10.0, 0.0, np.float64)),
            "reciprocals": Constant(_table(lambda x: 1 / (1 + x), 0.0, 1.0, dtype)),
        },
        overlap={(0, 0): FORWARD},
    )
