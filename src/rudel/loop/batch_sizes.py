"""How many examples an evaluation or a prediction takes at a time."""

from types import FunctionType
from typing import TYPE_CHECKING, Any

import jax

from rudel.internals.keras import calls_of, compile_config, has_masked_outputs, layers_of

if TYPE_CHECKING:
    import keras

DEFAULT_BATCH_SIZE = 256
"""Takes less time than Keras' 32."""

_ELEMENTWISE = {"Add", "Cast", "Divide", "Multiply", "Negative", "Relu", "Subtract", "TrueDivide"}

_ACROSS_BATCHES = {"circle", "dice", "tversky"}
_REDUCED_BY_BATCH = ("sum", "mean_with_sample_weight")


def batch_size_of(model: "keras.Model", wanted: int | None, usual: int = 32) -> int:
    """Examples a step: as the inputs of a model are made for, else as many as wanted.

    Args:
        model: a Keras model, compiled or not.
        wanted: by the user; None for `DEFAULT_BATCH_SIZE`, or for what Keras takes where that may count.
        usual: what Keras takes.
    """
    try:
        inputs = model.inputs
    except (AttributeError, ValueError):  # not built, or not of layers
        inputs = None
    if fixed := next((tensor.shape[0] for tensor in inputs or () if tensor.shape[0]), None):
        return fixed
    if wanted is not None:
        return wanted
    return usual if _may_mix(model) else max(usual, DEFAULT_BATCH_SIZE)


def _may_mix(model: "keras.Model") -> bool:
    """Whether what is computed for an example may depend on others of its batch, as in a loss that compares them.

    Layers of Keras and Rudel do not do so in an evaluation; functions of the user's own may, and so may operations on
    whole arrays between layers. A loss is a sum over the batch, or over what a mask leaves of it, where it says so.
    """
    import keras

    layers = layers_of(model)
    operations = [operation for layer in layers for operation in getattr(layer, "operations", ())]
    if not all(isinstance(operation, keras.Layer) or _is_elementwise(operation) for operation in operations):
        return True
    compiled = compile_config(model)
    functions = jax.tree.leaves([compiled.get(name) for name in ("loss", "metrics", "weighted_metrics")])
    masked = bool(compiled) and has_masked_outputs(model)
    return masked or any(map(_has_own_code, [*layers, *functions])) or any(map(_takes_batch_whole, functions))


def _is_elementwise(operation: "keras.Operation") -> bool:
    """Whether it computes each element by itself, with a constant or with those at the same place."""
    shape = getattr(operation.output, "shape", None)
    return type(operation).__name__ in _ELEMENTWISE and all(
        tensor.shape == shape for call in calls_of(operation) for tensor in call.input_tensors
    )


def _has_own_code(thing: Any) -> bool:
    """Whether a layer, loss or metric, or a function that it holds, is neither of Keras nor of Rudel."""
    if isinstance(thing, str):
        return False
    held = [value for value in getattr(thing, "__dict__", {}).values() if isinstance(value, FunctionType)]
    whose = [thing if isinstance(thing, FunctionType) else type(thing), *held]
    return any(part.__module__.partition(".")[0] not in ("keras", "rudel") for part in whose)


def _takes_batch_whole(function: Any) -> bool:
    """Whether a loss or metric of Keras is not the mean of what it is for each example of a batch."""
    name = function if isinstance(function, str) else getattr(function, "__name__", type(function).__name__)
    if name.lower() in _ACROSS_BATCHES or getattr(function, "reduction", None) in _REDUCED_BY_BATCH:
        return True
    return getattr(function, "ignore_class", None) is not None
