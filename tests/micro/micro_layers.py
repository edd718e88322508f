"""Models of one or a few layers, in all the shapes that the kernels tell apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from micro_support.models import Op, T, build

from rudel.micro.arithmetic import ROUNDINGS, Rounding


@dataclass(frozen=True)
class Layer:
    """A convolution, a depthwise convolution or a dense layer.

    Args:
        kind: of the operator.
        shape: of the input: (height, width, channels), or (length,).
        depth: output channels; as many as there are input channels for a depthwise convolution.
        size: of the window.
        strides: down and across.
        padding: SAME or VALID.
        dilation: down and across.
        activation: fused.
        zero_points: of input and output.
        gain: about how far outputs reach, in outputs; beyond 128 they saturate.
        least: the least weight.
        pads: rows and columns that a PAD adds before it: above, below, on the left, on the right.
    """

    kind: str
    shape: tuple[int, ...]
    depth: int
    size: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    padding: str = "SAME"
    dilation: int = 1
    activation: str = "RELU"
    zero_points: tuple[int, int] = (3, -128)
    gain: float = 150.0
    least: int = -127
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)


def model(layer: Layer, seed: int = 0) -> bytes:
    """A .tflite file with one layer, of random weights, and the PAD before it where it has one."""
    random = np.random.default_rng(seed)
    output: tuple[int, ...] = (1, layer.depth)
    dense, depthwise = layer.kind == "FULLY_CONNECTED", layer.kind == "DEPTHWISE_CONV_2D"
    if dense:
        weights_shape: tuple[int, ...] = (layer.depth, layer.shape[0])
    elif depthwise:
        weights_shape = (1, *layer.size, layer.depth)
    else:
        weights_shape = (layer.depth, *layer.size, layer.shape[2])
    top, bottom, left, right = layer.pads
    padded = layer.shape if dense else (layer.shape[0] + top + bottom, layer.shape[1] + left + right, layer.shape[2])
    if not dense:
        sides = []
        for length, size, stride in zip(padded, layer.size, layer.strides, strict=False):
            span = (size - 1) * layer.dilation + 1
            sides.append(-(-length // stride) if layer.padding == "SAME" else (length - span) // stride + 1)
        output = (1, *sides, layer.depth)
    weights = random.integers(layer.least, 128, weights_shape)
    axis = 3 if depthwise else 0
    fan = weights.size // layer.depth
    scales = random.uniform(0.002, 0.02, layer.depth).astype(np.float32)
    bias = random.integers(-3000, 3000, layer.depth)
    spread = 0.01 * 73 * 73 * np.sqrt(fan)
    tensors = [
        T((1, *layer.shape), scale=1.0, zero_point=layer.zero_points[0]),
        T(weights_shape, scale=scales, zero_point=np.zeros(layer.depth, int), axis=axis, data=weights.astype(np.int8)),
        T((layer.depth,), "int32", scale=scales, zero_point=np.zeros(layer.depth, int), data=bias.astype(np.int32)),
        T(output, scale=float(np.float32(spread / layer.gain)), zero_point=layer.zero_points[1]),
    ]
    options: dict[str, Any] = {"activation": layer.activation}
    if not dense:
        options |= {"padding": layer.padding, "stride_h": layer.strides[0], "stride_w": layer.strides[1]}
        options |= {"dilation_h": layer.dilation, "dilation_w": layer.dilation}
    if depthwise:
        options["depth_multiplier"] = 1
    if not any(layer.pads):
        return build(tensors, [Op(layer.kind, (0, 1, 2), (3,), options)], [0], [3])
    around = np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32)
    tensors += [T((4, 2), "int32", data=around), T((1, *padded), scale=1.0, zero_point=layer.zero_points[0])]
    return build(tensors, [Op("PAD", (0, 4), (5,)), Op(layer.kind, (5, 1, 2), (3,), options)], [0], [3])


C, D, F = "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"
LINEAR = {"activation": "NONE", "zero_points": (-7, 5)}

LAYERS = {
    "pointwise": Layer(C, (4, 4, 16), 8),
    "pointwise of an odd number of pixels": Layer(C, (5, 5, 12), 6),
    "pointwise that grows": Layer(C, (6, 6, 4), 20),
    "pointwise, linear": Layer(C, (3, 4, 8), 10, **LINEAR),
    "pointwise, padded": Layer(C, (3, 4, 8), 6, pads=(1, 1, 1, 1)),
    "pointwise, padded at the ends": Layer(C, (4, 3, 8), 4, padding="VALID", pads=(0, 1, 0, 2)),
    "one pixel": Layer(C, (1, 1, 24), 2, **LINEAR),
    "3 x 3": Layer(C, (7, 6, 8), 6, (3, 3)),
    "3 x 3, linear, strides": Layer(C, (9, 8, 4), 4, (3, 3), (2, 2), **LINEAR),
    "few channels": Layer(C, (9, 9, 3), 8, (3, 3), (2, 2)),
    "one channel, tall": Layer(C, (13, 5, 1), 4, (10, 4), (2, 2)),
    "valid": Layer(C, (8, 7, 5), 4, (3, 2), padding="VALID"),
    "dilated": Layer(C, (9, 9, 4), 4, (3, 3), dilation=2),
    "dilated, odd channels": Layer(C, (9, 9, 3), 4, (3, 3), dilation=2),
    "three channels, wide": Layer(C, (6, 21, 3), 6, (3, 3)),
    "three channels, odd strides, linear": Layer(C, (7, 22, 3), 4, (5, 2), (2, 3), **LINEAR),
    "one channel, long rows": Layer(C, (12, 19, 1), 2, (10, 5), padding="VALID"),
    "two channels, dilated down": Layer(C, (9, 18, 2), 4, (3, 1), dilation=2),
    "many pixels": Layer(C, (17, 18, 8), 4, (3, 3)),
    "many pixels, linear, stride 2": Layer(C, (33, 32, 4), 2, (3, 3), (2, 2), **LINEAR),
    "many pixels, long rows": Layer(C, (16, 17, 16), 2, (3, 3)),
    "many pixels, pointwise": Layer(C, (17, 17, 12), 6),
    "many pixels, pointwise, padded": Layer(C, (16, 16, 12), 4, pads=(1, 0, 2, 1)),
    "many pixels, weights of -128": Layer(C, (16, 16, 5), 4, (2, 2), least=-128),
    "1-D": Layer(C, (1, 20, 6), 4, (1, 5)),
    "weights of -128": Layer(C, (3, 3, 8), 4, least=-128),
    "odd depth": Layer(C, (3, 3, 8), 5),
    "relu6 that clamps": Layer(C, (3, 3, 8), 4, activation="RELU6", gain=4000.0),
    "relu above the least": Layer(C, (3, 3, 8), 4, zero_points=(0, -20)),
    "depthwise": Layer(D, (6, 6, 8), 8, (3, 3)),
    "depthwise of odd width": Layer(D, (5, 7, 5), 5, (3, 3)),
    "depthwise, stride 2": Layer(D, (8, 8, 4), 4, (3, 3), (2, 2)),
    "depthwise, stride 2, odd": Layer(D, (9, 5, 3), 3, (3, 3), (2, 2)),
    "depthwise, strides apart": Layer(D, (9, 8, 3), 3, (3, 3), (1, 2)),
    "depthwise, valid": Layer(D, (6, 5, 4), 4, (3, 3), padding="VALID"),
    "depthwise, valid, stride 2": Layer(D, (7, 8, 4), 4, (3, 3), (2, 2), padding="VALID"),
    "depthwise, stride 3": Layer(D, (10, 7, 2), 2, (3, 3), (3, 2)),
    "depthwise of one column": Layer(D, (5, 1, 4), 4, (3, 3)),
    "depthwise of one row": Layer(D, (1, 6, 4), 4, (3, 3)),
    "depthwise, linear": Layer(D, (4, 4, 4), 4, (3, 3), **LINEAR),
    "depthwise 5 x 5": Layer(D, (6, 6, 4), 4, (5, 5)),
    "depthwise 4 x 6, stride 3": Layer(D, (9, 11, 8), 8, (4, 6), (2, 3)),
    "depthwise 5 x 5, dilated": Layer(D, (9, 8, 4), 4, (5, 5), dilation=2),
    "depthwise of columns, linear": Layer(D, (13, 1, 8), 8, (5, 1), padding="VALID", **LINEAR),
    "depthwise of columns, stride 2": Layer(D, (13, 1, 4), 4, (10, 1), (2, 1)),
    "depthwise of rows": Layer(D, (1, 14, 4), 4, (1, 7)),
    "depthwise, stride over windows": Layer(D, (9, 9, 4), 4, (1, 2), (3, 3), padding="VALID"),
    "depthwise 5 x 5, three channels": Layer(D, (6, 6, 3), 3, (5, 5)),
    "depthwise, tall": Layer(D, (13, 5, 5), 5, (3, 3)),
    "depthwise, tall, even": Layer(D, (14, 4, 4), 4, (3, 3)),
    "depthwise, tall, stride 2": Layer(D, (13, 6, 4), 4, (3, 3), (2, 1)),
    "depthwise, tall, strides 2": Layer(D, (13, 6, 4), 4, (3, 3), (2, 2)),
    "depthwise, tall, valid": Layer(D, (13, 5, 4), 4, (3, 3), padding="VALID"),
    "dense": Layer(F, (64,), 12),
    "dense, linear": Layer(F, (40,), 8, **LINEAR),
    "dense of an odd length": Layer(F, (13,), 7),
    "dense, one output": Layer(F, (16,), 1, **LINEAR),
    "dense, one input": Layer(F, (1,), 16),
}


@st.composite
def drawn_models(
    draw: st.DrawFn, count: int, *, input_multiple: int = 1, depth_multiple: int = 1
) -> list[tuple[bytes, Rounding]]:
    """Draws models of a convolution each, and how they round.

    Args:
        draw: hypothesis' own.
        count: how many.
        input_multiple: what the channels of a depthwise convolution are a multiple of.
        depth_multiple: what the output channels of another convolution are a multiple of.
    """

    def one() -> tuple[bytes, Rounding]:
        kind = draw(st.sampled_from((C, D)))
        height, width, channels = (draw(st.integers(1, 9)) for _ in range(3))
        channels *= input_multiple if kind == D else 1
        depth = channels if kind == D else depth_multiple * draw(st.integers(1, 9 // depth_multiple + 1))
        size = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
        strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
        padding = draw(st.sampled_from(("SAME", "VALID")))
        if padding == "VALID":
            size = (min(size[0], height), min(size[1], width))
        activation = draw(st.sampled_from(("NONE", "RELU", "RELU6")))
        zero_points = draw(st.tuples(st.integers(-128, 127), st.integers(-128, 127)))
        gain = draw(st.floats(2, 1000))
        layer = Layer(kind, (height, width, channels), depth, size, strides, padding, 1, activation, zero_points, gain)
        return model(layer, draw(st.integers(0, 1 << 30))), draw(st.sampled_from(ROUNDINGS))

    return list(dict.fromkeys(one() for _ in range(count)))
