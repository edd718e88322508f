"""The cache folder: downloads, conversions and compiled programs, so that they need not be made again."""

import contextlib
import os
from pathlib import Path

from rudel.errors import RudelError
from rudel.files import expanded


def cache_folder() -> Path:
    """The folder for fetched files: `$RUDEL_CACHE`, else `$XDG_CACHE_HOME/rudel`, else `~/.cache/rudel`.

    The folder need not exist. A relative `$XDG_CACHE_HOME` does not count, as its specification demands.

    Raises:
        RudelError: this user has no home folder, and no variable names another.
    """
    if own := os.environ.get("RUDEL_CACHE"):
        return expanded(own).absolute()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (shared if shared.is_absolute() else Path.home() / ".cache") / "rudel"
    except RuntimeError as error:
        raise RudelError(
            "There is no folder for downloads and caches, as this user has no home folder: name one by RUDEL_CACHE."
        ) from error


def compiled_programs() -> Path | None:
    """The folder for programs that JAX compiles; None where there is none that can be written, and so none is kept."""
    try:
        folder = cache_folder() / "jax"
    except RudelError:
        return None
    return folder if os.access(_innermost_there(folder), os.W_OK | os.X_OK) else None


def cache_place() -> Path:
    """The cache folder where it is there, else the innermost of the folders above it that is: there it can be made.

    What this user may not look at counts as not there.
    """
    return _innermost_there(cache_folder())


def _innermost_there(folder: Path) -> Path:
    for place in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            if place.exists():
                return place
    return Path(folder.anchor)
