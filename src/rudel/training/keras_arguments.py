"""Arguments of `keras.Model.fit`, in the terms of Rudel's own.

Every argument of Keras means the same in `rudel.fit`, or is refused by one sentence that names what takes its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.aliases import TrainingData
from rudel.data.batch_source import BatchStream
from rudel.data.dataset import Dataset, Examples
from rudel.data.stream import Stream
from rudel.errors import DataError, OptionError
from rudel.loop.schedule import check_whole_number

if TYPE_CHECKING:
    pass


def refuse_without_equal(validation_freq: object, shuffle: object, verbose: object) -> None:
    """Refuses values that nothing in Rudel is equal to.

    Raises:
        OptionError: names the argument, and what to use.
    """
    if validation_freq != 1:
        raise OptionError(
            f"`validation_freq` must be 1, not {validation_freq!r}: give eval_every=..., in steps, instead."
        )
    if not isinstance(shuffle, bool | np.bool_):
        raise OptionError(f"`shuffle` must be True or False, not {shuffle!r}.")
    if verbose not in ("auto", 0, 1, 2):
        raise OptionError(f"`verbose` must be 'auto', True, False, 0, 1 or 2, not {verbose!r}.")


def as_steps(
    steps_per_epoch: int | None, epochs: int | None, steps: int | None, eval_every: int | None
) -> tuple[int | None, int | None, int | None]:
    """`(epochs, steps, eval_every)`, where `steps_per_epoch` may give epochs a length of their own.

    Such an epoch does not begin the examples again: it continues where the last one ended, as in Keras.

    Raises:
        OptionError: it is not a whole number above 0, or given together with `steps` or `eval_every`.

    >>> as_steps(10, 3, None, None)
    (None, 30, 10)
    """
    if steps_per_epoch is None:
        return epochs, steps, eval_every
    check_whole_number("steps_per_epoch", steps_per_epoch)
    if epochs is not None:
        check_whole_number("epochs", epochs)
    if steps is not None or eval_every is not None:
        raise OptionError("Give either `steps_per_epoch` or `steps` and `eval_every`, not both.")
    return None, (epochs or 1) * steps_per_epoch, steps_per_epoch


def as_callbacks(keras: ModuleType, callbacks: Any) -> tuple[Any, ...]:
    """Callbacks that were given as a list, as a single one, or as None.

    Raises:
        OptionError: a `CallbackList`, which is tied to a training of its own.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        raise OptionError("`callbacks` is a keras.callbacks.CallbackList: give a list of the callbacks instead.")
    if callbacks is None:
        return ()
    return tuple(callbacks) if isinstance(callbacks, Sequence) else (callbacks,)


def chosen_validation(validation: TrainingData, validation_data: TrainingData, validation_split: object) -> Any:
    """Reads the validation data from three arguments; the fraction of `validation_split` is left to `hold_out_last`.

    Raises:
        OptionError: a fraction that is none, or `validation` together with one of the others.
    """
    if not isinstance(validation_split, int | float) or not 0 <= validation_split < 1:
        raise OptionError(f"`validation_split` is a fraction from 0 up to 1, not {validation_split!r}.")
    if validation is not None and (validation_data is not None or validation_split):
        raise OptionError("Give either `validation` or Keras' `validation_data` and `validation_split`, not both.")
    if isinstance(validation_data, list):  # which Keras takes for (x, y) here
        return tuple(validation_data)
    return validation if validation_data is None else validation_data


def hold_out_last(dataset: Dataset, fraction: float) -> Dataset:
    """Holds out the last examples, not shuffled, as Keras' `validation_split` does.

    Args:
        dataset: to take them from.
        fraction: share of the training examples, from 0 (which holds out none) up to 1.

    Raises:
        DataError: a split would be empty.
    """
    if not fraction:
        return dataset
    count = len(dataset.train)
    first = int(np.floor(count * (1 - fraction)))
    if not 0 < first < count:
        raise DataError(
            f"`validation_split` of {fraction} of {count:,} examples leaves one side empty; give another fraction."
        )
    return replace(dataset, train=_range(dataset.train, 0, first), validation=_range(dataset.train, first, count))


def first_batches(dataset: Dataset, steps: int | None, batch_size: int) -> Dataset:
    """Keeps so many batches of the validation examples, as Keras' `validation_steps` does; None keeps all.

    Raises:
        OptionError: `steps` is not a whole number above 0.
    """
    if steps is None:
        return dataset
    check_whole_number("validation_steps", steps)
    if dataset.validation is None or isinstance(dataset.validation, BatchStream):  # which knows its end
        return dataset
    count = min(steps * batch_size, len(dataset.validation))
    return replace(dataset, validation=_range(dataset.validation, 0, count))


def weigh_classes(dataset: Dataset, weights: Mapping[Any, float] | None) -> Dataset:
    """Gives each training example the weight of its class, as Keras' `class_weight` does.

    Args:
        dataset: its training targets are labels (N,) or (N, 1), or one-hot (N, C).
        weights: by label or name of a class; a class that is not named weighs 1. None for no weights.

    Raises:
        OptionError: it is no dict, or examples have weights already.
        DataError: the targets are not classes, or the examples are a stream.
    """
    if weights is None:
        return dataset
    if not isinstance(weights, Mapping):
        raise OptionError(f"`class_weight` is a dict of labels and weights, not {weights!r}.")
    examples = dataset.train
    if not isinstance(examples, Examples):
        raise DataError("`class_weight` needs examples in memory: let the stream give each example a `sample_weight`.")
    if examples.sample_weight is not None:
        raise OptionError("Give either `class_weight` or `sample_weight`, not both.")
    y = examples.y
    if not isinstance(y, np.ndarray) or y.ndim > 2:
        raise DataError("`class_weight` needs one label for each example: give `sample_weight` instead.")
    labels = y.argmax(1) if y.ndim == 2 and y.shape[1] > 1 else np.round(y.reshape(-1)).astype(np.int64)
    found, inverse = np.unique(labels, return_inverse=True)
    numbers = {name: number for number, name in enumerate(dataset.class_names)}
    if unknown := [label for label in weights if isinstance(label, str) and label not in numbers]:
        raise OptionError(
            f"`class_weight` has a weight for `{unknown[0]}`, and the classes are {', '.join(dataset.class_names)}."
            if numbers
            else f"`class_weight` has a weight for `{unknown[0]}`, and classes have no names here: give their numbers."
        )
    by_number = {numbers.get(label, label): float(weight) for label, weight in weights.items()}
    of_found = np.array([by_number.get(int(label), 1.0) for label in found], np.float32)
    return replace(dataset, train=replace(examples, sample_weight=of_found[inverse]))


def _range(examples: Examples | Stream, first: int, last: int) -> Examples | Stream:
    """The examples from one to before another, in their order."""
    if isinstance(examples, Examples):
        return examples.take(slice(first, last))
    return examples.subset(np.arange(first, last))
