"""A finished run, evaluated on data of its recipe or on other data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rudel.data.dataset import Examples, ToEvaluate
from rudel.data.stream import Stream
from rudel.errors import DataError, OptionError, RunError, option
from rudel.loop.evaluation import evaluate
from rudel.loop.metric_values import by_class_name
from rudel.runs import run_directory
from rudel.runs.loading import dataset_of, load, to_evaluate
from rudel.runs.model_arrays import read_examples
from rudel.runs.run_directory import RunDirectory
from rudel.runs.run_identity import fingerprint_of


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a run on some data.

    Args:
        metrics: by Keras' names.
        examples: how many were evaluated.
        left_out: by name of a class that the model does not know, how many examples were left out.
        notes: what a user should know of the data, a sentence each.
    """

    metrics: dict[str, float]
    examples: int
    left_out: dict[str, int]
    notes: tuple[str, ...] = ()


def evaluate_run(
    run: str | Path,
    data: str | Path | None = None,
    best: bool = False,
    split: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Evaluates a finished run.

    Args:
        run: its directory.
        data: an `.npz` file with `x`, `y` and optionally `names` (see `rudel.data.arrays_file`); or where the recipe
            shall take its data from: all photographs in a folder, for example; None for the recipe's own validation
            data.
        best: whether to take the best weights, in the place of the last; see `rudel.load`.
        split: of the records at `data`; None for all of them.
        progress: called with (done, in all) while data is fetched or converted.

    Raises:
        RunError: there is no such run, or it is unfinished.
        DataError: the data does not fit the model.
        OptionError: `split` where there is nothing to choose from.
    """
    directory = run_directory.open_finished(Path(run))
    is_file = data is not None and str(data).endswith(".npz")
    if split is not None and (data is None or is_file):
        raise OptionError(
            f"{option('split')} chooses among the records of a folder: name the folder with {option('data')}."
        )
    model = load(run, best)
    names = directory.read_config().get("class_names") or []
    if is_file:
        examples, left_out = read_examples(Path(str(data)), model, names)
        if examples.y is None:
            raise DataError(f"{data} has no array `y`: save it by np.savez(file, x=..., y=..., names=...).")
        found = ToEvaluate(examples, left_out)
    elif data is not None:
        found = to_evaluate(directory, str(data), split, progress, model)
    else:
        dataset = dataset_of(directory, model=model)
        validation = dataset.validation
        if validation is None:
            raise RunError(
                f"The {directory.title} has no validation data: give some with {option('data', 'FILE.npz')}."
            )
        found = ToEvaluate(validation, {}, _of_changed(directory, dataset.train))
    if not model.compiled:
        raise RunError(f"The {directory.title} is not compiled, so there is no metric to evaluate.")
    count = len(found.examples)
    metrics = evaluate(model, found.examples)
    return Evaluation(by_class_name(metrics, names), count, dict(found.left_out), tuple(found.notes))


def _of_changed(run: RunDirectory, train: Examples | Stream) -> Sequence[str]:
    """A note where other examples may be held out now than in training: those of a stream are chosen one by one."""
    trained = run.read_config().get("identity", {}).get("training data (fingerprint)")
    if trained is None or isinstance(train, Stream) or fingerprint_of(train) == trained:
        return ()
    return (
        "The training data has changed since the training, so some of these examples may have been trained on: give "
        f"others with {option('data')}.",
    )
