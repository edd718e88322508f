"""Predictions of a classifier for its validation examples, and the most confident of them.

`predictions.npz` holds the arrays of `Predictions` under their names, without those that are None.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rudel.aliases import Tree
from rudel.data.npz import read_npz
from rudel.errors import DataError, RunError
from rudel.files import written_atomically

_LEAST_SIDE = 8
_IMAGES, _OTHERS = 12, 6  # of those that were right, and of those that were wrong


@dataclass(frozen=True, eq=False)
class Predictions:
    """A classifier's answers to N examples.

    Args:
        truth: right classes, int32 (N,).
        predicted: most probable classes, int32 (N,).
        confidence: probability of the predicted class, float32 (N,).
        truth_probability: probability of the right class, float32 (N,).
        examples_index: which of the N examples are kept, int32 (M,).
        examples_x: these: images, uint8 (M, H, W) or (M, H, W, 1 or 3); sound, int16 (M, S); or series, float32
            (M, T, C).
        rate: of sound, samples a second, an integer ().

    Raises:
        DataError: the arrays do not fit together, or a class is negative.
    """

    truth: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    truth_probability: np.ndarray
    examples_index: Tree = None
    examples_x: Tree = None
    rate: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Checks that the arrays fit together."""
        shapes = {a.shape for a in (self.truth, self.predicted, self.confidence, self.truth_probability)}
        if len(shapes) > 1 or len(self.truth.shape) != 1:
            raise DataError("The predictions do not fit together: their arrays must all be (N,).")
        if self.truth.dtype.kind not in "iu" or self.predicted.dtype.kind not in "iu":
            raise DataError("The predictions do not hold classes: `truth` and `predicted` must be whole numbers.")
        if len(self.truth) and min(self.truth.min(), self.predicted.min()) < 0:
            raise DataError("The predictions hold a negative class; classes count from 0.")
        if (self.examples_index is None) != (self.examples_x is None):
            raise DataError("The predictions have examples without their numbers, or numbers without examples.")
        if self.examples_index is not None and self.examples_x is not None:
            _check_examples(self.examples_index, self.examples_x, self.rate, len(self.truth))


def _check_examples(index: np.ndarray, x: np.ndarray, rate: np.ndarray | None, examples: int) -> None:
    fits = index.dtype.kind in "iu" and index.ndim == 1 and len(index) == len(x)
    if not fits or (len(index) and not 0 <= index.min() <= index.max() < examples):
        raise DataError("The kept examples do not belong to the predictions: `examples_index` does not fit.")
    if rate is not None:
        if x.dtype != np.int16 or x.ndim != 2 or rate.shape != () or rate.dtype.kind not in "iu" or rate < 1:
            raise DataError("Kept sound must be int16, (M, S), with a positive whole `rate`.")
    elif series_like(x.shape):
        if x.dtype != np.float32:
            raise DataError("Kept series must be float32, (M, T, C).")
    elif x.dtype != np.uint8 or not image_like(x.shape):
        raise DataError("Kept images must be uint8, (M, H, W) or (M, H, W, 1 or 3).")


def summarise(probabilities: np.typing.ArrayLike, truth: np.typing.ArrayLike) -> Predictions:
    """Summarises predictions, without the probabilities of all classes.

    Args:
        probabilities: of each class, float (N, C); or of class 1 of two, (N, 1) or (N,), as one sigmoid gives them.
        truth: right classes, whole numbers (N,) or (N, 1).

    Raises:
        DataError: the shapes do not fit, or a right class is not among the C.

    >>> summarise([[0.1, 0.9], [0.6, 0.4]], [1, 1]).predicted.tolist()
    [1, 0]
    """
    table = np.asarray(probabilities, np.float32)
    if table.ndim == 1 or (table.ndim == 2 and table.shape[1] == 1):
        one = table.reshape(-1)
        table = np.stack([1 - one, one], axis=1)
    labels = np.asarray(truth)
    labels = labels.reshape(-1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if table.ndim != 2 or labels.shape != table.shape[:1]:
        shapes = f"probabilities {np.shape(probabilities)} and right classes {np.shape(truth)}"
        raise DataError(f"The answers of a classifier must be (N, C) for (N,) right classes; these are {shapes}.")
    if len(labels) and not 0 <= labels.min() <= labels.max() < table.shape[1]:
        raise DataError(f"A right class is not among the {table.shape[1]} that the model answers with.")
    labels = labels.astype(np.int32)
    predicted = table.argmax(axis=1).astype(np.int32)
    rows = np.arange(len(table))
    return Predictions(labels, predicted, table[rows, predicted], table[rows, labels])


def join(parts: Sequence[Predictions]) -> Predictions:
    """Answers to several sets of examples, one after the other; images are left out."""
    names = ("truth", "predicted", "confidence", "truth_probability")
    return Predictions(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def select_examples(truth: np.ndarray, predicted: np.ndarray, confidence: np.ndarray, count: int) -> np.ndarray:
    """The examples that the model was surest and right about, then those it was surest and wrong about.

    Args:
        truth: right classes, integers (N,).
        predicted: answers, integers (N,).
        confidence: probability of the answer, float (N,); NaN is never selected.
        count: how many of each at most.

    Returns:
        int32 (M,), M at most 2 `count`, surest first within each part; of equally sure ones the earlier comes first.

    >>> select_examples(np.array([0, 1, 1]), np.array([0, 1, 0]), np.array([0.7, 0.9, 0.8]), 12).tolist()
    [1, 0, 2]
    """
    surest = np.argsort(-np.nan_to_num(confidence, nan=-1), kind="stable")
    surest = surest[np.isfinite(confidence[surest])]
    right = truth[surest] == predicted[surest]
    return np.concatenate([surest[right][:count], surest[~right][:count]]).astype(np.int32)


def save(path: Path, predictions: Predictions, x: Tree = None, rate: int | None = None) -> None:
    """Writes predictions atomically, with the selected examples if a report can show or play them.

    Args:
        path: the file; in a run directory, `predictions.npz`.
        predictions: of N examples.
        x: the N inputs. Images are (N, H, W) or (N, H, W, 1 or 3), at least 8 x 8: uint8 is kept as it is, other
            numbers are scaled so that the least and the greatest of the selected ones become 0 and 255. Series are
            (N, T, C), at least four times as long as wide. Sound is (N, S). Other inputs are not kept.
        rate: of sound, samples a second; None if the inputs are none.

    Raises:
        DataError: there are not as many inputs as predictions.
        OSError: the file cannot be written.
    """
    shape = getattr(x, "shape", ())
    sound = rate is not None and len(shape) == 2
    if sound or series_like(shape) or image_like(shape):
        if len(x) != len(predictions.truth):
            raise DataError(f"There are {len(x):,} inputs for {len(predictions.truth):,} predictions.")
        count = _IMAGES if image_like(shape) else _OTHERS
        index = select_examples(predictions.truth, predictions.predicted, predictions.confidence, count)
        kept, own_rate = np.asarray(x[index]), None
        if sound:
            kept, own_rate = kept.astype(np.int16), np.asarray(rate)
        else:
            kept = kept.astype(np.float32) if series_like(shape) else as_images(kept)
        predictions = replace(predictions, examples_index=index, examples_x=kept, rate=own_rate)
    arrays = {name: array for name, array in vars(predictions).items() if array is not None}
    with written_atomically(path) as file:
        np.savez_compressed(file, **arrays)


def load(path: Path) -> Predictions:
    """Reads predictions.

    Raises:
        RunError: the file cannot be read, or does not hold predictions.
    """
    names = Predictions.__dataclass_fields__
    try:
        return Predictions(**read_npz(path, names))
    except (OSError, ValueError, TypeError, AttributeError, DataError) as error:
        raise RunError(f"`{path}` does not hold predictions, or is damaged: delete it or train again.") from error


def image_like(shape: tuple[int, ...]) -> bool:
    """Whether arrays of this shape are images, (N, H, W) or (N, H, W, 1 or 3), at least 8 x 8."""
    images = (len(shape) == 3 and not series_like(shape)) or (len(shape) == 4 and shape[3] in (1, 3))
    return images and min(shape[1:3]) >= _LEAST_SIDE


def series_like(shape: tuple[int, ...]) -> bool:
    """Whether arrays of this shape are series, (N, T, C): so many moments of so many columns.

    >>> series_like((5, 119, 6)), series_like((5, 28, 28))
    (True, False)
    """
    return len(shape) == 3 and shape[1] >= 4 * shape[2]


def as_images(x: np.ndarray) -> np.ndarray:
    """uint8 as it is; other numbers scaled so that the least and the greatest become 0 and 255."""
    if x.dtype == np.uint8 or not x.size:
        return x.astype(np.uint8)
    numbers = np.nan_to_num(x.astype(np.float64), nan=0, posinf=0, neginf=0)
    least, greatest = numbers.min(), numbers.max()
    return np.rint((numbers - least) * (255 / (greatest - least or 1))).astype(np.uint8)
