"""Results of a finished training in its run directory: models, predictions, the summary and the report."""

import importlib.metadata
import platform
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from rudel.aliases import Tree
from rudel.backend import backend_name
from rudel.data.batch_source import BatchStream
from rudel.data.dataset import Dataset, Examples
from rudel.data.stream import Stream
from rudel.errors import CheckpointError, DataError, ModelError
from rudel.loop import model_state
from rudel.loop.classification import as_probabilities, class_labels, ignored_class
from rudel.loop.evaluation import evaluate, predict, predictions
from rudel.loop.metric_values import by_class_name
from rudel.report.predictions import Predictions, join, save, summarise
from rudel.runs import checkpoint as checkpoints
from rudel.runs import run_directory
from rudel.runs.model_file import save_model
from rudel.runs.run_directory import RunDirectory
from rudel.session import best_weights as best
from rudel.session.session import Session

if TYPE_CHECKING:
    import keras


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    packages = ["rudel", "keras", "jax", "jaxlib", "numpy"]
    own = sys.modules.get(backend_name()) if backend_name() != "jax" else None
    return (
        {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in packages}
        | ({own.__name__: str(own.__version__)} if own else {})
    )


def summary_of(session: Session, dataset: Dataset, recipe: str) -> dict[str, Any]:
    """The content of summary.json."""
    position, job = session.position, session.job
    clock = position.clock
    return {
        "recipe": recipe,
        "seed": job.schedule.seed,
        "backend": backend_name(),
        "versions": versions(),
        "steps": position.step,
        "setup_seconds": round(clock.setup, 3),
        "compile_seconds": round(clock.compile, 3),
        "train_seconds": round(clock.train, 3),
        "wait_seconds": round(clock.wait, 3),
        "evaluate_seconds": round(clock.evaluate, 3),
        "checkpoint_seconds": round(clock.checkpoint, 3),
        "total_seconds": round(session.total_seconds, 3),
        "metrics": session.metrics | _test_metrics(job.model, dataset),
        **_about_best(session),
        **session.about,
    }


def keep_results(run: RunDirectory, dataset: Dataset, summary: dict[str, Any], session: Session) -> None:
    """Writes the models, the predictions, the summary that marks the run as finished, and the report of all that.

    Raises:
        RunError: the disk is full.
    """
    from rudel.report import augmentation
    from rudel.report.report_page import write_report

    model = session.job.model
    with run_directory.writing(run.shown):
        save_model(model, run.model)
        if session.best:
            _keep_best(run, model, session.best.step)
        elif session.watch.metric:
            run.best.unlink(missing_ok=True)  # of another metric, before the training was resumed
        try:
            _keep_predictions(run.predictions, model, dataset)
        except (DataError, ModelError) as error:  # the model is saved, and worth more than what the report shows of it
            run.predictions.unlink(missing_ok=True)
            warnings.warn(f"There is no {run.predictions.name}: {error}", stacklevel=2)
        augmentation.save(run.path / augmentation.FILE, dataset)
    summary["total_seconds"] = round(session.total_seconds, 3)
    run.write_summary(summary)
    write_report(run.path)


def _about_best(session: Session) -> dict[str, Any]:
    if not session.best:
        return {}
    found, job = session.best, session.job
    best = {"monitor": job.options.watched, "value": found.value, "step": found.step, "epoch": found.epoch}
    return {"best": best, "stopped_early": session.position.step < job.schedule.total_steps}


def _test_metrics(model: "keras.Model", dataset: Dataset) -> dict[str, float]:
    """Metrics of the trained model on the test examples, if there are any."""
    if dataset.test is None:
        return {}
    metrics = by_class_name(evaluate(model, dataset.test), dataset.class_names)
    return {f"test_{name}": value for name, value in metrics.items()}


def _keep_best(run: RunDirectory, model: "keras.Model", step: int) -> None:
    """Writes the model with the best weights; the model itself is as it was thereafter."""
    try:
        arrays = checkpoints.load(best.path_of(run.path, step)).arrays
    except CheckpointError as error:
        warnings.warn(f"There is no {run.best.name}: {error}", stacklevel=2)
        return
    now = model_state.values(model)
    parts = ("trainable", "non_trainable")
    values = {part: [arrays[f"{part}/{i}"] for i in range(len(getattr(now, part)))] for part in parts}
    try:
        model_state.write(model, now._replace(**values))
        save_model(model, run.best)
    finally:
        model_state.write(model, now)


def _keep_predictions(path: Path, model: "keras.Model", dataset: Dataset) -> None:
    """Keeps what the trained model says of its examples, if their targets are classes or numbers."""
    from rudel.features.layer import rate_of
    from rudel.loop.regression import answers_about
    from rudel.report import regression_data

    answers = answers_about(model, dataset)
    if answers:
        regression_data.save(path, answers)
        return
    examples = dataset.validation
    if examples is None or (isinstance(examples, BatchStream) and not examples.repeatable):
        return
    inputs = _Inputs(examples) if isinstance(examples, Stream) else examples.x
    if isinstance(examples, BatchStream) and not examples.by_index:
        inputs = None
    answered = _of_stream(model, examples) if isinstance(examples, Stream) else _of_examples(model, examples)
    if answered and ignored_class(model) is not None and len(answered.truth) < len(examples):
        inputs = None  # whose numbers are not those of the answers
    if answered and len(answered.truth):
        save(path, answered, inputs, rate_of(model))


def _of_examples(model: "keras.Model", examples: Examples) -> Predictions | None:
    truth = class_labels(examples)
    return None if truth is None else _answers(model, predict(model, examples.x), truth)


def _of_stream(model: "keras.Model", stream: Stream) -> Predictions | None:
    """Answers to all examples of a stream, batch by batch, so that neither inputs nor outputs have to fit in memory."""
    parts = []
    for examples, outputs in predictions(model, stream):
        truth = class_labels(examples)
        part = None if truth is None else _answers(model, outputs, truth)
        if part is None:
            return None
        parts.append(part)
    return join(parts)


def _answers(model: "keras.Model", outputs: Tree, truth: np.ndarray) -> Predictions | None:
    """Answers to the examples that the loss does not ignore; None if labels and outputs do not fit each other."""
    probabilities = as_probabilities(model, outputs) if isinstance(outputs, np.ndarray) else None
    if probabilities is None or len(probabilities) != len(truth):
        return None
    counted = truth != ignored_class(model)
    probabilities, truth = probabilities[counted], truth[counted]
    if not ((truth >= 0) & (truth < max(2, probabilities.shape[1]))).all():
        return None
    return summarise(probabilities, truth)


class _Inputs:
    """The inputs of a stream as an array that is read when it is indexed."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        first = stream.take(np.array([0])).x
        leaves = jax.tree.leaves(first)
        self.shape = (len(stream), *leaves[0].shape[1:]) if len(leaves) == 1 else ()

    def __len__(self) -> int:
        return len(self._stream)

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        return np.asarray(self._stream.take(index).x)
