"""Whether a model classifies, and what its outputs and targets then mean."""

from typing import TYPE_CHECKING, Literal

import numpy as np

from rudel.array_types import Float32, Int32, Num
from rudel.data.dataset import Examples

if TYPE_CHECKING:
    import keras


def class_labels(examples: Examples) -> Int32[np.ndarray, "examples"] | None:
    """Labels (N,) of examples with integer or one-hot targets; None for other targets."""
    y = examples.y
    if not isinstance(y, np.ndarray):
        return None
    if y.ndim == 2 and y.shape[1] > 1 and np.isin(y, (0, 1)).all() and (y.sum(1) == 1).all():
        return y.argmax(1).astype(np.int32)
    if y.size == len(y) and y.dtype.kind in "iub":
        return y.reshape(-1).astype(np.int32)
    return None


def as_probabilities(
    model: "keras.Model", outputs: Num[np.ndarray, "examples *axes"]
) -> Float32[np.ndarray, "examples classes"] | None:
    """Probabilities (N, C) of the outputs of a classifier; None if they are none. Logits go through `squash_of`.

    A model that is not compiled, hence without a loss, is a classifier if its last layer has a softmax.
    """
    if outputs.ndim != 2 or not np.isfinite(outputs).all():
        return None
    outputs = outputs.astype(np.float32)
    if getattr(model, "loss", None) is None:
        return outputs if ends_in_softmax(model) else None
    if "crossentropy" not in _loss_name(model):
        return None
    squash = squash_of(model, outputs.shape[1])
    if squash == "sigmoid":
        return 1 / (1 + np.exp(-outputs))
    if squash == "softmax":
        outputs = np.exp(outputs - outputs.max(1, keepdims=True))
        return outputs / outputs.sum(1, keepdims=True)
    return outputs


def of_both(probabilities: Float32[np.ndarray, "examples given"]) -> Float32[np.ndarray, "examples classes"]:
    """Probabilities of all classes: where there is one column, it is that of the second of two.

    >>> of_both(np.float32([[0.25]]))
    array([[0.75, 0.25]], dtype=float32)
    """
    return np.concatenate([1 - probabilities, probabilities], 1) if probabilities.shape[1] == 1 else probabilities


def ignored_class(model: "keras.Model") -> int | None:
    """The label of examples that the loss leaves out, if there is one."""
    return getattr(model.loss, "ignore_class", None)


def squash_of(model: "keras.Model", outputs: int) -> Literal["", "softmax", "sigmoid"]:
    """What makes probabilities of the outputs of a classifier: nothing, or where they are logits, what its loss does.

    Args:
        model: compiled with a loss.
        outputs: how many there are; one is that of the second of two classes.
    """
    from rudel.internals.keras import loss_arguments

    loss = model.loss
    if not (getattr(loss, "from_logits", False) or loss_arguments(loss).get("from_logits")):
        return ""
    return "sigmoid" if outputs == 1 or "binary" in _loss_name(model) else "softmax"


def _loss_name(model: "keras.Model") -> str:
    loss = model.loss
    return (loss if isinstance(loss, str) else getattr(loss, "name", None) or getattr(loss, "__name__", "")).lower()


def ends_in_softmax(model: "keras.Model") -> bool:
    """Whether the last layer is a softmax or has one as its activation."""
    layers = getattr(model, "layers", None) or [None]
    activation = getattr(layers[-1], "activation", None)
    return getattr(activation, "__name__", "") == "softmax" or type(layers[-1]).__name__ == "Softmax"
