"""A SavedModel, computed by TensorFlow in this process. It takes any number of examples, and texts where it says so."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.errors import ServeError
from rudel.export.process import reason_of
from rudel.serve.image_inputs import EXPORTED, IMAGES, reader
from rudel.serve.model_signature import OPEN, Signature, Tensor, may_be_missing
from rudel.serve.refusal import bad
from rudel.serve.runtimes.runtime import Loaded

if TYPE_CHECKING:
    import keras


_SIGNATURE = "serving_default"


def load_savedmodel(path: Path) -> Loaded:
    """Loads a SavedModel.

    Raises:
        ServeError: TensorFlow is missing, or cannot load it, or it does not take examples along its first dimension.
    """
    try:
        import os

        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf
    except ImportError:
        raise ServeError(f"{path} needs TensorFlow: install it by `pip install tensorflow`.") from None
    try:
        model: keras.Model = tf.saved_model.load(str(path))
    except Exception as error:  # TensorFlow raises what it likes
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ServeError(f"{path} cannot be loaded by TensorFlow ({reason[0].rstrip('.')}).") from error
    if _SIGNATURE not in model.signatures:
        raise ServeError(f"The SavedModel {path} has no signature `{_SIGNATURE}`.")
    function = model.signatures[_SIGNATURE]
    specs, outputs = function.structured_input_signature[1], function.structured_outputs
    signature = Signature(
        tuple(_tensor(name, specs[name], path) for name in specs),
        tuple(_tensor(name, outputs[name], path) for name in outputs),
    )
    computing = _Function(tf, model, function, list(specs), list(outputs))
    files = EXPORTED if any(tensor.takes_images for tensor in signature.inputs) else IMAGES
    return Loaded(signature, computing.compute, "tensorflow_savedmodel", (), reader(signature, None), files)


class _Function:
    """A signature, called with arrays; keeps its model alive."""

    def __init__(
        self, tf: ModuleType, model: "keras.Model", function: Any, inputs: list[str], outputs: list[str]
    ) -> None:
        self._tf = tf
        self._model = model
        self._function = function
        self._inputs = inputs
        self._outputs = outputs

    def compute(self, columns: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Outputs (N, ...) of inputs (N, ...)."""
        feeds = {name: self._tf.constant(column) for name, column in zip(self._inputs, columns, strict=True)}
        try:
            results = self._function(**feeds)
        except self._tf.errors.InvalidArgumentError as error:
            raise bad(
                f"The model cannot take this input ({reason_of(str(error.message)) or 'no reason given'})."
            ) from error
        return [results[name].numpy() for name in self._outputs]


def _tensor(name: str, spec: Any, path: Path) -> Tensor:
    if spec.shape.rank is None or spec.shape.rank < 1 or spec.shape[0] is not None:
        raise ServeError(f"The tensor `{name}` of {path} does not take any number of examples: it cannot be served.")
    dtype = "bytes" if spec.dtype.name == "string" else spec.dtype.name
    if dtype != "bytes" and np.dtype(spec.dtype.as_numpy_dtype).kind not in "biuf":
        raise ServeError(f"The tensor `{name}` of {path} holds {dtype}, which cannot be served.")
    shape = tuple(OPEN if size is None else int(size) for size in spec.shape[1:])
    return Tensor(name, shape, dtype, may_be_missing(shape, dtype))
