"""Labels that are strings, as numbers and names of classes."""

from dataclasses import replace

import numpy as np

from rudel.data.dataset import Dataset, Examples, Split
from rudel.errors import DataError


def encode_text_labels(dataset: Dataset, one_hot: bool = False) -> Dataset:
    """Numbers labels that are strings, int32 (N,), and names the classes after them.

    The order is that of the data set's own `class_names`, or else alphabetical. Other labels stay as they are.

    Args:
        dataset: with labels of any kind.
        one_hot: whether the loss takes one-hot labels: strings then become float32 (N, C).

    Raises:
        DataError: a label that no training example has, or that is not among the `class_names`.

    >>> encoded = encode_text_labels(Dataset(Examples(np.zeros((3, 1)), np.array(["dog", "cat", "dog"]))))
    >>> encoded.train.y.tolist(), list(encoded.class_names)
    ([1, 0, 1], ['cat', 'dog'])
    """
    if not _has_text(dataset.train):
        for split, what in ((dataset.validation, "validation"), (dataset.test, "test")):
            if _has_text(split):
                raise DataError(f"The labels in {what} y are strings, and those of the training data are not.")
        return dataset
    names = list(dataset.class_names) or np.unique(dataset.train.y).tolist()
    return replace(
        dataset,
        train=_encoded(dataset.train, names, "training", one_hot),
        validation=_encoded(dataset.validation, names, "validation", one_hot),
        test=_encoded(dataset.test, names, "test", one_hot),
        class_names=names,
    )


def _has_text(split: Split | None) -> bool:
    return isinstance(split, Examples) and isinstance(split.y, np.ndarray) and split.y.dtype.kind == "U"


def _encoded(split: Split | None, names: list[str], what: str, one_hot: bool) -> Split | None:
    if split is None or not _has_text(split):
        return split
    numbers = {name: number for number, name in enumerate(names)}
    found, inverse = np.unique(split.y, return_inverse=True)
    if unknown := [label for label in found.tolist() if label not in numbers]:
        known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise DataError(f"The label {unknown[0]!r} in {what} y is not one of the {len(names)} classes: {known}.")
    labels = np.array([numbers[label] for label in found.tolist()], np.int32)[inverse]
    return replace(split, y=np.eye(len(names), dtype=np.float32)[labels] if one_hot else labels)
