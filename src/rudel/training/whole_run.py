"""A whole run: check the request, train, and keep what came of it in the run directory."""

import contextlib
import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rudel.backend import without_tensorflow
from rudel.data.batch_source import BatchStream
from rudel.data.dataset import Dataset, Examples
from rudel.data.pictures import range_of
from rudel.data.stream import Stream
from rudel.errors import ModelError, OptionError, RunError, option
from rudel.internals.keras import layers_of
from rudel.loop.data_checks import check_examples
from rudel.loop.model_state import check_compiled
from rudel.loop.schedule import Schedule
from rudel.mesh.hosts.lifecycle import together
from rudel.replicas import journal
from rudel.runs import checkpoint as checkpoints
from rudel.runs import run_directory
from rudel.runs.checkpoint import Checkpoint
from rudel.runs.own_classes import Places, check_can_be_loaded
from rudel.runs.run_directory import RunDirectory
from rudel.runs.run_identity import check_same, identity_of, name_of, rate_remembered
from rudel.session.callbacks import check_callbacks
from rudel.session.job import Job
from rudel.session.local_engine import local_engine
from rudel.session.results import keep_results, summary_of, versions
from rudel.session.session import Session
from rudel.session.training_display import Display, choose_display
from rudel.session.training_options import TrainingOptions
from rudel.training.strategies import Strategy

if TYPE_CHECKING:
    import keras

    from rudel.cluster.running_cluster import RunningCluster


@dataclass(frozen=True)
class Request:
    """A training to do.

    Args:
        model: compiled.
        dataset: to train on, and to evaluate on.
        schedule: which examples every step sees.
        options: how the training is to go.
        callbacks: Keras callbacks.
        run: the directory to use; `new_run` instead asks for the next free one of that name.
        about: what config.json should say beside that, such as the recipe and its options.
        cluster: a running `rudel.Cluster`, or one made of a client; None to train here.
        resume: continue from the newest checkpoint in `run`, if there is one.
        verbose: see `rudel.fit`.
        strategy: options of the strategy that spreads the steps; None for `single`.
        forecast: what was forecast, where the strategy was chosen by that.
        initial_epoch: epochs to leave out; see `rudel.fit`.
    """

    model: "keras.Model"
    dataset: Dataset
    schedule: Schedule
    options: TrainingOptions
    callbacks: tuple[Any, ...] = ()
    run: Path | None = None
    new_run: str | None = None
    resume: bool = False
    verbose: bool | Literal["auto"] = "auto"
    about: dict[str, Any] = field(default_factory=dict)
    cluster: "RunningCluster | None" = None
    strategy: Strategy | None = None
    forecast: dict[str, Any] | None = None
    initial_epoch: int = 0


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Args:
        history: the Keras `History`.
        summary: the content of summary.json.
        run: the run directory, if there is one.
    """

    history: "keras.callbacks.History"
    summary: dict[str, Any]
    run: Path | None


def execute(keras: ModuleType, request: Request, began: float) -> Outcome:
    """Trains as requested and, where there is a run directory, fills it.

    Args:
        keras: the module, on JAX.
        request: what to do.
        began: `time.perf_counter()` when the user's call began.

    Raises:
        RudelError: everything that `rudel.fit` raises.
    """
    dataset, model = request.dataset, request.model
    check(keras, request)
    keeps = request.run is not None or request.new_run is not None
    own = check_can_be_loaded(model) if keeps else {}
    with without_tensorflow():
        identity = _identity(request) if keeps else {}
    job = job_of(request, identity)
    with together(request.strategy) as first:
        run, config, saved = first(lambda: _begun(request, identity), (None, {}, None))
        session: Session | None = None
        try:
            engine = request.strategy.engine(job, request.cluster) if request.strategy else local_engine()
            display = choose_display(request.verbose, on_hosts=request.cluster is not None)
            if saved:
                _note_length(display, saved.document.get("total_steps"), request.schedule.total_steps)
            session = Session(keras, job, run, saved, display, began, engine)
            if run:
                about = {"strategy_options": session.about.get("strategy_options")} if request.strategy else {}
                about |= _absent(request) | _input_range(session)
                run.write_config(_config(request, identity, own, config.get("started")) | about)
                if request.forecast:
                    run.write_plan(request.forecast)
            with _kept(run, model):
                history = session.train()
                summary = summary_of(session, dataset, name_of(model, request.about)) | _absent(request)
                if run:
                    keep_results(run, dataset, summary, session)
            return Outcome(history, summary, run.shown if run else None)
        finally:
            if session:
                session.close()
            if run:
                run.release()


@contextlib.contextmanager
def _kept(run: RunDirectory | None, model: "keras.Model") -> Iterator[None]:
    """Keeps what happens in the block, and why it fails, in the run directory, if there is one."""
    if run is None:
        yield
        return
    with rate_remembered(model), run.keeping_log(), run.keeping_failure():
        yield


def check(keras: ModuleType, request: Request) -> None:
    """Refuses what cannot be trained, before anything is made.

    Args:
        keras: the module.
        request: what is to be done.

    Raises:
        ModelError, DataError, OptionError: it cannot be trained.
    """
    dataset, model = request.dataset, request.model
    check_compiled(model)
    for layer in layers_of(model):
        if isinstance(layer, keras.layers.Dropout) and layer.rate == 1:
            raise ModelError(f"The layer `{layer.name}` drops everything in training: give it a rate below 1.")
    if keras.distribution.distribution() is not None:
        raise ModelError(
            "A distribution of `keras.distribution` is set, and Rudel spreads a training itself: leave it out, and "
            f"give {option('strategy', 'mesh')}."
        )
    one_device = request.strategy is None or request.strategy.name == "single"
    check_callbacks(keras, request.callbacks, one_device=one_device, has_run=request.run is not None)
    if request.initial_epoch and (request.run or not one_device):
        raise OptionError(
            "`initial_epoch` works on one device of this computer, without a run directory: give run=... and "
            "resume=True instead, which restore the weights, the optimizer and the epoch."
        )
    for split, name in ((dataset.train, "training"), (dataset.validation, "validation"), (dataset.test, "test")):
        if isinstance(split, Examples):  # those of a stream are looked at when they are read
            check_examples(split, model, name)


def job_of(request: Request, identity: dict[str, Any]) -> Job:
    """The job of a request, as a strategy takes it."""
    dataset = request.dataset
    return Job(
        model=request.model,
        train=dataset.train,
        validation=dataset.validation,
        schedule=request.schedule,
        options=request.options,
        callbacks=request.callbacks,
        identity=identity,
        settings=_settings(request),
        augment=dataset.augment,
        initial_epoch=int(request.initial_epoch),
        class_names=dataset.class_names,
    )


def _settings(request: Request) -> dict[str, Any]:
    """The requested settings, by name, as people read them."""
    about = request.about
    return {
        "recipe": name_of(request.model, about),
        **about.get("options", {}),
        "strategy": request.strategy.name if request.strategy else "single",
        **{name: about[name] for name in ("learning_rate", "source") if about.get(name) is not None},
        "precision": request.model.dtype_policy.name,
        **request.options.given,
    }


def _identity(request: Request) -> dict[str, Any]:
    schedule, train = request.schedule, request.dataset.train
    return identity_of(request.model, train, schedule.batch_size, schedule.seed, schedule.shuffle, request.about)


def _absent(request: Request) -> dict[str, Any]:
    """Hosts that were requested and take no part at the moment, with the reason of each."""
    absent = getattr(request.cluster, "absent", {})
    return {"absent": [{"host": host, "reason": reason} for host, reason in absent.items()]} if absent else {}


def _begun(request: Request, identity: dict[str, Any]) -> tuple[RunDirectory | None, dict[str, Any], Checkpoint | None]:
    """The run directory, if there is to be one, what it says of the training, and where that stands.

    Raises:
        RunError: it cannot be used, or is of another training.
    """
    run = _open(request)
    if run is None:
        return None, {}, None
    try:
        config = run.read_config()
        if config:
            check_same(run, config.get("identity", {}), identity)
        return run, config, _resumable(run, request.schedule.total_steps)
    except BaseException:
        run.release()
        raise


def _count(split: Examples | Stream | None) -> int | None:
    """The number of examples; None where a source would have to be read to count them."""
    if split is None:
        return 0
    return split.known_rows if isinstance(split, BatchStream) else len(split)


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
    if saved and (done := _steps_done(run, saved, total_steps)) > total_steps:
        raise RunError(
            f"The run {run.shown} has already done {done:,} steps, more than the {total_steps:,} asked for: "
            f"ask for more, or give another directory with {option('run')}."
        )
    return saved


def _steps_done(run: RunDirectory, saved: Checkpoint, total_steps: int) -> int:
    """Steps that a resumed training begins after: those of its checkpoint, or of the last round in its journal.

    The journal is read only where the training is to be shorter than before: a last round may go beyond its end.
    """
    if saved.document.get("total_steps", 0) <= total_steps:
        return saved.step
    documents = (record.document for record in journal.read(checkpoints.path_of(run.path, saved.step)))
    return max((document["step"] for document in documents if "round" in document), default=saved.step)


def _note_length(display: Display, before: int | None, total: int) -> None:
    if before not in (None, total):
        display.note(
            f"The training now has {total:,} steps, and had {before:,}: a learning rate schedule made for its length "
            "changes with it."
        )


def _input_range(session: Session) -> dict[str, Any]:
    """The range of inputs that are floats, by which files of images are refused; of a stream, that of a first batch."""
    train = session.job.train
    found = range_of((train if isinstance(train, Examples) else session.first_batch).x)
    return {"input_range": found} if found and np.isfinite(found).all() else {}


def _config(request: Request, identity: dict[str, Any], own: Places, started: str | None) -> dict[str, Any]:
    lines: list[str] = []
    request.model.summary(print_fn=lambda text, **_: lines.append(text), line_length=80)
    dataset = request.dataset
    return run_directory.finite(
        {
            "recipe": identity["recipe"],
            "options": {},
            "strategy": request.strategy.name if request.strategy else "single",
            **vars(request.options),
            "steps_per_epoch": request.schedule.steps_per_epoch,
            "monitor": request.options.watched,
            "precision": identity["precision"],
            "class_names": list(dataset.class_names),
            **({"channels": list(dataset.channels)} if dataset.channels else {}),
            "attribution": dataset.attribution,
            "model": {"parameters": int(request.model.count_params()), "text": "\n".join(lines)},
            "data": {"train": _count(dataset.train), "validation": _count(dataset.validation)}
            | ({"test": len(dataset.test)} if dataset.test else {}),
            "versions": versions(),
            "started": started or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "identity": identity,
        }
        | ({"own_classes": own} if own else {})
        | request.about
    )
