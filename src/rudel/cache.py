"""The cache folder: downloads, conversions and compiled programs, so that they need not be made again."""

import contextlib
import math
import os
import time
from pathlib import Path

from rudel.errors import RudelError
from rudel.files import expanded

GPUS = Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg")
"""What Linux, and Linux in Windows, show of GPUs."""

_DAY = 86_400.0


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


def jax_cache() -> dict[str, str | float]:
    """JAX's options for keeping compiled programs in the cache folder; none where it cannot be made or read.

    Programs in a folder that cannot be written, as in a container image, are read, and no others are kept; but not on a
    computer with a GPU, where XLA would write there, too, and end with an error.
    """
    try:
        folder = cache_folder() / "jax"
    except RudelError:
        return {}
    writable = os.access(_innermost_there(folder), os.W_OK | os.X_OK)
    readable = os.access(folder, os.R_OK | os.X_OK) and folder.is_dir()
    if not writable and (not readable or any(gpu.exists() for gpu in GPUS)):
        return {}
    return {
        "jax_compilation_cache_dir": str(folder),
        # also the small ones that make up the initial weights of a model; JAX warns of each that it cannot write
        "jax_persistent_cache_min_compile_time_secs": 0.0 if writable else math.inf,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }


def drop_old_programs() -> None:
    """Removes compiled programs that were not read for 90 days from the cache folder; looks for them once a day.

    Where the file system does not note when files are read, those go that were made so long ago.
    """
    with contextlib.suppress(RudelError, OSError):
        folder, now = cache_folder() / "jax", time.time()
        looked = folder / ".looked-through"
        if looked.exists() and now - looked.stat().st_mtime < _DAY:
            return
        looked.touch()
        for program in (*folder.glob("*-cache"), *folder.glob(".*.tmp")):  # the latter of killed processes
            with contextlib.suppress(OSError):  # another process removes it, too, or it is another user's
                about = program.stat()
                if now - max(about.st_atime, about.st_mtime) > 90 * _DAY:
                    program.unlink()


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
