"""Operators that make each int8 of one int8: tables of 256, computed as each interpreter computes its outputs.

RELU, RELU6, RELU_N1_TO_1, LEAKY_RELU, GELU, HARD_SWISH, LOGISTIC, TANH, RSQRT and QUANTIZE from int8 to int8; ELU and
NEG of the reals that int8 stands for.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from rudel.micro import fixed_point
from rudel.micro.arithmetic import Rounding, divide_by_power, half_away, multiply, quantise_multiplier
from rudel.micro.emit import Context, Step
from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.libm import erfcf, expf, expm1f, tanhf
from rudel.micro.operators.checks import arity, quantised_int8, require, same_shape
from rudel.micro.operators.lookup import lookup_step

_INPUTS = np.arange(-128, 128, dtype=np.int64)


def lower_unary(operator: Operator, graph: Graph, context: Context) -> Step:
    """Makes a step of one of this module's operators."""
    return lookup_step(operator, graph, unary_table(operator, graph, context.rounding))


def unary_table(operator: Operator, graph: Graph, rounding: Rounding) -> np.ndarray:
    """Returns the outputs for all inputs -128 ... 127, int8 (256).

    Raises:
        CompileError: types or quantisation that do not fit.
    """
    arity(operator, 1)
    source, output = graph[operator.inputs[0]], graph[operator.outputs[0]]
    quantised_int8(source, operator)
    quantised_int8(output, operator)
    same_shape(source, output, operator)
    kind = operator.kind
    if kind in ("RELU", "RELU6", "RELU_N1_TO_1"):
        values = _relu(kind, source, output, rounding)
    elif kind == "LEAKY_RELU":
        values = _leaky_relu(source, output, float(operator.options["alpha"]), rounding)
    elif kind == "QUANTIZE":
        values = _requantise(source, output, rounding, operator)
    elif kind == "GELU":
        # XNNPACK leaves it to LiteRT's own kernel
        values = _curve(source, output, _gelu_by_tanh if operator.options["approximate"] else _gelu, "litert")
    elif kind == "RSQRT":
        values = _inverse_root(source, output)
    elif kind == "HARD_SWISH":
        values = _hard_swish(source, output, operator)
    elif kind == "LOGISTIC":
        require(
            output.scale == 1 / 256 and output.zero_point == -128,
            operator,
            f"its output has scale {output.scale:.6g} and zero point {output.zero_point}, not 1/256 and -128",
        )
        values = (
            _fixed_point_curve(source, 8, -128, fixed_point.logistic)
            if rounding == "tflm"
            else _curve(source, output, _sigmoid, rounding)
        )
    else:
        assert kind == "TANH"
        values = (
            _fixed_point_curve(source, 7, 0, fixed_point.tanh)
            if rounding == "tflm"
            else _curve(source, output, _tanh, rounding)
        )
    return np.clip(values, -128, 127).astype(np.int8)


def table_of_reals(kind: str, source: Tensor, output: Tensor, rounding: Rounding) -> np.ndarray:
    """Returns what DEQUANTIZE, an operator of one float32 and QUANTIZE make of all inputs -128 ... 127, int8 (256).

    Args:
        kind: one of `OF_REALS`.
        source: what is dequantised.
        output: what is quantised.
        rounding: of the interpreter.
    """
    reals = np.float32(source.scale) * (_INPUTS - source.zero_point).astype(np.float32)
    result = OF_REALS[kind](reals)
    if rounding == "xnnpack":
        values = np.rint(result * (np.float32(1) / np.float32(output.scale)))
    else:
        scaled = (result / np.float32(output.scale)).astype(np.float64)
        values = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)
    return np.clip(values.astype(np.int64) + output.zero_point, -128, 127).astype(np.int8)


OF_REALS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "ELU": lambda x: np.where(x < 0, expm1f(x), x),
    "NEG": np.negative,
}
"""Operators that converters leave in float32 between a DEQUANTIZE and a QUANTIZE; float32 in and out."""


def _ratio(source: Tensor, output: Tensor) -> float:
    """Returns the ratio of two scales in single precision."""
    return float(np.float32(source.scale) / np.float32(output.scale))


def _scaled(values: np.ndarray, real: float) -> np.ndarray:
    return multiply(values, *quantise_multiplier(real))


def _relu(kind: str, source: Tensor, output: Tensor, rounding: Rounding) -> np.ndarray:
    if kind == "RELU6" and rounding == "tflm":
        six = source.zero_point + half_away(min(float(np.float32(6.0) / np.float32(source.scale)), 1e6))
        return np.clip(_INPUTS, source.zero_point, max(min(six, 127), -128))
    least = {"RELU": 0.0, "RELU6": 0.0, "RELU_N1_TO_1": -1.0}[kind]
    most = {"RELU": math.inf, "RELU6": 6.0, "RELU_N1_TO_1": 1.0}[kind]
    scale, zero_point = np.float32(output.scale), output.zero_point
    low = max(-128, zero_point + half_away(min(max(float(np.float32(least) / scale), -1e6), 1e6)))
    high = 127 if math.isinf(most) else min(127, zero_point + half_away(min(float(np.float32(most) / scale), 1e6)))
    return np.clip(_scaled(_INPUTS - source.zero_point, _ratio(source, output)) + zero_point, low, high)


def _leaky_relu(source: Tensor, output: Tensor, alpha: float, rounding: Rounding) -> np.ndarray:
    centred = _INPUTS - source.zero_point
    ratio = np.float32(source.scale) / np.float32(output.scale)
    if rounding == "xnnpack":
        slope = ratio * np.float32(alpha)
        if 2.0**-8 <= ratio <= 2.0**7 and -(2.0**7) <= slope <= 2.0**7 and abs(slope) >= 2.0**-8:
            factor = np.where(centred >= 0, int(np.rint(256 * ratio)), int(np.rint(256 * slope)))
            return ((centred * factor + 128) >> 8) + output.zero_point
    slope = float(np.float32(source.scale) * np.float32(alpha) / np.float32(output.scale))
    values = np.where(centred >= 0, _scaled(centred, float(ratio)), _scaled(centred, slope))
    return values + output.zero_point


def _requantise(source: Tensor, output: Tensor, rounding: Rounding, operator: Operator) -> np.ndarray:
    centred = _INPUTS - source.zero_point
    if rounding == "xnnpack":
        ratio = np.float32(source.scale) / np.float32(output.scale)
        require(
            bool(2.0**-8 <= ratio <= 2.0**7),
            operator,
            f"its input's scale is {ratio:.3g} times its output's, for which LiteRT's result depends on the "
            "processor; use another rounding",
        )
        return ((centred * int(np.rint(256 * ratio)) + 128) >> 8) + output.zero_point
    return _scaled(centred, source.scale / output.scale) + output.zero_point


def _sigmoid(x: np.ndarray, rounding: Rounding) -> np.ndarray:
    """Returns the logistic function in single precision; float32 in and out."""
    if rounding == "xnnpack":
        power = np.exp(np.clip(x.astype(np.float64), -100, 100))
        return (power / (1 + power)).astype(np.float32)
    return np.float32(1) / (np.float32(1) + expf(-x))


def _tanh(x: np.ndarray, rounding: Rounding) -> np.ndarray:
    return tanhf(x)


def _gelu(x: np.ndarray, rounding: Rounding) -> np.ndarray:
    return np.float32(0.5) * x * erfcf(x * np.float32(-math.sqrt(0.5)))


def _gelu_by_tanh(x: np.ndarray, rounding: Rounding) -> np.ndarray:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (np.float32(1) + tanhf(inner))


def _curve(
    source: Tensor, output: Tensor, function: Callable[[np.ndarray, Rounding], np.ndarray], rounding: Rounding
) -> np.ndarray:
    """Returns a function of reals in single precision, as LiteRT and XNNPACK tabulate it."""
    reals = np.float32(source.scale) * (_INPUTS - source.zero_point).astype(np.float32)
    scaled = (function(reals, rounding) * (np.float32(1) / np.float32(output.scale))).astype(np.float64)
    if rounding == "xnnpack":
        return (np.rint(scaled) + output.zero_point).astype(np.int64)
    return (np.copysign(np.floor(np.abs(scaled) + 0.5), scaled) + output.zero_point).astype(np.int64)


def _fixed_point_curve(source: Tensor, bits: int, zero_point: int, function) -> np.ndarray:
    """Returns a function of fixed-point numbers with 4 integer bits, as TFLM computes it, with `bits` bits after the
    point."""
    fraction, exponent = math.frexp(source.scale * 2.0**27)
    multiplier = half_away(fraction * (1 << 31))
    if multiplier == 1 << 31:
        multiplier, exponent = multiplier // 2, exponent + 1
    radius = math.floor(15.0 * (1 << 27) / 2.0**exponent)
    centred = _INPUTS - source.zero_point
    values = divide_by_power(function(multiply(centred, multiplier, exponent), 4), 31 - bits) + zero_point
    return np.where(centred <= -radius, -128, np.where(centred >= radius, 127, values))


def _inverse_root(source: Tensor, output: Tensor) -> np.ndarray:
    """Computes 1 / sqrt(x) in fixed point; what is not positive becomes the largest number."""
    result = np.float32(1 / (math.sqrt(np.float32(source.scale)) * np.float32(output.scale)))
    multiplier, exponent = quantise_multiplier(float(result))
    spare = 20  # bits that keep small results apart between the two multiplications
    values = np.full(256, 127, np.int64)
    for place in np.flatnonzero(source.zero_point < _INPUTS):
        root, root_exponent = fixed_point.inverse_root(int(_INPUTS[place] - source.zero_point))
        scaled = multiply(np.array(1), root, root_exponent + spare)
        values[place] = multiply(scaled, multiplier, exponent - spare) + output.zero_point
    return values


def _hard_swish(source: Tensor, output: Tensor, operator: Operator) -> np.ndarray:
    """Computes x * relu6(x + 3) / 6 in 16-bit fixed point, which all three interpreters do alike."""
    fine = np.float32(1 / 128) * np.float32(source.scale)
    multiplier, exponent = _short(float(fine / np.float32(output.scale)))
    relu_multiplier, relu_exponent = _short(float(fine / np.float32(3.0 / 32768.0)))
    require(exponent <= 0, operator, "its input's scale is too much greater than its output's")
    x = (_INPUTS - source.zero_point) << 7
    x = ((x + 32768) & 0xFFFF) - 32768
    on_output = _short_high_product(x, multiplier)
    gate = x
    if relu_exponent > 0:
        gate = np.clip(gate << (relu_exponent - 1), -32768, 32767)
    gate = _short_high_product(gate, relu_multiplier)
    if relu_exponent > 0:
        gate = np.clip(gate << 1, -32768, 32767)
    elif relu_exponent < 0:
        gate = divide_by_power(gate, -relu_exponent)
    gate = (gate + 32768) >> 1
    product = gate * on_output
    product = np.sign(product) * (np.abs(product) >> 15)
    return divide_by_power(product, -exponent) + output.zero_point


def _short(real: float) -> tuple[int, int]:
    """Returns a 15-bit multiplier and its exponent."""
    multiplier, exponent = quantise_multiplier(real)
    return (32767 if multiplier >= (1 << 31) - (1 << 15) else (multiplier + (1 << 15)) >> 16), exponent


def _short_high_product(x: np.ndarray, y: int) -> np.ndarray:
    """Returns x * y / 2**15, rounded to nearest (half away from zero below zero as gemmlowp's nudge has it)."""
    product = x * y
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.minimum(np.sign(nudged) * (np.abs(nudged) >> 15), 32767)
