"""`rudel.train_recipe`: from the name of a recipe to a finished run."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rudel.backend import keras_on_jax, set_seed
from rudel.errors import OptionError
from rudel.recipes.load import Recipe, find_recipe
from rudel.train.places import check_place, place
from rudel.train.run_directory import check_free
from rudel.train.runs import Request, execute
from rudel.train.schedule import check_whole_number, plan_schedule

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclass(frozen=True)
class TrainedRun:
    """A finished run.

    Args:
        path: its directory.
        model: the trained Keras model.
        history: the Keras `History`.
        summary: the content of summary.json.
        attribution: who made the data.
        notes: what a user should know of the data.
    """

    path: Path
    model: Any
    history: Any
    summary: dict[str, Any]
    attribution: str
    notes: Sequence[str]


def train_recipe(
    recipe: str = "digits",
    *,
    data: str | None = None,
    options: Mapping[str, Any] | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32",
    seed: int = 0,
    run: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    callbacks: Sequence[Any] = (),
    progress: Callable[[int, int], None] | None = None,
    on: Any = None,
    cluster: Any = None,
    client: Any = None,
    strategy: Any = "auto",
    ssh_config: str | Path | None = None,
    min_hosts: int | None = None,
    dashboard: bool = False,
    verbose: bool | Literal["auto"] = "auto",
) -> TrainedRun:
    """Trains a recipe into a run directory.

    Args:
        recipe: a built-in name or the path of a Python file; see `rudel.recipes`.
        data: where its data is, an address or a folder, for recipes that take one.
        options: values of its options, as Python values or as texts.
        epochs: passes over the examples, in the place of what the recipe says.
        steps: optimizer steps, in the place of what the recipe says.
        batch_size: examples a step, in the place of what the recipe says.
        learning_rate: in the place of what the recipe says.
        precision: Keras' dtype policy for the model.
        seed: of weights, dropout and the order of examples.
        run: directory for the run; by default `runs/RECIPE`, `runs/RECIPE-2`, ...
        resume: go on with the run in this directory, if there is one.
        checkpoint_every: steps between checkpoints; by default one about every 15 seconds.
        callbacks: Keras callbacks; they act at epoch ends.
        progress: called with (bytes done, bytes in all) while data is fetched.
        on: hosts to train on; see `rudel.fit`.
        cluster: a running `rudel.Cluster` to train on.
        client: a Dask client, or the address of a scheduler, whose workers are to train.
        strategy: how steps are spread over hosts; see `rudel.fit`.
        ssh_config: with `on`, in the place of `~/.ssh/config`.
        min_hosts: with `on`, how many hosts must be there to begin; by default all.
        dashboard: with `on`, whether Dask's dashboard is to be had; see `rudel.Cluster`.
        verbose: see `rudel.fit`.

    Returns:
        The finished run: its directory, the trained model, its history and its summary.

    Raises:
        RudelError: everything that `rudel.fit` raises, and `RecipeError` and `OptionError` for the recipe.
    """
    began = time.perf_counter()
    if precision not in PRECISIONS:
        raise OptionError(f"`precision` can be {', '.join(PRECISIONS)}, not {precision!r}.")
    if learning_rate is not None and not 0 < learning_rate < float("inf"):
        raise OptionError(f"`learning_rate` must be a number above 0, not {learning_rate!r}.")
    if resume and run is None:
        raise OptionError("Which run is to be resumed? Name its directory with --run.")
    check_whole_number("seed", seed, least=0)
    if seed >= 2**32:
        raise OptionError(f"`seed` must be below 2**32, not {seed}.")
    check_place(on, cluster, client, strategy)
    if run is not None:
        check_free(Path(run), resume)
    keras = keras_on_jax()
    found = find_recipe(recipe)
    values = dict(options or {})
    if learning_rate is not None and "learning_rate" in found.options:
        values["learning_rate"] = learning_rate
    settings = found.settings(values)
    if data is not None and not found.takes_source:
        raise OptionError(f"The recipe `{found.name}` takes no data from elsewhere: leave out --data.")

    plan = _plan(found.training(settings), epochs, steps, batch_size)
    previous_policy = keras.config.dtype_policy()
    set_seed(seed)
    keras.config.set_dtype_policy(precision)
    try:
        dataset = found.data(settings, source=data, progress=progress)
        schedule = plan_schedule(len(dataset.train), plan["batch_size"], plan["epochs"], plan["steps"], seed)
        model = found.model(settings, dataset=dataset, steps=schedule.total_steps)
    finally:
        keras.config.set_dtype_policy(previous_policy)
    if learning_rate is not None and "learning_rate" not in found.options:
        _set_learning_rate(keras, model, learning_rate, found)

    about = {
        "recipe": recipe if recipe == found.name else str(found.path.resolve()),
        "options": _as_json(settings),
        "learning_rate": learning_rate,
        "source": data if data is None or "://" in data else str(Path(data).resolve()),
        "notes": list(dataset.notes),
    }
    with place(on, cluster, client, strategy, ssh_config, min_hosts, dashboard) as (where, spread):
        request = Request(
            model,
            dataset,
            **plan,
            callbacks=tuple(callbacks),
            run=None if run is None else Path(run),
            new_run=found.name if run is None else None,
            resume=resume,
            seed=seed,
            checkpoint_every=checkpoint_every,
            verbose=verbose,
            about=about,
            cluster=where,
            strategy=spread,
        )
        outcome = execute(keras, request, began)
    assert outcome.run
    return TrainedRun(outcome.run, model, outcome.history, outcome.summary, dataset.attribution, tuple(dataset.notes))


def _plan(defaults: dict[str, Any], epochs: int | None, steps: int | None, batch_size: int | None) -> dict[str, Any]:
    """What the user says goes before what the recipe says; epochs and steps exclude each other."""
    if epochs is not None or steps is not None:
        defaults = defaults | {"epochs": epochs, "steps": steps}
    return {
        "epochs": defaults.get("epochs"),
        "steps": defaults.get("steps"),
        "batch_size": defaults.get("batch_size", 32) if batch_size is None else batch_size,
        "validation_batch_size": defaults.get("validation_batch_size"),
    }


def _set_learning_rate(keras: Any, model: Any, learning_rate: float, recipe: Recipe) -> None:
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if isinstance(optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
        raise OptionError(
            f"The recipe `{recipe.name}` uses a learning-rate schedule, which --learning-rate cannot replace: "
            "give its `model` an argument `learning_rate`."
        )
    optimizer.learning_rate = learning_rate


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
