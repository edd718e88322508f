"""SpecAugment: bands and moments of a spectrogram are hidden at random while a model learns."""

from typing import Any

import keras

from rudel.aliases import Shape, Tensor


@keras.saving.register_keras_serializable("rudel")
class SpecAugment(keras.layers.Layer):
    """Hides a range of bands and a range of frames of each spectrogram (N, frames, bands) in training.

    As in Park et al., "SpecAugment" (2019), without warping in time; what is hidden becomes its spectrogram's mean.

    Args:
        bands: the widest range of bands.
        frames: the longest range of frames.
        seed: of the random numbers; None for one of Keras' global seed.
        arguments: of any layer: `name`, `dtype`.
    """

    def __init__(self, bands: int = 6, frames: int = 8, seed: int | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.bands, self.frames, self._seed = bands, frames, seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        """The spectrograms, with something hidden where `training` is true."""
        ops = _ops()
        if not training:
            return inputs
        kept = ops.logical_and(
            self._kept(inputs, 1, self.frames)[:, :, None], self._kept(inputs, 2, self.bands)[:, None, :]
        )
        return ops.where(kept, inputs, ops.mean(inputs, axis=(1, 2), keepdims=True))

    def _kept(self, inputs: Tensor, axis: int, most: int) -> Tensor:
        """Whether what is at a place of an axis stays, bool (N, places)."""
        ops = _ops()
        shape: Shape = ops.shape(inputs)
        places: Tensor = ops.arange(shape[axis], dtype=inputs.dtype)[None]
        length = ops.floor(keras.random.uniform((shape[0], 1), 0, most + 1, seed=self.seed_generator))
        start = keras.random.uniform((shape[0], 1), seed=self.seed_generator)
        start = ops.floor(start * (shape[axis] - length))
        return ops.logical_or(places < start, places >= start + length)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        """Spectrograms keep their shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The configuration to make the layer from again."""
        return {**super().get_config(), "bands": self.bands, "frames": self.frames, "seed": self._seed}


def _ops() -> Any:
    """`keras.ops`, some of whose functions are annotated as if they returned nothing."""
    return keras.ops
