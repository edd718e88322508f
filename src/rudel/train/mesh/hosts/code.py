"""The code that a model is made of and that only the computer that drives has: classes and functions of the user's.

Keras describes a model by the names of its parts. What a host cannot import by such a name travels with the
description, by value, with everything of the user's modules that it refers to.
"""

import sys
import types
from collections.abc import Iterator
from typing import Any

import cloudpickle

from rudel.data.records.by_value import modules_by_value, own_modules
from rudel.errors import ModelError


def dumped(value: Any) -> bytes:
    """Pickles a value, and the user's own code that it refers to.

    Raises:
        ModelError: it holds something that cannot travel, such as an open file.
    """
    try:
        with modules_by_value(own_modules()):
            return cloudpickle.dumps(value, protocol=5)
    except Exception as error:
        raise ModelError(
            f"Something of this training cannot be sent to other hosts ({type(error).__name__}: {error}): what layers, "
            "losses and the data's functions refer to must be picklable."
        ) from error


def own_objects(model: Any, description: Any) -> dict[str, Any]:
    """Classes and functions that a model's description names and Keras does not have, by their names in it.

    Args:
        model: the model.
        description: what `keras.saving.serialize_keras_object` made of it.

    Raises:
        ModelError: one of them cannot be found by its name.
    """
    from keras.saving import get_custom_objects

    known = {value.__name__: value for part in _parts(model) for value in (_code_of(part),)}
    registered = get_custom_objects()
    found: dict[str, Any] = {}
    for entry in _entries(description):
        module, name, is_function = entry.get("module"), entry["class_name"], entry["class_name"] == "function"
        if is_function:
            name = entry["config"]
        if not isinstance(name, str) or name.startswith("__") or _is_keras(module or ""):
            continue
        called = entry.get("registered_name") if not is_function else name
        value = registered.get(called) or known.get(name) or getattr(sys.modules.get(module or ""), name, None)
        if value is not None:
            found |= {called or name: value, name: value}
        elif not is_function:  # Keras knows functions of its own by their names alone
            raise ModelError(
                f"`{name}`, which the model `{model.name}` uses, cannot be sent to other hosts: define it at the top "
                "of its module, or register it by @keras.saving.register_keras_serializable()."
            )
    return {name: value for name, value in found.items() if not _is_keras(value.__module__)}


def _entries(description: Any) -> Iterator[dict[str, Any]]:
    if isinstance(description, dict):
        if "class_name" in description and "config" in description:
            yield description
        for value in description.values():
            yield from _entries(value)
    elif isinstance(description, list | tuple):
        for value in description:
            yield from _entries(value)


def _parts(model: Any) -> Iterator[Any]:
    """The model, its layers, what they hold, and what it was compiled with."""
    import jax

    from rudel.internals.keras import compile_config, inner_optimizer, layers_of

    for layer in layers_of(model):
        yield layer
        yield from vars(layer).values()
    yield from jax.tree.leaves(compile_config(model), is_leaf=lambda value: not isinstance(value, dict | list | tuple))
    yield from (model.optimizer, inner_optimizer(model.optimizer))


def _code_of(part: Any) -> Any:
    """What a part of a model is called by in a description: itself, if it is a function, or its class."""
    return part if isinstance(part, types.FunctionType | type) else type(part)


def _is_keras(module: str) -> bool:
    return module == "keras" or module.startswith("keras.")
