"""Where Rudel keeps what it fetched, so that it need not be fetched again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder for fetched files: `$RUDEL_CACHE`, else `$XDG_CACHE_HOME/rudel`, else `~/.cache/rudel`.

    The folder need not exist. A relative `$XDG_CACHE_HOME` does not count, as its specification demands.
    """
    if own := os.environ.get("RUDEL_CACHE"):
        return Path(own).expanduser().absolute()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "rudel"
