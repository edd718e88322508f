"""How many cores there are to compute with."""

import os


def usable_cores() -> int:
    """Cores that this process may use: those that it is bound to, where it is (Linux), else all of the computer."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
