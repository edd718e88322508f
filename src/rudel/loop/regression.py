"""Whether a model predicts numbers, and what it answers to the examples of a dataset."""

from typing import TYPE_CHECKING

import numpy as np

from rudel.data.batch_source import BatchStream
from rudel.data.dataset import Dataset, Examples
from rudel.data.stream import Stream
from rudel.loop.classification import class_labels
from rudel.loop.evaluation import predict
from rudel.report.regression_data import Answers, answers, choose

if TYPE_CHECKING:
    import keras

_LOOKED_AT = 1000
_FOR_NUMBERS = ("error", "huber", "log_cosh", "logcosh", "poisson", "tweedie")
_SHORT = ("mse", "mae", "mape", "msle")
_FOR_CLASSES = ("crossentropy", "hinge", "focal", "dice", "tversky", "divergence", "ctc", "circle")


def is_regression(model: "keras.Model", examples: Examples) -> bool:
    """Whether a model is trained to predict the numbers that are its targets.

    Losses of Keras tell by their names. With a loss of somebody's own, targets that are no classes do.
    """
    y = examples.y
    if not isinstance(y, np.ndarray) or y.dtype.kind not in "iuf":
        return False
    loss = model.loss
    classes = class_labels(examples)
    one_hot = classes is not None and y.size > len(y)
    if one_hot or isinstance(loss, dict | list | tuple):
        return False
    name = (loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", "")).lower()
    if name in _SHORT or any(word in name for word in _FOR_NUMBERS):
        return True
    return classes is None and not any(word in name for word in _FOR_CLASSES)


def answers_about(model: "keras.Model", dataset: Dataset) -> dict[str, Answers] | None:
    """A regression model's predictions for each split of a dataset; see `rudel.report.regression_data.choose`.

    Returns:
        Answers by split; None where the model is no such model, or its outputs are not like its targets.
    """
    named = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}
    splits = {name: split for name, split in named.items() if not isinstance(split, BatchStream) or split.by_index}
    if not is_regression(model, _some(dataset.train)):
        return None
    answers = {split: _answers(model, examples, split == "train") for split, examples in splits.items() if examples}
    known = {split: answer for split, answer in answers.items() if answer is not None}
    return known if len(known) == len(answers) else None


def _some(examples: Examples | Stream) -> Examples:
    """Enough of a stream to tell what its targets are; arrays as they are."""
    if isinstance(examples, BatchStream):
        return examples.first
    return examples.take(slice(0, _LOOKED_AT)) if isinstance(examples, Stream) else examples


def _answers(model: "keras.Model", examples: Examples | Stream, neighbours: bool) -> Answers | None:
    targets = np.asarray(examples.take(np.array([0])).y)
    chosen = examples.take(choose(len(examples), max(1, targets.size)))
    outputs = predict(model, chosen.x)
    truth = np.asarray(chosen.y)
    if not isinstance(outputs, np.ndarray) or _without_ones(outputs) != _without_ones(truth):
        return None
    if not np.isfinite(outputs).all():
        return None
    return answers(truth, outputs, chosen.x, neighbours=neighbours)


def _without_ones(array: np.ndarray) -> tuple[int, ...]:
    """The shape, in which (N,) and (N, 1) are alike, as they are for the losses of Keras."""
    return (array.shape[0], *(size for size in array.shape[1:] if size != 1))
