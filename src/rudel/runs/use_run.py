"""What a trained run is good for: evaluating it on data, and asking it about files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rudel.data.arrays_file import read_arrays
from rudel.data.dataset import ToEvaluate
from rudel.data.pictures import read_input
from rudel.data.table import read_table
from rudel.errors import DataError, OptionError, RunError
from rudel.features.layer import rate_of
from rudel.features.table_columns import encoded
from rudel.features.table_layer import columns_of
from rudel.loop.classification import as_probabilities
from rudel.loop.evaluation import DEFAULT_BATCH_SIZE, evaluate, predict
from rudel.runs import run_directory
from rudel.runs.loading import dataset_of, load, recipe_of, to_evaluate
from rudel.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class Evaluation:
    """How well a run does on some data.

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


@dataclass(frozen=True)
class Prediction:
    """What a run says of one input.

    Args:
        source: the file, with the row where it holds several.
        outputs: of the model, flat.
        ranking: (class, probability), best first; empty where the model is no classifier.
    """

    source: str
    outputs: list[float]
    ranking: list[tuple[str, float]]


def evaluate_run(
    run: str | Path,
    data: str | Path | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
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
        batch_size: examples a step.
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
        raise OptionError("`--split` chooses among the records of a folder: name the folder with --data.")
    model = load(run, best)
    if is_file:
        names = directory.read_config().get("class_names", [])
        found = ToEvaluate(*read_arrays(Path(str(data)), names, _input_shape(model, directory)))
    elif data is not None:
        found = to_evaluate(directory, str(data), split, progress, model)
    else:
        validation = dataset_of(directory, model=model).validation
        if validation is None:
            raise RunError(f"The run {directory.path} has no validation data: give some with --data FILE.npz.")
        found = ToEvaluate(validation, {})
    if not model.compiled:
        raise RunError(f"The model of the run {directory.path} is not compiled, so there is no metric to evaluate.")
    count = len(found.examples)
    metrics = evaluate(model, found.examples, batch_size=min(batch_size, count))
    return Evaluation(metrics, count, dict(found.left_out), tuple(found.notes))


def predict_files(run: str | Path, files: Sequence[str | Path]) -> list[Prediction]:
    """Asks a finished run about pictures, recordings and `.npy` files.

    Args:
        run: its directory.
        files: pictures (one input each), recordings of sound (WAV, FLAC) or motion (CSV), or `.npy` arrays of one input
            or of several (N, ...); where the model takes a table, tables (CSV, Parquet).

    Raises:
        RunError: there is no such run, or it is unfinished.
        DataError: a file is missing, is nothing of these, or does not fit the model's input.
    """
    directory = run_directory.open_finished(Path(run))
    model = load(run)
    if not files:
        return []
    read = _table_reader(model) or _input_reader(model, directory)
    inputs: list[Any] = []
    sources: list[str] = []
    for file in files:
        rows, count = read(Path(file))
        inputs.append(rows)
        sources += [str(file)] if count == 1 else [f"{file}[{i}]" for i in range(count)]
    outputs = predict(model, _joined(inputs))
    if not isinstance(outputs, np.ndarray):
        raise DataError(f"The model of the run {directory.path} has several outputs; call rudel.predict in Python.")
    probabilities = as_probabilities(model, outputs)
    names = directory.read_config().get("class_names") or []
    return [
        Prediction(source, output.reshape(-1).astype(float).tolist(), _ranking(probabilities, i, names))
        for i, (source, output) in enumerate(zip(sources, outputs, strict=True))
    ]


def _table_reader(model: Any) -> Callable[[Path], tuple[Any, int]] | None:
    """Reads a table as inputs of a model, and says how many; None for a model that does not take a table."""
    columns = columns_of(model)
    if not columns:
        return None

    def read(path: Path) -> tuple[dict[str, np.ndarray], int]:
        table = read_table(path)
        return encoded(columns, table.columns, table.name), len(table)

    return read


def _input_reader(model: Any, run: RunDirectory) -> Callable[[Path], tuple[Any, int]]:
    """Reads any other file as inputs of a model, and says how many."""
    shape, recipe = _input_shape(model, run), recipe_of(run)

    def read(path: Path) -> tuple[np.ndarray, int]:
        rows = read_input(path, shape, recipe.read_image if recipe else None, rate_of(model))
        return rows, len(rows)

    return read


def _joined(inputs: Sequence[Any]) -> Any:
    if isinstance(inputs[0], dict):
        return {name: np.concatenate([rows[name] for rows in inputs]) for name in inputs[0]}
    return np.concatenate(inputs)


def _input_shape(model: Any, run: RunDirectory) -> tuple[int, ...]:
    """Shape of one input of a model.

    Raises:
        DataError: it has several inputs, or one without a fixed shape.
    """
    shape = getattr(model, "input_shape", None)
    if not isinstance(shape, tuple) or any(not isinstance(n, int) for n in shape[1:]):
        raise DataError(
            f"Files give one input of a fixed shape, and the model of the run {run.path} takes others: "
            "call rudel.predict or rudel.evaluate in Python."
        )
    return shape[1:]


def _ranking(probabilities: np.ndarray | None, row: int, names: Sequence[str]) -> list[tuple[str, float]]:
    if probabilities is None:
        return []
    values = probabilities[row]
    if len(values) == 1:  # one sigmoid: the probability of the second of two classes
        values = np.array([1 - values[0], values[0]])
    told = list(names) if len(names) == len(values) else [str(i) for i in range(len(values))]
    return [(told[i], float(values[i])) for i in np.argsort(-values, kind="stable")]
