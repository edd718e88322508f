"""`rudel.fit`: train a compiled Keras model on arrays, in one call."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rudel.aliases import TrainingData
from rudel.backend import keras_here
from rudel.data.batch_source import targets_twice
from rudel.data.dataset import Dataset, Examples, split
from rudel.data.stream import Stream
from rudel.errors import DataError, OptionError, option

if TYPE_CHECKING:
    import keras
    from distributed import Client
    from keras.callbacks import Callback

    from rudel.cluster.running_cluster import Hosts, RunningCluster
    from rudel.training.strategies import Auto, Strategy


def fit(
    model: "keras.Model",
    x: TrainingData = None,
    y: TrainingData = None,
    batch_size: int | None = None,
    epochs: int | None = None,
    verbose: bool | Literal["auto", 0, 1, 2] = "auto",
    callbacks: "Callback | Sequence[Callback] | None" = None,
    validation_split: float = 0.0,
    validation_data: TrainingData = None,
    shuffle: bool = True,
    class_weight: Mapping[Any, float] | None = None,
    sample_weight: TrainingData = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int = 1,
    *,
    validation: TrainingData = None,
    steps: int | None = None,
    run: str | Path | None = None,
    resume: bool = False,
    seed: int = 0,
    eval_every: int | None = None,
    checkpoint_every: int | None = None,
    keep: int = 2,
    monitor: str | None = None,
    stop_early: int | None = None,
    on: "Hosts | None" = None,
    cluster: "RunningCluster | None" = None,
    client: "Client | str | None" = None,
    strategy: "Strategy | Auto | str | None" = None,
) -> "keras.callbacks.History":
    """Trains a compiled Keras model, several times faster than `model.fit` where steps are short.

    The steps are the model's own `train_step`, compiled together by the hundred, on data that stays on the device in
    the dtype it has (uint8 stays uint8). An epoch is a seeded permutation of the examples; the last batch of an epoch
    may be smaller than the others, as in Keras.

    It takes the arguments of `keras.Model.fit`, in their order, and then those of its own.

    Args:
        model: a Keras model on which `compile` was called.
        x: inputs (N, ...) of any dtype, or a `rudel.Dataset`, a `rudel.Examples`, or a tuple `(x, y)` or
            `(x, y, sample_weight)`; x and y are arrays, or dicts, lists or tuples of arrays for several inputs or
            outputs. Or a stream such as `rudel.Records`, for data larger than memory: it is read while it is trained
            on, and the weights are the same bits. Or a source of batches: a `keras.utils.PyDataset`, a
            `tf.data.Dataset`, a `torch.utils.data.DataLoader`, a generator. Each of its batches is a step, whatever its
            size and shape; each form is compiled once. One with a length is resumed by skipping what was seen; others
            want `steps_per_epoch`, and cannot be resumed. Several hosts or devices read one pass into memory first,
            whose examples must have one shape, and take them in any order. The `workers` of a `PyDataset` are threads,
            also with its `use_multiprocessing`. Or a `Dataset` of Hugging Face's `datasets`, read by index as a stream
            is; its labels' names become those of the classes.
        y: targets (N, ...), if `x` holds inputs alone. Labels may be strings: they are numbered in alphabetical order,
            or in that of the `class_names` of a `Dataset`, and become the names of the classes. Of a Hugging Face data
            set, the name of a column; None for its labels.
        batch_size: examples a step; None for 32.
        epochs: passes over the examples; 1 if neither epochs nor steps are given.
        verbose: True, 1 or 2 for a live display on standard error, False or 0 for none, "auto" for one on terminals;
            elsewhere, of a training on hosts, a line for each that is lost or joins.
        callbacks: Keras callbacks, or a single one; they act at the ends of epochs, or of every `eval_every` steps, and
            on one device also between steps, where they have `on_train_batch_begin` or `on_train_batch_end`.
        validation_split: fraction of the training examples to hold out, the last ones, before they are shuffled;
            `validation` holds out examples at random.
        validation_data: Keras' name of `validation`, for examples; goes before `validation_split`.
        shuffle: False to take the examples, or the batches of a `PyDataset`, in the order in which they are given.
            Other sources keep theirs.
        class_weight: weight of the examples of a class in the loss, by label or name; other classes weigh 1.
        sample_weight: weight of each example in the loss (N,).
        initial_epoch: epochs (from 0) to leave out, because the model has been trained for so many: on one device.
        steps_per_epoch: steps after which what happens at the ends of epochs happens; the next epoch continues in the
            examples where the last one ended.
        validation_steps: batches of the validation examples to evaluate on, the first ones; None for all.
        validation_batch_size: examples a step of the evaluation; by default `batch_size`, or 256 where that is more and
            neither the loss nor code of your own may compare the examples of a batch.
        validation_freq: 1; `eval_every` evaluates less often.
        validation: examples to evaluate on after every epoch, in the forms of `x`, or a fraction of the training
            examples to hold out; None takes those of the `Dataset`, if it has any.
        steps: optimizer steps, in the place of `epochs`; the last epoch may then be cut short.
        run: a directory to keep the run in: configuration, metrics, checkpoints, model, report (see the docs); None
            keeps nothing on disk.
        resume: go on from the newest checkpoint in `run`, if there is one.
        seed: of the order of examples: calls in a loop take the same one, unless each is given another seed. Weights
            and dropout are seeded when the model is made: `keras.utils.set_random_seed`.
        eval_every: steps between evaluations, in the place of one after every epoch. What happens at the ends of epochs
            (evaluation, callbacks, a record of the metrics) then happens every so many steps, and at the end.
        checkpoint_every: steps between checkpoints; by default one about every 15 seconds.
        keep: how many checkpoints to keep.
        monitor: a metric such as "val_accuracy": the best weights by it are kept beside the last, as `best.keras`; see
            `rudel.load`.
        stop_early: end when so many evaluations one after the other have not been better than the best, by `monitor` or
            else by "val_loss".
        on: hosts to train on, in any form that `rudel.Cluster` takes; they are started for this training.
        cluster: a running `rudel.Cluster` to train on.
        client: a Dask client whose workers, which must have Rudel, are to train.
        strategy: how steps are spread over devices and hosts: "single", "diloco", "async", "mesh", or the options of
            one: a `rudel.Diloco`, `rudel.Async` or `rudel.Mesh`. None trains here without hosts, and by `diloco` with
            them. "auto" measures the hosts for some seconds, and takes what is soonest done, perhaps on fewer of them.
            By `diloco` and `async`, a batch is what one host takes a step on, and epochs and steps count the
            batches of all hosts together; by `mesh`, a batch is what all devices take a step on together.

    Returns:
        The Keras `History`: losses and metrics of every epoch; on hosts, of every round where one spans several epochs.

    Raises:
        DataError: examples that do not fit each other or the model, or hold NaN.
        ModelError: a model, callback or metric that cannot be compiled.
        NonFiniteError: the loss became NaN or infinite; names the step.
        RunError: the run directory is in use, or holds another run.
        OptionError: an argument that makes no sense.
        HostError, ClusterError: hosts that cannot be reached or used, or were all lost.
        KeyboardInterrupt, SystemExit: Ctrl-C or SIGTERM, after a checkpoint. A signal handler of your own runs instead.

    Examples:
        >>> import rudel, keras, numpy as np
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
        >>> x = np.linspace(-1, 1, 256, dtype="float32")[:, None]
        >>> history = rudel.fit(model, x, 3 * x + 1, epochs=20, seed=1)
        >>> history.history["loss"][-1] < 1e-3
        True
    """
    from rudel.data.hugging_face import dataset_of, is_hugging_face
    from rudel.loop.data_checks import needs_targets, takes_one_hot
    from rudel.loop.model_names import names_of
    from rudel.loop.model_state import check_model
    from rudel.loop.schedule import check_whole_number
    from rudel.runs.run_directory import path_of
    from rudel.session.training_options import TrainingOptions
    from rudel.training import keras_arguments
    from rudel.training.automatic import decided
    from rudel.training.fit_sources import training_source, validation_stream
    from rudel.training.places import place
    from rudel.training.text_labels import encode_text_labels
    from rudel.training.whole_run import Request, execute

    keras = keras_here()
    began = time.perf_counter()
    check_model(model)
    directory = path_of(run)
    keras_arguments.refuse_without_equal(validation_freq, shuffle, verbose)
    callbacks = keras_arguments.as_callbacks(keras, callbacks)
    validation = keras_arguments.chosen_validation(validation, validation_data, validation_split)
    if is_hugging_face(x):
        fraction = validation if isinstance(validation, float) else None
        x = dataset_of(x, y, names_of(model, "inputs"), None if fraction else validation, sample_weight)
        y, validation = None, fraction
    validation = validation_stream(validation, validation_steps)
    source = training_source(
        x, targets=y is not None or sample_weight is not None, batch_size=batch_size, steps_per_epoch=steps_per_epoch,
        validation_split=validation_split, resume=resume or initial_epoch != 0,
        here=on is None and cluster is None and client is None and strategy in (None, "single"), shuffle=shuffle,
    )  # fmt: skip
    if source is not None:
        x, batch_size, shuffle = source
    epochs, steps, eval_every = keras_arguments.as_steps(steps_per_epoch, epochs, steps, eval_every)
    batch_size = 32 if batch_size is None else batch_size
    if x is None:
        raise OptionError("There is nothing to train on: give `x`, as rudel.fit(model, x, y).")
    if resume and run is None:
        raise OptionError("There is nothing to resume without a run directory: give run=... too.")
    if isinstance(validation, int | float) and not (isinstance(validation, float) and 0 < validation < 1):
        raise OptionError(f"`validation` is a fraction between 0 and 1, or examples, not {validation!r}.")
    if checkpoint_every is not None and run is None:
        raise OptionError(
            f"{option('checkpoint_every')} has no effect without a run directory: give run=..., or leave it out."
        )
    check_whole_number("initial_epoch", initial_epoch, least=0)
    options = TrainingOptions(
        epochs, steps, batch_size, seed, shuffle, validation_batch_size, eval_every, checkpoint_every, keep, monitor,
        stop_early,
    )  # fmt: skip
    dataset = as_dataset(x, y, sample_weight, validation)
    if isinstance(dataset.train, Examples) and dataset.train.y is None and needs_targets(model):
        raise DataError("There are no targets, and the model has a loss that needs them: give `y`.")
    dataset = encode_text_labels(dataset, takes_one_hot(model))
    if isinstance(validation, float):  # only now, as a class may be held out as a whole
        rest, held_out = split(dataset.train, validation, seed)
        dataset = replace(dataset, train=rest, validation=held_out)
    if validation_data is None:
        dataset = keras_arguments.hold_out_last(dataset, validation_split)
    dataset = keras_arguments.first_batches(dataset, validation_steps, validation_batch_size or batch_size)
    dataset = keras_arguments.weigh_classes(dataset, class_weight)
    schedule = options.schedule(len(dataset.train) if source is None else source.examples)
    with place(on, cluster, client, strategy) as (where, spread):
        request = Request(
            model,
            dataset,
            schedule,
            options,
            callbacks=callbacks,
            run=directory,
            resume=resume,
            verbose="auto" if verbose == "auto" else bool(verbose),
            cluster=where,
            strategy=spread,
            initial_epoch=initial_epoch,
        )
        return execute(keras, decided(request, strategy), began).history


def as_dataset(train: TrainingData, y: TrainingData, sample_weight: TrainingData, validation: TrainingData) -> Dataset:
    """A dataset of what `fit` was given; of a fraction, which is held out later, it has no validation examples."""
    from rudel.loop.data_checks import as_examples, as_part

    if isinstance(train, Dataset | Stream):
        if y is not None or sample_weight is not None:
            kind = "Dataset" if isinstance(train, Dataset) else "stream"
            raise targets_twice(kind)
        dataset = train if isinstance(train, Dataset) else Dataset(train)
        dataset = replace(dataset, train=as_part(dataset.train, "training", text=True))
    elif y is None and sample_weight is None:
        dataset = Dataset(as_examples(train, "training", text=True))
    elif isinstance(train, Examples):
        raise OptionError("Targets and weights are given twice: as (x, y, sample_weight) or as arguments, not both.")
    else:
        dataset = Dataset(as_examples((train, y, sample_weight), "training", text=True))
    if isinstance(validation, float):
        return replace(dataset, validation=None)
    given = dataset.validation if validation is None else validation
    if isinstance(dataset.train, Examples) and dataset.train.y is not None and not isinstance(given, Stream | None):
        given = as_examples(given, "validation", text=True)
        if given.y is None:
            raise DataError("The validation data has no targets, and the training data has: give (x, y).")
    return replace(dataset, validation=None if given is None else as_part(given, "validation", text=True))
