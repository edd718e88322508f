"""A PyTorch net with the layers of a sequential Keras model, for comparing speeds: its weights are PyTorch's own.

Pixels come in as (N, H, W) in 0..1 and channels go first. The softmax at the end is left out, since PyTorch's
cross-entropy takes logits.
"""

# pyright: reportMissingImports=false
# PyTorch is a rival that need not be installed.

from collections.abc import Callable
from typing import Any

from torch import nn

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}


class NotTranslatedError(Exception):
    """A layer for which there is no counterpart here; the message names it."""


def translated(model: Any) -> nn.Module:
    """The net; a layer that has no counterpart here is named in a `NotTranslatedError`."""
    modules: list[nn.Module] = [nn.Unflatten(1, (1, model.input_shape[1]))]
    for layer in model.layers:
        modules += _modules(layer)
    return nn.Sequential(*modules)


def _modules(layer: Any) -> list[nn.Module]:
    kind = type(layer).__name__
    if kind in ("InputLayer", "Rescaling") or (kind == "Reshape" and layer.output.shape[-1] == 1):
        return []
    if kind in ("Conv2D", "DepthwiseConv2D"):
        return [*_convolution(layer), *_activation(layer)]
    if kind == "Dense":
        return [nn.Linear(layer.input.shape[-1], layer.units, layer.use_bias), *_activation(layer)]
    if kind in ("Activation", "ReLU"):
        return _activation(layer)
    if kind == "BatchNormalization":
        normalization = nn.BatchNorm2d if len(layer.input.shape) == 4 else nn.BatchNorm1d
        return [normalization(layer.input.shape[-1], layer.epsilon, 1 - layer.momentum)]
    if kind in ("MaxPooling2D", "AveragePooling2D") and layer.padding == "valid":
        pooling = nn.MaxPool2d if kind == "MaxPooling2D" else nn.AvgPool2d
        return [pooling(layer.pool_size, layer.strides)]
    if kind == "GlobalAveragePooling2D":
        return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    if kind == "Flatten":
        return [nn.Flatten()]
    if kind == "Dropout":
        return [nn.Dropout(layer.rate)]
    raise NotTranslatedError(kind)


def _convolution(layer: Any) -> list[nn.Module]:
    """The convolution, behind the zeros that Keras' `same` adds: where they are odd in number, one more at the end."""
    channels = layer.input.shape[-1]
    depthwise = type(layer).__name__ == "DepthwiseConv2D"
    if layer.dilation_rate != (1, 1):
        raise NotTranslatedError(f"{type(layer).__name__} with a dilation of {layer.dilation_rate}")
    sizes = zip(layer.input.shape[1:3], layer.kernel_size, layer.strides, strict=True)
    added = [max((-(-size // stride) - 1) * stride + kernel - size, 0) for size, kernel, stride in sizes]
    rows, columns = added if layer.padding == "same" else (0, 0)
    even = rows % 2 == columns % 2 == 0
    zeros = [] if even else [nn.ZeroPad2d((columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))]
    convolution = nn.Conv2d(
        channels,
        channels * layer.depth_multiplier if depthwise else layer.filters,
        layer.kernel_size,
        layer.strides,
        (rows // 2, columns // 2) if even else 0,
        groups=channels if depthwise else layer.groups,
        bias=layer.use_bias,
    )
    return [*zeros, convolution]


def _activation(layer: Any) -> list[nn.Module]:
    name = "relu" if type(layer).__name__ == "ReLU" else layer.activation.__name__
    if name in ("linear", "softmax"):
        return []
    if name not in _ACTIVATIONS:
        raise NotTranslatedError(f"the activation {name}")
    return [_ACTIVATIONS[name]()]
