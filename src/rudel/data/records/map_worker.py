"""The process that applies map functions; `rudel.data.records.process_pool` starts it and speaks to it.

It gets contents of records through a socket and writes rows into memory that both processes have. It answers with a
byte whether all went well; what went wrong, the other process finds out by doing the same itself. When that one ends,
in whatever way, the socket is closed, and so this process ends.
"""

import contextlib
import mmap
import os
import pickle
import signal
import sys
from collections import OrderedDict
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from rudel.data.records.rows import Row

DONE, FAILED = b"+", b"-"
KNOWN_TASKS = 4
ALIGNMENT = 64


def serve(socket: int, slab: int) -> None:
    """Answers until the other side is gone.

    Args:
        socket: its descriptor.
        slab: descriptor of the memory for rows.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other process, which decides
    with contextlib.suppress(EOFError, OSError), Connection(socket) as connection:
        connection.send_bytes(DONE)
        work = _Work(slab)
        while True:
            connection.send_bytes(work.done(connection.recv_bytes()))


class _Work:
    def __init__(self, slab: int) -> None:
        self._slab = slab
        self._memory: mmap.mmap | None = None
        self._tasks: OrderedDict[int, Any] = OrderedDict()

    def done(self, request: bytes) -> bytes:
        number, task, size, begin, contents = pickle.loads(request)
        try:
            if task is not None:
                self._tasks[number] = None
                if len(self._tasks) > KNOWN_TASKS:
                    self._tasks.popitem(last=False)
                folder, sys.path[:], content = pickle.loads(task)
                os.chdir(folder)
                self._tasks[number] = pickle.loads(content)
            if self._memory is None or len(self._memory) < size:
                self._memory = mmap.mmap(self._slab, size)
            return self._written(self._tasks[number], memoryview(self._memory), begin, contents)
        except BaseException:  # SystemExit too: whatever it is, the other process will meet it
            return FAILED

    def _written(self, task: tuple[Any, Any, Any], memory: memoryview, begin: int, contents: Sequence[bytes]) -> bytes:
        features, functions, row = task
        octets = [memory[first:last] for first, last in spans(row, len(contents), begin)]
        for place, content in enumerate(contents):
            value = features.of(content, str)
            for function in functions:
                value = function(value)
            row.write(value, octets, place, str)
        return DONE


def spans(row: Row, count: int, begin: int = 0) -> list[tuple[int, int]]:
    """Where the arrays of so many rows lie in memory: where each begins and ends, from a place on."""
    found = []
    for leaf in row.leaves:
        end = begin + count * leaf.nbytes
        found.append((begin, end))
        begin = -(-end // ALIGNMENT) * ALIGNMENT
    return found
