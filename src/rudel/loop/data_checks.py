"""Looks at examples before the first step, so that a mistake is one sentence and not a wrong model."""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from rudel.data.dataset import Arrays, Dataset, Examples, as_numbers, check_int32, check_unmasked, like
from rudel.data.stream import Stream
from rudel.errors import DataError
from rudel.loop.model_names import keys_of_inputs, names_of
from rudel.loop.model_state import has_keras_own
from rudel.loop.vocabulary import first_outside, lookups_of

if TYPE_CHECKING:
    import keras

_SPARSE_LOSSES = ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy")
_ONE_HOT_LOSSES = ("categorical_crossentropy", "CategoricalCrossentropy")
_BINARY_LOSSES = (
    *("binary_crossentropy", "BinaryCrossentropy", "bce", "BCE"),
    *("binary_focal_crossentropy", "BinaryFocalCrossentropy"),
)
_ROUNDING = 1e-5
"""Targets of a binary loss may be so far outside 0 to 1, as scaling leaves them."""


@dataclass(frozen=True)
class _Target:
    """What one loss compares with an output.

    Args:
        name: what messages call the labels.
        labels: (N, ...).
        weight: of them in the loss; None for 1.
        loss: as it was given to `compile`.
        shape: of the output, with the batch; None where that is not known.
    """

    name: str
    labels: np.ndarray
    weight: Arrays
    loss: Any
    shape: Any

    @property
    def loss_name(self) -> str:
        """See `_loss_name`."""
        return _loss_name(self.loss)


def as_examples(data: Any, what: str, text: bool = False) -> Examples:
    """Examples from `Examples`, `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`; with `text`, y may be strings.

    Raises:
        DataError: it is none of these, of masked values or others than numbers, lengths differ, or there is no example.
    """
    if isinstance(data, Examples):
        data = (data.x, data.y, data.sample_weight)
    parts = data if isinstance(data, tuple) else (data,)
    if len(parts) > 3:
        raise DataError(f"The {what} data must be (x, y) or (x, y, sample_weight), not a tuple of {len(parts)}.")
    x, y, weight = (*parts, None, None)[:3]
    for part in (x, y, weight):
        _refuse_others(part, what)
    check_unmasked(y, f"The {what} y data holds")
    labels = as_text(y)
    if labels is not None and not text:
        raise DataError(
            f"The labels in {what} y are strings: give the number of each class, which is its place in `class_names` "
            "in the run's config.json, from 0."
        )
    y = _as_arrays(y, f"{what} y") if labels is None else labels
    return Examples(_as_arrays(x, f"{what} x"), y, _as_arrays(weight, f"{what} sample_weight"))


def as_part(data: Any, what: str, text: bool = False) -> Examples | Stream:
    """A stream as it is, and examples of everything that `as_examples` takes; raises as that does."""
    return data if isinstance(data, Stream) else as_examples(data, what, text)


def as_text(labels: Arrays) -> np.ndarray | None:
    """Labels that are strings, as an array (N,) of them; None for all others."""
    if labels is None or isinstance(labels, dict | tuple):
        return None
    if isinstance(labels, list) and not all(isinstance(label, str) for label in labels):
        return None
    array = np.asarray(labels)
    if array.dtype.kind == "O" and array.size and all(isinstance(label, str) for label in array.flat):
        array = array.astype(str)
    if array.dtype.kind != "U" or not array.ndim or array.size != len(array):
        return None
    return array.reshape(-1)


def check_indices(x: Arrays, model: "keras.Model", what: str, numbers: np.ndarray | None = None) -> None:
    """Refuses indices that are in no table of the model; see `check_examples` for the arguments.

    Raises:
        DataError: names the first of them.
    """
    if (outside := first_outside(model, lookups_of(model), x)) is not None:
        raise DataError(
            f"{outside.described(_number(outside.row, numbers))}: make the table longer, or correct the {what} data."
        )


def check_inputs(x: Arrays, model: "keras.Model", what: str, numbers: np.ndarray | None = None) -> None:
    """Refuses complex numbers, whole ones beyond 32 bits, other names than the inputs', and indices in no table.

    See `check_examples` for the arguments.

    Raises:
        DataError: names the first of them.
    """
    _check_names(x, model, what)
    _check_real(examples := Examples(x), model, what)
    for name, array in examples.named_arrays():
        check_int32(array, f"{what} {name}")
    check_indices(x, model, what, numbers)


def _check_real(examples: Examples, model: "keras.Model", what: str) -> None:
    """Refuses complex numbers where Keras would drop their imaginary part: in inputs and targets of real numbers."""
    from keras import Sequential, tree

    def are_complex(parts: Any) -> bool:
        return any("complex" in str(getattr(part, "dtype", "")) for part in tree.flatten(parts))

    takes = getattr(model, "inputs", None) or (model.layers[:1] if isinstance(model, Sequential) else [])
    is_real = {"x": bool(takes) and not are_complex(takes)}
    for name, array in examples.named_arrays():
        if array.dtype.kind == "c" and is_real.get(name[0], needs_targets(model) and not are_complex(model.loss)):
            raise DataError(
                f"The {what} {name} holds {array.dtype} values, of which the model would compute with the real part "
                "alone: give real and imaginary parts as two columns, such as np.stack([z.real, z.imag], -1)."
            )


def check_examples(examples: Examples, model: "keras.Model", what: str, numbers: np.ndarray | None = None) -> None:
    """Refuses NaN, complex numbers, inputs of other names or sizes, and indices and labels out of range.

    In a column of a table, NaN is a missing number.

    Args:
        examples: to look at.
        model: a compiled Keras model.
        what: what messages call them.
        numbers: what messages number them by, (N,); None to count from 0.

    Raises:
        DataError: says which array, at which example.
    """
    from rudel.features.table_layer import columns_of

    _check_names(examples.x, model, what)
    _check_real(examples, model, what)
    gaps = {f"x[{column.key!r}]" for column in columns_of(model) if column.gaps}
    for name, array in examples.named_arrays():
        check_int32(array, f"{what} {name}")
        if name not in gaps:
            check_finite(array, f"{what} {name}", numbers)
    _check_size(examples.x, model, what)
    check_indices(examples.x, model, what, numbers)
    for target in _targets(examples, model):
        _check_label_form(target, what)
        _check_binary(target, model, what, numbers)
        _check_classes(target, model, what, numbers)


def _targets(examples: Examples, model: "keras.Model") -> list[_Target]:
    """The labels of each output with the loss that compares them; an output may have several, or none."""
    y, loss, shapes = examples.y, getattr(model, "loss", None), _output_shape(model, examples.x)
    if isinstance(y, np.ndarray):
        several = list(loss.values()) if isinstance(loss, Mapping) else loss
        losses = several if isinstance(several, list | tuple) else [loss]
        return [_Target("y", y, examples.sample_weight, each, shapes) for each in losses]
    if not needs_targets(model):  # its own steps may compare others
        return []
    names = names_of(model, "outputs")
    keys = [key for key in y if key in names or not names] if isinstance(y, Mapping) else range(len(y or ()))
    targets = []
    for place, key in enumerate(keys):
        index = names.index(key) if key in names else place
        name = names[index] if index < len(names) else key
        weight, its_loss, shape = (_of_output(part, name, index) for part in (examples.sample_weight, loss, shapes))
        targets.append(_Target(f"y[{key!r}]", y[key], weight, its_loss, shape))
    return [target for target in targets if isinstance(target.labels, np.ndarray)]


def _output_shape(model: "keras.Model", x: Arrays) -> Any:
    """The shape of a model's output, or of each; None where it is not known before the model is built."""
    from keras import Sequential

    if isinstance(model, Sequential) and not model.built and isinstance(x, np.ndarray):
        with contextlib.suppress(Exception):  # layers of the user's own may not say
            return model.compute_output_shape(x.shape)
    return getattr(model, "output_shape", None)


def _of_output(part: Any, name: Any, index: int) -> Any:
    """What losses, weights or shapes have for one of several outputs; what is given once is for all."""
    if isinstance(part, Mapping):
        return part.get(name)
    if isinstance(part, list | tuple):
        return part[index] if index < len(part) else None
    return part


def _check_classes(target: _Target, model: "keras.Model", what: str, numbers: np.ndarray | None) -> None:
    """Refuses labels that are not the number of a class."""
    labels, shape = target.labels, target.shape
    if target.loss_name not in _SPARSE_LOSSES or not _ends_in_number(shape):
        return
    classes = shape[-1]
    if labels.dtype.kind not in "iub" and not np.array_equal(labels, np.round(labels)):
        raise DataError(
            f"The labels in {what} {target.name} must be whole numbers for a sparse loss; give them as integers."
        )
    ignored = getattr(target.loss, "ignore_class", None)
    if ignored is not None:
        labels = np.where(labels == ignored, 0, labels)
    labels = _counted(labels, target.weight, model)
    wrong = np.flatnonzero(
        (labels.reshape(len(labels), -1) < 0).any(1) | (labels.reshape(len(labels), -1) >= classes).any(1)
    )
    if len(wrong):
        value = labels[wrong[0]]
        raise DataError(
            f"The label {value} of example {_number(wrong[0], numbers):,} in {what} {target.name} is out of range: the "
            f"model has {classes} outputs, "
            f"so labels go from 0 to {classes - 1} ({len(wrong):,} of {len(labels):,} labels are wrong)."
        )


def _check_names(x: Arrays, model: "keras.Model", what: str) -> None:
    """Refuses a dict with other keys than those of a functional model's inputs: Keras takes its values by their order.

    Steps and calls of a model's own may take more.
    """
    steps = ("train_step", "test_step", "predict_step", "compute_loss")
    if not isinstance(x, dict) or not has_keras_own(model, *steps):
        return
    taken = keys_of_inputs(model)
    if taken and set(x) != set(taken):
        has, wants = (", ".join(map(repr, keys)) for keys in (x, taken))
        raise DataError(
            f"The {what} x has the keys {has}, and the model `{model.name}` takes {wants}: give just these."
        )


def _check_binary(target: _Target, model: "keras.Model", what: str, numbers: np.ndarray | None) -> None:
    """Refuses targets of a binary loss that are not from 0 to 1: the loss of a mask of 0 and 255 falls without end."""
    labels = target.labels
    if not _is_binary(target.loss) or labels.dtype.kind not in "iuf" or not labels.size:
        return
    low, high = -_ROUNDING, 1 + _ROUNDING
    if labels.min() >= low and labels.max() <= high:
        return
    labels = _counted(labels, target.weight, model).reshape(len(labels), -1)
    outside = (labels < low) | (labels > high)
    wrong = np.flatnonzero(outside.any(1))
    if len(wrong):
        value = labels[wrong[0]][outside[wrong[0]]][0]
        raise DataError(
            f"The target {value:g} of example {_number(wrong[0], numbers):,} in {what} {target.name} is out of range: "
            f"the loss {target.loss_name} takes numbers from 0 to 1; divide masks of 0 and 255 by 255, and call two "
            "classes 0 and 1."
        )


def _is_binary(loss: Any) -> bool:
    """Whether a loss is a binary one of Keras; one of the user's own may be called so, and leave out labels of -1."""
    module = getattr(loss, "__module__", "keras.")  # a string has none
    return module.startswith("keras.") and _loss_name(loss) in _BINARY_LOSSES


def _counted(labels: np.ndarray, weight: Arrays, model: "keras.Model") -> np.ndarray:
    """Labels with 0 in the place of those that count for nothing, which may be out of range.

    Their weight is 0, or they are -1, as in padded steps that masks leave out.
    """
    if labels.ndim > 1 and _makes_masks(model):
        labels = np.maximum(labels, 0)
    if not isinstance(weight, np.ndarray):
        return labels
    shape = (*weight.shape, *[1] * labels.ndim)[: labels.ndim]
    fits = math.prod(shape) == weight.size
    if not fits or any(has not in (1, wanted) for has, wanted in zip(shape, labels.shape, strict=True)):
        return labels
    return np.where(weight.reshape(shape) == 0, 0, labels)


def _check_label_form(target: _Target, what: str) -> None:
    """Refuses one-hot labels where the loss takes integers, and integers where it takes one-hot labels."""
    labels, shape, loss = target.labels, target.shape, target.loss_name
    if not _ends_in_number(shape):
        return
    if (classes := shape[-1]) < 2:
        return
    wide = labels.ndim == len(shape) and labels.shape[-1] == classes
    if loss in _SPARSE_LOSSES and wide:
        raise DataError(
            f"The labels in {what} {target.name} have the shape {labels.shape}, one-hot, and the loss {loss} takes "
            "integers: compile with categorical_crossentropy, or give y.argmax(-1)."
        )
    narrow = labels.ndim == len(shape) - 1 or (labels.ndim == len(shape) and labels.shape[-1] == 1)
    if loss in _ONE_HOT_LOSSES and narrow and labels.dtype.kind in "iub":
        raise DataError(
            f"The labels in {what} {target.name} are integers of the shape {labels.shape}, and the loss {loss} takes "
            "one-hot labels: compile with sparse_categorical_crossentropy, or give keras.utils.to_categorical(y, "
            f"{classes})."
        )


def _check_size(x: Arrays, model: "keras.Model", what: str) -> None:
    """Refuses images of another size than the model says it takes, as convolutions compute something of any size."""
    taken = getattr(model, "input_shape", None) if getattr(model, "built", False) else None
    if not isinstance(taken, tuple) or not isinstance(x, np.ndarray) or len(taken) != x.ndim or x.ndim < 3:
        return
    if any(isinstance(size, int) and size != given for size, given in zip(taken[1:], x.shape[1:], strict=True)):
        raise DataError(
            f"An input in {what} x has the shape {x.shape[1:]}, and the model `{model.name}` takes {taken[1:]}: bring "
            "the inputs to that shape, or make the model for theirs."
        )


def check_finite(array: np.ndarray, what: str, numbers: np.ndarray | None = None) -> None:
    """Refuses NaN and infinities.

    Args:
        array: (N, ...).
        what: what messages call it.
        numbers: what messages number its rows by, (N,); None to count from 0.

    Raises:
        DataError: names the first example that has one.
    """
    if array.dtype.kind not in "fcV":
        return
    per_block = max(1, 2**22 // max(1, array[0].size))
    for start in range(0, len(array), per_block):
        block = array[start : start + per_block]
        bad = ~np.isfinite(block.astype(np.float32) if block.dtype.kind == "V" else block)
        if bad.any():
            example = start + int(np.flatnonzero(bad.reshape(len(block), -1).any(1))[0])
            raise DataError(
                f"There is a NaN or an infinity in {what} at example {_number(example, numbers):,}: clean the data and "
                "train again."
            )


def _number(row: int | np.integer, numbers: np.ndarray | None) -> int:
    return int(row if numbers is None else numbers[row])


def _ends_in_number(shape: Any) -> TypeGuard[tuple[Any, ...]]:
    """Whether it is the shape of one output whose last axis has a known length; a plain number has no axis."""
    return isinstance(shape, tuple) and len(shape) > 0 and isinstance(shape[-1], int)


def needs_targets(model: "keras.Model") -> bool:
    """Whether a model compares with targets: it has a loss, and its steps are Keras' own."""
    return has_keras_own(model, "train_step", "compute_loss") and bool(_loss_name(getattr(model, "loss", None)))


def takes_one_hot(model: "keras.Model") -> bool:
    """Whether the loss of a model takes one-hot labels."""
    return _loss_name(getattr(model, "loss", None)) in _ONE_HOT_LOSSES


def _makes_masks(model: "keras.Model") -> bool:
    """Whether a model leaves steps of a sequence out."""
    from keras.layers import Masking

    from rudel.internals.keras import layers_of

    return any(isinstance(layer, Masking) or getattr(layer, "mask_zero", False) for layer in layers_of(model))


def _loss_name(loss: Any) -> str:
    """The name of a loss as it was given to `compile`: of a function, a class or a string; "" for None."""
    name = loss if isinstance(loss, str) else type(loss).__name__ if loss is not None else ""
    return getattr(loss, "__name__", name)


def _refuse_others(part: Arrays, what: str) -> None:
    """Refuses what is neither an array nor a collection of arrays."""
    if part is None or isinstance(part, dict | list | tuple) or hasattr(part, "__array__"):
        return
    if isinstance(part, Dataset):
        raise DataError(f"The {what} data is a Dataset: say which part of it is meant, such as `dataset.validation`.")
    if hasattr(part, "toarray"):
        raise DataError(f"The {what} data has a sparse {type(part).__name__}: give its `toarray()`, which is dense.")
    raise DataError(
        f"The {what} data is a {type(part).__name__}: give NumPy arrays, a rudel.Dataset, a stream such as "
        "rudel.Records, or a source of batches."
    )


def _as_arrays(part: Arrays, what: str) -> Arrays:
    """NumPy arrays without float64 and int64, which the devices do not compute with."""
    if part is None:
        return None
    if isinstance(part, dict):
        return {key: _as_arrays(value, f"{what}[{key!r}]") for key, value in part.items()}
    if isinstance(part, tuple) or (isinstance(part, list) and any(hasattr(each, "__array__") for each in part)):
        return like(part, [_as_arrays(value, f"{what}[{i}]") for i, value in enumerate(part)])
    array = as_numbers(part, f"The {what} data holds")
    if array.ndim == 0:
        raise DataError(f"The {what} data is a single number; give arrays with one entry per example.")
    return array
