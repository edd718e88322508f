"""A small convolutional net for small photographs, made to be trained from nothing on a few cores."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras

_LAYERS = ((24, 5, 2), (32, 3, 2), (48, 3, 1), (64, 3, 2), (96, 3, 1), (128, 3, 2))
"""Filters, size and stride of each convolution."""


def compact(images: "keras.KerasTensor") -> "keras.KerasTensor":
    """Six convolutions, each with batch normalisation; the side shrinks to a sixteenth, and the mean is taken.

    Args:
        images: a Keras tensor (N, H, W, 3), sides of at least 16.

    Returns:
        Features, a Keras tensor (N, 128).
    """
    from keras import layers

    x = images
    for number, (filters, size, strides) in enumerate(_LAYERS, 1):
        name = f"convolution_{number}"
        x = layers.Conv2D(filters, size, strides=strides, padding="same", use_bias=False, name=name)(x)
        x = layers.BatchNormalization(momentum=0.95, name=f"{name}_normalised")(x)
        x = layers.ReLU(name=f"{name}_relu")(x)
    return layers.GlobalAveragePooling2D(name="mean")(x)
