"""Runs read back: their models, recipes and data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rudel.backend import keras_here, set_seed
from rudel.data.dataset import Dataset, ToEvaluate
from rudel.errors import DataError, OptionError, RecipeError, RunError, option
from rudel.files import expanded
from rudel.recipes.load import Recipe, find_recipe
from rudel.runs import run_directory
from rudel.runs.model_file import load_model
from rudel.runs.own_classes import imported
from rudel.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    import keras


def load(run: str | Path, best: bool = False, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Reads the trained model of a finished run.

    Args:
        run: the run directory.
        best: whether to read the weights that were the best by the metric that `monitor` named, in the place of the
            last.
        custom_objects: layers, losses and other classes and functions of your own that cannot be imported, by name;
            those that can be are found without.

    Returns:
        The Keras model, compiled as it was.

    Raises:
        RunError: there is no such run, it is unfinished, or the model cannot be read.
    """
    keras_here()
    directory = run_directory.open_finished(expanded(run))
    if best and not directory.best.is_file():
        raise RunError(
            f"The run {directory.path} kept no best weights: train with {option('monitor')}, such as val_loss, to have "
            "them."
        )
    recipe = recipe_of(directory)  # registers the classes that a recipe of the user's defines
    if recipe:
        recipe.register_classes()
    given = dict(custom_objects or {})
    places = directory.read_config().get("own_classes", {})
    with imported({key: place for key, place in places.items() if place["name"] not in given}) as found:
        return load_model(directory.best if best else directory.model, found | given)


def recipe_of(run: RunDirectory) -> Recipe | None:
    """The recipe that a run was made of; None if it was made by `rudel.fit`, or the recipe is gone or unusable."""
    try:
        return find_recipe(str(run.read_config().get("recipe", "")))
    except RecipeError:
        return None


@dataclass(frozen=True)
class MissingReadImage:
    """The `read_image` of a recipe that cannot be loaded: it refuses every image.

    Args:
        reason: a sentence.
    """

    reason: str

    def __call__(self, image: object) -> NoReturn:
        """Refuses an image.

        Raises:
            DataError: always.
        """
        raise DataError(self.reason)


def read_image_of(run: RunDirectory) -> Callable[[Any], Any] | None:
    """The `read_image` of a run's recipe; None where it has none, and images are read as photographs.

    Where the recipe has one and cannot be loaded, this is a `MissingReadImage`: another way to read an image would give
    the model other pixels than in training.
    """
    config = run.read_config()
    name = str(config.get("recipe", ""))
    try:
        return find_recipe(name).read_image
    except RecipeError as error:
        if not config.get("reads_images", Path(name).is_absolute()):
            return None
        reason = str(error)
        if "file" in config:  # without its recipe: files of strangers name none
            reason = f"give the run directory `{Path(config['file']).parent}`, not the file in it."
        elif not Path(name).is_file():
            reason = f"there is no file {name}; put it there, or give arrays."
        return MissingReadImage(f"Images for the {run.title} need the `read_image` of its recipe: {reason}")


def dataset_of(run: RunDirectory, source: str | None = None, model: "keras.Model | None" = None) -> Dataset:
    """The data of a run, made again by its recipe.

    Args:
        run: the run.
        source: an address or a folder to take the data from, in the place of the one used in training.
        model: of the run, for recipes that make data for a model.

    Raises:
        RunError: the run has no recipe that can be read.
        RecipeError: the recipe cannot make its data.
        DataError: labels mean other classes there than in the run.
    """
    recipe, settings = _recipe_and_settings(run, source)
    config = run.read_config()
    trained = None if model is None else (model, config.get("class_names") or [])
    dataset = recipe.data(settings, source=source or config.get("source"), trained=trained)
    _check_classes(run, recipe, dataset)
    return dataset


def to_evaluate(
    run: RunDirectory,
    source: str,
    split: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    model: "keras.Model | None" = None,
) -> ToEvaluate:
    """All that a run can be evaluated on at a source; or what its recipe validates on there, if it says no more.

    Args:
        run: the run.
        source: an address or a folder.
        split: which of several parts to take; None for all.
        progress: called with (done, in all) while the data is fetched or converted.
        model: of the run, for recipes whose data depends on it.

    Raises:
        RunError: the run has no recipe that can be read.
        OptionError: the recipe does not know of splits.
        RecipeError: the recipe cannot make its data.
        DataError: labels mean other classes there than in the run.
    """
    recipe, settings = _recipe_and_settings(run, source)
    if recipe.has_evaluation:
        config = run.read_config()
        about = {"class_names": config.get("class_names") or [], "channels": config.get("channels") or []}
        return recipe.evaluation(settings, source=source, split=split, progress=progress, model=model, **about)
    if split is not None:
        raise OptionError(
            f"The data of the recipe `{recipe.name}` has no splits to choose from: leave out {option('split')}."
        )
    dataset = recipe.data(settings, source=source, progress=progress)
    _check_classes(run, recipe, dataset)
    if dataset.validation is None:
        raise RunError(
            f"The recipe `{recipe.name}` holds nothing out of {source}: give a FILE.npz with {option('data')}."
        )
    return ToEvaluate(dataset.validation, {}, dataset.notes)


def _check_classes(run: RunDirectory, recipe: Recipe, dataset: Dataset) -> None:
    """Refuses data whose labels mean other classes than those that the model learned; fewer, in their order, are fine.

    A class whose name is its label has none, as in records without `labels.txt`.

    Raises:
        DataError: names the first label that does.
    """
    learned = run.read_config().get("class_names") or []
    for label, (name, before) in enumerate(zip_longest(dataset.class_names, learned)):
        differ = before is None or len({str(label), str(name), str(before)}) == 3
        if learned and name is not None and differ:
            meant = "nothing" if before is None else f"`{before}`"
            raise DataError(
                f"Label {label} means `{name}` in the data of the recipe `{recipe.name}`, and {meant} in the "
                f"{run.title}: give data of the same classes, or a file with their `names` by "
                f"{option('data', 'FILE.npz')}."
            )


def _recipe_and_settings(run: RunDirectory, source: str | None) -> tuple[Recipe, dict[str, Any]]:
    config = run.read_config()
    recipe = recipe_of(run)
    if "source" not in config:
        of_what = f"data of {source}" if source else "its data"
        raise RunError(
            f"The {run.title} has no recipe that makes {of_what}: give data with {option('data', 'FILE.npz')}."
        )
    if recipe is None:
        raise RunError(
            f"The recipe `{config.get('recipe')}` of the run {run.path} cannot be read: give data with "
            f"{option('data', 'FILE.npz')}."
        )
    if source is not None and not recipe.takes_source:
        raise OptionError(
            f"The recipe `{recipe.name}` takes no data from elsewhere: give a FILE.npz with {option('data')}."
        )
    known = {name: value for name, value in config.get("options", {}).items() if name in recipe.options}
    set_seed(config.get("seed", 0))
    return recipe, recipe.settings({k: tuple(v) if isinstance(v, list) else v for k, v in known.items()})
