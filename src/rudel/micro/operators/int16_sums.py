"""Outputs from sums of int16 CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV and FULLY_CONNECTED (16x8 quantisation).

Activations are int16 with zero point 0, weights int8, and biases int64 or int32. The type of the biases decides in how
many bits the interpreters compute, and so how they round. LiteRT goes by an option of the operator that says what type
the biases have, where TFLM looks at the biases.
"""

import numpy as np

from rudel.micro.arithmetic import Rounding, scaling_twice
from rudel.micro.graph import Graph, Operator, Tensor
from rudel.micro.int16_requantisation import once, reduced, twice
from rudel.micro.operators.checks import constant, require
from rudel.micro.operators.scalings import output_limits
from rudel.micro.requantisation import Requantisation
from rudel.micro.schema import DTYPES


def plan_int16(
    operator: Operator, graph: Graph, rounding: Rounding, source: Tensor, scales: np.ndarray, position: int
) -> tuple[np.ndarray, Requantisation]:
    """Returns the biases, and what becomes of sums without them.

    Args:
        operator: one of these.
        graph: where it stands.
        rounding: which interpreter.
        source: the input.
        scales: float32 (channels), of the weights.
        position: of the biases among the inputs.

    Returns:
        int64 (channels), and the requantisation with the biases in it.

    Raises:
        CompileError: the interpreter does not compute with biases of that type.
    """
    output = graph[operator.outputs[0]]
    index = operator.inputs[position] if position < len(operator.inputs) else -1
    given = None if index < 0 else graph[index].dtype
    bits = _bits(operator, rounding, given)
    bias = np.zeros(len(scales), np.int64)
    if given is not None:
        values = constant(operator, graph, position, "biases")
        require(values.size == bias.size, operator, f"it has {values.size} biases for {bias.size} channels")
        bias = values.ravel().astype(np.int64)
    limits = output_limits(operator, output)
    weights = graph[operator.inputs[1]]
    factors = source.scale * scales.astype(np.float64) / output.scale
    dense = operator.kind == "FULLY_CONNECTED"
    if rounding == "xnnpack" and bits == 32 and (dense or _is_ungrouped(operator, source, weights)):
        if dense and weights.quantisation is not None and len(weights.quantisation.scale) == 1:
            factors = (np.float32(source.scale) * scales).astype(np.float64) / output.scale
        return bias, twice(scaling_twice(factors), bias, limits, upwards=True)
    if rounding != "tflm" and dense:
        return bias, once(factors, bias, limits)
    if bits == 32:
        return bias, twice(scaling_twice(factors), bias, limits)
    return bias, reduced(factors, bias, limits)


def _is_ungrouped(operator: Operator, source: Tensor, weights: Tensor) -> bool:
    """Returns whether it is a convolution of all channels at once."""
    return operator.kind == "CONV_2D" and weights.shape[-1] == source.shape[-1]


def _bits(operator: Operator, rounding: Rounding, given: str | None) -> int:
    """Returns in how many bits an interpreter sums; `given`: the type of the biases."""
    said = DTYPES.get(int(operator.options.get("bias_type", 0)))
    depthwise = "depth_multiplier" in operator.options
    if rounding == "tflm":
        kinds = ("int64", "int32") if operator.kind in ("CONV_2D", "FULLY_CONNECTED") and not depthwise else ("int64",)
        if operator.kind == "TRANSPOSE_CONV":
            kinds = ("int64", "int16")
        require(
            given in (None, *kinds),
            operator,
            f"its biases are {given}, which TFLM does not compute with int16 activations: give it biases of "
            + " or ".join(kinds),
        )
        return 32 if given == "int32" else 64
    require(
        given is not None or depthwise or operator.kind != "CONV_2D",
        operator,
        "it has no biases, without which LiteRT does not compute int16: give it some, or use the rounding `tflm`",
    )
    wanted = "int32" if said == "int32" and not depthwise else "int64"
    if given is None and said != "int64" and operator.kind == "FULLY_CONNECTED":
        return 32
    require(
        given in (None, wanted),
        operator,
        f"its biases are {given}, which LiteRT would read as {wanted}: convert the model again"
        + (", or use the rounding `tflm`" if operator.kind in ("CONV_2D", "FULLY_CONNECTED") else ""),
    )
    return 32 if wanted == "int32" else 64


def int16_reach(weights: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the least and the greatest sum that int16 inputs can lead to, with biases: int64 (channels) each.

    Args:
        weights: int64 (channels, anything).
        bias: int64 (channels).
    """
    low, high = weights * -32768, weights * 32767
    return np.minimum(low, high).sum(axis=1) + bias, np.maximum(low, high).sum(axis=1) + bias


def exceeds_32_bits(products: tuple[np.ndarray, np.ndarray]) -> bool:
    """Returns whether sums can need more than 32 bits; products: their least and greatest values."""
    return max(-int(products[0].min()), int(products[1].max())) >= 1 << 31
