"""Sources of batches in `rudel.fit`: `PyDataset`, `tf.data.Dataset`, `DataLoader`, generators."""

from typing import Any, NamedTuple

from rudel.aliases import TrainingData
from rudel.data.batch_source import BatchStream, is_source, pass_of, targets_twice, training_stream
from rudel.data.dataset import Examples
from rudel.errors import OptionError


class Source(NamedTuple):
    """Training data from batches.

    Args:
        data: batches as the source gives them, or all of it in memory.
        batch_size: examples of the source's first batch.
        shuffle: whether epochs may take the batches, or of what is in memory the examples, in an order of their own.
    """

    data: BatchStream | Examples
    batch_size: int
    shuffle: bool

    @property
    def examples(self) -> int:
        """Examples of a pass, if all batches are as large as the first."""
        data = self.data
        return len(data) if isinstance(data, Examples) else self.batch_size * (data.length or 0)


def training_source(
    x: TrainingData,
    *,
    targets: bool,
    batch_size: int | None,
    steps_per_epoch: int | None,
    validation_split: float,
    resume: bool,
    here: bool,
    shuffle: bool,
) -> Source | None:
    """The training data, where it is a source of batches; None for everything else.

    On one device of this computer it is read while it is trained on. Several hosts or devices are dealt examples by
    number, so one pass is read into memory first.

    Args:
        x: what `fit` was given.
        targets: whether `y` or `sample_weight` were given, too.
        batch_size, steps_per_epoch, validation_split, resume: as given.
        here: whether the training is on one device of this computer.
        shuffle: as given; of effect here where batches can be had by number.

    Raises:
        OptionError: an argument that a source has no use for, or a source without an end for several hosts.
        DataError: the source gives no batch, or one that is none.
    """
    if not is_source(x):
        return None
    name = type(x).__name__
    if targets:
        raise targets_twice(name)
    if batch_size is not None:
        raise OptionError(f"The batch size is that of the {name}: leave out `batch_size`.")
    if validation_split:
        raise OptionError(f"A {name} cannot be split: give `validation_data` instead of `validation_split`.")
    if not here and steps_per_epoch is not None:
        raise OptionError(
            f"Several hosts or devices take one pass of a {name} into memory: leave out `steps_per_epoch`, and give a "
            "source with an end, arrays or rudel.Records."
        )
    stream = training_stream(x, steps_per_epoch)
    if resume and not stream.repeatable:
        raise OptionError(
            f"A training on a {name} without an end cannot be resumed: its position is not known. Leave out `resume`, "
            "or give a source with a length."
        )
    if not here:
        return Source(stream.in_memory(), len(stream.first), shuffle)
    return Source(stream, len(stream.first), shuffle and stream.is_indexed)


def validation_stream(validation: TrainingData, steps: int | None) -> Any:
    """Validation data as a stream, where it is a source of batches; everything else as it is.

    Args:
        validation: what `fit` was given.
        steps: batches to evaluate on; None for all.

    Raises:
        OptionError: a source without an end, and no `steps`.
        DataError: the source gives no batch, or one that is none.
    """
    return pass_of(validation, "validation", steps) if is_source(validation) else validation
