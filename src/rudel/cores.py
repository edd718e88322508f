"""The number of cores to compute with."""

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


def fit_threads_to_quota() -> None:
    """Has XLA make as many threads as a control group leaves cores, unless somebody has said how many; to be called
    before JAX computes.

    XLA counts the cores that the process may run on. Where a quota gives less of their time, in a container or a
    simulated computer, threads wait for each other: a step of a small net takes 1.4 times the processor's time with two
    threads in 0.4 of a core that it takes with one.
    """
    if not any(name in os.environ for name in _THREADS) and usable_cores() < bound_cores():
        os.environ[_THREADS[0]] = str(usable_cores())


_THREADS = ("PJRT_NPROC", "NPROC")
"""Variables by which XLA's client for processors takes a number of threads, when it is made."""
