"""`rudel.train_recipe`: from the name of a recipe to a finished run."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rudel.backend import keras_here
from rudel.errors import OptionError, option
from rudel.mesh.hosts.lifecycle import all_or_none, is_first, join_for
from rudel.runs import checkpoint as checkpoints
from rudel.runs.run_directory import check_free, path_of
from rudel.session.callbacks import check_callbacks
from rudel.session.training_options import TrainingOptions
from rudel.training.automatic import decided
from rudel.training.keras_arguments import as_callbacks
from rudel.training.places import check_place, place
from rudel.training.prepared import Prepared, RecipeRequest, prepare
from rudel.training.recorded import recorded
from rudel.training.whole_run import Request, execute

if TYPE_CHECKING:
    import keras
    from distributed import Client
    from keras.callbacks import Callback

    from rudel.cluster.running_cluster import Hosts, RunningCluster
    from rudel.training.strategies import Auto, Strategy


@dataclass(frozen=True)
class TrainedRun:
    """A finished run.

    Args:
        path: its directory; an empty path in processes that keep none, of several that train together.
        model: the trained Keras model.
        history: the Keras `History`.
        summary: the content of summary.json.
        attribution: who made the data.
        notes: what a user should know of the data.
    """

    path: Path
    model: "keras.Model"
    history: "keras.callbacks.History"
    summary: dict[str, Any]
    attribution: str
    notes: Sequence[str]


def train_recipe(
    recipe: str = "digits",
    *,
    data: object = None,
    options: Mapping[str, Any] | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    start_from: str | Path | None = None,
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32",
    seed: int = 0,
    run: str | Path | None = None,
    resume: bool = False,
    eval_every: int | None = None,
    checkpoint_every: int | None = None,
    keep: int = 2,
    monitor: str | None = None,
    stop_early: int | None = None,
    callbacks: "Callback | Sequence[Callback] | None" = None,
    progress: Callable[[int, int], None] | None = None,
    notify: Callable[[str], None] | None = None,
    on: "Hosts | None" = None,
    cluster: "RunningCluster | None" = None,
    client: "Client | str | None" = None,
    strategy: "Strategy | Auto | str | None" = None,
    ssh_config: str | Path | None = None,
    min_hosts: int | None = None,
    dashboard: bool = False,
    verbose: bool | Literal["auto"] = "auto",
) -> TrainedRun:
    """Trains a recipe into a run directory.

    Args:
        recipe: a built-in name or the path of a Python file; see `rudel.recipes`.
        data: where its data is, an address, a file or a folder, for recipes that take one; for `table`, also a frame,
            which a run does not keep.
        options: values of its options, as Python values or as texts.
        epochs: passes over the examples, in the place of what the recipe says.
        steps: optimizer steps, in the place of what the recipe says.
        batch_size: examples a step, in the place of what the recipe says.
        learning_rate: in the place of what the recipe says.
        start_from: a run directory or a `.keras` file: weights of it whose layer, name and shape the model has, too,
            are the ones it begins with. A note says how many.
        precision: Keras' dtype policy for the model.
        seed: of weights, dropout and the order of examples.
        run: directory for the run; by default `runs/RECIPE`, `runs/RECIPE-2`, ...
        resume: go on with the run in this directory, if there is one.
        eval_every: steps between evaluations, in the place of one after every epoch; see `rudel.fit`.
        checkpoint_every: steps between checkpoints; by default one about every 15 seconds.
        keep: how many checkpoints to keep.
        monitor: a metric such as "val_accuracy": the best weights by it are kept beside the last, as `best.keras`; see
            `rudel.load`.
        stop_early: end when so many evaluations one after the other have not been better than the best, by `monitor` or
            else by "val_loss".
        callbacks: Keras callbacks; they act at the ends of epochs, or of every `eval_every` steps.
        progress: called with (bytes done, bytes in all) while data is fetched.
        notify: called before the first step with each sentence that `notes` of the result has.
        on: hosts to train on; see `rudel.fit`.
        cluster: a running `rudel.Cluster` to train on.
        client: a Dask client, or the address of a scheduler, whose workers are to train.
        strategy: how steps are spread over hosts; see `rudel.fit`.
        ssh_config: with `on`, in the place of `~/.ssh/config`.
        min_hosts: how many hosts must be there to begin: by default all of `on`, or those workers of `client` that are.
        dashboard: with `on`, whether Dask's dashboard is to be had; see `rudel.Cluster`.
        verbose: see `rudel.fit`.

    Returns:
        The finished run: its directory, the trained model, its history and its summary.

    Raises:
        RudelError: everything that `rudel.fit` raises, and `RecipeError` and `OptionError` for the recipe.
    """
    began = time.perf_counter()
    if not isinstance(options, Mapping | None):
        raise OptionError(f"`options` is a dict of a recipe's options and their values, not {options!r:.100}.")
    repeatable = recorded(
        {"recipe": recipe, "data": data, "options": options, "epochs": epochs, "steps": steps}
        | {"batch_size": batch_size, "learning_rate": learning_rate, "precision": precision, "seed": seed}
        | {"eval_every": eval_every, "checkpoint_every": checkpoint_every, "keep": keep, "monitor": monitor}
        | {"stop_early": stop_early, "callbacks": callbacks, "on": on, "cluster": cluster, "client": client}
        | {"strategy": strategy, "ssh_config": ssh_config, "min_hosts": min_hosts, "dashboard": dashboard}
        | {"start_from": None if start_from is None else str(start_from)}
    )
    wanted = TrainingOptions(
        seed=seed, eval_every=eval_every, checkpoint_every=checkpoint_every, keep=keep, monitor=monitor,
        stop_early=stop_early,
    )  # fmt: skip
    directory = path_of(run)
    if resume and run is None:
        raise OptionError(f"Which run is to be resumed? Name its directory with {option('run')}.")
    if resume and directory is not None and checkpoints.any_in(directory):
        start_from = None  # the checkpoint has the weights
    recipe_request = RecipeRequest(
        recipe, data, options, epochs, steps, batch_size, learning_rate, precision, seed, progress, start_from
    )
    spread_by = check_place(on, cluster, client, strategy, ssh_config, min_hosts, dashboard)
    if on is cluster is client is None:
        join_for(spread_by)  # before anything is computed

    given = () if callbacks is None else as_callbacks(keras_here(), callbacks)

    def ready() -> Prepared:
        if directory is not None and is_first():
            check_free(directory, resume)
        if given:
            one_device = spread_by is None or spread_by.name == "single"
            check_callbacks(keras_here(), given, one_device=one_device, has_run=True)
        return prepare(recipe_request)

    made = all_or_none(ready)
    dataset = made.dataset
    if notify and is_first():
        for note in dataset.notes:
            notify(note)
    with place(on, cluster, client, strategy, ssh_config, min_hosts, dashboard) as (where, spread):
        request = Request(
            made.model,
            dataset,
            made.schedule,
            replace(wanted, **made.plan),
            callbacks=given,
            run=directory,
            new_run=made.name if run is None else None,
            resume=resume,
            verbose=verbose,
            about=made.about | {"asked": repeatable},
            cluster=where,
            strategy=spread,
        )
        outcome = execute(keras_here(), decided(request, strategy), began)
    return TrainedRun(
        outcome.run or Path(), made.model, outcome.history, outcome.summary, dataset.attribution, tuple(dataset.notes)
    )
