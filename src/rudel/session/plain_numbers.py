"""Options with Python's numbers, which JSON and JAX take, in place of NumPy's."""

from dataclasses import fields
from typing import Any

import numpy as np


def use_plain_numbers(options: Any) -> None:
    """Replaces NumPy's scalars in the fields of a data class, frozen or not, by Python's; for its `__post_init__`."""
    for each in fields(options):
        if isinstance(value := getattr(options, each.name), np.generic):
            object.__setattr__(options, each.name, value.item())
