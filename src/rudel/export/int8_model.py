"""A run's model in int8, which the forms for microcontrollers and browsers are made of."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rudel.errors import CompileError
from rudel.export.front import Front
from rudel.export.materials import Materials
from rudel.features import LogMel
from rudel.features.sensor_columns import Columns
from rudel.internals.keras import layers_of
from rudel.micro import Compiled, compile_model


@dataclass(frozen=True)
class Int8Model:
    """A model in int8.

    Args:
        name: what names in C start with.
        path: of the .tflite file.
        recipe: of the run; the Arduino sketch for `sine` is one of its own.
        raw: path of examples and LiteRT's answers, as the integers that they are; see `rudel.export.runner`.
        front: whose features are written beside it as `NAME_features`; None for none.
        about: `inputs` and `outputs` of the .tflite file, as the runner describes them.
        class_names: of its outputs; empty where nobody said.
        materials: what the export started from; None in tests.
        out: where the result is going to be; None in tests.
    """

    name: str
    path: Path
    recipe: str
    raw: Path
    front: Front | None = None
    about: Mapping[str, Sequence[dict[str, Any]]] = field(default_factory=dict)
    class_names: Sequence[str] = ()
    materials: Materials | None = None
    out: Path | None = None

    @property
    def features(self) -> LogMel | Columns | None:
        """Features computed before the network; None where it takes the inputs as they are."""
        return self.front.features if self.front else None

    def compile(self, target: str = "generic") -> Compiled:
        """The model in C, each of whose inferences stands alone, as in Keras.

        Raises:
            CompileError: the model cannot be compiled.
        """
        try:
            return compile_model(
                self.path.read_bytes(), name=self.name, target=target, stateless=True, class_names=self.class_names
            )
        except CompileError as error:
            raise CompileError(self._with_names_of_layers(str(error))) from error

    def _with_names_of_layers(self, sentence: str) -> str:
        """A sentence with Keras' names in the place of the converter's: `dense_2` for `sequential_1/dense_2_1`."""
        names = [layer.name for layer in layers_of(self.materials.model)] if self.materials else []
        for scope in re.findall("`([^`]+/[^`]+)`", sentence):
            parts = [part.removesuffix("_1") for part in scope.split("/")]
            if found := next((part for part in reversed(parts) if part in names), None):
                sentence = sentence.replace(scope, found)
        return sentence

    def feature_sources(self) -> dict[str, str]:
        """C of the features, by file name; empty for a model without."""
        return self.front.sources(f"{self.name}_features", self.about["inputs"]) if self.front else {}

    def examples(self, compiled: Compiled) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Columns (N, ...) of inputs, and of the outputs that LiteRT's reference kernels give for them."""
        with np.load(self.raw) as stored:
            inputs = [stored[f"input{i}"] for i in range(len(compiled.inputs))]
            return inputs, [stored[f"output{i}"] for i in range(len(compiled.outputs))]


class Maker(Protocol):
    """Makes a form of an int8 model."""

    def __call__(self, model: Int8Model, made: Path, folder: Path) -> tuple[int, list[str]]:
        """Writes to the folder `made`, with `folder` for what is only needed meanwhile.

        Returns:
            The size that counts, in bytes, and notes.

        Raises:
            CompileError: the model cannot be compiled.
            ExportError: the result differs from LiteRT's in a bit.
        """
        ...
