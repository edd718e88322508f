"""Whether a training holds the lock of a run directory."""

import fcntl
import os
from pathlib import Path


def is_locked(run: Path) -> bool:
    """Whether a process of this computer trains into the directory.

    It is found out by taking a shared lock and giving it back at once; a training that begins at that very moment asks
    again (see `rudel.runs.run_directory.create`). A directory on a network file system may know nothing of locks that
    other computers hold.
    """
    try:
        lock = os.open(run / ".lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False
