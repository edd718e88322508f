"""`rudel watch`."""

import contextlib
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from rudel.cli import complete
from rudel.cli.interrupts import ending_at_once


def watch(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Run directories; they need not exist yet.", autocompletion=complete.runs),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all networks.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port to listen on; 0 for any free one.")
    ] = 8488,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also accept this `Host` header, as a proxy sends it; repeatable.  \\[default: this computer's names]",
        ),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Follow a training live in the browser."""

    def ready(address: str) -> None:
        for run in runs:
            if not (run / "config.json").exists():
                typer.echo(f"There is no run at {run} yet: the page waits for it.", err=True)
        typer.echo(f"Watching at {address}  (Ctrl-C ends it)")
        if browser:
            webbrowser.open(address)

    with ending_at_once(contextlib.ExitStack()):
        from rudel.watch.watch_server import watch as serve

        serve(runs, host, port, ready, allow_host or ())
