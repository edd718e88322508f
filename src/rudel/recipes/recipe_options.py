"""Options of recipes: the arguments of their functions, with a type to read texts by and a line of help."""

import csv
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rudel.errors import OptionError, RecipeError

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class Option:
    """An argument of a recipe's `data` or `model`.

    Args:
        name: the argument.
        default: its default.
        kind: bool, int, float, str, or tuple (of texts, separated by commas as in a CSV file).
        choices: the values it may have; empty for any.
        optional: whether it may be None (the text "none").
        help: from the docstring's Args.
    """

    name: str
    default: Any
    kind: type
    choices: tuple[Any, ...]
    optional: bool
    help: str

    def read(self, value: object) -> Any:
        """A value of the right type from a text, or the value itself if it is none.

        Raises:
            OptionError: the text cannot be read so, or is not among the choices.
        """
        if isinstance(value, str):
            value = self._parsed(value)
        if self.choices and value not in self.choices:
            raise OptionError(f"`{self.name}` can be {' or '.join(map(str, self.choices))}, not {value!r}.")
        return value

    def _parsed(self, text: str) -> Any:
        if self.optional and text.lower() == "none":
            return None
        if self.kind is tuple:
            return self._texts(text)
        if self.kind is bool:
            if text.lower() not in (*_TRUE, *_FALSE):
                raise OptionError(f"`{self.name}` is true or false, not {text!r}.")
            return text.lower() in _TRUE
        try:
            return self.kind(text)
        except ValueError as error:
            what = {int: "a whole number", float: "a number"}.get(self.kind, f"a {self.kind.__name__}")
            raise OptionError(f"`{self.name}` must be {what}, not {text!r}.") from error

    def _texts(self, text: str) -> tuple[str, ...]:
        try:  # without quotation marks, a line break is a character as others are
            (parts,) = csv.reader([text], skipinitialspace=True, strict=True) if '"' in text else [text.split(",")]
        except (ValueError, csv.Error) as error:
            raise OptionError(
                f"`{self.name}` takes texts separated by commas, and quotation marks around one with a comma or a line "
                f"break, not {text!r}."
            ) from error
        return tuple(part.strip() for part in parts if part.strip())


def options_of(module: types.ModuleType, given: Mapping[str, Sequence[str]]) -> dict[str, Option]:
    """The options of a recipe: the arguments of its functions, without those that Rudel gives.

    Args:
        module: the recipe.
        given: by function, the arguments that are no options.

    Raises:
        RecipeError: an argument has no default.
    """
    options: dict[str, Option] = {}
    for name, reserved in given.items():
        function = getattr(module, name)
        helps = _argument_helps(function)
        try:
            hints = typing.get_type_hints(function)
        except Exception:  # an annotation that cannot be resolved says nothing about the type
            hints = {}
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in reserved or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            if parameter.default is parameter.empty:
                raise RecipeError(
                    f"The argument `{parameter.name}` of `{name}` in {module.__file__} has no default: give it one."
                )
            option = _option(parameter, hints.get(parameter.name), helps.get(parameter.name, ""))
            options[parameter.name] = option
    return options


def _option(parameter: inspect.Parameter, hint: Any, help_text: str) -> Option:
    default = parameter.default
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    members = typing.get_args(hint) if is_union else (hint,)
    optional = default is None or type(None) in members
    named = next((member for member in members if member not in (None, type(None))), None)
    if typing.get_origin(named) is Literal:
        choices = typing.get_args(named)
        return Option(parameter.name, default, type(choices[0]), choices, optional, help_text)
    kind = type(default) if default is not None else named
    if kind in (list, tuple) or typing.get_origin(kind) in (list, tuple):
        kind = tuple
    if default is not None and named is float:
        kind = float
    return Option(parameter.name, default, kind if isinstance(kind, type) else str, (), optional, help_text)


def _argument_helps(function: Callable[..., Any]) -> dict[str, str]:
    """The lines under `Args:` in a Google-style docstring, by argument."""
    text = inspect.getdoc(function) or ""
    _, _, arguments = text.partition("Args:\n")
    arguments = re.split(r"\n\S", arguments)[0]
    entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8,}.+)*)", arguments, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
