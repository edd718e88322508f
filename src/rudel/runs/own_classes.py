"""Classes and functions of the user's that a model is made of, so that its file can be read again.

A `.keras` file names them, and does not hold them. A run keeps beside it where they can be imported from: module, name,
and the folder in which the module lies. A warning before the first step names what cannot be imported, because it is
defined in a script, a notebook or a function.
"""

import importlib
import inspect
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudel.backend import without_tensorflow
from rudel.errors import ModelError, RunError
from rudel.shipping.user_code import is_installed

if TYPE_CHECKING:
    import keras


_log = logging.getLogger(__name__)

Places = Mapping[str, Mapping[str, str]]
"""By the name that Keras knows a class or a function by: its `module`, its `name` there, and the `folder` of that."""


def check_can_be_loaded(model: "keras.Model", lambdas: bool = False) -> Places:
    """Refuses a model that Keras cannot write to a file or read again, before it is trained.

    Args:
        model: a compiled Keras model.
        lambdas: whether its lambdas will be loaded, because Keras' safe mode is off.

    Returns:
        Where its own classes and functions can be imported from. A warning names those that cannot be.

    Raises:
        ModelError: names what is in the way.
    """
    from rudel.internals.keras import layers_of
    from rudel.runs.model_file import check_can_be_saved
    from rudel.shipping.user_code import own_objects

    config = check_can_be_saved(model)
    if not lambdas and (place := next(lambdas_in(config), None)) is not None:
        instead = ", keras.ops or a layer of your own" if place.startswith("layer") else ""
        raise ModelError(
            f"The model `{model.name}` could not be read again, because Keras does not load the lambda in its {place}: "
            f"make it a function of a module{instead}; or leave out `run`."
        )
    with without_tensorflow():
        lacking = {type(layer).__name__: names for layer in layers_of(model) if (names := _not_taken(layer))}
    for kind, names in lacking.items():
        raise ModelError(
            f"The model `{model.name}` could not be read again, because Keras gives its `{kind}` {names}, which "
            "`__init__` does not take: let it take `**kwargs` and hand them on to `super().__init__`; or leave out "
            "`run`."
        )
    places: dict[str, dict[str, str]] = {}
    missing: dict[str, str] = {}
    for name, value in own_objects(model, json.dumps(config, default=str)).items():
        place = _place_of(value)
        if place is None:
            missing[value.__name__] = "a script or notebook" if value.__module__ == "__main__" else "a function"
        else:
            places[name] = place
    if missing:
        named = " and ".join(f"`{name}` (defined in {where})" for name, where in sorted(missing.items()))
        given = ", ".join(f'"{name}": {name}' for name in sorted(missing))
        warnings.warn(
            f"The run can be opened only by `rudel.load(run, custom_objects={{{given}}})`, and by no command, because "
            f"{named} cannot be imported: move what is defined there to the top of a module, such as layers.py.",
            stacklevel=2,
        )
    return places


def _not_taken(layer: Any) -> str:
    """What Keras would make a layer again with, and its class does not take; "" where that is all right."""
    import keras

    kind = type(layer)
    makes: Any = getattr(kind.from_config, "__func__", None)
    if makes not in (keras.Layer.from_config.__func__, keras.Model.from_config.__func__):
        return ""
    config = layer.get_config()
    taken = inspect.signature(kind.__init__).parameters
    if "input_layers" in config or any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        return ""
    return " and ".join(f"`{name}`" for name in config if name not in taken)


@contextmanager
def imported(places: Places) -> Iterator[dict[str, Any]]:
    """The classes and functions that are still there; while it is entered, their folders can be imported from.

    Those of Rudel and of installed packages are taken from this environment, wherever it is.

    Raises:
        RunError: another module of the same name is imported, which Keras would take them from; or a folder is named by
            a relative path, as the module of a stranger who sends it with a run would be.
    """
    for place in places.values():
        if not Path(place["folder"]).is_absolute():
            raise RunError(
                f"config.json of the run names the module `{place['module']}` in `{place['folder']}`, and Rudel writes "
                "absolute paths there: the file was changed, so ask for the run again."
            )
    own = [place for place in places.values() if not is_installed(place["module"], Path(place["folder"]))]
    folders = [folder for folder in {place["folder"] for place in own} if folder not in sys.path]
    sys.path += folders
    try:
        found = {}
        for key, place in places.items():
            try:
                value = getattr(importlib.import_module(place["module"]), place["name"])
            except Exception as error:  # a module of the user's may raise anything
                _log.warning(
                    "`%s` of the module `%s` cannot be imported: %s: %s",
                    *(place["name"], place["module"], type(error).__name__, error),
                )
                continue  # Keras says what it lacks
            if place in own and _place_of(value) != place and _is_there(place):
                raise RunError(
                    f"The run needs `{place['name']}` of the module `{place['module']}` in {place['folder']}, and "
                    "another module of that name is imported: rename one, or use rudel.load(run, custom_objects=...)."
                )
            found[key] = value
        yield found
    finally:
        for folder in folders:
            sys.path.remove(folder)


def _is_there(place: Mapping[str, str]) -> bool:
    path = Path(place["folder"], *place["module"].split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _place_of(value: Callable[..., object]) -> dict[str, str] | None:
    """The module from which a class or a function can be imported; None where it cannot be."""
    module = sys.modules.get(value.__module__)
    file = getattr(module, "__file__", None)
    if value.__module__ == "__main__" or file is None or getattr(module, value.__qualname__, None) is not value:
        return None
    path = Path(file).resolve()
    up = value.__module__.count(".") + (path.name == "__init__.py")
    return {"module": value.__module__, "name": value.__qualname__, "folder": str(path.parents[up])}


def lambdas_in(config: object, place: str = "configuration") -> Iterator[str]:
    """Where a model has lambdas: in its "layer `NAME`", or in an argument of `compile`, such as its "loss"."""
    if isinstance(config, dict):
        if config.get("class_name") == "__lambda__":
            yield place
            return
        inner = config.get("config")
        place = f"layer `{inner['name']}`" if isinstance(inner, dict) and "name" in inner else place
        for key, value in config.items():
            if key == "compile_config" and isinstance(value, dict):
                for argument, given in value.items():
                    yield from (argument for _ in lambdas_in(given))
            else:
                yield from lambdas_in(value, place)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from lambdas_in(value, place)
