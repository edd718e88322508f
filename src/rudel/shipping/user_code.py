"""The user's own code as bytes, for processes and hosts that cannot import it.

Classes and functions in the user's own files are pickled by value, with everything of their modules that they refer to;
those of installed packages by name. Limit: code that travels by value needs the same version of Python.
"""

import contextlib
import functools
import os
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudel.errors import ModelError

if TYPE_CHECKING:
    import keras


_PACKAGES = {"site-packages", "dist-packages"}
"""Folders in which packages are installed."""

_STANDARD = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}


def dumped(value: object) -> bytes:
    """Pickles a value, and the user's own code that it refers to.

    Raises:
        ModelError: it holds something that cannot travel, such as an open file.
    """
    import cloudpickle

    try:
        with modules_by_value(own_modules()):
            return cloudpickle.dumps(value, protocol=5)
    except Exception as error:
        raise ModelError(
            f"Something of this training cannot be sent to other hosts ({type(error).__name__}: {error}): what layers, "
            "losses and the data's functions refer to must be picklable."
        ) from error


def own_objects(model: "keras.Model", config: str) -> dict[str, Any]:
    """Classes and functions that are not of Keras, by the names under which a model's configuration asks for them.

    Args:
        model: a compiled Keras model.
        config: its configuration as Keras writes it, JSON.
    """
    from rudel.backend import keras_here

    keras = keras_here()
    found = {name: value for name, value in keras.saving.get_custom_objects().items() if f'"{name}"' in config}
    for value in _objects_of(model):
        found[keras.saving.get_registered_name(value)] = value
        found[value.__name__] = value
    return found


def _objects_of(model: "keras.Model") -> Iterator[Any]:
    """Classes and functions of the user's that a model, its layers and its compilation are made of."""
    from rudel.internals.keras import compile_config

    seen: set[int] = set()
    waiting: list[Any] = [model, compile_config(model)]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += value
        elif isinstance(value, types.FunctionType):
            if not _is_of_keras(value) and value.__name__ != "<lambda>":
                yield value
        elif isinstance(value, type):
            continue
        elif hasattr(value, "get_config") or type(value).__name__ == "SerializableDict":
            if not _is_of_keras(type(value)):
                yield type(value)
            kind = type(value)  # Keras puts functions of its own around methods
            waiting += [part for name, part in vars(value).items() if not (callable(part) and hasattr(kind, name))]


def _is_of_keras(value: object) -> bool:
    return (value.__module__ or "").partition(".")[0] in ("keras", "builtins")


@contextlib.contextmanager
def modules_by_value(modules: Iterable[types.ModuleType]) -> Iterator[None]:
    """Lets cloudpickle pickle code of these modules by value, for as long as the block lasts.

    Modules that are registered with cloudpickle already, as by the user, stay registered afterwards.
    """
    import cloudpickle

    before = cloudpickle.list_registry_pickle_by_value()
    new = {module.__name__: module for module in modules if module.__name__ not in before}
    for module in new.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for name in new.keys() & cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(new[name])


def own_modules() -> list[types.ModuleType]:
    """The imported modules that are files of the user's: those that are not where packages are installed."""

    @functools.cache  # thousands of modules lie in some hundred folders
    def is_own(folder: str) -> bool:
        return not is_installed("", Path(folder).resolve())

    modules = list(sys.modules.items())
    return [module for name, module in modules if (folder := _folder_of(name, module)) and is_own(folder)]


def _folder_of(name: str, module: types.ModuleType) -> str | None:
    """The folder of an imported module; None for `__main__`, modules of Rudel, and modules without a file."""
    path = getattr(module, "__file__", None)
    if not path or name.partition(".")[0] in ("__main__", "rudel") or getattr(module, "__name__", "") != name:
        return None
    return os.path.dirname(path)  # noqa: PTH120  # as pathlib takes as long as all the rest


def is_installed(module: str, path: Path) -> bool:
    """Whether a module is of Rudel, a package or Python, and so lies elsewhere in another environment.

    Args:
        module: its name.
        path: its file, or a folder in which it lies.

    >>> is_installed("rudel.features", Path("/home/ada/code")), is_installed("layers", Path("/home/ada/code"))
    (True, False)
    """
    if module.partition(".")[0] == "rudel" or _PACKAGES.intersection(path.parts):
        return True
    return any(path.is_relative_to(place) for place in _STANDARD)
