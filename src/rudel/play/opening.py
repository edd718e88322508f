"""Which page a run has: to draw on, or of a sensor."""

from pathlib import Path
from typing import TYPE_CHECKING

from rudel.errors import RudelError
from rudel.play.listener import Listener, listener_of
from rudel.play.player import Player, player_of
from rudel.runs import run_directory
from rudel.runs.loading import load

if TYPE_CHECKING:
    import keras


def open_run(run: Path) -> Player | Listener:
    """Reads a finished run.

    Raises:
        RunError: there is none, or it is unfinished.
        ServeError: it neither guesses drawings nor recognises words or movements.
    """
    return page_of(run_directory.open_finished(run), load(run))


def page_of(directory: run_directory.RunDirectory, model: "keras.Model") -> Player | Listener:
    """The page of a run whose model has been read.

    Raises:
        ServeError: it neither guesses drawings nor recognises words or movements.
    """
    return listener_of(directory, model) or player_of(directory, model)


def newest_run(parent: Path = Path("runs")) -> Player | Listener | None:
    """The run below a folder that was finished last, of those that have a page; None if there is none."""
    found = sorted(parent.glob("*/summary.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for summary in found:
        try:
            return open_run(summary.parent)
        except RudelError:
            continue
    return None
