"""`rudel data`: data sets, fetched, converted and looked at."""

from typing import Annotated

import typer

from rudel.cli.data_collect import collect, sketch
from rudel.cli.data_images import images
from rudel.cli.data_inspect import inspect
from rudel.cli.data_windows import motion, sound
from rudel.cli.output import download_display

app = typer.Typer(no_args_is_help=True, help="Fetch, convert and inspect data sets.")


app.command()(images)
app.command()(sound)
app.command()(motion)
app.command()(sketch)
app.command()(collect)
app.command()(inspect)


@app.callback()
def _group() -> None:
    """Fetch, convert and inspect data sets."""


@app.command()
def quickdraw(
    classes: Annotated[str, typer.Argument(metavar="CLASS,...", help="Names of classes, separated by commas.")],
    drawings: Annotated[int, typer.Option("--drawings", "-n", help="Number of drawings per class.")] = 4000,
    data: Annotated[
        str | None, typer.Option(metavar="URL", help="A mirror.  \\[default: Google's public bucket]")
    ] = None,
) -> None:
    """Fetch Quick, Draw! drawings into the cache, so that training needs no network."""
    from rudel.data import quickdraw as source

    names = [name.strip() for name in classes.split(",") if name.strip()]
    with download_display() as progress:
        loaded = source.load(names, drawings, data, progress)
    for name, count in zip(names, loaded.counts, strict=True):
        typer.echo(f"{name}: {count:,} drawings")
    typer.echo(source.ATTRIBUTION, err=True)
