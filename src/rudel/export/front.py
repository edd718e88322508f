"""What a converted model takes: what the run's model takes; or the spectrogram of it.

The latter where the model hears, and the form has no operators for its features. These are beside it in C then.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rudel.backend import keras_on_jax
from rudel.errors import ExportError
from rudel.export.inputs import Inputs, inputs_of
from rudel.features import LogMel

SPECTROGRAM = "spectrogram"
"""Name of the input that takes the place of sound."""


@dataclass(frozen=True)
class Front:
    """What is converted, and what it takes.

    Attributes:
        model: path of the .keras file that is converted.
        inputs: of that model.
        features: that make them of sound; None where it takes what the run's model takes.
    """

    model: Path
    inputs: Inputs
    features: LogMel | None = None

    def columns(self, x: Any) -> list[np.ndarray]:
        """The inputs of examples, (N, ...) each."""
        return [self._spectrograms(x)] if self.features else self.inputs.columns(x)

    def calibration(self, x: Any) -> list[np.ndarray]:
        """The same, to find ranges on: those of a spectrogram are all of int8, so that it is taken as it is."""
        columns = self.columns(x)
        if self.features:
            columns[0][0, 0, :2] = -128, 127
        return columns

    def check(self, about: list[dict[str, Any]]) -> None:
        """Refuses an int8 model that would not take a spectrogram as it is.

        Args:
            about: what the converted model says of its inputs.
        """
        if self.features and (about[0].get("scale"), about[0].get("zero_point")) != (1.0, 0):
            raise ExportError(
                f"The converter gave the spectrogram a scale of {about[0].get('scale')} and a zero point of "
                f"{about[0].get('zero_point')}, not 1 and 0: export to onnx or savedmodel meanwhile."
            )

    @property
    def notes(self) -> list[str]:
        """What a user should know, a sentence each."""
        if not self.features:
            return []
        frames, bands = self.inputs.leaves[0].shape
        return [
            f"It takes the spectrogram, {frames} frames of {bands} bands, that `rudel.features` makes of the model's "
            "sound; forms in C and WebAssembly have what makes it beside them."
        ]

    def _spectrograms(self, x: Any) -> np.ndarray:
        assert self.features
        return self.features(np.asarray(x)).astype(np.float32)


def front_of(model: Any, path: Path, x: Any, converter: str, folder: Path) -> Front:
    """What is to be converted of a model.

    Args:
        model: of the run, on JAX.
        path: of its file.
        x: inputs of examples.
        converter: the form that the converter is asked for.
        folder: for a file that is only needed meanwhile.

    Raises:
        DataError: the examples do not fit the model.
    """
    from rudel.features.layer import Features

    keras = keras_on_jax()
    layer = next((layer for layer in getattr(model, "layers", ()) if isinstance(layer, Features)), None)
    alone = layer is not None and len(model.inputs) == 1 and layer.input is model.inputs[0]
    if layer is None or not alone or not converter.startswith("litert"):
        return Front(path.absolute(), inputs_of(model, x))
    behind = keras.Model(layer.output, model.outputs)
    shape = tuple(layer.compute_output_shape(model.inputs[0].shape))[1:]
    given = keras.Input(shape, name=SPECTROGRAM)
    network = keras.Model(given, behind(given), name=model.name)
    network.save(folder / "network.keras")
    return Front(folder / "network.keras", inputs_of(network, np.zeros((1, *shape), np.float32)), layer.features)
