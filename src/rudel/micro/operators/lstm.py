"""UNIDIRECTIONAL_SEQUENCE_LSTM: int8 with a cell state of 16 bits, and float32; as Keras' LSTM layer becomes.

Gates are numbers of 16 bits. LiteRT computes their curves in gemmlowp's fixed point of 16 bits, TFLM by interpolating
a table of the logistic function; sums and products are rounded a little differently, too.
"""

import math
from dataclasses import dataclass

import numpy as np

from rudel.c_literals import float_literal
from rudel.micro.arithmetic import quantise_multiplier
from rudel.micro.emit import Constant, Context, Kernel, Step
from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.operators.checks import constant, quantised_int8, require
from rudel.micro.operators.outputs import TWICE

_GATES = ("input", "forget", "cell", "output")
_BEYOND = {9: "peepholes", 10: "peepholes", 11: "peepholes", 16: "a projection", 17: "a projection"}
_NORMS = (20, 21, 22, 23)

_SATURATE = Kernel(
    "saturate_short",
    """\
static inline int32_t rudel_saturate_short(int32_t x)
{
    return x < -32768 ? -32768 : x > 32767 ? 32767 : x;
}
""",
)

_DIVIDE = Kernel(
    "divide_by_power",
    """\
static inline int32_t rudel_divide_by_power(int32_t x, int32_t exponent)
{
    const int32_t mask = (int32_t)((1u << exponent) - 1u);
    return (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0));
}
""",
)

_FIXED_POINT = Kernel(
    "short_curves",
    """\
/* Fixed-point numbers of 16 bits: raw / 2^(15 - integer bits). */
static int32_t rudel_short_product(int32_t x, int32_t y)
{
    const int32_t product = x * y;
    return rudel_saturate_short((product + (product >= 0 ? 1 << 14 : 1 - (1 << 14))) / (1 << 15));
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

static int32_t rudel_logistic(int32_t x)
{
    const int32_t below = x < 0 ? x : -x;
    const int32_t upper = rudel_saturate_short(rudel_short_inverse(rudel_short_exp(below, 3)) * 2);
    return x == 0 ? 1 << 14 : x > 0 ? upper : 32767 - upper;
}

static int32_t rudel_tanh(int32_t x, int32_t integer_bits)
{
    const int32_t below = x < 0 ? x : -x;
    const int32_t upper = rudel_saturate_short(
        (rudel_short_inverse(rudel_short_exp(below, integer_bits + 1)) - (1 << 13)) * 4);
    return x == 0 ? 0 : x > 0 ? upper : -upper;
}
""",
    (_SATURATE, _DIVIDE),
)

_TABLE_CURVES = Kernel(
    "table_curves",
    """\
/* The table holds the logistic function at multiples of 1/24, times 65536. */
static int32_t rudel_logistic(const uint16_t *table, int32_t x)
{
    const uint32_t magnitude = (uint32_t)(x < 0 ? -x : x) * 3u, place = magnitude >> 9;
    uint32_t value = 0x7FFFu << 10;
    if (place < 255u) {
        const uint32_t slope = (uint32_t)(table[place + 1] - table[place]);
        value = ((uint32_t)table[place] << 9) + (magnitude & 511u) * slope;
    }
    value = x >= 0 ? value + (1u << 9) : (1u << 25) - value + (1u << 9) - 1u;
    return (int32_t)(value >> 10);
}

static int32_t rudel_tanh(const uint16_t *table, int32_t x, int32_t shift)
{
    const int32_t scaled = shift >= 0 ? x * (3 << shift) : (x * 3 + (1 << (-shift - 1))) >> -shift;
    const uint32_t magnitude = (uint32_t)(scaled < 0 ? -scaled : scaled), place = magnitude >> 8;
    int32_t value = 0xFFFF << 8;
    if (place < 255u) {
        const uint32_t slope = (uint32_t)(table[place + 1] - table[place]);
        value = (int32_t)(((uint32_t)table[place] << 8) + (magnitude & 255u) * slope);
    }
    value = scaled >= 0 ? value - (1 << 23) + (1 << 7) : -value + (1 << 23) + (1 << 7) - 1;
    return value >> 8;
}
""",
)


def _logistic_table() -> np.ndarray:
    """Returns the logistic function at multiples of 1/24, times 65536, as TFLM tabulates it.

    Half of what linear interpolation loses in the middle between two entries (an eighth of the second derivative) is
    added; the last entry is what the curve has beyond the table.
    """
    value = 1 / (1 + np.exp(-np.arange(255) / 24))
    bend = value * (1 - value) * (2 * value - 1) / 24**2
    return np.append(np.rint(65536 * (value + bend / 16)), 65535).astype(np.uint16)


_LAYER = Kernel(
    "lstm_type",
    """\
typedef struct {
    const int8_t *weights[4], *recurrent[4];
    const int32_t *bias[4], *recurrent_bias[4];
    int32_t scales[4][4];
    int32_t batch, steps, length, cells, batch_stride, step_stride, out_batch_stride, out_step_stride;
    int32_t clip, cell_power, hidden, hidden_exponent, hidden_zero, keep, keep_exponent, add, add_exponent;
} rudel_lstm_layer;
""",
)


def _int8_kernel(tflm: bool) -> Kernel:
    table = "p_table, " if tflm else ""
    parameter = "const uint16_t *p_table, " if tflm else ""
    second = "rudel_saturate_short(rudel_scale_twice(b, s[2], s[3]))" if tflm else "rudel_scale_twice(b, s[2], s[3])"
    gate_tanh = f"rudel_tanh({table}value, {0 if tflm else 3})"
    if tflm:
        kept = "rudel_saturate_short(rudel_scale_twice(gates[cells + c] * cell[c], p->keep, p->keep_exponent))"
        added = "rudel_saturate_short(rudel_scale_twice(gates[c] * gates[2 * cells + c], p->add, p->add_exponent))"
        cell_tanh = "rudel_tanh(p_table, value, 12 + p->cell_power)"
    else:
        kept = "(int16_t)rudel_divide_by_power(gates[cells + c] * cell[c], 15)"
        added = "(int16_t)rudel_divide_by_power(gates[c] * gates[2 * cells + c], 30 + p->cell_power)"
        cell_tanh = "rudel_tanh(value, 15 + p->cell_power)"
    return Kernel(
        "lstm",
        f"""\
static void rudel_lstm({parameter}const rudel_lstm_layer *p, const int8_t *in, int8_t *hidden, int16_t *cell,
                       int16_t *gates, int8_t *out)
{{
    const int32_t cells = p->cells;
    for (int32_t n = 0; n < p->batch; n++, hidden += cells, cell += cells) {{
        for (int32_t t = 0; t < p->steps; t++) {{
            const int8_t *x = in + n * p->batch_stride + t * p->step_stride;
            int8_t *y = out + n * p->out_batch_stride + t * p->out_step_stride;
            for (int32_t gate = 0; gate < 4; gate++) {{
                const int8_t *w = p->weights[gate], *r = p->recurrent[gate];
                const int32_t *s = p->scales[gate];
                for (int32_t c = 0; c < cells; c++) {{
                    int32_t a = p->bias[gate][c], b = p->recurrent_bias[gate][c], value;
                    for (int32_t i = 0; i < p->length; i++) a += *w++ * x[i];
                    for (int32_t i = 0; i < cells; i++) b += *r++ * hidden[i];
                    value = rudel_saturate_short(rudel_scale_twice(a, s[0], s[1]));
                    value = rudel_saturate_short(value + {second});
                    gates[gate * cells + c] = (int16_t)(gate == 2 ? {gate_tanh} : rudel_logistic({table}value));
                }}
            }}
            for (int32_t c = 0; c < cells; c++) {{
                const int32_t kept = {kept};
                const int32_t added = {added};
                int32_t value = rudel_saturate_short(kept + added);
                if (p->clip > 0) value = value < -p->clip ? -p->clip : value > p->clip ? p->clip : value;
                cell[c] = (int16_t)value;
                value = {cell_tanh} * gates[3 * cells + c];
                value = rudel_scale_twice(value, p->hidden, p->hidden_exponent) + p->hidden_zero;
                hidden[c] = (int8_t)(value < -128 ? -128 : value > 127 ? 127 : value);
                y[c] = hidden[c];
            }}
        }}
    }}
}}
""",
        (TWICE, _SATURATE, _TABLE_CURVES if tflm else _FIXED_POINT, _LAYER),
    )


_FLOAT = Kernel(
    "lstm_float",
    """\
typedef struct {
    const float *weights[4], *recurrent[4], *bias[4];
    int32_t batch, steps, length, cells, batch_stride, step_stride, out_batch_stride, out_step_stride;
    float clip;
} rudel_lstm_float_layer;

static void rudel_lstm_float(const rudel_lstm_float_layer *p, const float *in, float *hidden, float *cell, float *gates,
                             float *out)
{
    const int32_t cells = p->cells;
    for (int32_t n = 0; n < p->batch; n++, hidden += cells, cell += cells) {
        for (int32_t t = 0; t < p->steps; t++) {
            const float *x = in + n * p->batch_stride + t * p->step_stride;
            float *y = out + n * p->out_batch_stride + t * p->out_step_stride;
            for (int32_t gate = 0; gate < 4; gate++) {
                const float *w = p->weights[gate], *r = p->recurrent[gate];
                for (int32_t c = 0; c < cells; c++) {
                    float sum = p->bias[gate][c];
                    for (int32_t i = 0; i < p->length; i++) sum += *w++ * x[i];
                    for (int32_t i = 0; i < cells; i++) sum += *r++ * hidden[i];
                    gates[gate * cells + c] = gate == 2 ? tanhf(sum) : 1.0f / (1.0f + expf(-sum));
                }
            }
            for (int32_t c = 0; c < cells; c++) {
                float value = gates[cells + c] * cell[c] + gates[c] * gates[2 * cells + c];
                if (p->clip > 0.0f) value = value < -p->clip ? -p->clip : value > p->clip ? p->clip : value;
                cell[c] = value;
                hidden[c] = tanhf(value) * gates[3 * cells + c];
                y[c] = hidden[c];
            }
        }
    }
}
""",
    headers=("math.h",),
)


@dataclass(frozen=True)
class _Sizes:
    batch: int
    steps: int
    length: int
    cells: int
    strides: str


def _sizes(operator: Operator, graph: Graph) -> _Sizes:
    """Checks which inputs there are, and all shapes."""
    given = dict(enumerate(operator.inputs))
    require(len(given) >= 20 and len(operator.outputs) == 1, operator, f"it has {len(given)} inputs")
    for place in (0, *range(2, 5), *range(6, 9), *range(13, 16), 18, 19):
        require(given[place] >= 0, operator, f"its input {place} is missing")
    require(given[1] >= 0 and given[5] >= 0, operator, "its input and forget gates are coupled")
    for place, what in _BEYOND.items():
        require(given[place] < 0, operator, f"it has {what}")
    for place in _NORMS:
        require(given.get(place, -1) < 0, operator, "it has layer normalisation")
    require(operator.options["activation"] == "TANH", operator, f"its activation is {operator.options['activation']}")
    source, output = graph[given[0]], graph[operator.outputs[0]]
    require(len(source.shape) == 3, operator, f"its input is {list(source.shape)}")
    batch, steps, length = source.shape
    major = bool(operator.options.get("time_major", 0))
    if major:
        steps, batch = batch, steps
    weights = constant(operator, graph, 2, "weights")
    require(weights.ndim == 2 and len(graph[operator.outputs[0]].shape) == 3, operator, "its weights do not fit")
    cells = weights.shape[0]
    for number, name in enumerate(_GATES):
        shapes = [
            constant(operator, graph, place, f"weights of the {name} gate").shape for place in (1 + number, 5 + number)
        ]
        biases = constant(operator, graph, 12 + number, f"biases of the {name} gate")
        require(
            shapes == [(cells, length), (cells, cells)] and biases.size == cells, operator, "its weights do not fit"
        )
    states = [graph[operator.inputs[place]] for place in (18, 19)]
    require(
        all(state.variable and state.size == batch * cells for state in states)
        and output.size == batch * steps * cells,
        operator,
        "its states or its output do not fit its weights",
    )
    apart = (length, batch * length, cells, batch * cells) if major else (steps * length, length, steps * cells, cells)
    return _Sizes(batch, steps, length, cells, ", ".join(map(str, apart)))


def lower_lstm(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of an LSTM of int8."""
    sizes = _sizes(operator, graph)
    source, hidden, cell = (graph[operator.inputs[place]] for place in (0, 18, 19))
    output = graph[operator.outputs[0]]
    for tensor in (source, hidden, output):
        quantised_int8(tensor, operator)
    require(cell.dtype == "int16" and cell.quantised, operator, f"its cell state is {cell.dtype}, not int16")
    power = math.log2(cell.scale)
    require(power == round(power) and -15 <= power <= -9, operator, f"its cell state's scale is {cell.scale:.6g}")
    tflm = context.rounding == "tflm"
    rounded = float if tflm else _single
    constants: dict[str, Constant] = {}
    scales = []
    for number, name in enumerate(_GATES):
        row = []
        for key, place, given in (("weights", 1, source), ("recurrent", 5, hidden)):
            tensor = graph[operator.inputs[place + number]]
            weights = constant(operator, graph, place + number, "weights")
            require(
                weights.dtype == np.int8 and tensor.quantised, operator, f"its weights are {tensor.dtype}, not int8"
            )
            folded = -given.zero_point * weights.astype(np.int64).sum(axis=1)
            if key == "weights":
                bias = constant(operator, graph, 12 + number, "biases").ravel()
                require(bias.dtype == np.int32, operator, f"its biases are {bias.dtype}, not int32")
                folded = folded + bias
            reach = np.abs(weights.astype(np.int64)).sum(axis=1) * 128 + np.abs(folded)
            require(int(reach.max()) < 1 << 31, operator, "its sums can exceed 32 bits")
            constants[f"{name}_{key}"] = Constant(weights)
            constants[f"{name}_{key}_bias"] = Constant(folded.astype(np.int32))
            row += quantise_multiplier(rounded(tensor.scale * given.scale) * 4096.0)
        scales.append("{" + ", ".join(map(str, row)) + "}")
    state = _hidden_quantisation(operator, graph, hidden)
    cell_scale = cell.scale
    clip = operator.options.get("cell_clip", 0.0)
    quantised_clip = int(min(max(float(np.float32(clip)) / cell_scale, -32768.0), 32767.0)) if clip > 0 else 0
    numbers = (
        quantised_clip,
        int(power),
        *quantise_multiplier(rounded(2.0**-30 / state[0])),
        state[1],
        *quantise_multiplier(2.0**-15),
        *quantise_multiplier(2.0**-30 / cell_scale),
    )
    groups = [
        "{" + ", ".join(f"${name}_{key}" for name in _GATES) + "}"
        for key in ("weights", "recurrent", "weights_bias", "recurrent_bias")
    ]
    fields = (
        f"{', '.join(groups)}, {{{', '.join(scales)}}}, {sizes.batch}, {sizes.steps}, {sizes.length}, {sizes.cells}, "
        f"{sizes.strides}, {', '.join(map(str, numbers))}"
    )
    if tflm:
        constants["curve"] = Constant(_logistic_table())
    return Step(
        operator,
        f"rudel_lstm({'$curve, ' if tflm else ''}&$layer, $in0, $in18, $in19, (int16_t *)(void *)($scratch), $out0);",
        (_int8_kernel(tflm),),
        constants,
        {"layer": f"static const rudel_lstm_layer $name = {{{fields}}};"},
        scratch=8 * sizes.cells,
        macs=4 * sizes.batch * sizes.steps * sizes.cells * (sizes.length + sizes.cells),
        reads=(0, 18, 19),
    )


def _single(value: float) -> float:
    """Returns a number as float32 holds it: LiteRT keeps effective scales in single precision, TFLM in double."""
    return float(np.float32(value))


def _hidden_quantisation(operator: Operator, graph: Graph, hidden: Tensor) -> tuple[float, int]:
    """Returns scale and zero point of what a cell gives: those of the fifth intermediate where there is one."""
    if len(operator.intermediates) >= 5 and operator.intermediates[4] >= 0:
        tensor = graph[operator.intermediates[4]]
        if tensor.quantised:
            require(
                (tensor.scale, tensor.zero_point) == (hidden.scale, hidden.zero_point),
                operator,
                "its hidden values and its output state are quantised differently",
            )
    return hidden.scale, hidden.zero_point


def lower_lstm_float(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of an LSTM of float32."""
    sizes = _sizes(operator, graph)
    constants: dict[str, Constant] = {}
    for number, name in enumerate(_GATES):
        for key, place in (("weights", 1), ("recurrent", 5), ("bias", 12)):
            values = constant(operator, graph, place + number, key)
            require(values.dtype == np.float32, operator, f"its {key} are {values.dtype}, not float32")
            constants[f"{name}_{key}"] = Constant(values)
    groups = ["{" + ", ".join(f"${name}_{key}" for name in _GATES) + "}" for key in ("weights", "recurrent", "bias")]
    fields = (
        f"{', '.join(groups)}, {sizes.batch}, {sizes.steps}, {sizes.length}, {sizes.cells}, {sizes.strides}, "
        f"{float_literal(operator.options.get('cell_clip', 0.0))}"
    )
    return Step(
        operator,
        "rudel_lstm_float(&$layer, $in0, $in18, $in19, (float *)(void *)($scratch), $out0);",
        (_FLOAT,),
        constants,
        {"layer": f"static const rudel_lstm_float_layer $name = {{{fields}}};"},
        scratch=16 * sizes.cells,
        macs=4 * sizes.batch * sizes.steps * sizes.cells * (sizes.length + sizes.cells),
        reads=(0, 18, 19),
    )
