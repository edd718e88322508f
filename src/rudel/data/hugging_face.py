"""Data sets of Hugging Face's `datasets`, whose examples are rows with columns, as examples.

They are recognised by what they can do, so that `datasets` is not imported. Rows are read by index: a training shuffles
them by its seed, is resumed exactly, and takes any hosts. Up to 512 MiB are read into memory at once.

Limits: a streaming data set (`IterableDataset`) is none of these; give a generator of its batches.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rudel.data.dataset import Dataset, Examples, Split, check_int32
from rudel.data.stream import Stream
from rudel.errors import DataError

_MOST_IN_MEMORY = 1 << 29
_TARGETS = ("label", "labels", "target")


def is_hugging_face(data: object) -> bool:
    """Whether an object is a `datasets.Dataset`.

    >>> is_hugging_face(np.zeros(3)), is_hugging_face({"x": np.zeros(3)})
    (False, False)
    """
    return all(hasattr(data, name) for name in ("features", "column_names", "with_format", "__getitem__", "__len__"))


class Rows(Stream):
    """The rows of such a data set.

    Args:
        data: the data set.
        inputs: columns of the inputs; a single one is an array, several are a dict.
        target: column of the targets.
    """

    def __init__(self, data: Any, inputs: Sequence[str], target: str) -> None:
        self._data, self._inputs, self._target = data, list(inputs), target
        self._rows = data.select_columns([*inputs, target]).with_format("numpy")

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, indices: np.ndarray | slice) -> Examples:
        """See `Stream`."""
        rows = self._rows[np.arange(len(self))[indices].tolist()]
        x = {name: _array(rows[name], name) for name in self._inputs}
        return Examples(x if len(x) > 1 else x[self._inputs[0]], _array(rows[self._target], self._target))

    def fingerprint(self) -> str:
        """See `Stream`."""
        known = getattr(self._data, "_fingerprint", "")  # of the data and of all that was done to it
        return f"{known} {len(self)} {self._inputs} {self._target}"


def dataset_of(data: Any, target: str | None, inputs: Sequence[str], validation: Any) -> Dataset:
    """Examples of the rows of a data set.

    Args:
        data: with rows to train on.
        target: column of the targets; None takes the column of labels.
        inputs: names of the model's inputs; where these are no columns, the one other column is the input.
        validation: another of the same columns, or whatever else `rudel.fit` takes.

    Raises:
        DataError: which columns to take is not known, or rows have different shapes.
    """
    columns = list(data.column_names)
    target = _target(data, columns) if target is None else target
    if target not in columns:
        raise DataError(f"The data set has no column `{target}`: it has {', '.join(columns)}.")
    others = [name for name in columns if name != target]
    chosen = list(inputs) if inputs and set(inputs) <= set(others) else others
    if len(chosen) != 1 and chosen != list(inputs):
        raise DataError(
            f"The data set has the columns {', '.join(others)} beside `{target}`, and the model takes one input: keep "
            f"that with `select_columns([..., '{target}'])`."
        )
    names = _classes(data, target)
    if is_hugging_face(validation):
        theirs = _classes(validation, target)
        if names and theirs and theirs != names:
            raise DataError(
                f"The classes of the validation data are {', '.join(theirs)}, and those of the training data "
                f"{', '.join(names)}: number them alike with `align_labels_with_mapping(..., '{target}')`."
            )
        validation = _split(Rows(validation, chosen, target))
    return Dataset(_split(Rows(data, chosen, target)), validation, class_names=names)


def _classes(data: Any, target: str) -> list[str]:
    return list(getattr(data.features.get(target), "names", None) or ())


def _target(data: Any, columns: Sequence[str]) -> str:
    labels = [name for name in columns if hasattr(data.features[name], "names")]
    found = labels if len(labels) == 1 else [name for name in columns if name in _TARGETS]
    if len(found) != 1:
        raise DataError(
            f"Which of the columns {', '.join(columns)} has the targets? Name it: rudel.fit(model, data, 'COLUMN')."
        )
    return found[0]


def _split(rows: Rows) -> Split:
    """The rows in memory, where they are small enough."""
    size = sum(array.nbytes for _, array in rows.take(slice(0, 1)).named_arrays())
    return rows.in_memory() if size * len(rows) <= _MOST_IN_MEMORY else rows


def _array(column: Any, name: str) -> np.ndarray:
    array = np.asarray(column)
    if array.dtype == object:
        raise DataError(f"The rows of the column `{name}` have different shapes: bring them to one with `map`.")
    check_int32(array, f"the column `{name}`")
    return array.astype(np.int32) if array.dtype == np.int64 else array
