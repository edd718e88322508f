"""Well-known nets as Keras builds them, without their heads, so that weights which others have trained fit them.

Both take images between -1 and 1. ResNet50V2: K. He et al., "Identity Mappings in Deep Residual Networks" (2016).
MobileNetV2: M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras


def resnet(images: "keras.KerasTensor") -> "keras.KerasTensor":
    """ResNet50V2, 23.6 million weights: images (N, H, W, 3), sides of at least 32, to features (N, 2048)."""
    import keras

    return _features(keras.applications.ResNet50V2, images)


def mobilenet(images: "keras.KerasTensor") -> "keras.KerasTensor":
    """MobileNetV2, 2.3 million weights: images (N, H, W, 3), sides of at least 32, to features (N, 1280)."""
    import keras

    return _features(keras.applications.MobileNetV2, images)


def _features(application: "Callable[..., Any]", images: "keras.KerasTensor") -> "keras.KerasTensor":
    built = application(include_top=False, weights=None, input_tensor=images, pooling="avg")
    return built.output
