"""Names, shapes and order of a model's inputs and outputs."""

import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.aliases import Tree
from rudel.data.dataset import Arrays
from rudel.errors import DataError
from rudel.micro.names import identifier

if TYPE_CHECKING:
    import keras

BESIDE_INPUT = "_output"
"""Ends the name of an output in ONNX where an input has that name, too."""


@dataclass(frozen=True)
class Input:
    """One input of a model.

    Attributes:
        name: unique, and an identifier in C; one that is a key of examples is that of no other input.
        key: where it is in examples: a key of a dict, a place in a list, or None where it is all of `x`.
        shape: of one example.
        dtype: that the converted model takes.
    """

    name: str
    key: str | int | None
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Inputs:
    """All inputs of a model, in the order of its `inputs`."""

    leaves: tuple[Input, ...]

    @property
    def structure(self) -> Tree:
        """Layout of the inputs, with the number of an input in its place: 0, [0, 1] or {"left": 0, "right": 1}."""
        keys = [leaf.key for leaf in self.leaves]
        if keys == [None]:
            return 0
        if isinstance(keys[0], str):
            return {str(key): number for number, key in enumerate(keys)}
        return list(range(len(keys)))

    def columns(self, x: Arrays) -> list[np.ndarray]:
        """The arrays of examples, (N, *shape) each, in the dtype that they have."""
        arrays = [x if leaf.key is None else x[leaf.key] for leaf in self.leaves]
        return [np.asarray(a).reshape(len(a), *leaf.shape) for a, leaf in zip(arrays, self.leaves, strict=True)]


def inputs_of(
    model: "keras.Model", x: Arrays, naming: Callable[[str], str] = identifier, compared: Callable[[str], str] = str
) -> Inputs:
    """The inputs of a model, as examples are given to it.

    Args:
        model: a built Keras model.
        x: inputs of examples (N, ...), in the form that the model takes; they tell the sizes that it leaves open.
        naming: makes the name of an input from its key, or from what Keras calls it.
        compared: what of two names must differ.

    Raises:
        DataError: the examples do not fit the model.
    """
    tensors = list(getattr(model, "inputs", None) or ())
    if isinstance(x, Mapping):
        keys, tensors = _by_key(model, x, tensors)
        arrays = [x[key] for key in keys]
    elif isinstance(x, list | tuple):
        keys, arrays = list(range(len(x))), list(x)
    else:
        keys, arrays = [None], [x]
    if tensors and len(tensors) != len(arrays):
        raise DataError(f"The model takes {len(tensors)} inputs, and the examples have {len(arrays)}.")
    if any(isinstance(array, Mapping | list | tuple) for array in arrays):
        raise DataError("The examples have inputs within inputs: give one dict or list of arrays, to be exported.")
    leaves = []
    for number, (key, array) in enumerate(zip(keys, arrays, strict=True)):
        tensor = tensors[number] if tensors else None
        wanted = key if isinstance(key, str) else getattr(tensor, "name", "input") or "input"
        name, taken = naming(wanted), {compared(leaf.name) for leaf in leaves}
        while compared(name) in taken or name in {other for other in keys if other != key}:
            name = f"{name}_{number}"
        leaves.append(Input(name, key, *_shape_and_dtype(tensor, np.asarray(array), name)))
    return Inputs(tuple(leaves))


def parameter(text: str) -> str:
    """A text as an identifier in C and the name of a parameter in Python, which TensorFlow makes of it."""
    name = identifier(text)
    return f"{name}_" if keyword.iskeyword(name) or name == "self" else name


def output_names(keras: ModuleType, model: "keras.Model", outputs: Arrays) -> list[str]:
    """A name for each output of a model, in the order of `keras.tree.flatten`.

    It is the key of a dict, the name that Keras gives, or a number.
    """
    count = len(keras.tree.flatten(outputs))
    if isinstance(outputs, Mapping) and len(outputs) == count:
        names: Sequence[Any] = [path[0] for path, _ in keras.tree.flatten_with_path(outputs)]
    else:
        names = list(getattr(model, "output_names", None) or ())
    names = [identifier(str(name)) for name in names]
    return names if len(names) == count == len(set(names)) else [f"output_{i}" for i in range(count)]


def _by_key(model: "keras.Model", x: Mapping[str, Any], tensors: list[Any]) -> tuple[list[str], list[Any]]:
    if not tensors:
        return sorted(x), []
    structure = getattr(model, "input", None)
    keys = {id(tensor): key for key, tensor in structure.items()} if isinstance(structure, Mapping) else {}
    named = {keys.get(id(tensor), tensor.name): tensor for tensor in tensors}
    missing = [name for name in named if name not in x]
    if missing:
        raise DataError(f"The model takes an input `{missing[0]}`, and the examples have {', '.join(map(str, x))}.")
    return list(named), list(named.values())


def _shape_and_dtype(tensor: "keras.KerasTensor | None", array: np.ndarray, name: str) -> tuple[tuple[int, ...], str]:
    shape = array.shape[1:]
    if tensor is not None:
        # A policy of mixed precision makes inputs of 16 bits, where none are declared: the model casts to them itself.
        dtype = "float32" if str(tensor.dtype).endswith("float16") else str(tensor.dtype)
        wanted = tuple(tensor.shape[1:])
        if all(isinstance(size, int) for size in wanted):
            if np.prod(wanted) != np.prod(shape):
                raise DataError(f"The input `{name}` of the model has shape {wanted}, and the examples have {shape}.")
            return wanted, dtype
        return shape, dtype
    return shape, "int32" if array.dtype.kind in "iu" and array.dtype.itemsize > 1 else "float32"
