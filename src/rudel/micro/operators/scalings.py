"""The arithmetic that each interpreter uses for each operator."""

import numpy as np

from rudel.micro.arithmetic import (
    Rounding,
    Scaling,
    activation_range,
    quantise_multiplier,
    scaling_once,
    scaling_to_even,
    scaling_twice,
)
from rudel.micro.graph import Operator, Tensor
from rudel.micro.operators.checks import bounds_of, require


def output_limits(operator: Operator, output: Tensor) -> tuple[int, int]:
    """Returns the least and the greatest integer that an operator may give.

    They come from its fused activation, and from the option `limits` that passes set.

    Raises:
        CompileError: the activation is not a clamp, or lets nothing through.
    """
    activation = operator.options["activation"]
    require(activation in ("NONE", "RELU", "RELU_N1_TO_1", "RELU6"), operator, f"its activation is {activation}")
    low, high = activation_range(activation, output.scale, output.zero_point, bounds_of(output))
    if "limits" in operator.options:
        low, high = max(low, operator.options["limits"][0]), min(high, operator.options["limits"][1])
    require(low <= high, operator, f"nothing passes its activation {activation}")
    return low, high


def multiplier_below_one(operator: Operator, real: float) -> tuple[int, int]:
    """Returns the multiplier and the exponent of a factor that interpreters take for one below 1.

    With others they abort, or LiteRT's SUB shifts by negative numbers of bits.

    Raises:
        CompileError: it is not below 1.
    """
    require(
        real < 1,
        operator,
        "its output's scale is too small beside those of its inputs: calibrate on examples for which its output varies",
    )
    return quantise_multiplier(real)


def convolution_scaling(rounding: Rounding, source: float, weights: np.ndarray, output: float) -> Scaling:
    """Returns the scaling of convolutions.

    Args:
        rounding: which interpreter.
        source: scale of the input.
        weights: float32 (channels), scales of the weights.
        output: scale of the output.
    """
    if rounding == "xnnpack":
        return scaling_to_even(_single(source, weights, output))
    return scaling_twice(float(source) * weights.astype(np.float64) / float(output))


def dense_scaling(rounding: Rounding, source: float, weights: np.ndarray, output: float) -> Scaling:
    """Returns the scaling of FULLY_CONNECTED; the arguments are those of `convolution_scaling`."""
    if rounding == "litert":
        return scaling_once(float(source) * weights.astype(np.float64) / float(output))
    return convolution_scaling(rounding, source, weights, output)


def _single(source: float, weights: np.ndarray, output: float) -> np.ndarray:
    return np.float32(source) * weights.astype(np.float32) / np.float32(output)
