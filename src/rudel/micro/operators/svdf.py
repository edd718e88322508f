"""SVDF of int8: a dense layer in time and features, with a memory of 16 bits for each filter."""

import numpy as np

from rudel.micro.arithmetic import quantise_multiplier
from rudel.micro.emit import Constant, Context, Kernel, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.checks import constant, quantised_int8, require
from rudel.micro.operators.outputs import TWICE

_SVDF = Kernel(
    "svdf",
    """\
typedef struct {
    const int8_t *features;
    const int16_t *times;
    const int32_t *bias;
    int32_t batch, length, filters, rank, memory, in_zero, zero_point;
    int32_t first, first_exponent, second, second_exponent;
} rudel_svdf_layer;

static void rudel_svdf(const rudel_svdf_layer *p, const int8_t *in, int16_t *state, int8_t *out)
{
    for (int32_t n = 0; n < p->batch; n++, in += p->length) {
        const int8_t *w = p->features;
        const int16_t *t = p->times;
        for (int32_t unit = 0; unit < p->filters / p->rank; unit++) {
            uint32_t sum = (uint32_t)p->bias[unit];
            int32_t value;
            for (int32_t r = 0; r < p->rank; r++) {
                int32_t dot = 0;
                for (int32_t i = 0; i < p->length; i++) dot += *w++ * (in[i] - p->in_zero);
                dot = rudel_scale_twice(dot, p->first, p->first_exponent);
                dot = dot < -32768 ? -32768 : dot > 32767 ? 32767 : dot;
                for (int32_t m = 0; m + 1 < p->memory; m++) state[m] = state[m + 1];
                state[p->memory - 1] = (int16_t)dot;
                for (int32_t m = 0; m < p->memory; m++) sum += (uint32_t)((int32_t)*t++ * state[m]);
                state += p->memory;
            }
            value = rudel_scale_twice((int32_t)sum, p->second, p->second_exponent) + p->zero_point;
            *out++ = (int8_t)(value < -128 ? -128 : value > 127 ? 127 : value);
        }
    }
}
""",
    (TWICE,),
)


def lower_svdf(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of an SVDF of int8 with a state of int16."""
    require(
        len(operator.inputs) == 5 and min(operator.inputs[i] for i in (0, 1, 2, 4)) >= 0, operator, "it lacks an input"
    )
    source, features, times, state = (graph[operator.inputs[i]] for i in (0, 1, 2, 4))
    output = graph[operator.outputs[0]]
    quantised_int8(source, operator)
    quantised_int8(output, operator)
    weights = constant(operator, graph, 1, "feature weights")
    time_weights = constant(operator, graph, 2, "time weights")
    require(
        weights.dtype == np.int8 and time_weights.dtype == np.int16 and state.dtype == "int16" and state.variable,
        operator,
        f"its weights are {weights.dtype} and {time_weights.dtype} and its state {state.dtype}, not int8, int16, int16",
    )
    require(features.quantised and times.quantised and state.quantised, operator, "a tensor has no quantisation")
    rank = int(operator.options["rank"])
    require(
        weights.ndim == time_weights.ndim == 2 and rank > 0 and source.size % max(weights.shape[1], 1) == 0,
        operator,
        "its weights do not fit",
    )
    filters, length = weights.shape
    memory = time_weights.shape[1]
    batch = source.size // length
    require(
        time_weights.shape[0] == filters
        and filters % rank == 0
        and memory > 0
        and state.size == batch * filters * memory
        and output.size == batch * filters // rank,
        operator,
        f"weights {list(weights.shape)} and {list(time_weights.shape)} do not fit state {list(state.shape)}",
    )
    bias = np.zeros(filters // rank, np.int32)
    if operator.inputs[3] >= 0:
        bias = constant(operator, graph, 3, "biases").ravel()
        require(bias.dtype == np.int32 and bias.size == filters // rank, operator, "its biases do not fit")
    single = np.float32
    first = quantise_multiplier(float(single(source.scale) * single(features.scale) / single(state.scale)))
    second = quantise_multiplier(float(single(state.scale) * single(times.scale) / single(output.scale)))
    fields = f"{batch}, {length}, {filters}, {rank}, {memory}, {source.zero_point}, {output.zero_point}"
    fields += f", {first[0]}, {first[1]}, {second[0]}, {second[1]}"
    return Step(
        operator,
        "rudel_svdf(&$layer, $in0, $in4, $out0);",
        (_SVDF,),
        {"features": Constant(weights), "times": Constant(time_weights), "bias": Constant(bias)},
        {"layer": f"static const rudel_svdf_layer $name = {{$features, $times, $bias, {fields}}};"},
        macs=batch * filters * (length + memory),
        reads=(0, 4),
    )
