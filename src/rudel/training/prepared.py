"""A recipe's data and model, made as requested."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudel.backend import keras_here, set_seed
from rudel.data.dataset import Dataset
from rudel.errors import OptionError, option
from rudel.loop.model_state import check_not_forked
from rudel.loop.schedule import Schedule, check_seed, check_whole_number, plan_schedule
from rudel.recipes import current_name
from rudel.recipes.load import Recipe, find_recipe
from rudel.runs.start_weights import copy_weights

if TYPE_CHECKING:
    import keras


PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclass(frozen=True)
class RecipeRequest:
    """A recipe and how to train it; None leaves a choice to the recipe.

    Args:
        recipe: a built-in name or the path of a Python file.
        data: where its data is, or data itself such as a frame, for recipes that take one.
        options: values of its options, as Python values or as texts.
        epochs, steps: how long; they exclude each other.
        batch_size: examples a step.
        learning_rate: of the optimizer.
        precision: Keras' dtype policy for the model.
        seed: of weights, dropout and the order of examples.
        progress: called with (bytes done, bytes in all) while data is fetched.
        start_from: a run directory or a model file, whose weights the model begins with where they fit.

    Raises:
        OptionError: a value that makes no sense.
    """

    recipe: str = "digits"
    data: object = None
    options: Mapping[str, Any] | None = None
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    precision: str = "float32"
    seed: int = 0
    progress: Callable[[int, int], None] | None = None
    start_from: str | Path | None = None

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise OptionError(f"{option('precision')} can be {', '.join(PRECISIONS)}, not {self.precision!r}.")
        if self.learning_rate is not None and not 0 < self.learning_rate < float("inf"):
            raise OptionError(f"{option('learning_rate')} must be a number above 0, not {self.learning_rate!r}.")
        for name in ("epochs", "steps", "batch_size"):
            if (value := getattr(self, name)) is not None:
                check_whole_number(name, value)
        check_seed(self.seed)


@dataclass(frozen=True)
class Prepared:
    """The model, data and settings that a recipe made.

    Args:
        name: of the recipe.
        model: compiled.
        dataset: to train on.
        schedule: which examples every step sees.
        plan: `epochs`, `steps`, `batch_size` and `validation_batch_size`, as a run takes them.
        about: what config.json says of it.
    """

    name: str
    model: "keras.Model"
    dataset: Dataset
    schedule: Schedule
    plan: dict[str, Any]
    about: dict[str, Any]


def prepare(request: RecipeRequest, dataset: Dataset | None = None) -> Prepared:
    """Makes a recipe's data and model.

    Args:
        request: see `RecipeRequest`.
        dataset: what the recipe's `data` has made already with these options; None to make it.

    Raises:
        RecipeError, OptionError: the recipe, or an option of it, cannot be used.
        ModelError: this process was forked after JAX had started.
        RudelError: what the recipe raises.
    """
    keras = keras_here()
    check_not_forked()
    found, rate = find_recipe(request.recipe), request.learning_rate
    values = dict(request.options or {})
    if rate is not None and "learning_rate" in found.options:
        values["learning_rate"] = rate
    settings = found.settings(values)
    if request.data is not None and not found.takes_source:
        raise OptionError(f"The recipe `{found.name}` takes no data from elsewhere: leave out {option('data')}.")
    training = found.training(settings)
    plan = _plan(training, request.epochs, request.steps, request.batch_size)
    previous_policy = keras.config.dtype_policy()
    set_seed(request.seed)
    keras.config.set_dtype_policy(request.precision)
    try:
        made: Dataset = (
            found.data(settings, source=request.data, progress=request.progress) if dataset is None else dataset
        )
        if request.epochs is None and request.steps is None:
            plan["epochs"] = _enough_epochs(plan, training.get("least_steps"), len(made.train))
        schedule = plan_schedule(len(made.train), plan["batch_size"], plan["epochs"], plan["steps"], request.seed)
        model = found.model(settings, dataset=made, steps=schedule.total_steps)
    finally:
        keras.config.set_dtype_policy(previous_policy)
    if rate is not None and "learning_rate" not in found.options:
        _set_learning_rate(model, rate, found)
    if request.start_from is not None:
        made = replace(made, notes=(*made.notes, copy_weights(model, Path(request.start_from))))
    about = {
        "recipe": found.name if current_name(request.recipe) == found.name else str(found.path.resolve()),
        "options": {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()},
        "reads_images": found.read_image is not None,
        "learning_rate": rate,
        "source": _place(request.data),
        "notes": list(made.notes),
    }
    return Prepared(found.name, model, made, schedule, plan, about)


def _place(data: object) -> str | None:
    """The place of the data, for a run that continues; None where it was given as an object."""
    if not isinstance(data, str | Path):
        return None
    return str(data) if "://" in str(data) else str(Path(data).resolve())


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


def _enough_epochs(plan: dict[str, Any], least_steps: int | None, examples: int) -> int | None:
    """A recipe's epochs, or more where they would be too few steps, as there are few examples."""
    if plan["epochs"] is None or least_steps is None:
        return plan["epochs"]
    each = plan_schedule(examples, plan["batch_size"], epochs=1, steps=None, seed=0).total_steps
    return max(plan["epochs"], math.ceil(least_steps / each))


def _set_learning_rate(model: "keras.Model", learning_rate: float, recipe: Recipe) -> None:
    from rudel.internals.keras import inner_optimizer, schedule_of

    if schedule_of(model.optimizer) is not None:
        raise OptionError(
            f"The recipe `{recipe.name}` uses a learning-rate schedule, which {option('learning_rate')} cannot "
            "replace: give its `model` an argument `learning_rate`."
        )
    inner_optimizer(model.optimizer).learning_rate = learning_rate
