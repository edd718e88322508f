"""`rudel watch`."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from rudel.cli.output import interrupts_told


def watch(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="The directory of a run, or several; they may be yet to come."),
    ],
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 lets the whole network look.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 for any that is free.")] = 8488,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Name that a proxy passes on as `Host`; by default this computer's only."),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Show a training while it goes on, as a page in the browser."""
    from rudel.watch.server import watch as serve

    def ready(address: str) -> None:
        for run in runs:
            if not (run / "config.json").exists():
                typer.echo(f"There is no run at {run} yet: the page waits for it.", err=True)
        typer.echo(f"Watching at {address}  (Ctrl-C ends it)")
        if browser:
            webbrowser.open(address)

    with interrupts_told():
        serve(runs, host, port, ready, allow_host or ())
