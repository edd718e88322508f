"""`rudel play`."""

import contextlib
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rudel.cli import complete
from rudel.cli.interrupts import ending_at_once, leave
from rudel.cli.output import reporting_interrupts
from rudel.cli.shared_options import ClassesOption, CodeOption

if TYPE_CHECKING:
    from rudel.play.module import PageModule
    from rudel.play.play_server import PlayServer


def play(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="A run directory, or a model file (.keras, .h5).  \\[default: the newest in runs with a page]",
            autocompletion=complete.runs,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all networks.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port to listen on; 0 for any free one.")
    ] = 8480,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    classes: ClassesOption = None,
    code: CodeOption = None,
) -> None:
    """Try a model in the browser: draw, speak or move a phone."""
    opened = contextlib.ExitStack()
    with contextlib.suppress(KeyboardInterrupt), opened:
        with ending_at_once(opened):
            server, made = _server(run, host, port, classes, code, opened)
        if made is not None:
            typer.echo("Compiling the model ...", err=True)
            with reporting_interrupts():
                made.wait()
        if browser:
            webbrowser.open(server.address)
        server.serve_forever(poll_interval=0.1)
    leave(0)


def _server(
    run: Path | None, host: str, port: int, classes: str | None, code: Path | None, opened: contextlib.ExitStack
) -> "tuple[PlayServer, PageModule | None]":
    """A server, and the module without which its page is of no use, if it is; `opened` closes both."""
    from rudel.backend import keras_on_jax

    keras_on_jax(light=True)
    from rudel.play.listener import Listener
    from rudel.play.module import PageModule, what_is_missing
    from rudel.play.opening import newest_run, open_run
    from rudel.play.play_server import PlayServer
    from rudel.runs.model_as_run import as_run

    given = opened.enter_context(as_run(run, classes, code)) if run else None
    player = open_run(given) if given else newest_run() or open_run(_trained())
    module = PageModule(player.run / "model.keras", lambda out: _export(player.run, out))
    opened.enter_context(contextlib.closing(module))
    server = opened.enter_context(PlayServer(player, host, port, module))
    typer.echo(f"Play with {player.run} at {server.address}  (Ctrl-C ends it)")
    if isinstance(player, Listener):
        for note in player.notes:
            typer.echo(note, err=True)
        return server, module
    if missing := what_is_missing():
        typer.echo(missing, err=True)
    player.guess(bytes(player.drawing.side**2))
    return server, None


def _trained() -> Path:
    """Trains `digits`, as there is no run to play with."""
    from rudel.training.from_recipe import train_recipe

    typer.echo("There is no run in ./runs to play with: training `digits` first.", err=True)
    with reporting_interrupts():
        return train_recipe("digits").path


def _export(run: Path, out: Path) -> list[str]:
    script = "from rudel.cli.main import run; run()"
    return [sys.executable, "-c", script, "export", str(run), "--to", "page", "--out", str(out)]
