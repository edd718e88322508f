"""CONV_2D and FULLY_CONNECTED of int16 with dual multiplications: four outputs at a time, four inputs at a time.

Inputs are pairs of 16 bits as they lie in memory; weights, of 8 bits, are in an order in which two instructions spread
four of them out. Sums have 32 bits: layers whose sums can need more are left to plain C.
"""

import numpy as np

from rudel.micro.dsp.instructions import DSP
from rudel.micro.emit import Context, Kernel, Step
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.convolution import DENSE, convolution_kernel, convolution_step, dense_step
from rudel.micro.operators.outputs import FORMS, row_length
from rudel.micro.operators.window_sums import Convolution, prepare_convolution

_CHANNELS = 4
_INPUTS = 4
_SPREAD = [0, 2, 1, 3]
"""Index of the weight in each byte of a word: bytes 0 and 2 are spread out together, and so are bytes 1 and 3."""


def _sums(variables: str) -> str:
    """Returns C that adds four products to the sum of each channel, and goes on to the next weights."""
    return "\n".join(
        f"                word = rudel_load(w + {4 * place});\n"
        f"                {name} = rudel_dual(rudel_evens(word), u, {name});\n"
        f"                {name} = rudel_dual(rudel_odds(word), v, {name});"
        for place, name in enumerate(variables)
    )


def _rest(variables: str) -> str:
    return " ".join(f"{name} += (uint32_t)(v * w[{place}]);" for place, name in enumerate(variables))


def _channels(form: str, variables: str) -> str:
    """Returns C for as many channels at once as there are variables."""
    count = len(variables)
    outputs = "\n".join(
        f"        *out++ = rudel_{form}((int32_t){name}, q, &d->output), q += skip;" for name in variables
    )
    return f"""\
    for (; left >= {count}; left -= {count}) {{
        uint32_t {", ".join(f"{name} = 0" for name in variables)}, word;
        const int16_t *x = window;
        for (int32_t row = 0; row < rows; row++, x += step - length) {{
            for (int32_t i = length >> 2; i > 0; i--, x += 4, w += {4 * count}) {{
                const uint32_t u = rudel_load((const int8_t *)x), v = rudel_load((const int8_t *)(x + 2));
{_sums(variables)}
            }}
            for (int32_t i = length & 3; i > 0; i--, w += {count}) {{
                const int32_t v = *x++;
                {_rest(variables)}
            }}
        }}
{outputs}
    }}
"""


def _dots(form: str) -> Kernel:
    """Returns the kernel of dot products; its arguments are those of `rudel.micro.operators.convolution.dots`."""
    return Kernel(
        f"dual_dots_{form}",
        f"""\
static void rudel_dual_dots_{form}(const rudel_dense *d, const int16_t *window, int32_t rows, int32_t length,
                                   int32_t step, int16_t *out)
{{
    const int8_t *w = d->weights;
    const int32_t *q = d->rows;
    const int32_t skip = {row_length(form, "d->output")};
    int32_t left = d->depth;
{_channels(form, "abce")}{_channels(form, "a")}}}
""",
        (DSP, FORMS[form], DENSE),
    )


def _stream(c: Convolution) -> np.ndarray:
    """Returns the weights in the order in which the kernel reads them: int8 (weights)."""
    depth, height = c.weights.shape[:2]
    rows = c.weights.reshape(depth, height, -1)
    whole = rows.shape[2] - rows.shape[2] % _INPUTS
    parts: list[np.ndarray] = []
    channel = 0
    while channel < depth:
        count = _CHANNELS if depth - channel >= _CHANNELS else 1
        for row in rows[channel : channel + count].transpose(1, 0, 2):
            words = row[:, :whole].reshape(count, -1, _INPUTS)[..., _SPREAD]
            parts += [words.transpose(1, 0, 2).ravel(), row[:, whole:].T.ravel()]
        channel += count
    return np.concatenate(parts)


def _prepared(operator: Operator, graph: Graph, context: Context) -> Convolution | None:
    c = prepare_convolution(operator, graph, context)
    return None if c.wide or c.groups > 1 else c


def lower_convolution(operator: Operator, graph: Graph, context: Context) -> Step | None:
    """Makes a step of a CONV_2D of int16; None where it has groups or its sums need more than 32 bits."""
    c = _prepared(operator, graph, context)
    if c is None:
        return None
    kernel = convolution_kernel(c.requantisation.form, dot=_dots(c.requantisation.form))
    return convolution_step(operator, c, kernel, _stream(c))


def lower_dense(operator: Operator, graph: Graph, context: Context) -> Step | None:
    """Makes a step of a FULLY_CONNECTED of int16; None where its sums need more than 32 bits."""
    c = _prepared(operator, graph, context)
    return None if c is None else dense_step(operator, c, _dots(c.requantisation.form), _stream(c))
