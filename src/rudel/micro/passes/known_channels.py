"""Analysis of channels that have the same values whatever the input is.

A channel of a convolution is known when the least and the greatest sum that its weights and int8 inputs can make give
the same output: weights that are all zero, or a bias so low that the activation cuts everything off. What works on
each channel alone (depthwise convolutions, pools, tables) keeps known channels known. Their value may then depend on
the place: next to a border, a window sees padding, the zero point, which is another value than the channel's.

Guarantee: a value is what the compiled model computes at that place, for the rounding of the context.
"""

from dataclasses import dataclass

import numpy as np

from rudel.micro.emit import Context
from rudel.micro.graph import Graph, Operator
from rudel.micro.operators.depthwise import Depthwise, prepare_depthwise
from rudel.micro.operators.pool import pool_window
from rudel.micro.operators.scalings import output_limits
from rudel.micro.operators.window_sums import Convolution, Window
from rudel.micro.requantisation import evaluate

SAME_BYTES = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")


@dataclass(frozen=True)
class Known:
    """Known values of a tensor's channels; every example of a batch has the same.

    Attributes:
        values: int64 (channels, rows, columns); 0 where nothing is known.
        certain: bool (channels).
        flat: whether rows, columns and channels are one dimension of the tensor.
    """

    values: np.ndarray
    certain: np.ndarray
    flat: bool = False

    @property
    def constant(self) -> np.ndarray:
        """Mask of the channels with one value everywhere: bool (channels)."""
        return self.certain & (self.values == self.values[:, :1, :1]).all(axis=(1, 2))


def known_outputs(c: Convolution) -> Known:
    """Returns what is known of the channels that a convolution computes."""
    value, certain = _cut_off(c)
    shape = (len(value), *c.output[1:3])
    return Known(np.broadcast_to(np.where(certain, value, 0)[:, None, None], shape), certain)


def known_after(operator: Operator, graph: Graph, context: Context, known: Known) -> Known | None:
    """Returns what is known of the output of an operator, or None where it does not keep channels apart.

    Args:
        operator: with the tensor as its first input.
        graph: where it stands.
        context: for what and how it is compiled.
        known: what is known of its input.
    """
    if operator.kind in SAME_BYTES:
        return _reshaped(graph[operator.outputs[0]].shape, known)
    if operator.kind == "LOOKUP":
        values = operator.options["table"].astype(np.int64)[known.values + 128]
        return Known(np.where(known.certain[:, None, None], values, 0), known.certain, known.flat)
    if known.flat:
        return None
    if operator.kind == "DEPTHWISE_CONV_2D":
        return _depthwise(operator, graph, context, known)
    if operator.kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D"):
        return _pooled(operator, graph, known)
    return None


def _reshaped(shape: tuple[int, ...], known: Known) -> Known | None:
    channels, rows, columns = known.values.shape
    if known.flat:
        return known if shape[-1] == known.values.size else None
    if shape[-1] == channels:
        pixels = (shape[1], shape[2]) if len(shape) == 4 else (1, rows * columns)
        if pixels[0] * pixels[1] != rows * columns:
            return None
        return Known(known.values.reshape(channels, *pixels), known.certain)
    return Known(known.values, known.certain, flat=True) if shape[-1] == known.values.size else None


def _depthwise(operator: Operator, graph: Graph, context: Context, known: Known) -> Known:
    d = prepare_depthwise(operator, graph, context)
    seen = _windows(known.values, d.window, d.output[1:3], d.zero_point)
    sums = np.einsum("ijc,ijcyx->cyx", d.weights.astype(np.int64), seen)
    values = evaluate(d.requantisation, sums.reshape(len(sums), -1)).reshape(sums.shape)
    cut_off, certain = _cut_off(d)
    values = np.where(certain[:, None, None], cut_off[:, None, None], values)
    certain = certain | known.certain
    return Known(np.where(certain[:, None, None], values, 0), certain)


def _cut_off(layer: Convolution | Depthwise) -> tuple[np.ndarray, np.ndarray]:
    """Returns the outputs of the least sums, and where those of the greatest are the same."""
    least, most = evaluate(layer.requantisation, np.stack(layer.products, axis=1)).T
    return least, least == most


def _pooled(operator: Operator, graph: Graph, known: Known) -> Known:
    output = graph[operator.outputs[0]]
    w, pixels = pool_window(operator, graph), (output.shape[1], output.shape[2])
    if operator.kind == "MAX_POOL_2D":
        values = _windows(known.values, w, pixels, -128).max(axis=(0, 1))
    else:
        count = _windows(np.ones_like(known.values), w, pixels, 0).sum(axis=(0, 1))
        total = _windows(known.values, w, pixels, 0).sum(axis=(0, 1))
        values = np.sign(total) * ((np.abs(total) + count // 2) // count)
    values = np.clip(values, *output_limits(operator, output))
    return Known(np.where(known.certain[:, None, None], values, 0), known.certain)


def _windows(values: np.ndarray, w: Window, pixels: tuple[int, ...], beyond: int) -> np.ndarray:
    """Returns what windows see, int64 (window height, window width, channels, rows, columns).

    Args:
        values: int64 (channels, rows, columns).
        w: how windows lie.
        pixels: rows and columns of windows.
        beyond: what is seen beyond the borders.
    """
    channels, height, width = values.shape
    y = np.arange(pixels[0]) * w.stride_h - w.top + np.arange(w.height)[:, None] * w.dilation_h
    x = np.arange(pixels[1]) * w.stride_w - w.left + np.arange(w.width)[:, None] * w.dilation_w
    inside = ((y >= 0) & (y < height))[:, None, :, None] & ((x >= 0) & (x < width))[None, :, None, :]
    picked = values[:, np.clip(y, 0, height - 1)][..., np.clip(x, 0, width - 1)].transpose(1, 3, 0, 2, 4)
    assert picked.shape == (w.height, w.width, channels, *pixels)
    return np.where(inside[:, :, None], picked, beyond)
