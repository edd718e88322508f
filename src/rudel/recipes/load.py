"""Finds a recipe by name or file, and says which options it has."""

import difflib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudel.data.table import is_table
from rudel.errors import OptionError, RecipeError, RudelError, option, recipe_option
from rudel.files import expanded
from rudel.recipes import BUILT_IN, current_name
from rudel.recipes.folder_recipe import instead_of
from rudel.recipes.recipe_options import Option, options_of

GIVEN = {"data": ("source", "progress", "trained"), "model": ("dataset", "steps")}
"""Arguments that Rudel gives to a recipe's functions, where they take them: the address or folder of `--data`, a
callback `progress(done, total)` for what takes long, and the model and the class names of a run whose data is made
again, or None; the dataset, and the number of steps of the whole training."""

_FOLDERS: set[Path] = set()
"""Folders of recipes that have been put on the path of imports here."""

_TRAINING = {"epochs", "least_steps", "steps", "batch_size", "validation_batch_size"}


@dataclass(frozen=True)
class Recipe:
    """A recipe that has been read.

    Args:
        name: a built-in name, or the stem of the file.
        path: the file it was read from.
        module: its module.
        options: by name, what `--set` may set.
    """

    name: str
    path: Path
    module: types.ModuleType
    options: Mapping[str, Option]

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (self.module.__doc__ or "").strip().split("\n")[0]

    @property
    def takes_source(self) -> bool:
        """Whether `--data` means something to it."""
        return "source" in inspect.signature(self.module.data).parameters

    @property
    def read_image(self) -> Callable[..., Any] | None:
        """How an image becomes an input, if the recipe says so."""
        return getattr(self.module, "read_image", None)

    def register_classes(self) -> None:
        """Makes Keras know the classes of its models, where importing the file does not."""
        register = getattr(self.module, "register_classes", None)
        if callable(register):
            register()

    def settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All options with these values in the place of their defaults; texts are read by the type of the option.

        Raises:
            OptionError: there is no such option, or it cannot take the value.
        """
        for name in values:
            if name not in self.options:
                raise OptionError(f"The recipe `{self.name}` has no option `{name}`{_nearest(name, self.options)}")
        return {
            name: option.read(values[name]) if name in values else option.default
            for name, option in self.options.items()
        }

    def training(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults for the arguments of `rudel.fit`: the recipe's `training`, a dict, or a function of its options.

        Raises:
            RecipeError: it is neither, or has something else in it.
        """
        training = getattr(self.module, "training", {})
        if callable(training):
            training = self._call("training", settings, {})
        if not isinstance(training, dict) or set(training) - _TRAINING:
            raise RecipeError(
                f"`training` in the recipe {self.path} must be a dict with some of {', '.join(sorted(_TRAINING))}."
            )
        return training

    def data(self, settings: Mapping[str, Any], **given: Any) -> Any:
        """Calls the recipe's `data` with its options and what Rudel gives."""
        from rudel.data.dataset import Dataset

        dataset = self._call("data", settings, given)
        if not isinstance(dataset, Dataset):
            raise RecipeError(f"`data` in {self.path} returns {_kind(dataset)}: let it return a rudel.Dataset.")
        for name, part in (("train", dataset.train), ("validation", dataset.validation), ("test", dataset.test)):
            if not hasattr(part, "subset") and (part is not None or name == "train"):
                raise RecipeError(
                    f"`data` in {self.path} returns a Dataset whose `{name}` is {_kind(part)}: let it be a "
                    "rudel.Examples(x, y), or a stream."
                )
        return dataset

    @property
    def has_evaluation(self) -> bool:
        """Whether it says what all the examples at a source are."""
        return callable(getattr(self.module, "evaluation", None))

    def evaluation(self, settings: Mapping[str, Any], **given: Any) -> Any:
        """Calls the recipe's `evaluation` with its options and what Rudel gives."""
        from rudel.data.dataset import ToEvaluate

        found = self._call("evaluation", settings, given)
        if not isinstance(found, ToEvaluate):
            raise RecipeError(
                f"`evaluation` in {self.path} returns {_kind(found)}: let it return a rudel.data.dataset.ToEvaluate."
            )
        return found

    def model(self, settings: Mapping[str, Any], **given: Any) -> Any:
        """Calls the recipe's `model` with its options and what Rudel gives."""
        import keras

        model = self._call("model", settings, given)
        if not isinstance(model, keras.Model):
            raise RecipeError(f"`model` in {self.path} returns {_kind(model)}: let it return a keras.Model.")
        if not model.compiled:
            raise RecipeError(
                f"`model` in {self.path} returns a model that is not compiled: "
                "let it call model.compile(optimizer=..., loss=...)."
            )
        return model

    def _call(self, name: str, settings: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
        function = getattr(self.module, name)
        parameters = inspect.signature(function).parameters
        arguments = {key: value for key, value in (*settings.items(), *given.items()) if key in parameters}
        try:
            return function(**arguments)
        except RudelError:
            raise
        except Exception as error:
            raise RecipeError(
                f"`{name}` of the recipe {self.path} failed{_where(error, self.path)}: {_described(error)}"
            ) from error


def find_recipe(name: str) -> Recipe:
    """Reads a recipe.

    Args:
        name: a built-in name, also a former one, or the path of a Python file.

    Raises:
        RecipeError: there is none, or the file cannot be used.
    """
    name = current_name(name)
    if name in BUILT_IN:
        module = importlib.import_module(f"rudel.recipes.{name}")
        return _checked(name, Path(str(module.__file__)), module)
    path = expanded(name)
    if path.is_dir():
        raise RecipeError(instead_of(name))
    if path.suffix != ".py":
        if is_table(path) and path.is_file():
            raise RecipeError(
                f"`{name}` is a table, not a recipe: the recipe `table` learns from it, with {option('data', name)} "
                f"and {recipe_option('target', 'COLUMN')}."
            )
        if path.with_suffix(".py").is_file():
            raise RecipeError(
                f"There is no recipe `{name}`, but a file: give its path, {Path(name).with_suffix('.py')}."
            )
        raise RecipeError(f"There is no recipe `{name}`{_nearest(name, BUILT_IN)} `rudel recipes` lists all.")
    if not path.is_file():
        raise RecipeError(f"There is no recipe file {path}: `rudel new {path.stem}` writes a starting point.")
    return _checked(path.stem, path, _import_file(path.resolve()))


def _import_file(path: Path) -> types.ModuleType:
    """Imports a file as a module that can import its neighbours."""
    name = f"rudel_recipe_{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    _neighbours_of(path.parent)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        del sys.modules[name]
        raise RecipeError(
            f"The recipe {error.filename} has a syntax error in line {error.lineno}: {error.msg}."
        ) from error
    except Exception as error:
        del sys.modules[name]
        raise RecipeError(f"The recipe {path} cannot be imported{_where(error, path)}: {_described(error)}") from error
    return module


def _neighbours_of(folder: Path) -> None:
    """Makes `import name` in a recipe mean the module beside *it*, not one beside a recipe read earlier."""
    for module in [m for m in sys.modules if "." not in m]:
        beside = getattr(sys.modules[module], "__file__", None)
        stranger = beside is not None and _place_of(Path(beside)) in _FOLDERS - {folder}
        if stranger and ((folder / f"{module}.py").is_file() or (folder / module / "__init__.py").is_file()):
            for name in [m for m in sys.modules if m == module or m.startswith(f"{module}.")]:
                del sys.modules[name]
    if str(folder) not in sys.path:
        _FOLDERS.add(folder)
    if folder in _FOLDERS:
        sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != str(folder))]


def _place_of(file: Path) -> Path:
    """The folder from which a module or a package was imported."""
    return file.parent.parent if file.name == "__init__.py" else file.parent


def _checked(name: str, path: Path, module: types.ModuleType) -> Recipe:
    for function in ("data", "model"):
        if not callable(getattr(module, function, None)):
            returns = "rudel.Dataset" if function == "data" else "keras.Model"
            arguments = "..." if function == "data" else "dataset, ..."
            raise RecipeError(
                f"The recipe {path} has no function `{function}`: add `{function}({arguments}) -> {returns}`."
            )
    return Recipe(name, path, module, options_of(module, GIVEN))


def _nearest(name: str, known: typing.Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f": did you mean {' or '.join(f'`{n}`' for n in near)}?"
    return f": there are {', '.join(f'`{n}`' for n in known)}." if known else "; it has none."


def _where(error: BaseException, path: Path) -> str:
    """The line of the recipe in which an exception came up."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path.resolve()
    ]
    return f" in line {lines[-1]}" if lines else ""


def _described(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _kind(value: object) -> str:
    return "nothing" if value is None else f"something of type {type(value).__name__}"
