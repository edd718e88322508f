"""How many cores there are to compute with."""

import math
import os

from rudel.limits import cpu_quota


def bound_cores() -> int:
    """Cores that this process may run on: those that it is bound to, where it is (Linux), else all of the computer."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_cores() -> int:
    """Cores that this process can keep busy, for numbers of threads and processes: at least 1.

    A control group that gives it less time makes them fewer; a part of a core counts as one.
    """
    quota = cpu_quota()
    return bound_cores() if quota is None else max(1, min(bound_cores(), math.ceil(quota)))
