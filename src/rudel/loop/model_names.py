"""The names of a model's inputs and outputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras


def names_of(model: "keras.Model", side: str) -> list[str]:
    """Distinct names of the "inputs" or the "outputs" of a model, in Keras' order; none of a single output.

    Nor of tensors in a dict that are in lists or dicts of their own, or there twice.
    """
    tensors = getattr(model, side, None) or ()
    structure = getattr(model, side.removesuffix("s"), None) if tensors else None
    if isinstance(structure, Mapping):
        keys = {id(tensor): key for key, tensor in structure.items()}
        found = [keys[id(tensor)] for tensor in tensors if id(tensor) in keys]
        return found if len(found) == len(keys) == len(tensors) else []
    if side == "outputs":
        return list(getattr(model, "output_names", None) or ()) if len(tensors) > 1 else []
    return [tensor.name for tensor in tensors]


def keys_of_inputs(model: "keras.Model") -> list[str]:
    """The keys of the dict that a functional model takes; none where it takes no dict, or calls by code of its own."""
    try:
        structure = model.input
    except (AttributeError, ValueError):  # subclassed, or not built
        return []
    own = type(model).call.__module__.partition(".")[0] != "keras"
    return list(structure) if isinstance(structure, Mapping) and not own else []
