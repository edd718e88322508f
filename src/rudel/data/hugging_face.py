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
from rudel.errors import DataError, OptionError

_MOST_IN_MEMORY = 1 << 29
_TARGETS = ("label", "labels", "target")


def is_hugging_face(data: object) -> bool:
    """Whether an object is a `datasets.Dataset`.

    Raises:
        DataError: it is several of them, by name, or a column of one.

    >>> is_hugging_face(np.zeros(3)), is_hugging_face({"x": np.zeros(3)})
    (False, False)
    """
    if isinstance(data, dict) and data and all(map(_is_data_set, data.values())):
        names = list(data)
        raise DataError(f"There are the data sets {', '.join(names)}: give one of them, such as data[{names[0]!r}].")
    if _is_data_set(getattr(data, "source", None)) and hasattr(data, "column_name"):
        raise DataError(
            "A column of a Hugging Face data set cannot be given by itself: give the data set, and as `y` the name of "
            "the column of the targets."
        )
    return _is_data_set(data)


def _is_data_set(data: object) -> bool:
    return all(hasattr(data, name) for name in ("features", "column_names", "with_format", "__getitem__", "__len__"))


class Rows(Stream):
    """The rows of such a data set.

    Args:
        data: the data set.
        inputs: columns of the inputs; a single one is an array, several are a dict.
        target: column of the targets; None for inputs alone.
    """

    def __init__(self, data: Any, inputs: Sequence[str], target: str | None) -> None:
        self._data, self._inputs, self._target = data, list(inputs), target
        self._rows = data.select_columns([*inputs, *([target] if target else [])]).with_format("numpy")

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, indices: np.ndarray | slice) -> Examples:
        """See `Stream`."""
        rows = self._rows[np.arange(len(self))[indices].tolist()]
        x = {name: _array(rows[name], name) for name in self._inputs}
        y = _array(rows[self._target], self._target) if self._target else None
        return Examples(x if len(x) > 1 else x[self._inputs[0]], y)

    def fingerprint(self) -> str:
        """See `Stream`."""
        known = getattr(self._data, "_fingerprint", "")  # of the data and of all that was done to it
        return f"{known} {len(self)} {self._inputs} {self._target}"


def dataset_of(
    data: Any, target: Any, inputs: Sequence[str], validation: Any = None, sample_weight: Any = None
) -> Dataset:
    """Examples of the rows of a data set.

    Args:
        data: with rows to train or to evaluate on.
        target: column of the targets; None takes the column of labels.
        inputs: names of the model's inputs; where these are no columns, the one other column is the input.
        validation: another of the same columns, or whatever else `rudel.fit` takes.
        sample_weight: what a user gave as weights, which must be None.

    Raises:
        OptionError: the target is not a name, or there are weights.
        DataError: which columns to take is not known, or rows have different shapes.
    """
    if sample_weight is not None or not isinstance(target, str | None):
        raise OptionError("Of a Hugging Face data set, `y` is the name of a column, and there is no `sample_weight`.")
    columns = list(data.column_names)
    target = _target(data) if target is None else target
    if target not in columns:
        raise DataError(f"The data set has no column `{target}`: it has {', '.join(columns)}.")
    chosen = _inputs(data, inputs, target)
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


def inputs_of(data: Any, inputs: Sequence[str]) -> Split:
    """The inputs in the rows of a data set, without the column of labels, if there is one.

    Args:
        data: with rows to predict.
        inputs: see `dataset_of`.

    Raises:
        DataError: which columns to take is not known, or rows have different shapes.
    """
    labels = _labels(data)
    return _split(Rows(data, _inputs(data, inputs, labels[0] if len(labels) == 1 else None), None))


def _inputs(data: Any, inputs: Sequence[str], target: str | None) -> list[str]:
    """The columns that a model takes."""
    others = [name for name in data.column_names if name != target]
    chosen = list(inputs) if inputs and set(inputs) <= set(others) else others
    if len(chosen) != 1 and chosen != list(inputs):
        beside, kept = (f" beside `{target}`", f"..., '{target}'") if target else ("", "...")
        raise DataError(
            f"The data set has the columns {', '.join(others)}{beside}, and the model takes one input: keep that with "
            f"`select_columns([{kept}])`."
        )
    return chosen


def _classes(data: Any, target: str) -> list[str]:
    return list(getattr(data.features.get(target), "names", None) or ())


def _labels(data: Any) -> list[str]:
    """Columns that may be that of the targets."""
    labels = [name for name in data.column_names if hasattr(data.features[name], "names")]
    return labels if len(labels) == 1 else [name for name in data.column_names if name in _TARGETS]


def _target(data: Any) -> str:
    found = _labels(data)
    if len(found) != 1:
        raise DataError(
            f"Which of the columns {', '.join(data.column_names)} has the targets? Name it as `y`, as in "
            "rudel.fit(model, data, 'COLUMN')."
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
