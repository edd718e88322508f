"""`rudel cache`: lists and removes cached files."""

from typing import Annotated

import typer

from rudel.cli.output import print_json, print_table
from rudel.cli.shared_options import JsonOption

app = typer.Typer(no_args_is_help=True, help="List and prune Rudel's cache.")


@app.callback()
def _group() -> None:
    """List and prune Rudel's cache."""


@app.command("list")
def list_cache(json: JsonOption = False) -> None:
    """List what is in the cache, the largest first."""
    from rudel.cache import cache_folder
    from rudel.data.cache_contents import kept
    from rudel.report.formatting import size

    folder = cache_folder()
    found = kept(folder)
    if json:
        rows = [{"name": one.name, "what": one.what, "bytes": one.bytes, "useless": one.useless} for one in found]
        print_json({"path": str(folder), "bytes": sum(one.bytes for one in found), "kept": rows})
        return
    if found:
        rows = [[one.name, size(one.bytes), one.what + (f" ({one.useless})" if one.useless else "")] for one in found]
        print_table(["name", "size", "what"], rows, right=(1,))
    typer.echo(f"{size(sum(one.bytes for one in found))} in {folder}")


@app.command()
def prune(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Entries of `rudel cache list`.  \\[default: what is no longer used]"),
    ] = None,
) -> None:
    """Remove what is no longer of use, or what you name. All of it can be fetched or regenerated."""
    from rudel.cache import cache_folder
    from rudel.data.cache_contents import kept, remove
    from rudel.errors import OptionError
    from rudel.report.formatting import size

    folder = cache_folder()
    found = kept(folder)
    for name in names or ():
        if not any(one.name == name.rstrip("/") for one in found):
            raise OptionError(f"There is no `{name}` in the cache {folder}: `rudel cache list` names what there is.")
    wanted = {name.rstrip("/") for name in names or ()}
    chosen = [one for one in found if (one.name in wanted if wanted else one.useless)]
    for one in chosen:
        remove(folder, one)
        typer.echo(f"removed {one.name}: {one.what}, {size(one.bytes)}")
    left = sum(one.bytes for one in found) - sum(one.bytes for one in chosen)
    typer.echo(f"{'' if chosen else 'nothing to remove; '}{size(left)} left in {folder}")
