"""All commands of `rudel` in one application, and what happens to errors."""

import errno
import os
import sys
import warnings
from pathlib import Path
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
from rudel.cli.interrupts import TERMINATED, terminated
from rudel.cli.log import log_to_terminal
from rudel.cli.output import open_closed_streams, replace_unknown_characters, reporting_interrupts
from rudel.errors import RudelError, speaking_options
from rudel.garbage_collection import collect_seldom

_PANELS = _TRAIN, _INSPECT, _DEPLOY, _COMPUTERS, _DATA, _TOOLS = (
    "Train", "Inspect", "Deploy", "Computers", "Data", "Tools",
)  # fmt: skip


class _InPanels(TyperGroup):
    """Lists commands by panel; an interrupt ends each with a line, also where it says nothing of interrupts itself."""

    def list_commands(self, ctx: Any) -> list[str]:
        panels = {name: getattr(command, "rich_help_panel", None) for name, command in self.commands.items()}
        return sorted(panels, key=lambda name: _PANELS.index(str(panels[name])))

    def make_context(self, *arguments: Any, **extra: Any) -> Any:
        with reporting_interrupts():  # Typer would end without a word
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: Any) -> Any:
        with reporting_interrupts():
            return super().invoke(ctx)


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

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOWHERE = "The working directory has been removed: change to another one."
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


def exit_code() -> int:
    """Runs a command; what the user can solve is `Error:` and one sentence on standard error, and exit code 2."""
    collect_seldom()
    open_closed_streams()
    replace_unknown_characters()
    os.environ.pop("MPLBACKEND", None)  # a notebook's, which need not be installed where its commands are
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # Pillow's; Rudel refuses the file itself
    try:
        with speaking_options():
            code = app(prog_name="rudel", standalone_mode=False)
        sys.stdout.flush()
    except RudelError as error:
        if _show_traceback:
            raise
        return _failed(_NOWHERE if _is_nowhere() else str(error))
    except OSError as error:
        sentence = _sentence(error)
        if _show_traceback or sentence is None:
            raise
        return _failed(sentence)
    except typer.TyperException as error:
        return _refused(error)
    except typer.Abort:
        typer.echo("Error: The input ended: nothing was done.", err=True)
        return 1
    except SystemExit as end:
        if terminated() and end.code == 1:  # of a command that says nothing of interrupts itself
            return TERMINATED
        raise
    return code


def _sentence(error: OSError) -> str | None:
    """The sentence for an error of the system that the user can solve; None for any other."""
    if error.errno in _FULL:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try again when it ends
        return f"The output cannot be written ({error.strerror}): make room, or send it elsewhere."
    if error.errno == errno.ENAMETOOLONG:
        return f"The path {error.filename} is too long: give another one."
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"{error.filename} cannot be used ({error.strerror}): change its permissions, or give another path."
    if error.errno == errno.ENOENT and _is_nowhere():
        return _NOWHERE
    return None


def _is_nowhere() -> bool:
    """Whether the working directory has been removed, so that no relative path means anything."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _failed(sentence: str) -> int:
    """Prints what is wrong; the exit code."""
    typer.echo(f"Error: {sentence}", err=True)
    return 2


def _refused(error: typer.TyperException) -> int:
    """Prints what is wrong with the arguments, in the format of all errors; the exit code."""
    said = error.format_message()
    context = getattr(error, "ctx", None)
    if said:  # nothing where the help of a group has been printed
        hint = f" Run `{context.command_path} --help` for usage." if context else ""
        said = " ".join(said.replace("Value error, ", "").split())
        typer.echo(f"Error: {said}{'' if said[-1] in '.?' else '.'}{hint}", err=True)
    return error.exit_code
