"""Importing this checks the types of `rudel.array_types` in every call of packages that are imported afterwards."""

from collections.abc import Callable
from typing import Any

import beartype
import jaxtyping

CHECKED = (
    *("rudel.features.log_mel", "rudel.features.mel_tables", "rudel.features.mfcc", "rudel.features.sensor_columns"),
    *("rudel.loop", "rudel.mesh", "rudel.replicas"),
)
"""All that have such types. Keras looks at the code of its layers' `__init__`, so these must not be decorated."""


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with beartype's checks of the arrays it takes and returns; other types are pyright's to check."""
    if isinstance(function, type):
        return function
    hints = _hints(function)
    if not hints:
        return function
    function.__annotations__ = hints
    return beartype.beartype(function)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    hints = getattr(function, "__annotations__", {})
    return {name: hint for name, hint in hints.items() if "jaxtyping" in repr(hint)}


_jaxtyped = jaxtyping.jaxtyped


def _jaxtyped_where_there_are_arrays(**how: Any) -> Callable[..., Any]:
    """What the import hook decorates with: it binds the arguments of every call, which functions without arrays need
    not pay for."""
    decorate = _jaxtyped(**how)
    return lambda function: decorate(function) if isinstance(function, type) or _hints(function) else function


jaxtyping.jaxtyped = _jaxtyped_where_there_are_arrays  # type: ignore[assignment]
jaxtyping.install_import_hook(list(CHECKED), "array_checks.checked")
