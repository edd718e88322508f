"""A whole run: check what was asked for, train, and keep what came of it in the run directory."""

import datetime
import hashlib
import importlib.metadata
import platform
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rudel.backend import without_tensorflow
from rudel.data.dataset import Dataset, Examples
from rudel.errors import RunError
from rudel.train import checkpoint as checkpoints
from rudel.train import run_directory
from rudel.train.callbacks import check_callbacks
from rudel.train.checkpoint import Checkpoint
from rudel.train.checks import check_examples
from rudel.train.classification import as_probabilities, class_labels
from rudel.train.display import choose_display
from rudel.train.evaluation import DEFAULT_BATCH_SIZE, evaluate, predict
from rudel.train.model_file import check_can_be_saved, save_model
from rudel.train.run_directory import RunDirectory
from rudel.train.schedule import check_whole_number, plan_schedule
from rudel.train.single import Job, Training, check_same
from rudel.train.state import check_compiled


@dataclass(frozen=True)
class Request:
    """What a user asked for; see `rudel.fit` for the meaning of the fields.

    Args:
        run: the directory to use; `new_run` instead asks for the next free one of that name.
        about: what config.json should say beside that, such as the recipe and its options.
        cluster: a running `rudel.Cluster`, or one made of a client; None to train here.
        strategy: options of the strategy that spreads the steps, a `Diloco`; None to train here.
    """

    model: Any
    dataset: Dataset
    epochs: int | None
    steps: int | None
    batch_size: int
    callbacks: tuple[Any, ...] = ()
    run: Path | None = None
    new_run: str | None = None
    resume: bool = False
    seed: int = 0
    shuffle: bool = True
    validation_batch_size: int | None = None
    checkpoint_every: int | None = None
    verbose: bool | Literal["auto"] = "auto"
    about: dict[str, Any] = field(default_factory=dict)
    cluster: Any = None
    strategy: Any = None


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Args:
        history: the Keras `History`.
        summary: the content of summary.json.
        run: the run directory, if there is one.
    """

    history: Any
    summary: dict[str, Any]
    run: Path | None


def execute(keras: Any, request: Request, began: float) -> Outcome:
    """Trains as requested and, where a run directory is asked for, fills it.

    Args:
        keras: the module, on JAX.
        request: what to do.
        began: `time.perf_counter()` when the user's call began.

    Raises:
        RudelError: everything that `rudel.fit` raises.
    """
    dataset, model = request.dataset, request.model
    schedule = plan_schedule(
        len(dataset.train), request.batch_size, request.epochs, request.steps, request.seed, request.shuffle
    )
    check_compiled(model)
    check_callbacks(keras, request.callbacks)
    check_examples(dataset.train, model, "training")
    for part, name in ((dataset.validation, "validation"), (dataset.test, "test")):
        if part is not None:
            check_examples(part, model, name)
    size = min(
        request.validation_batch_size or max(request.batch_size, DEFAULT_BATCH_SIZE),
        len(dataset.validation) if dataset.validation else 1,
    )
    for name, value in (
        ("checkpoint_every", request.checkpoint_every),
        ("validation_batch_size", request.validation_batch_size),
    ):
        if value is not None:
            check_whole_number(name, value)
    keeps = request.run is not None or request.new_run is not None
    if keeps:
        check_can_be_saved(model)
    with without_tensorflow():
        identity = _identity(request) if keeps else {}
    job = Job(
        model=model,
        train=dataset.train,
        validation=dataset.validation,
        schedule=schedule,
        callbacks=request.callbacks,
        validation_batch_size=size,
        checkpoint_every=request.checkpoint_every,
        identity=identity,
        augment=dataset.augment,
    )
    run = _open(request)
    try:
        config = run.read_config() if run else {}
        if run and config:
            check_same(run, config.get("identity", {}), identity)
        saved = _resumable(run, schedule.total_steps) if run else None
        arguments = (keras, job, run, saved, choose_display(request.verbose), began)
        training = _spread(request, arguments) if request.cluster is not None else Training(*arguments)
        if run:
            run.write_config(_config(request, identity, config.get("started")))
        history = training()
        summary = _summary(request, training)
        if run:
            _keep_results(run, request, summary, training)
        return Outcome(history, summary, run.path if run else None)
    finally:
        if run:
            run.release()


def _spread(request: Request, arguments: tuple[Any, ...]) -> Training:
    from rudel.train.diloco.training import DilocoTraining

    return DilocoTraining(*arguments, cluster=request.cluster, options=request.strategy)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    packages = ("rudel", "keras", "jax", "jaxlib", "numpy")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages}


def _identity(request: Request) -> dict[str, Any]:
    """What has to be alike for a run to be resumed: the recipe, its options, the model, the data and their order."""
    about = request.about
    identity = {
        "recipe": _name(request),
        **{f"option {name}": value for name, value in about.get("options", {}).items()},
        "learning rate": about.get("learning_rate"),
        "batch size": request.batch_size,
        "seed": request.seed,
        "shuffle": request.shuffle,
        "precision": request.model.dtype_policy.name,
        "optimizer": type(request.model.optimizer).__name__,
        "model (fingerprint)": _fingerprint_of_model(request.model),
        "training data (fingerprint)": _fingerprint_of_examples(request.dataset.train),
    }
    return run_directory.finite(identity)


def _name(request: Request) -> str:
    """The recipe, or the model's name without the number that Keras counts its models by."""
    return request.about.get("recipe") or re.sub(r"_\d+$", "", request.model.name)


def _fingerprint_of_model(model: Any) -> str:
    """What the model and its compilation are made of.

    Names that Keras numbers (`dense_1`) do not count, nor does a learning-rate schedule, which may depend on how long
    the training is to be.
    """
    lines = [type(model).__name__]
    for layer in model._flatten_layers() if hasattr(model, "_flatten_layers") else model.layers:
        settings = {name: value for name, value in _config_of(layer).items() if not isinstance(value, dict | list)}
        lines += [f"{type(layer).__name__} {settings} {[tuple(w.shape) for w in getattr(layer, 'weights', [])]}"]
    compiled = model.get_compile_config() or {}
    optimizer = (compiled.get("optimizer") or {}).get("config", {})
    if isinstance(optimizer, dict) and isinstance(optimizer.get("learning_rate"), dict):
        optimizer.pop("learning_rate")
    text = "\n".join(lines) + repr(compiled)
    return hashlib.sha256(re.sub(r"(_\d+(?=['\"])| at 0x[0-9a-f]+)", "", text).encode()).hexdigest()[:16]


def _config_of(layer: Any) -> dict[str, Any]:
    try:
        return layer.get_config()
    except NotImplementedError:  # a layer that does not describe itself counts by its weights
        return {}


def _fingerprint_of_examples(examples: Examples) -> str:
    """Shapes, dtypes, and a CRC-32 over the bytes."""
    lines = []
    for name, array in examples.named_arrays():
        array = np.asarray(array)
        lines.append(
            f"{name} {array.dtype} {array.shape} {zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data)}"
        )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _open(request: Request) -> RunDirectory | None:
    if request.run is not None:
        return run_directory.create(request.run, request.resume)
    return run_directory.create_next(request.new_run) if request.new_run else None


def _resumable(run: RunDirectory, total_steps: int) -> Checkpoint | None:
    """The newest checkpoint, if there is one.

    Raises:
        RunError: it is of a training that has already gone further.
    """
    saved = checkpoints.newest(run.path)
    if saved and saved.step > total_steps:
        raise RunError(
            f"The run {run.path} has already done {saved.step:,} steps, more than the {total_steps:,} asked for: "
            "ask for more, or give another directory with --run."
        )
    return saved


def _config(request: Request, identity: dict[str, Any], started: str | None) -> dict[str, Any]:
    lines: list[str] = []
    request.model.summary(print_fn=lambda text, **_: lines.append(text), line_length=80)
    dataset = request.dataset
    return run_directory.finite(
        {
            "recipe": identity["recipe"],
            "options": {},
            "strategy": "single" if request.cluster is None else "diloco",
            "epochs": request.epochs,
            "steps": request.steps,
            "batch_size": request.batch_size,
            "seed": request.seed,
            "precision": identity["precision"],
            "class_names": list(dataset.class_names),
            "attribution": dataset.attribution,
            "model": {"parameters": int(request.model.count_params()), "text": "\n".join(lines)},
            "data": {"train": len(dataset.train), "validation": len(dataset.validation or ())}
            | ({"test": len(dataset.test)} if dataset.test else {}),
            "versions": versions(),
            "started": started or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "identity": identity,
        }
        | request.about
    )


def _summary(request: Request, training: Training) -> dict[str, Any]:
    position = training.position
    clock = position.clock
    return {
        "recipe": _name(request),
        "seed": request.seed,
        "versions": versions(),
        "steps": position.step,
        "setup_seconds": round(clock.setup, 3),
        "compile_seconds": round(clock.compile, 3),
        "train_seconds": round(clock.train, 3),
        "evaluate_seconds": round(clock.evaluate, 3),
        "checkpoint_seconds": round(clock.checkpoint, 3),
        "total_seconds": round(training.total_seconds, 3),
        "metrics": training.metrics | _test_metrics(request),
        **training.about,
    }


def _test_metrics(request: Request) -> dict[str, float]:
    """Metrics of the trained model on the test examples, if there are any."""
    test = request.dataset.test
    if test is None:
        return {}
    return {f"test_{name}": value for name, value in evaluate(request.model, test).items()}


def _keep_results(run: RunDirectory, request: Request, summary: dict[str, Any], training: Training) -> None:
    """Writes the model, the predictions, the summary that marks the run as finished, and the report of all that."""
    from rudel.report.page import write_report

    with run_directory.writing(run.path):
        save_model(request.model, run.model)
        _keep_predictions(run, request)
    summary["total_seconds"] = round(training.total_seconds, 3)
    run.write_summary(summary)
    write_report(run.path)


def _keep_predictions(run: RunDirectory, request: Request) -> None:
    """Keeps what the trained model says of its examples, if their targets are classes or numbers."""
    from rudel.report import regression
    from rudel.report.predictions import save, summarise
    from rudel.train.regression import answers_about

    told = answers_about(request.model, request.dataset)
    if told:
        regression.save(run.predictions, told)
        return
    examples = request.dataset.validation
    truth = class_labels(examples) if examples else None
    if examples is None or truth is None or isinstance(examples.x, dict | list | tuple):
        return
    outputs = predict(request.model, examples.x)
    if not isinstance(outputs, np.ndarray):
        return
    probabilities = as_probabilities(request.model, outputs)
    if probabilities is not None:
        save(run.predictions, summarise(probabilities, truth), examples.x)
