"""Model files: written whole or not at all, and read back with their recipe's own classes."""

import tempfile
from pathlib import Path
from typing import Any

from rudel.backend import keras_on_jax, without_tensorflow
from rudel.errors import RunError
from rudel.train.state import first_line


def save_model(model: Any, path: Path) -> None:
    """Writes a `.keras` file atomically.

    Raises:
        OSError: the disk is full or the folder cannot be written; `path` is then as it was.
    """
    with tempfile.TemporaryDirectory(prefix=".model.", dir=path.parent) as folder:
        beside = Path(folder) / path.name
        with without_tensorflow():
            model.save(beside)
        beside.replace(path)


def load_model(path: Path) -> Any:
    """Reads a `.keras` file, compiled as it was.

    Raises:
        RunError: the file is damaged, or needs classes that are not known.
    """
    keras = keras_on_jax()
    try:
        with without_tensorflow():
            return keras.models.load_model(path)
    except Exception as error:
        raise RunError(
            f"The model {path} cannot be loaded: {first_line(error)} If it has layers of your own, register them by "
            "@keras.saving.register_keras_serializable()."
        ) from error
