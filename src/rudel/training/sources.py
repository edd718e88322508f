"""What `rudel.fit` makes of sources of batches: `PyDataset`, `tf.data.Dataset`, `DataLoader`, generators."""

from typing import Any

from rudel.data.batch_source import BatchStream, is_source, stream_of
from rudel.errors import OptionError


def training_stream(
    x: Any,
    *,
    targets: bool,
    batch_size: int | None,
    steps_per_epoch: int | None,
    validation_split: float,
    resume: bool,
    here: bool,
) -> BatchStream | None:
    """The training data as a stream, where it is a source of batches; None for everything else.

    Args:
        x: what `fit` was given.
        targets: whether `y` or `sample_weight` were given, too.
        batch_size, steps_per_epoch, validation_split, resume: as given.
        here: whether the training is on one device of this computer.

    Raises:
        OptionError: an argument that a source has no use for, or hosts.
        DataError: the source gives no batch, or one that is none.
    """
    if not is_source(x):
        return None
    name = type(x).__name__
    if targets:
        raise OptionError(f"A {name} brings its own targets and weights: leave out `y` and `sample_weight`.")
    if batch_size is not None:
        raise OptionError(f"The batch size is that of the {name}: leave out `batch_size`.")
    if validation_split:
        raise OptionError(f"A {name} cannot be split: give `validation_data` instead of `validation_split`.")
    if not here:
        raise OptionError(f"A {name} trains on one device of this computer: give hosts arrays or rudel.Records.")
    stream = stream_of(x, steps_per_epoch, "training")
    if resume and not stream.repeatable:
        raise OptionError(
            f"A training on a {name} without an end, or with `steps_per_epoch`, cannot be resumed: its position is not "
            "known. Leave out `resume`, or give a source with a length."
        )
    return stream


def validation_stream(validation: Any, steps: int | None) -> Any:
    """Validation data as a stream, where it is a source of batches; everything else as it is.

    Args:
        validation: what `fit` was given.
        steps: batches to evaluate on; None for all.

    Raises:
        OptionError: a source without an end, and no `steps`.
        DataError: the source gives no batch, or one that is none.
    """
    return stream_of(validation, steps, "validation") if is_source(validation) else validation
