"""Arrays in `.npz` files, as a model takes them: `x`, or an array for each input by its name."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rudel.data.arrays_file import read_arrays
from rudel.data.dataset import Examples
from rudel.data.npz import read_npz
from rudel.data.pictures import rows_of
from rudel.errors import DataError
from rudel.loop.model_names import names_of

if TYPE_CHECKING:
    import keras


def read_examples(path: Path, model: "keras.Model", class_names: Sequence[str] = ()) -> tuple[Examples, dict[str, int]]:
    """Reads inputs, and targets where there are any.

    Args:
        path: an `.npz` file with `x` or an array for each input, and `y` or one for each output, which may be left out.
        model: that takes them.
        class_names: of the model; see `rudel.data.arrays_file`.

    Returns:
        The examples, and how many rows of which unknown class were left out.

    Raises:
        DataError: the file cannot be read, or an array is missing or does not fit.
    """
    inputs, outputs = names_of(model, "inputs"), names_of(model, "outputs")
    keys = _built_with(model) if not inputs else []
    if keys or len(inputs) > 1:
        inputs = keys or inputs
        arrays = _arrays(path, {"y", *inputs, *outputs})
        x = inputs_among(arrays, inputs, path)
        if outputs and all(name in arrays for name in outputs):
            return Examples(x, {name: arrays[name] for name in outputs}), {}
        return Examples(x, arrays.get("y")), {}
    arrays = _arrays(path, {"x", "y", *inputs})
    x = arrays.get("x", arrays.get(inputs[0]) if inputs else None)
    if x is None:
        raise DataError(f"{path} has no array `x`: save it by np.savez(file, x=..., y=..., names=...).")
    shape = getattr(model, "input_shape", None)
    shape = tuple(shape[1:]) if isinstance(shape, tuple) and None not in shape[1:] else x.shape[1:]
    if "x" in arrays and "y" in arrays:
        return read_arrays(path, class_names, shape)
    if x[:1].size != np.prod(shape):
        raise DataError(f"`x` in {path} has shape {x.shape}, and the model takes inputs of shape {shape}.")
    return Examples(x.reshape(-1, *shape), arrays.get("y")), {}


def read_inputs(path: Path, shapes: Mapping[str, tuple[int | None, ...]]) -> tuple[dict[str, np.ndarray], int]:
    """Reads inputs alone, (N, ...) by name, and N.

    Args:
        path: an `.npz` file with an array for each input.
        shapes: of one input, by name; one with None in it is not checked.

    Raises:
        DataError: the file cannot be read, or an array is missing or does not fit.
    """
    arrays = inputs_among(_arrays(path, set(shapes)), list(shapes), path)
    for name, shape in shapes.items():
        whole = tuple(length for length in shape if length is not None)
        if len(whole) == len(shape):
            arrays[name] = rows_of(arrays[name], whole, f"`{name}` in {path}")
    return arrays, len(Examples(arrays))


def inputs_among(arrays: Mapping[str, np.ndarray], names: Sequence[str], path: Path) -> dict[str, np.ndarray]:
    """The arrays of these names.

    Raises:
        DataError: one is missing.
    """
    if any(name not in arrays for name in names):
        raise DataError(
            f"{path} must have an array for each input of the model: {', '.join(f'`{name}`' for name in names)}."
        )
    return {name: arrays[name] for name in names}


def _built_with(model: "keras.Model") -> list[str]:
    """Keys of the dict that a model was built with, whose class says nothing of its inputs; none of an array."""
    shape = (model.get_build_config() or {}).get("input_shape")
    return list(shape) if isinstance(shape, Mapping) else []


def _arrays(path: Path, names: set[str]) -> dict[str, np.ndarray]:
    try:
        return read_npz(path, names)
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as an .npz file: {error}.") from error
