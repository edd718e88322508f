"""Keras callbacks that are named on the command line, as in `--callback tracking:mlflow`."""

import importlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rudel.errors import OptionError


def made_callbacks(names: Sequence[str]) -> list[Any]:
    """Calls each factory, without arguments.

    Args:
        names: `MODULE:FACTORY`; modules in the working directory are found, too. A factory is a function that returns a
            `keras.callbacks.Callback`, or the class of one.

    Raises:
        OptionError: there is no such module or factory, or it does not return a callback.
    """
    return [_made(name) for name in names]


def _made(name: str) -> Any:
    from rudel.backend import keras_here

    module_name, colon, factory_name = name.partition(":")
    if not colon or not module_name or not factory_name or module_name.startswith("."):
        raise OptionError(f"--callback needs MODULE:FACTORY, as in tracking:mlflow, not {name!r}.")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except Exception as error:
        raise OptionError(
            f"The callback `{name}` cannot be imported{_where(error)} ({type(error).__name__}: {error})."
        ) from error
    try:
        callback = factory()
    except Exception as error:
        raise OptionError(f"The callback `{name}` cannot be made ({type(error).__name__}: {error}).") from error
    if not isinstance(callback, keras_here().callbacks.Callback):
        raise OptionError(
            f"`{name}` returns something of type {type(callback).__name__}: let it return a keras.callbacks.Callback."
        )
    return callback


def _where(error: Exception) -> str:
    """The line of the module in which an exception came up."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and "importlib" not in frame.filename
    ]
    lines = [frame.lineno for frame in frames if frame.filename == frames[0].filename]
    return f" in line {lines[-1]} of {frames[0].filename}" if lines else ""
