"""Predictions of a regression model for training, validation and test examples.

`predictions.npz` of such a run holds, for each part P of the data that there is (`train`, `validation`, `test`), the
arrays of an `Answers` under the names `P_truth`, `P_predicted`, `P_x` and `P_neighbours`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rudel.aliases import Tree
from rudel.data.npz import read_npz
from rudel.errors import DataError, RunError
from rudel.files import written_atomically

PARTS = ("train", "validation", "test")
"""Parts of the data, in the order in which they are shown."""

NEIGHBOURS = 8
"""Neighbours of an example that are kept."""

_MOST_EXAMPLES, _MOST_VALUES = 2_000, 200_000
_MOST_FEATURES = 4_096


@dataclass(frozen=True, eq=False)
class Answers:
    """A model's answers to M examples of one part of the data.

    Args:
        truth: right values, float32 (M, K) for K numbers an example.
        predicted: the model's, float32 (M, K).
        x: the inputs, float32 (M,), where each is a single finite number; else None.
        neighbours: for each example the numbers of the examples whose inputs are nearest to its own, int32 (M, n),
            nearest first; None where they are not known.

    Raises:
        DataError: the arrays do not fit together, or hold something else than finite numbers.
    """

    truth: np.ndarray
    predicted: np.ndarray
    x: np.ndarray | None = None
    neighbours: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.truth.ndim != 2 or not self.truth.size or self.truth.shape != self.predicted.shape:
            raise DataError("The predictions do not fit together: `truth` and `predicted` must both be (M, K).")
        arrays = (self.truth, self.predicted) if self.x is None else (self.truth, self.predicted, self.x)
        if not all(array.dtype.kind == "f" and np.isfinite(array).all() for array in arrays):
            raise DataError("The predictions must be finite numbers.")
        if self.x is not None and self.x.shape != (len(self),):
            raise DataError("The predictions have inputs that are not (M,), one number an example.")
        near = self.neighbours
        if near is None:
            return
        fits = near.dtype.kind in "iu" and near.ndim == 2 and len(near) == len(self) and near.shape[1]
        if not fits or near.min() < 0 or near.max() >= len(self):
            raise DataError("The predictions' neighbours do not belong to their examples.")

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def residuals(self) -> np.ndarray:
        """By how much the answers are wrong, prediction less truth, float64 (M, K)."""
        return self.predicted.astype(np.float64) - self.truth

    @property
    def squared(self) -> np.ndarray:
        """Squared error of each example, the mean over its K numbers, float64 (M,)."""
        return (self.residuals**2).mean(axis=1)


Regression = Mapping[str, Answers]
"""Answers by part of the data; at least those to the training examples."""


def choose(examples: int, outputs: int) -> np.ndarray:
    """The examples to ask about: all, or as many of them, evenly chosen at random, as are enough to judge a model.

    Args:
        examples: how many there are.
        outputs: numbers predicted for each.

    Returns:
        Their numbers in ascending order, int64 (M,), the same for the same arguments.

    >>> choose(4, 1).tolist(), len(choose(1_000_000, 1)), len(choose(1_000_000, 784))
    ([0, 1, 2, 3], 2000, 255)
    """
    most = max(1, min(_MOST_EXAMPLES, _MOST_VALUES // outputs))
    if examples <= most:
        return np.arange(examples)
    return np.sort(np.random.default_rng(0).choice(examples, most, replace=False))


def answers(truth: np.ndarray, predicted: np.ndarray, inputs: Tree, *, neighbours: bool = False) -> Answers:
    """Puts together what there is to keep of a model's answers.

    Args:
        truth: right values, numbers (M, ...).
        predicted: the model's, as many.
        inputs: an array (M, ...), or a dict, list or tuple of them.
        neighbours: whether to look for them.

    Raises:
        DataError: there are not as many answers as right values, or they are not finite.
    """
    count = len(truth)
    arrays = [np.asarray(array).reshape(count, -1) for array in _leaves(inputs)]
    features = sum(array.shape[1] for array in arrays)
    x = arrays[0][:, 0].astype(np.float32) if features == 1 and arrays[0].dtype.kind in "biuf" else None
    near = None
    if neighbours and count > 1 and 0 < features <= _MOST_FEATURES and all(a.dtype.kind in "biuf" for a in arrays):
        near = nearest(np.concatenate([array.astype(np.float64) for array in arrays], axis=1))
    return Answers(
        np.asarray(truth).reshape(count, -1).astype(np.float32),
        np.asarray(predicted).reshape(count, -1).astype(np.float32),
        x if x is not None and np.isfinite(x).all() else None,
        near,
    )


def nearest(points: np.ndarray, count: int = NEIGHBOURS) -> np.ndarray:
    """The nearest other points of each point, by Euclidean distance after each feature was scaled to its own spread.

    In the place of NaN, a missing number, stands the feature's mean.

    Args:
        points: float64 (M, F), M at least 2.
        count: how many for each, or M - 1 if that is less.

    Returns:
        int32 (M, count), nearest first.

    >>> nearest(np.array([[0.0], [1.0], [3.0], [10.0]]), 2).tolist()
    [[1, 2], [0, 2], [1, 0], [2, 1]]
    """
    if (missing := np.isnan(points)).any():
        points = np.where(missing, np.where(missing, 0, points).sum(0) / np.maximum(1, (~missing).sum(0)), points)
    spread = points.std(axis=0)
    scaled = (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1)
    squares = (scaled**2).sum(axis=1)
    count = min(count, len(points) - 1)
    found = np.empty((len(points), count), np.int32)
    for start in range(0, len(points), 256):
        rows = np.arange(start, min(start + 256, len(points)))
        distances = squares[rows, None] + squares - 2 * scaled[rows] @ scaled.T
        distances[rows - start, rows] = np.inf
        found[rows] = np.argsort(distances, axis=1, kind="stable")[:, :count]
    return found


def save(path: Path, regression: Regression) -> None:
    """Writes answers atomically.

    Args:
        path: the file; in a run directory, `predictions.npz`.
        regression: by part of the data.

    Raises:
        OSError: the file cannot be written.
    """
    arrays = {
        f"{part}_{name}": array
        for part, answers in regression.items()
        for name, array in vars(answers).items()
        if array is not None
    }
    with written_atomically(path) as file:
        np.savez_compressed(file, **arrays)


def load(path: Path) -> Regression | None:
    """Reads answers; None where the file holds those of a classifier.

    Raises:
        RunError: the file cannot be read, or is damaged.
    """
    try:
        names = Answers.__dataclass_fields__
        arrays = read_npz(path, {f"{part}_{name}" for part in PARTS for name in names})
        if "train_truth" not in arrays:
            return None
        return {
            part: Answers(**{name: arrays[f"{part}_{name}"] for name in names if f"{part}_{name}" in arrays})
            for part in PARTS
            if f"{part}_truth" in arrays
        }
    except (OSError, ValueError, TypeError, AttributeError, DataError) as error:
        raise RunError(f"`{path}` does not hold predictions, or is damaged: delete it or train again.") from error


def _leaves(inputs: Tree) -> list[Any]:
    if isinstance(inputs, Mapping):
        return [leaf for value in inputs.values() for leaf in _leaves(value)]
    if isinstance(inputs, list | tuple):
        return [leaf for value in inputs for leaf in _leaves(value)]
    return [inputs]
