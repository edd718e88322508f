"""Keras callbacks that are named on the command line, as in `--callback tracking:mlflow`."""

import importlib
import sys
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
    if not colon or not module_name or not factory_name:
        raise OptionError(f"--callback needs MODULE:FACTORY, as in tracking:mlflow, not {name!r}.")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise OptionError(f"The callback `{name}` cannot be imported: {error}.") from error
    try:
        callback = factory()
    except Exception as error:
        raise OptionError(f"The callback `{name}` cannot be made ({type(error).__name__}: {error}).") from error
    if not isinstance(callback, keras_here().callbacks.Callback):
        raise OptionError(
            f"`{name}` returns something of type {type(callback).__name__}: let it return a keras.callbacks.Callback."
        )
    return callback
