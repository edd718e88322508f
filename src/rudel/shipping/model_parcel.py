"""A compiled model with its code as bytes, for a process that has Keras on the same backend and nothing of the user's.

The model travels as a `.keras` file: what it is made of, how it is compiled, and all that its layers keep. Classes and
functions of the user's, which Keras names but does not hold, travel beside it; see `rudel.shipping.user_code`.

Limit: a class has to have a `get_config`, if Keras cannot guess it, as for a model that is to be kept.
"""

import contextlib
import pickle
import platform
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudel.backend import keras_here, reading_a_model, without_tensorflow
from rudel.errors import ModelError
from rudel.loop.model_state import first_line
from rudel.shipping.user_code import dumped, own_objects

if TYPE_CHECKING:
    import keras


@dataclass(frozen=True)
class Parcel:
    """A model and its code as bytes.

    Args:
        archive: the compressed content of a `.keras` file.
        objects: classes and functions, by the names that Keras knows them by.
        policy: dtype policy of the model, of which a `.keras` file has that of the layers alone.
        more: whatever else is to come along.
    """

    archive: bytes
    objects: dict[str, Any]
    policy: str
    more: object = None


def pack(model: "keras.Model", more: object = None) -> bytes:
    """Writes a built, compiled model, and something else that can be pickled.

    Raises:
        ModelError: Keras cannot write the model, or Python its code.
    """
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
        return dumped(parcel)
    except ModelError:
        raise
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
    keras = keras_here()
    policy = keras.config.dtype_policy()
    try:
        with understandable():
            parcel = pickle.loads(content)
            keras.config.set_dtype_policy(parcel.policy)
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), reading_a_model():
                warnings.simplefilter("ignore")
                path = Path(folder) / "model.keras"
                path.write_bytes(zlib.decompress(parcel.archive))
                keras.config.enable_unsafe_deserialization()  # hosts run what their driver sends
                model = keras.saving.load_model(path, custom_objects=parcel.objects, safe_mode=False)
    finally:
        keras.config.set_dtype_policy(policy)
    if not model.compiled:
        raise ModelError(
            f"The model `{model.name}` overrides `compile`: let it have `get_compile_config` and `compile_from_config` "
            "too, so that hosts can compile it."
        )
    return model, parcel.more


@contextlib.contextmanager
def understandable() -> Iterator[None]:
    """Makes a `ModelError` of whatever goes wrong while a model is made of what another computer sent.

    Raises:
        ModelError: this computer lacks a package, or the model cannot be made here.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModelError(
            f"{platform.node()} has no package `{error.name}`, which the model needs: install it there."
        ) from error
    except Exception as error:
        cause = str(error).partition("Exception encountered: ")[2]
        reason = first_line(ValueError(cause) if cause else error)
        raise ModelError(f"The model cannot be made on {platform.node()}: {type(error).__name__}: {reason}") from error
