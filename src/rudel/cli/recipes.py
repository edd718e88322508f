"""`rudel recipes` and `rudel new`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rudel.cli import complete
from rudel.cli.output import print_json, print_table

if TYPE_CHECKING:
    from rudel.recipes.load import Recipe


def list_recipes(
    name: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", help="Show only this one.", autocompletion=complete.recipes),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the built-in recipes, or the options of one."""
    from rudel.recipes import BUILT_IN

    found = [_read(each) for each in ([name] if name else BUILT_IN)]
    if json:
        print_json([_as_document(recipe) for recipe in found])
        return
    for recipe in found:
        _print(recipe)


def print_recipe(name: str) -> None:
    """Prints what a recipe is and which options it has."""
    _print(_read(name))


def new(name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the recipe; the file is NAME.py.")]) -> None:
    """Write the starting point of your own recipe."""
    from rudel.recipes.template import write_template

    path = write_template(name)
    typer.echo(f"Wrote {path}: edit it, then `rudel train {path}`.")


def _read(name: str) -> "Recipe":
    from rudel.backend import keras_here
    from rudel.recipes import BUILT_IN, current_name
    from rudel.recipes.load import find_recipe

    if current_name(name) not in BUILT_IN:
        keras_here(light=True)  # which the file imports
    return find_recipe(name)


def _print(recipe: "Recipe") -> None:
    typer.secho(recipe.name, bold=True, nl=False)
    typer.echo(f"  {recipe.summary}")
    rows = [[f"  {o.name}", _short(o.default), o.help] for o in recipe.options.values()]
    print_table(["  --set", "default", ""], rows)
    typer.echo()


def _as_document(recipe: "Recipe") -> dict[str, Any]:
    return {
        "name": recipe.name,
        "summary": recipe.summary,
        "training": recipe.training(recipe.settings({})),
        "options": [{"name": o.name, "default": o.default, "help": o.help} for o in recipe.options.values()],
    }


def _short(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 32 else f"{text[:29]}..."
