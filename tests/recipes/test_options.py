"""Options of recipes: found in the arguments of their functions, read from texts."""

import types
from typing import Any, Literal

import pytest

from rudel.errors import OptionError, RecipeError
from rudel.recipes.recipe_options import options_of


def recipe(data: Any, model: Any) -> types.ModuleType:
    module = types.ModuleType("recipe")
    module.data, module.model, module.__file__ = data, model, "recipe.py"  # type: ignore[attr-defined]
    return module


def data(
    source: str = "", size: int = 3, rate: float = 1, names: tuple[str, ...] = ("a",), limit: int | None = None
) -> Any:
    """Makes data.

    Args:
        source: given by Rudel.
        size: how many,
            over two lines.
        rate: a share.
    """


def model(
    dataset: Any, net: Literal["mlp", "cnn"] = "mlp", bias: bool = True, title: str = "x", **more: Any
) -> Any: ...


GIVEN = {"data": ("source",), "model": ("dataset",)}


def test_arguments_become_options_without_those_that_are_given() -> None:
    options = options_of(recipe(data, model), GIVEN)
    assert list(options) == ["size", "rate", "names", "limit", "net", "bias", "title"]
    assert options["size"].help == "how many, over two lines."


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("size", "7", 7),
        ("rate", "2", 2.0),
        ("rate", "1e-3", 0.001),
        ("names", "b, alarm clock", ("b", "alarm clock")),
        ("names", 'id, "Price, net"', ("id", "Price, net")),
        ("names", "Price\n(net), id", ("Price\n(net)", "id")),
        ("names", '"Price,\nnet", id', ("Price,\nnet", "id")),
        ("names", "", ()),
        ("limit", "5", 5),
        ("limit", "none", None),
        ("net", "cnn", "cnn"),
        ("bias", "no", False),
        ("bias", "TRUE", True),
        ("title", "1", "1"),
    ],
)
def test_texts_are_read_by_the_type_of_the_option(name: str, text: str, value: Any) -> None:
    found = options_of(recipe(data, model), GIVEN)[name].read(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [("size", "1.5"), ("rate", "x"), ("net", "rnn"), ("bias", "perhaps"), ("names", '"a'), ("names", '"a"\nb')],
)
def test_texts_that_do_not_fit_are_refused(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"`{name}`"):
        options_of(recipe(data, model), GIVEN)[name].read(text)


def test_an_argument_without_a_default_is_no_option() -> None:
    def without(size: int) -> Any: ...

    with pytest.raises(RecipeError, match="`size` of `data`"):
        options_of(recipe(without, model), GIVEN)
