"""A compiled model with its code as bytes, for a process that has Keras on the same backend and nothing of the user's.

The model travels as a `.keras` file: what it is made of, how it is compiled, and all that its layers keep. Classes and
functions of the user's, which Keras names but does not hold, travel beside it: by value where they lie in the user's
own files, by name where they lie in installed packages.

Limits: a class has to have a `get_config`, if Keras cannot guess it, as for a model that is to be kept; code that
travels by value needs the same version of Python.
"""

import platform
import tempfile
import types
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudel.backend import keras_here, without_tensorflow
from rudel.data.records.by_value import modules_by_value, own_modules
from rudel.errors import ModelError
from rudel.train.state import first_line


@dataclass(frozen=True)
class Parcel:
    """What travels.

    Args:
        archive: the compressed content of a `.keras` file.
        objects: classes and functions, by the names that Keras knows them by.
        policy: dtype policy of the model, of which a `.keras` file has that of the layers alone.
        more: whatever else is to come along.
    """

    archive: bytes
    objects: dict[str, Any]
    policy: str
    more: Any = None


def pack(model: Any, more: Any = None) -> bytes:
    """Writes a built, compiled model, and something else that can be pickled.

    Raises:
        ModelError: Keras cannot write the model, or Python its code.
    """
    import cloudpickle

    keras = keras_here()
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), without_tensorflow():
            warnings.simplefilter("ignore")  # Keras warns of lambdas
            path = Path(folder) / "model.keras"
            keras.saving.save_model(model, path)
            archive = path.read_bytes()
            with zipfile.ZipFile(path) as file:
                config = file.read("config.json").decode()
        parcel = Parcel(zlib.compress(archive, 1), own_objects(model, config), model.dtype_policy.name, more)
        with modules_by_value(own_modules()):
            return cloudpickle.dumps(parcel)
    except Exception as error:
        raise ModelError(
            f"The model `{model.name}` cannot be sent to hosts ({first_line(error)}): layers of your own need "
            "`get_config`, as they do for model.save."
        ) from error


def unpack(content: bytes) -> tuple[Any, Any]:
    """Reads what `pack` wrote: the model, compiled, and what came along.

    Raises:
        ModelError: this computer lacks a package, or the model is not made by what its classes say of themselves.
    """
    import cloudpickle

    keras = keras_here()
    policy = keras.config.dtype_policy()
    try:
        parcel = cloudpickle.loads(content)
        keras.config.set_dtype_policy(parcel.policy)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), without_tensorflow():
            warnings.simplefilter("ignore")
            path = Path(folder) / "model.keras"
            path.write_bytes(zlib.decompress(parcel.archive))
            keras.config.enable_unsafe_deserialization()  # hosts run what their driver sends
            model = keras.saving.load_model(path, custom_objects=parcel.objects, safe_mode=False)
    except ModuleNotFoundError as error:
        raise ModelError(
            f"{platform.node()} has no package `{error.name}`, which the model needs: install it there."
        ) from error
    except Exception as error:
        raise ModelError(f"The model cannot be made on {platform.node()}: {first_line(error)}") from error
    finally:
        keras.config.set_dtype_policy(policy)
    if not model.compiled:
        raise ModelError(
            f"The model `{model.name}` overrides `compile`: let it have `get_compile_config` and `compile_from_config` "
            "too, so that hosts can compile it."
        )
    return model, parcel.more


def own_objects(model: Any, config: str) -> dict[str, Any]:
    """Classes and functions that are not of Keras, by the names under which a model's configuration asks for them.

    Args:
        model: a compiled Keras model.
        config: its configuration as Keras writes it, JSON.
    """
    keras = keras_here()
    found = {name: value for name, value in keras.saving.get_custom_objects().items() if f'"{name}"' in config}
    for value in _objects_of(model):
        found[keras.saving.get_registered_name(value)] = value
        found[value.__name__] = value
    return found


def _objects_of(model: Any) -> Iterator[Any]:
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


def _is_of_keras(value: Any) -> bool:
    return (value.__module__ or "").partition(".")[0] in ("keras", "builtins")
