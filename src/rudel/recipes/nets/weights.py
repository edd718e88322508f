"""Weights of a trained net from a file, for a net that is to learn something else.

Files: a whole model, `.keras` (such as `model.keras` of a run); weights that Keras has saved, `.weights.h5`; and
weights by names of layers as `keras.applications` publishes them, `.h5`. The head is the last layer; what the file has
in its place is used where it is for the same classes.
"""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudel.backend import reading_a_model, without_tensorflow
from rudel.errors import DataError, RecipeError
from rudel.files import expanded

if TYPE_CHECKING:
    import keras


def load_weights(model: "keras.Model", path: str | Path, class_names: Sequence[str] = ()) -> bool:
    """Puts the weights of a file into a model.

    Args:
        model: a built Keras model; its last layer is the head.
        path: `.keras`, `.weights.h5` or `.h5`.
        class_names: what the head tells apart. Where the file is the model of a run with other classes, or its head
            has another shape, the head stays as it is.

    Returns:
        Whether the head has weights of the file.

    Raises:
        DataError: the file is missing or damaged.
        RecipeError: its weights do not fit the model.
    """
    path = expanded(path)
    if not path.is_file():
        raise DataError(f"There is no file of weights {path}.")
    if path.suffix not in (".keras", ".h5"):
        raise DataError(f"{path} cannot hold weights: give a .keras, .weights.h5 or .h5 file.")
    return (_from_model if path.suffix == ".keras" else _from_weights)(model, path, tuple(class_names))


def _from_model(model: "keras.Model", path: Path, class_names: tuple[str, ...]) -> bool:
    import keras

    try:
        with reading_a_model():
            found: Any = keras.saving.load_model(path, compile=False)
    except Exception as error:  # Keras raises whatever a damaged file, or a class that it does not know, leads to
        raise _unreadable(path, error) from error
    theirs = {layer.name: layer.get_weights() for layer in found.layers if layer.weights}
    *body, head = (layer for layer in model.layers if layer.weights)
    for layer in body:
        weights = theirs.get(layer.name)
        shapes = [tuple(weight.shape) for weight in layer.weights]
        if weights is None:
            raise RecipeError(
                f"The weights in {path} are of another network than `{model.name}`: they have no layer `{layer.name}`."
            )
        if [weight.shape for weight in weights] != shapes:
            raise RecipeError(
                f"The weights in {path} do not fit the network `{model.name}`: its layer `{layer.name}` takes "
                f"{_described(shapes)}, and the file has {_described([weight.shape for weight in weights])}."
            )
    for layer in body:
        layer.set_weights(theirs[layer.name])
    fits = [w.shape for w in theirs.get(head.name, [])] == [tuple(w.shape) for w in head.weights]
    if fits and _classes_beside(path) in (None, class_names):
        head.set_weights(theirs[head.name])
        return True
    return False


def _from_weights(model: "keras.Model", path: Path, _: tuple[str, ...]) -> bool:
    """By Keras' own reader, which leaves out what does not fit; so what has stayed as it was is looked for."""
    import numpy as np

    layers = [layer for layer in model.layers if layer.weights]
    before = [[weight.copy() for weight in layer.get_weights()] for layer in layers]
    legacy = not path.name.endswith(".weights.h5")
    try:
        with warnings.catch_warnings(), without_tensorflow():
            warnings.simplefilter("ignore")
            model.load_weights(path, skip_mismatch=True, **({"by_name": True} if legacy else {}))
    except Exception as error:
        raise _unreadable(path, error) from error
    changed = [
        any(not np.array_equal(a, b) for a, b in zip(old, layer.get_weights(), strict=True))
        for old, layer in zip(before, layers, strict=True)
    ]
    for layer, new in zip(layers[:-1], changed[:-1], strict=True):
        if not new and not hasattr(layer, "gamma"):  # normalisation may have learned nothing
            raise RecipeError(
                f"The weights in {path} do not fit the network `{model.name}`: they have none for its layer "
                f"`{layer.name}`, which takes {_described([tuple(weight.shape) for weight in layer.weights])}."
            )
    return changed[-1]


def _classes_beside(path: Path) -> tuple[str, ...] | None:
    """Names of the classes of the run whose model this is; None where there is no run, or it has no names."""
    try:
        names = json.loads((path.parent / "config.json").read_text(encoding="utf-8"))["class_names"]
        return tuple(names) or None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = str(error).strip().partition("\n")[0].rstrip(".")
    return DataError(f"{path} cannot be read as weights of Keras ({reason}).")


def _described(shapes: Sequence[tuple[int, ...]]) -> str:
    return " and ".join(" x ".join(map(str, shape)) for shape in shapes)
