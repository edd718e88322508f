"""The model's forward pass as a TensorFlow function of fixed shapes, whose weights are constants of the graph."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from rudel.aliases import Tree
from rudel.errors import ExportError
from rudel.export.converter.model import sentence_of
from rudel.export.inputs import output_names


class Forward:
    """The forward pass of a model in inference, with a name for every input and output.

    Weights that are constants are part of the graph, where the converters can fold them. Where the batch has a fixed
    size, no shape is computed at run time.

    Args:
        model: on TensorFlow.
        inputs: `name`, `shape` of one example and `dtype` of each input.
        structure: how the model takes them; see `__main__`.
        batch: examples a call, or None for any number.
        constants: whether weights are constants; else they stay variables.
    """

    def __init__(
        self,
        model: keras.Model,
        inputs: list[dict[str, Any]],
        structure: Tree,
        batch: int | None,
        constants: bool = True,
    ) -> None:
        self._model = model
        self._structure = structure
        self._values = [(variable, variable.numpy()) for variable in model.variables] if constants else None
        self.inputs: list[str] = [i["name"] for i in inputs]
        self.outputs: list[str] = []
        self.signature = [tf.TensorSpec((batch, *i["shape"]), i["dtype"], name=i["name"]) for i in inputs]
        self.function = tf.function(self._outputs, input_signature=self.signature, autograph=False)

    def trace(self) -> Any:
        """The concrete function; `outputs` then has the names of its outputs, in the order of the model.

        Raises:
            ExportError: the model cannot run on TensorFlow, or gives something else than named tensors.
        """
        try:
            return self.function.get_concrete_function()
        except ExportError:
            raise
        except Exception as error:
            raise ExportError(
                f"The model `{self._model.name}` cannot run on TensorFlow, which converts it: {sentence_of(error)} "
                "Layers of your own have to compute with keras.ops, not with jax.numpy."
            ) from error

    def save(self, path: Path, signatures: dict[str, Any] | None = None, tables: Any = None) -> None:
        """Writes a SavedModel, which is called by `serve` or by a signature: if none is given, `serving_default`.

        Args:
            path: of its folder.
            signatures: concrete functions by name.
            tables: that these look up texts in.
        """
        module: Any = tf.Module()
        module.weights = [] if self._values else [variable.value for variable in self._model.variables]
        module.serve = self.function
        module.tables = tables
        tf.saved_model.save(module, str(path), signatures=signatures or {"serving_default": self.trace()})

    def _outputs(self, *tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        with self._weights():
            outputs = self._model(_filled(self._structure, tensors), training=False)
        flat = keras.tree.flatten(outputs)
        self.outputs = output_names(keras, self._model, outputs)
        return dict(zip(self.outputs, map(tf.convert_to_tensor, flat), strict=True))

    def _weights(self) -> Any:
        if not self._values:
            return contextlib.nullcontext()
        return keras.StatelessScope(state_mapping=[(v, tf.constant(value)) for v, value in self._values])


def _filled(structure: Tree, tensors: tuple[tf.Tensor, ...]) -> Tree:
    if isinstance(structure, int):
        return tensors[structure]
    if isinstance(structure, Mapping):
        return {name: _filled(part, tensors) for name, part in structure.items()}
    return [_filled(part, tensors) for part in structure]
