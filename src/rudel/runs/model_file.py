"""Model files: written whole or not at all, and read back with their recipe's own classes."""

import contextlib
import importlib
import logging
import os
import re
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudel.backend import keras_here, reading_a_model, without_tensorflow
from rudel.errors import ModelError, RunError
from rudel.loop.model_state import check_not_forked, first_line

if TYPE_CHECKING:
    import keras


def save_model(model: "keras.Model", path: Path) -> None:
    """Writes a `.keras` file atomically.

    Raises:
        OSError: the disk is full or the folder cannot be written; `path` is then as it was.
    """
    with tempfile.TemporaryDirectory(prefix=".model.", dir=path.parent) as folder:
        beside = Path(folder) / path.name
        with without_tensorflow():
            model.save(beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)


def check_can_be_saved(model: "keras.Model") -> Any:
    """Refuses a model that Keras cannot write to a file, before it is trained.

    Returns:
        What Keras would write, without the weights.

    Raises:
        ModelError: names what is in the way.
    """
    keras = keras_here()
    try:
        with without_tensorflow(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Keras warns of lambdas
            return keras.saving.serialize_keras_object(model)
    except Exception as error:
        raise ModelError(
            f"The model `{model.name}` cannot be saved into a run: {_first_sentence(error)} Models and layers of your "
            "own need `get_config`; or leave out `run`."
        ) from error


def _first_sentence(error: BaseException) -> str:
    """The sentence of an exception's message that says what is wrong, which Keras breaks into lines."""
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\s*\n", str(error))]
    sentence = first_line(Exception("\n".join(paragraphs))).partition(". ")[0]
    return f"{sentence.rstrip('.')}."


_OWN_LAYERS = ("rudel.features.layer", "rudel.features.masks", "rudel.features.table_layer", "rudel.features.table_r2")
"""Modules that register classes of Rudel's with Keras, so that a run also loads where Rudel is in another folder."""


def load_model(
    path: Path, custom_objects: Mapping[str, Any] | None = None, own: str = "use `rudel.load(run, custom_objects=...)`"
) -> Any:
    """Reads a `.keras` file, compiled as it was.

    Args:
        path: of the file.
        custom_objects: classes and functions of the user's, by name.
        own: how such are given, for a message.

    Raises:
        RunError: the file is damaged, or needs classes that are not known.
        ModelError: this process was forked after JAX had started.
    """
    keras = keras_here()
    check_not_forked()
    for name in _OWN_LAYERS:
        importlib.import_module(name)
    try:
        with reading_a_model(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")  # of one never trained
            with _quiet(logging.getLogger("absl")):  # of metrics of an .h5 file, which are built in the first batch
                return keras.models.load_model(path, custom_objects=dict(custom_objects or {}))
    except Exception as error:
        missing = re.search(r"Could not locate (class|function) '(?:.*>)?(\w+)'", str(error))
        why = f"it needs the {missing[1]} `{missing[2]}`: {own}." if missing else f"{first_line(error).rstrip('.')}."
        if path.suffix == ".keras" and path.is_file() and not zipfile.is_zipfile(path):
            why = "the file is cut short, or no .keras file."
        raise RunError(f"The model {path} cannot be loaded: {why}") from error


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Lets a logger write errors alone for as long as the block lasts."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
