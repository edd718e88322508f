"""When map functions run in processes instead of threads, and what the processes are given.

Threads do without a start, so they begin. Processes take over when the functions of some records have computed for two
seconds, and for at least 0.2 ms a record: then what starting them costs (0.3 s, at the same time) is little, and so is
what sending a record costs: up to 0.1 ms for one of 90 kB, with which a function that only looks at it took twice as
long in processes.
"""

import functools
import os
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rudel.data.records.example_features import Features
from rudel.data.records.process_pool import MapTask
from rudel.data.records.rows import Row
from rudel.shipping.user_code import modules_by_value

Function = Callable[[Any], Any]

_LONG = 2.0
_LEAST_PER_RECORD = 2e-4
_LARGEST = 1 << 25


class Delegation:
    """Whether the functions of some records run in processes.

    Args:
        wanted: always or never; None to see how long they take.
        workers: processes; with one, threads do as well.
    """

    def __init__(self, wanted: bool | None, workers: int) -> None:
        self._is_possible = wanted is not False and os.name == "posix" and (workers > 1 or wanted is True)
        self._is_wanted = bool(wanted)
        self._seconds, self._count = 0.0, 0
        self._task: MapTask | None = None
        self._lock = threading.Lock()

    def note(self, seconds: float, count: int) -> None:
        """Counts what threads did.

        Args:
            seconds: that they computed, without those that they waited for each other.
            count: records.
        """
        with self._lock:
            self._seconds, self._count = self._seconds + seconds, self._count + count

    def refuse(self) -> None:
        """Only threads from now on."""
        self._is_possible = False

    def task(self, features: Features, functions: Sequence[Function], row: Row) -> MapTask | None:
        """The task for a process, always of the same functions; None for threads."""
        is_long = self._is_wanted or self._seconds >= max(_LONG, self._count * _LEAST_PER_RECORD)
        if not self._is_possible or not (self._task or is_long):
            return None
        with self._lock:
            if self._task is None:
                content = _pickled((features, tuple(functions), row), functions) if row.nbytes else None
                if content is None or len(content) > _LARGEST:
                    self.refuse()
                    return None
                self._task = MapTask(content, row)
            return self._task


def _pickled(what: object, functions: Sequence[Function]) -> bytes | None:
    """Pickled for another process, with code by value where that cannot import it; None if that is not possible."""
    import cloudpickle

    modules = [module for module in map(_module, functions) if module and not _is_importable(module)]
    try:
        with modules_by_value(modules):
            return pickle.dumps((str(Path.cwd()), sys.path, cloudpickle.dumps(what)))
    except Exception:  # objects may raise whatever they like when they are pickled
        return None


def _module(function: object) -> ModuleType | None:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__module__", None) or type(function).__module__
    return sys.modules.get(name)


def _is_importable(module: ModuleType) -> bool:
    """Whether its name leads to its file: not so for recipes, which are loaded from files under names of their own."""
    path = getattr(module, "__file__", None)
    if path is None or "." in module.__name__:
        return True
    return module.__name__ in (Path(path).name.partition(".")[0], Path(path).parent.name)
