"""Weights of another model to begin a training with, matched by name and shape."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudel.errors import ModelError, RunError
from rudel.internals.keras import layers_of
from rudel.runs.loading import load
from rudel.runs.model_as_run import check_archive, is_model_file
from rudel.runs.model_file import load_model

if TYPE_CHECKING:
    import keras

_NAMED = 3


def copy_weights(model: "keras.Model", source: Path) -> str:
    """Copies the weights of another model that have the layer, the name and the shape of one of this model's.

    Of a layer, all weights that both models have are copied, or none.

    Args:
        model: with weights; they are replaced.
        source: a run directory, or a `.keras` or `.h5` file. Nothing in a file is executed.

    Returns:
        A sentence on what was copied, and what was not.

    Raises:
        RunError: there is no such run or file, it cannot be read, or it has no kernel (or other weight of two or more
            dimensions) that the model could take.
        ModelError: the model has no weights yet.
    """
    if not model.weights:
        raise ModelError(
            f"The model `{model.name}` has no weights before it sees examples, so none of {source} fits: let it begin "
            "with keras.Input(...)."
        )
    there = _variables(_model_at(source))
    own = _variables(model)
    known = {name for name in own if name in there}
    unlike = {_layer_of(name) for name in known if there[name].shape != own[name].shape}
    fits = {name for name in known if _layer_of(name) not in unlike}
    rest = [f"{name} {_shape(own[name])}" + _instead(own[name], there.get(name)) for name in own if name not in fits]
    kernels = {name for name, variable in own.items() if len(variable.shape) > 1} or own.keys()
    if not fits & kernels:
        raise RunError(
            f"No kernel in {source} has the name and the shape of one of the recipe's model, which has "
            f"{_listed(rest)}; it has {_listed([f'{name} {_shape(value)}' for name, value in there.items()])}."
        )
    for name in fits:
        own[name].assign(there[name])
    sentence = f"{len(fits)} of {len(own)} weights begin with those of {source}"
    return f"{sentence}; {len(rest)} do not fit: {_listed(rest)}." if rest else f"{sentence}."


def _model_at(source: Path) -> Any:
    if not is_model_file(source):
        return load(source)
    if not source.is_file():
        raise RunError(f"There is no model file at {source}.")
    if source.suffix == ".keras":
        check_archive(source)
    return load_model(source)


def _variables(model: "keras.Model") -> dict[str, Any]:
    """Weights by the names of their layer and their own; of two with the same name, the first."""
    named: dict[str, Any] = {}
    for layer in layers_of(model, include_self=False):
        own = {id(variable) for inner in layers_of(layer, include_self=False) for variable in inner.weights}
        for variable in layer.weights:
            if id(variable) not in own:
                named.setdefault(f"{layer.name}/{variable.name}", variable)
    return named


def _shape(variable: "keras.Variable") -> str:
    return f"({', '.join(map(str, variable.shape))})"


def _layer_of(name: str) -> str:
    return name.rpartition("/")[0]


def _instead(own: "keras.Variable", other: "keras.Variable | None") -> str:
    return "" if other is None or other.shape == own.shape else f" instead of {_shape(other)}"


def _listed(items: list[str]) -> str:
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return ", ".join(items[:_NAMED]) + more
