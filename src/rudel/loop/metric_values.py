"""Metrics as Python floats, by Keras' names."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import keras
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


def results_or_logs(model: "keras.Model", logs: dict[str, float]) -> dict[str, float]:
    """What a model's metrics say; of a model whose steps log something else, by their names, what the last one logged.

    So does Keras.
    """
    results = as_floats(model.get_metrics_result())
    return results if set(results) == set(logs) else logs


def by_class_name(logs: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Logs in which metrics of each class have the classes' names, where they have as many numbers as there are names.

    >>> by_class_name({"loss": 0.5, "f1/0": 1.0, "f1/1": 0.25}, ["cat", "dog"])
    {'loss': 0.5, 'f1/cat': 1.0, 'f1/dog': 0.25}
    """
    parts = {key: key.rpartition("/") for key in logs}
    counts = Counter(metric for metric, _, number in parts.values() if number.isdecimal())
    named = {key: m for key, (m, _, number) in parts.items() if number.isdecimal() and counts[m] == len(names)}
    return {
        f"{named[key]}/{names[int(parts[key][2])]}" if named.get(key) else key: value for key, value in logs.items()
    }
