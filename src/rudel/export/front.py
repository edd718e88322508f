"""Inputs of a converted model: those of the run's model, or features of them where these are better made outside.

That is the spectrogram of sound, where the form has no operators for it; and normalised rows of a sensor, where the
form has integers and one scale is too coarse for the columns. In C, the features are beside the model.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.backend import keras_on_jax
from rudel.data.dataset import Arrays
from rudel.errors import ExportError
from rudel.export.inputs import Inputs, inputs_of, parameter
from rudel.features import LogMel
from rudel.features.c import sources
from rudel.features.sensor_columns import Columns, column_sources, columns_of
from rudel.runs.model_file import save_model

if TYPE_CHECKING:
    import keras

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
SPECTROGRAM, NORMALISED = "spectrogram", "normalised"
"""Names of the inputs that take the place of sound, and of rows of a sensor."""


@dataclass(frozen=True)
class Front:
    """The model that is converted, and its inputs.

    Attributes:
        model: path of the .keras file that is converted.
        inputs: of that model.
        given: inputs of the run's model.
        features: that make the ones of the others, sound or rows; None where both are the same.
        integers: dtype of an input that is quantised.
        texts: by input that takes the number of a category of a table, the categories from 1; others are 0.
        renamed: by input whose name is not the key of its examples, that key; for a table, the name of the column.
    """

    model: Path
    inputs: Inputs
    given: Inputs
    features: LogMel | Columns | None = None
    integers: str = "int8"
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    def with_texts(self, x: Arrays) -> list[np.ndarray]:
        """The inputs of examples, in which the texts themselves are what they are numbers of."""
        return [
            np.array([_UNKNOWN, *self.texts[leaf.name]])[column] if leaf.name in self.texts else column
            for leaf, column in zip(self.inputs.leaves, self.columns(x), strict=True)
        ]

    def columns(self, x: Arrays) -> list[np.ndarray]:
        """The inputs of examples, (N, ...) each."""
        columns = self.given.columns(x)
        return [self.features(columns[0]).astype(np.float32)] if self.features else columns

    def calibration(self, x: Arrays) -> list[np.ndarray]:
        """The same, to find ranges on: those of a spectrogram are all of int8, so that it is taken as it is."""
        columns = self.columns(x)
        if isinstance(self.features, LogMel):
            columns[0][0, 0, :2] = -128, 127
        return columns

    def sources(self, name: str, about: Sequence[dict[str, Any]]) -> dict[str, str]:
        """Texts of the C of the features, by the names of their files; none where there are no features.

        Args:
            name: what names in C begin with.
            about: what the converted model says of its inputs.
        """
        if isinstance(self.features, LogMel):
            return sources(self.features, name)
        if self.features:
            return column_sources(self.features, name, about[0]["scale"], about[0]["zero_point"])
        return {}

    def check(self, about: list[dict[str, Any]]) -> None:
        """Refuses an int8 model that would not take a spectrogram as it is.

        Args:
            about: what the converted model says of its inputs.
        """
        if isinstance(self.features, LogMel) and (about[0].get("scale"), about[0].get("zero_point")) != (1.0, 0):
            raise ExportError(
                f"The converter gave the spectrogram a scale of {about[0].get('scale')} and a zero point of "
                f"{about[0].get('zero_point')}, not 1 and 0: export to onnx or savedmodel meanwhile."
            )

    @property
    def notes(self) -> list[str]:
        """Notes for the user, a sentence each."""
        if not self.features:
            return []
        *_, frames, bands = 1, *self.inputs.leaves[0].shape
        if isinstance(self.features, Columns):
            which = "column is" if bands == 1 else f"{bands} columns are"
            return [
                f"It takes rows whose {which} normalised by mean and standard deviation, as one scale of "
                f"{self.integers} is too coarse otherwise; forms in C include the normalisation."
            ]
        kind = "mel bands" if self.features.cosines is None else "MFCCs"
        return [
            f"It takes {frames} frames of {bands} {kind}, which `rudel.features` computes from sound; "
            "forms in C and WebAssembly include that computation."
        ]


def front_of(model: "keras.Model", path: Path, x: Arrays, converter: str, folder: Path) -> Front:
    """Chooses the part of a model that is converted.

    Args:
        model: of the run, on JAX.
        path: of its file.
        x: inputs of examples.
        converter: the form that the converter makes.
        folder: for a file that is only needed meanwhile.

    Raises:
        DataError: the examples do not fit the model.
    """
    from rudel.features.table_layer import columns_of as table_columns_of

    given = inputs_of(model, x, parameter, str.lower)  # TensorFlow takes `X` and `x` for one
    features, network = _divided(model, converter)
    if features and network:
        save_model(network, folder / "network.keras")
        one = features(given.columns(x)[0][:1]).astype(np.float32)
        integers = converter.removeprefix("litert-")
        return Front(folder / "network.keras", inputs_of(network, one), given, features, integers)
    columns = {column.key: column for column in table_columns_of(model)}
    known = {key: column.categories for key, column in columns.items() if column.categories}
    texts = {leaf.name: known[str(leaf.key)] for leaf in given.leaves if str(leaf.key) in known}
    renamed = {
        leaf.name: columns[leaf.key].name if leaf.key in columns else leaf.key
        for leaf in given.leaves
        if isinstance(leaf.key, str) and leaf.key != leaf.name
    }
    return Front(path.absolute(), given, given, texts=texts, renamed=renamed)


def _divided(model: "keras.Model", converter: str) -> "tuple[LogMel | Columns | None, keras.Model | None]":
    """What the layer computes that takes the input of a model, if it is to stay outside, and the network behind it."""
    from rudel.internals.keras import calls_of

    if not converter.startswith("litert") or len(getattr(model, "inputs", None) or ()) != 1:
        return None, None
    keras = keras_on_jax()
    for layer in model.layers:
        features = _computed_by(layer, converter)
        for call in calls_of(layer) if features else ():
            if not any(tensor is model.inputs[0] for tensor in call.input_tensors):
                continue
            output = call.output_tensors[0]
            with contextlib.suppress(ValueError):  # the model has the layer called otherwise, or something in front
                behind = keras.Model(output, model.outputs)
                given = keras.Input(
                    tuple(output.shape)[1:], name=SPECTROGRAM if isinstance(features, LogMel) else NORMALISED
                )
                return features, keras.Model(given, behind(given), name=model.name)
    return None, None


def _computed_by(layer: "keras.Layer", converter: str) -> LogMel | Columns | None:
    """What a layer computes, if that is better computed outside of the converted model."""
    from rudel.features.layer import Features

    if isinstance(layer, Features):
        return layer.features
    bits = {"litert-int8": 8, "litert-int16": 16}.get(converter)
    return columns_of(layer, 2**bits) if bits else None
