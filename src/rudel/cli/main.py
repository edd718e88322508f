"""`rudel`: all commands in one application, and what happens to errors."""

import os
import sys

import typer

from rudel import __version__
from rudel.cli import cache, data, doctor, export, hosts, lab, micro, plan, play, recipes, serve, train, use, watch
from rudel.cli.interrupts import TERMINATED, end_on_sigterm, insist_on_interrupts, terminated
from rudel.cli.log import log_to_terminal
from rudel.errors import RudelError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("plan")(plan.plan)
app.command("evaluate")(use.evaluate)
app.command("predict")(use.predict)
app.command("report")(use.report)
app.command("serve")(serve.serve)
app.command("play")(play.play)
app.command("watch")(watch.watch)
app.command("export")(export.export)
app.command("doctor")(doctor.doctor)
app.command("recipes")(recipes.list_recipes)
app.command("new")(recipes.new)
app.add_typer(data.app, name="data")
app.add_typer(cache.app, name="cache")
app.add_typer(hosts.app, name="hosts")
app.add_typer(lab.app, name="lab")
app.add_typer(micro.app, name="micro")

_show_traceback = False


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"rudel {__version__}")
        raise typer.Exit


@app.callback()
def rudel(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
    traceback: bool = typer.Option(False, "--traceback", help="Show Python's traceback with an error."),
    verbose: bool = typer.Option(False, "-v", "--verbose", help="Show what happens inside, as run directories log it."),
) -> None:
    """Train one Keras 3 model on whatever computers you have and put it wherever you need it."""
    global _show_traceback
    _show_traceback = traceback
    log_to_terminal(verbose)


def run() -> None:
    """Entry point: a problem that the user can mend is one sentence on standard error and exit code 2."""
    insist_on_interrupts()
    end_on_sigterm()
    os.environ.pop("MPLBACKEND", None)  # a notebook's, which need not be installed where its commands are
    try:
        app()
    except RudelError as error:
        if _show_traceback:
            raise
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except SystemExit as end:
        if terminated() and end.code == 1:  # of a command that says nothing of interrupts itself
            sys.exit(TERMINATED)
        raise
