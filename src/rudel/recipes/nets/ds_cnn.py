"""A depthwise separable convolutional net for keywords, as MLPerf Tiny's."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras

_BLOCKS, _MANY = 4, 16
SIZES = {"large": 96, "medium": 64, "small": 32, "tiny": 16}
"""Filters of every layer; medium is MLPerf Tiny's."""


def ds_cnn(spectrogram: "keras.KerasTensor", filters: int, dropout: float) -> "keras.KerasTensor":
    """A convolution over a tenth of a second and a fifth of the pitch, and four separable ones.

    Zhang et al., "Hello Edge: Keyword Spotting on Microcontrollers" (2017), with a stride of four along the pitch where
    there are more bands than its ten coefficients.

    Args:
        spectrogram: a Keras tensor (N, frames, bands or coefficients, 1).
        filters: of every layer.
        dropout: share of features to drop in training.

    Returns:
        Features, a Keras tensor (N, filters).
    """
    from keras import layers

    def normalised(x: "keras.KerasTensor", name: str) -> "keras.KerasTensor":
        x = layers.BatchNormalization(momentum=0.95, name=f"{name}_normalised")(x)
        return layers.ReLU(name=f"{name}_relu")(x)

    stride = 4 if spectrogram.shape[2] >= _MANY else 2
    x = layers.Conv2D(filters, (10, 2 * stride), (2, stride), padding="same", use_bias=False, name="first")(spectrogram)
    x = normalised(x, "first")
    for number in range(1, _BLOCKS + 1):
        name = f"depthwise_{number}"
        x = normalised(layers.DepthwiseConv2D(3, padding="same", use_bias=False, name=name)(x), name)
        name = f"pointwise_{number}"
        x = normalised(layers.Conv2D(filters, 1, use_bias=False, name=name)(x), name)
    return layers.Dropout(dropout, name="dropout")(layers.GlobalAveragePooling2D(name="mean")(x))
