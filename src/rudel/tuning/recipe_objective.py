"""A recipe as an objective: one whole training with the settings of a trial, in the process of that trial.

The driver makes the data once and sends it along, unless a setting of the data varies or it is a stream: then each host
makes its own. A recipe of the user's travels as its file, with the files beside it that it imports.
"""

import inspect
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rudel.backend import keras_here
from rudel.data.dataset import Dataset, Examples
from rudel.errors import OptionError, option
from rudel.recipes.load import Recipe, find_recipe
from rudel.session.training_options import TrainingOptions
from rudel.shipping.user_code import own_modules
from rudel.training.prepared import Prepared, RecipeRequest, prepare
from rudel.training.whole_run import Request, execute
from rudel.tuning.trial import Trial

OF_TRAINING = ("epochs", "steps", "batch_size", "learning_rate", "precision", "seed")
"""Settings that are arguments of the training, not options of the recipe."""

_WHOLE = {"epochs", "steps", "batch_size", "seed"}


@dataclass(frozen=True)
class RecipeObjective:
    """See the module.

    Args:
        recipe_request: what is the same in all trials.
        monitor: the metric by which trials are compared; it has to be there at the end of each epoch.
        checkpoint_every: steps between checkpoints; None for one about every 15 seconds.
        files: content of the recipe's file, first, and of those beside it, by path; empty for one that is built in.
        dataset: to learn from; None where each trial makes its own.
    """

    recipe_request: RecipeRequest
    monitor: str
    checkpoint_every: int | None = None
    files: tuple[tuple[str, bytes], ...] = ()
    dataset: Dataset | None = None

    def __call__(self, trial: Trial) -> float:
        """Trains, and returns the best value of the metric."""
        recipe_request = with_settings(self.recipe_request, trial.settings)
        if self.files:
            recipe_request = replace(recipe_request, recipe=str(self._unpacked()))
        began = time.perf_counter()
        made = prepare(recipe_request, self.dataset)
        options = TrainingOptions(
            seed=recipe_request.seed, checkpoint_every=self.checkpoint_every, monitor=self.monitor, **made.plan
        )
        request = Request(
            made.model, made.dataset, made.schedule, options, callbacks=(trial.callback(self.monitor),),
            run=trial.folder, resume=True, verbose=False,
            about=made.about | {"recipe": self.recipe_request.recipe, "trial": trial.number},
        )  # fmt: skip
        outcome = execute(keras_here(), request, began)
        return float(outcome.summary["best"]["value"])

    def _unpacked(self) -> Path:
        """The recipe's file, as it is beside its neighbours, in a folder of this process."""
        if id(self) not in _FOLDERS:
            _FOLDERS[id(self)] = Path(tempfile.mkdtemp(prefix="rudel-recipe-"))
        folder = _FOLDERS[id(self)]
        for name, content in self.files:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder / self.files[0][0]


_FOLDERS: dict[int, Path] = {}


def full_name(setting: str) -> str:
    """The name of a setting, of which `lr` is the short one of `learning_rate`."""
    return "learning_rate" if setting == "lr" else setting


def with_settings(recipe_request: RecipeRequest, settings: Mapping[str, Any]) -> RecipeRequest:
    """The request of a trial with these settings; `lr` is short for the learning rate.

    Raises:
        OptionError: a value that makes no sense.
    """
    changed: dict[str, Any] = {}
    options = dict(recipe_request.options or {})
    for name, value in settings.items():
        name = full_name(name)
        if name in OF_TRAINING:
            changed[name] = _read(name, value)
        else:
            options[name] = tuple(value) if isinstance(value, list) else value  # as messages have them
    return replace(recipe_request, options=options, **changed)


def typed(recipe: Recipe, name: str, value: Any) -> Any:
    """A text as a value of the type of a recipe's setting; others as they are.

    Raises:
        OptionError: it cannot be read so.
    """
    name = full_name(name)
    if name in OF_TRAINING:
        return _read(name, value)
    return recipe.options[name].read(value) if name in recipe.options and isinstance(value, str) else value


def recipe_objective(
    recipe_request: RecipeRequest,
    varied: Mapping[str, Sequence[Any]],
    monitor: str | None,
    checkpoint_every: int | None,
) -> tuple[RecipeObjective, str]:
    """The objective of a recipe, and the metric by which trials are compared.

    Args:
        recipe_request: what is the same in all trials.
        varied: values of each setting that varies: whether the recipe reads each is seen here, and all is made of the
            first of each.
        monitor: the metric; None for the validation accuracy where there is one, else the validation loss.
        checkpoint_every: see `RecipeObjective`.

    Raises:
        RecipeError, OptionError: the recipe, a setting or the metric cannot be used.
    """
    recipe = find_recipe(recipe_request.recipe)
    for name, values in varied.items():
        for value in values:
            recipe.settings(with_settings(recipe_request, {name: value}).options or {})
    made = prepare(with_settings(recipe_request, {name: values[0] for name, values in varied.items()}))
    monitor = _monitor_of(made, monitor)
    of_data = inspect.signature(recipe.module.data).parameters
    parts = (made.dataset.train, made.dataset.validation, made.dataset.test)
    in_memory = all(part is None or isinstance(part, Examples) for part in parts)
    shared = in_memory and not any(name in of_data for name in varied)
    built_in = recipe_request.recipe == recipe.name
    named = recipe_request if built_in else replace(recipe_request, recipe=str(recipe.path.resolve()))
    files = () if built_in else _files_of(recipe.path.resolve())
    return RecipeObjective(
        replace(named, progress=None), monitor, checkpoint_every, files, made.dataset if shared else None
    ), monitor


def _monitor_of(made: Prepared, wanted: str | None) -> str:
    """The metric that is wanted; else the validation accuracy if the model has one, else the validation loss.

    Raises:
        OptionError: there is no such metric, or nothing is held out to validate with.
    """
    if wanted is None and made.dataset.validation is None:
        raise OptionError(
            f"The recipe `{made.name}` holds nothing out by which trials could be compared: name a metric of the "
            f"training with {option('monitor')}, such as loss."
        )
    from rudel.loop import model_state
    from rudel.loop.metric_values import as_floats, by_class_name
    from rudel.session.best_weights import make_watch

    first = made.dataset.train.take(slice(0, made.schedule.batch_size))
    model_state.build(made.model, (first.x, first.y, first.sample_weight))
    names = list(by_class_name(as_floats(made.model.get_metrics_result()), made.dataset.class_names))
    monitor = wanted or next((f"val_{name}" for name in names if "acc" in name), "val_loss")
    if made.dataset.validation is not None:
        names += [f"val_{name}" for name in names]
    make_watch(TrainingOptions(monitor=monitor), made.model.metrics, names)
    return monitor


def _files_of(path: Path) -> tuple[tuple[str, bytes], ...]:
    """The recipe's file, and those below its folder that importing it has imported."""
    found = [path]
    for module in own_modules():
        place = Path(str(module.__file__)).resolve()
        if place.is_relative_to(path.parent) and place != path and place.suffix == ".py":
            found.append(place)
    return tuple((str(each.relative_to(path.parent)), each.read_bytes()) for each in found)


def _read(name: str, value: object) -> Any:
    if not isinstance(value, str) or name == "precision":
        return value
    try:
        return int(value) if name in _WHOLE else float(value)
    except ValueError as error:
        raise OptionError(f"`{name}` must be a number, not {value!r}.") from error
