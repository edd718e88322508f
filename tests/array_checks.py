"""Importing this checks the types of `rudel.array_types` in every call of packages that are imported afterwards."""

from collections.abc import Callable
from typing import Any

import beartype
from jaxtyping import install_import_hook

CHECKED = (
    *("rudel.features.log_mel", "rudel.features.mel_tables", "rudel.features.mfcc", "rudel.features.sensor_columns"),
    *("rudel.loop", "rudel.mesh", "rudel.replicas"),
)
"""All that have such types. Keras looks at the code of its layers' `__init__`, so these must not be decorated."""


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with beartype's checks of the arrays it takes and returns; other types are pyright's to check."""
    if isinstance(function, type):
        return function
    hints = {name: hint for name, hint in getattr(function, "__annotations__", {}).items() if "jaxtyping" in repr(hint)}
    if not hints:
        return function
    function.__annotations__ = hints
    return beartype.beartype(function)


install_import_hook(list(CHECKED), "array_checks.checked")
