"""Features as a Keras layer, so that a model takes sound as it comes from a file or a microphone."""

from typing import Any

import keras

from rudel.aliases import Shape, Tensor
from rudel.errors import ModelError
from rudel.features.log_mel import LogMel
from rudel.features.mel_arithmetic import spectrogram
from rudel.features.mfcc import features_of


@keras.saving.register_keras_serializable("rudel")
class Features(keras.layers.Layer):
    """Features of each recording of a batch, int16 (N, S) to floats (N, frames, width), whole numbers of int8.

    It learns nothing, and gives what `features` gives of the same samples, bit for bit, wherever Keras runs.

    Args:
        features: which.
        arguments: of any layer: `name`, and `dtype`, which is that of what comes out.

    Raises:
        ModelError: an input is not (N, S) with S known, or is shorter than a hop.
    """

    def __init__(self, features: LogMel | dict[str, Any], **arguments: Any) -> None:
        super().__init__(autocast=False, **arguments)
        self.features = features if isinstance(features, LogMel) else features_of(features)
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        """The features."""
        from keras import ops

        made = spectrogram(ops, self.features, ops.cast(inputs, "int32"))
        return ops.cast(made, self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        """Frames and the numbers of each."""
        if len(input_shape) != 2 or not input_shape[1] or input_shape[1] < self.features.hop:
            raise ModelError(
                f"The layer `{self.name}` takes recordings (N, S) of at least {self.features.hop} samples, not "
                f"{tuple(input_shape)}."
            )
        return (input_shape[0], self.features.frames(input_shape[1]), self.features.width)

    def compute_output_spec(self, inputs: Tensor) -> Any:
        """Frames and the numbers of each."""
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The configuration to make the layer from again."""
        return {**super().get_config(), "features": self.features.config()}


def rate_of(model: keras.Model) -> int | None:
    """The rate of the sound that a model hears, samples a second; None if it has no layer of this kind."""
    from rudel.internals.keras import layers_of

    return next((layer.features.rate for layer in layers_of(model) if isinstance(layer, Features)), None)
