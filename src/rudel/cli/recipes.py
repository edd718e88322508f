"""`rudel recipes` and `rudel new`."""

from typing import Annotated

import typer

from rudel.cli.output import print_json, print_table


def list_recipes(json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False) -> None:
    """List the built-in recipes and their options."""
    from rudel.recipes import BUILT_IN
    from rudel.recipes.load import find_recipe

    found = [find_recipe(name) for name in BUILT_IN]
    if json:
        print_json(
            [
                {
                    "name": recipe.name,
                    "summary": recipe.summary,
                    "training": recipe.training(recipe.settings({})),
                    "options": [
                        {"name": o.name, "default": o.default, "help": o.help} for o in recipe.options.values()
                    ],
                }
                for recipe in found
            ]
        )
        return
    for recipe in found:
        typer.secho(recipe.name, bold=True, nl=False)
        typer.echo(f"  {recipe.summary}")
        rows = [[f"  {o.name}", _short(o.default), o.help] for o in recipe.options.values()]
        print_table(["  --set", "default", ""], rows)
        typer.echo()


def new(name: Annotated[str, typer.Argument(help="Name of the recipe; the file is NAME.py.")]) -> None:
    """Write a starting point for a recipe of your own."""
    from rudel.recipes.template import write_template

    path = write_template(name)
    typer.echo(f"Wrote {path}: edit it, then `rudel train {path}`.")


def _short(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= 32 else f"{text[:29]}..."
