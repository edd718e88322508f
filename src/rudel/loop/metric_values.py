"""Metrics as Python floats, by Keras' names."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def as_floats(logs: "Mapping[str, ArrayLike]") -> dict[str, float]:
    """Logs as Python floats, by name; a metric that is an array, such as `F1Score`, by class.

    >>> as_floats({"loss": 0.5, "f1": np.array([1.0, 0.25])})
    {'loss': 0.5, 'f1/0': 1.0, 'f1/1': 0.25}
    """
    flat: dict[str, float] = {}
    for name, value in logs.items() if isinstance(logs, Mapping) else ():
        if isinstance(value, Mapping):
            flat.update(as_floats(value))
            continue
        array = np.asarray(value)
        if array.size == 1:
            flat[name] = float(array.reshape(()))
            continue
        for index, entry in np.ndenumerate(array):
            flat["/".join([name, *map(str, index)])] = float(entry)
    return flat
