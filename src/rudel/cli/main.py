"""`rudel`: all commands in one application, and what happens to errors."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from rudel import __version__
from rudel.cli import (
    cache,
    data,
    doctor,
    export,
    hosts,
    lab,
    micro,
    plan,
    play,
    recipes,
    runs,
    serve,
    train,
    tune,
    use,
    watch,
)
from rudel.cli.interrupts import TERMINATED, end_on_sigterm, insist_on_interrupts, terminated
from rudel.cli.log import log_to_terminal
from rudel.cli.output import replace_unknown_characters
from rudel.errors import RudelError, speaking_options
from rudel.garbage_collection import collect_seldom

_PANELS = _TRAIN, _INSPECT, _DEPLOY, _COMPUTERS, _DATA, _TOOLS = (
    "Train", "Inspect", "Deploy", "Computers", "Data", "Tools",
)  # fmt: skip


class _InPanels(TyperGroup):
    """Lists commands by panel."""

    def list_commands(self, ctx: Any) -> list[str]:
        panels = {name: getattr(command, "rich_help_panel", None) for name, command in self.commands.items()}
        return sorted(panels, key=lambda name: _PANELS.index(str(panels[name])))


app = typer.Typer(
    cls=_InPanels,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: rudel train digits --epochs 5 && rudel play runs/digits",
)
_former = {"token_normalize_func": train.current_option}
app.command("train", rich_help_panel=_TRAIN, cls=train.TrainCommand, context_settings=_former)(train.train)
app.command("resume", rich_help_panel=_TRAIN)(runs.resume)
app.command("tune", rich_help_panel=_TRAIN)(tune.tune)
app.command("plan", rich_help_panel=_TRAIN)(plan.plan)
app.command("recipes", rich_help_panel=_TRAIN)(recipes.list_recipes)
app.command("new", rich_help_panel=_TRAIN)(recipes.new)
app.command("evaluate", rich_help_panel=_INSPECT)(use.evaluate)
app.command("predict", rich_help_panel=_INSPECT)(use.predict)
app.command("report", rich_help_panel=_INSPECT)(use.report)
app.add_typer(runs.app, name="runs", rich_help_panel=_INSPECT)
app.command("watch", rich_help_panel=_INSPECT)(watch.watch)
app.command("export", rich_help_panel=_DEPLOY)(export.export)
app.command("serve", rich_help_panel=_DEPLOY)(serve.serve)
app.command("play", rich_help_panel=_DEPLOY)(play.play)
app.add_typer(micro.app, name="micro", rich_help_panel=_DEPLOY)
app.add_typer(hosts.app, name="hosts", rich_help_panel=_COMPUTERS)
app.add_typer(lab.app, name="lab", rich_help_panel=_COMPUTERS)
app.add_typer(data.app, name="data", rich_help_panel=_DATA)
app.add_typer(cache.app, name="cache", rich_help_panel=_DATA)
app.command("doctor", rich_help_panel=_TOOLS)(doctor.doctor)

_INTERRUPTED = 130
_show_traceback = False


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"rudel {__version__}")
        raise typer.Exit


@app.callback()
def rudel(
    version: bool = typer.Option(
        False, "--version", "-V", callback=_print_version, is_eager=True, help="Print the version."
    ),
    traceback: bool = typer.Option(False, "--traceback", help="Show Python's traceback with an error."),
    verbose: bool = typer.Option(False, "-v", "--verbose", help="Print the log that run directories keep."),
) -> None:
    """Train one Keras 3 model on whatever computers you have, and deploy it wherever you need it."""
    global _show_traceback
    _show_traceback = traceback
    log_to_terminal(verbose)


def run() -> None:
    """Entry point: what the user can solve is `Error:` and one sentence on standard error, and exit code 2."""
    collect_seldom()
    insist_on_interrupts()
    end_on_sigterm()
    replace_unknown_characters()
    os.environ.pop("MPLBACKEND", None)  # a notebook's, which need not be installed where its commands are
    try:
        with speaking_options():
            code = app(prog_name="rudel", standalone_mode=False)
    except RudelError as error:
        if _show_traceback:
            raise
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except typer.TyperException as error:
        sys.exit(_refused(error))
    except typer.Abort:
        typer.echo("Error: The input ended: nothing was done.", err=True)
        sys.exit(1)
    except SystemExit as end:
        if terminated() and end.code == 1:  # of a command that says nothing of interrupts itself
            sys.exit(TERMINATED)
        raise
    sys.exit(TERMINATED if terminated() and code == _INTERRUPTED else code)


def _refused(error: typer.TyperException) -> int:
    """Prints what is wrong with the arguments, in the format of all errors; the exit code."""
    said = error.format_message()
    context = getattr(error, "ctx", None)
    if said:  # nothing where the help of a group has been printed
        hint = f" Run `{context.command_path} --help` for usage." if context else ""
        said = " ".join(said.replace("Value error, ", "").split())
        typer.echo(f"Error: {said}{'' if said[-1] in '.?' else '.'}{hint}", err=True)
    return error.exit_code
