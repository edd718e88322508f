"""UNIDIRECTIONAL_SEQUENCE_LSTM: int8 and int16 with a cell state of 16 bits, and float32; as Keras' LSTM layer becomes.

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
from rudel.micro.int16_requantisation import reduced
from rudel.micro.operators.checks import constant, quantised_activations, require
from rudel.micro.operators.curves import FIXED_POINT, SATURATE, TABLE_CURVES, logistic_table
from rudel.micro.operators.int16_sums import exceeds_32_bits, int16_reach
from rudel.micro.operators.outputs import FORMS, OUTPUT, TWICE

_GATES = ("input", "forget", "cell", "output")
_BEYOND = {9: "peepholes", 10: "peepholes", 11: "peepholes", 16: "a projection", 17: "a projection"}
_NORMS = (20, 21, 22, 23)


def _layer(name: str, kind: str) -> Kernel:
    """Returns the type of a layer; `kind`: of the activations in C."""
    sums = (
        "    const int32_t *bias[4], *recurrent_bias[4];\n    int32_t scales[4][4];\n"
        if kind == "int8_t"
        else "    const int32_t *rows[4], *recurrent_rows[4];\n    rudel_output gate;\n"
    )
    return Kernel(
        f"{name}_type",
        f"""\
typedef struct {{
    const int8_t *weights[4], *recurrent[4];
{sums}    int32_t batch, steps, length, cells, batch_stride, step_stride, out_batch_stride, out_step_stride;
    int32_t clip, cell_power, hidden, hidden_exponent, hidden_zero, keep, keep_exponent, add, add_exponent;
}} rudel_{name}_layer;
""",
        () if kind == "int8_t" else (OUTPUT,),
    )


_THRICE = Kernel(
    "thrice",
    """\
/* Three times x * 2^shift. */
static inline int32_t rudel_thrice(int32_t x, int32_t shift)
{
    return shift >= 0 ? x * (3 << shift) : (x * 3 + (1 << (-shift - 1))) >> -shift;
}
""",
)

_INT8_SUMS = """\
                const int32_t *s = p->scales[gate];
                for (int32_t c = 0; c < cells; c++) {{
                    int32_t a = p->bias[gate][c], b = p->recurrent_bias[gate][c], value;
                    for (int32_t i = 0; i < p->length; i++) a += *w++ * x[i];
                    for (int32_t i = 0; i < cells; i++) b += *r++ * hidden[i];
                    value = rudel_saturate_short(rudel_scale_twice(a, s[0], s[1]));
                    value = rudel_saturate_short(value + {second});
"""

_INT16_SUMS = """\
                for (int32_t c = 0; c < cells; c++) {{
                    {sums} a = 0, b = 0;
                    int32_t value;
                    for (int32_t i = 0; i < p->length; i++) a += (int32_t)*w++ * x[i];
                    for (int32_t i = 0; i < cells; i++) b += (int32_t)*r++ * hidden[i];
                    value = rudel_reduced(a, p->rows[gate] + 4 * c, &p->gate);
                    value = rudel_saturate_short(value + rudel_reduced(b, p->recurrent_rows[gate], &p->gate));
"""


def _kernel(tflm: bool, kind: str, wide: bool = False) -> Kernel:
    """Returns the kernel for activations of a C type; `wide`: whether sums of int16 have 64 bits."""
    name = "lstm" if kind == "int8_t" else "lstm_int16_wide" if wide else "lstm_int16"
    least, most = ("-128", "127") if kind == "int8_t" else ("-32768", "32767")
    parameter = "const uint16_t *p_table, " if tflm else ""
    kept, added = "(int32_t)gates[cells + c] * cell[c]", "(int32_t)gates[c] * gates[2 * cells + c]"
    if tflm:
        second = "rudel_saturate_short(rudel_scale_twice(b, s[2], s[3]))"
        kept = f"rudel_saturate_short(rudel_scale_twice({kept}, p->keep, p->keep_exponent))"
        added = f"rudel_saturate_short(rudel_scale_twice({added}, p->add, p->add_exponent))"
        gate_curves = "rudel_table_tanh(p_table, value * 3) : rudel_table_logistic(p_table, value * 3)"
        cell_tanh = "rudel_table_tanh(p_table, rudel_thrice(value, 12 + p->cell_power))"
    else:
        second = "rudel_scale_twice(b, s[2], s[3])"
        kept = f"(int16_t)rudel_divide_by_power({kept}, 15)"
        added = f"(int16_t)rudel_divide_by_power({added}, 30 + p->cell_power)"
        gate_curves = "rudel_tanh(value, 3) : rudel_logistic(value)"
        cell_tanh = "rudel_tanh(value, 15 + p->cell_power)"
    if kind == "int8_t":
        sums = _INT8_SUMS.format(second=second)
    else:
        sums = _INT16_SUMS.format(sums="int64_t" if wide else "int32_t")
    return Kernel(
        name,
        f"""\
static void rudel_{name}({parameter}const rudel_{name}_layer *p, const {kind} *in, {kind} *hidden, int16_t *cell,
                       int16_t *gates, {kind} *out)
{{
    const int32_t cells = p->cells;
    for (int32_t n = 0; n < p->batch; n++, hidden += cells, cell += cells) {{
        for (int32_t t = 0; t < p->steps; t++) {{
            const {kind} *x = in + n * p->batch_stride + t * p->step_stride;
            {kind} *y = out + n * p->out_batch_stride + t * p->out_step_stride;
            for (int32_t gate = 0; gate < 4; gate++) {{
                const int8_t *w = p->weights[gate], *r = p->recurrent[gate];
{sums}                    gates[gate * cells + c] = (int16_t)(gate == 2 ? {gate_curves});
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
                hidden[c] = ({kind})(value < {least} ? {least} : value > {most} ? {most} : value);
                y[c] = hidden[c];
            }}
        }}
    }}
}}
""",
        (
            TWICE,
            SATURATE,
            *((TABLE_CURVES, _THRICE) if tflm else (FIXED_POINT,)),
            *(() if kind == "int8_t" else (FORMS["reduced"],)),
            _layer(name, kind),
        ),
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
    """Makes a step of an LSTM of int8 or int16, whose cell state is int16."""
    sizes = _sizes(operator, graph)
    source, hidden, cell = (graph[operator.inputs[place]] for place in (0, 18, 19))
    quantised_activations(operator, source, hidden, graph[operator.outputs[0]])
    tflm, short = context.rounding == "tflm", source.dtype == "int16"
    require(
        tflm or not short,
        operator,
        "LiteRT has no kernel of it for int16 activations: use the rounding `tflm`",
    )
    require(cell.dtype == "int16" and cell.quantised, operator, f"its cell state is {cell.dtype}, not int16")
    power = math.log2(cell.scale)
    require(power == round(power) and -15 <= power <= -9, operator, f"its cell state's scale is {cell.scale:.6g}")
    constants, sums, wide = (_int16_sums if short else _int8_sums)(operator, graph, source, hidden, tflm)
    state = _hidden_quantisation(operator, graph, hidden)
    clip = operator.options.get("cell_clip", 0.0)
    quantised_clip = int(min(max(float(np.float32(clip)) / cell.scale, -32768.0), 32767.0)) if clip > 0 else 0
    numbers = (
        quantised_clip,
        int(power),
        *quantise_multiplier((float if tflm else _single)(2.0**-30 / state[0])),
        state[1],
        *quantise_multiplier(2.0**-15),
        *quantise_multiplier(2.0**-30 / cell.scale),
    )
    groups = ["{" + ", ".join(f"${name}_{key}" for name in _GATES) + "}" for key in ("weights", "recurrent")]
    fields = (
        f"{', '.join(groups)}, {sums}, {sizes.batch}, {sizes.steps}, {sizes.length}, {sizes.cells}, "
        f"{sizes.strides}, {', '.join(map(str, numbers))}"
    )
    if tflm:
        constants["curve"] = Constant(logistic_table())
    kernel = _kernel(tflm, "int16_t" if short else "int8_t", wide)
    table = "$curve, " if tflm else ""
    return Step(
        operator,
        f"rudel_{kernel.name}({table}&$layer, $in0, $in18, $in19, (int16_t *)(void *)($scratch), $out0);",
        (kernel,),
        constants,
        {"layer": f"static const rudel_{kernel.name}_layer $name = {{{fields}}};"},
        scratch=8 * sizes.cells,
        macs=4 * sizes.batch * sizes.steps * sizes.cells * (sizes.length + sizes.cells),
        reads=(0, 18, 19),
    )


_Sums = tuple[dict[str, Constant], str, bool]
"""Arrays of an LSTM, the initialiser of what the sums of its gates need, and whether they need 64 bits."""


def _weights(operator: Operator, graph: Graph, place: int) -> np.ndarray:
    tensor = graph[operator.inputs[place]]
    weights = constant(operator, graph, place, "weights")
    require(weights.dtype == np.int8 and tensor.quantised, operator, f"its weights are {tensor.dtype}, not int8")
    return weights


def _biases(operator: Operator, graph: Graph, number: int, dtype: str) -> np.ndarray:
    bias = constant(operator, graph, 12 + number, "biases").ravel()
    require(bias.dtype == dtype, operator, f"its biases are {bias.dtype}, not {dtype}")
    return bias.astype(np.int64)


def _int8_sums(operator: Operator, graph: Graph, source: Tensor, hidden: Tensor, tflm: bool) -> _Sums:
    rounded = float if tflm else _single
    constants: dict[str, Constant] = {}
    scales = []
    for number, name in enumerate(_GATES):
        row = []
        for key, place, given in (("weights", 1, source), ("recurrent", 5, hidden)):
            weights = _weights(operator, graph, place + number)
            folded = -given.zero_point * weights.astype(np.int64).sum(axis=1)
            if key == "weights":
                folded = folded + _biases(operator, graph, number, "int32")
            reach = np.abs(weights.astype(np.int64)).sum(axis=1) * 128 + np.abs(folded)
            require(int(reach.max()) < 1 << 31, operator, "its sums can exceed 32 bits")
            constants[f"{name}_{key}"] = Constant(weights)
            constants[f"{name}_{key}_bias"] = Constant(folded.astype(np.int32))
            scale = graph[operator.inputs[place + number]].scale
            row += quantise_multiplier(rounded(scale * given.scale) * 4096.0)
        scales.append("{" + ", ".join(map(str, row)) + "}")
    groups = ["{" + ", ".join(f"${name}_{key}_bias" for name in _GATES) + "}" for key in ("weights", "recurrent")]
    return constants, f"{', '.join(groups)}, {{{', '.join(scales)}}}", False


def _int16_sums(operator: Operator, graph: Graph, source: Tensor, hidden: Tensor, tflm: bool) -> _Sums:
    constants: dict[str, Constant] = {}
    wide = False
    for number, name in enumerate(_GATES):
        for key, place, given in (("weights", 1, source), ("recurrent", 5, hidden)):
            weights = _weights(operator, graph, place + number)
            bias = _biases(operator, graph, number, "int64") if key == "weights" else np.zeros(1, np.int64)
            factor = given.scale * graph[operator.inputs[place + number]].scale * 4096.0
            constants[f"{name}_{key}"] = Constant(weights)
            constants[f"{name}_{key}_rows"] = Constant(reduced(np.full(bias.shape, factor), bias, (-32768, 32767)).data)
            reach = int16_reach(weights.astype(np.int64), np.zeros(len(weights), np.int64))
            wide = wide or exceeds_32_bits(reach)
    groups = ["{" + ", ".join(f"${name}_{key}_rows" for name in _GATES) + "}" for key in ("weights", "recurrent")]
    return constants, f"{', '.join(groups)}, {{0, 0, -32768, 32767}}", wide


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
