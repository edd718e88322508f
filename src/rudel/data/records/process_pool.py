"""Processes that apply map functions, kept for as long as this process lives and shared by all its records.

They are started from scratch, never forked, and import neither JAX nor Keras: each takes 0.3 s to start and about
40 MB. They end with this process, also when it is killed.
"""

import atexit
import contextlib
import itertools
import mmap
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from rudel.data.records.map_worker import ALIGNMENT, FAILED, KNOWN_TASKS, spans
from rudel.data.records.rows import Row
from rudel.errors import DataError

_MAIN = "import sys; sys.path[:] = {path!r}; from rudel.data.records.map_worker import serve; serve({socket}, {slab})"
_GRACE = 1.0
_numbers = itertools.count()


class NoProcessError(Exception):
    """A process cannot be started, or ended before it did anything."""


@dataclass(frozen=True, eq=False)
class MapTask:
    """A task of map processes.

    Args:
        content: features, functions and row, pickled.
        row: what each record becomes.
    """

    content: bytes
    row: Row
    number: int = field(default_factory=lambda: next(_numbers))


class Worker:
    """A process, and the memory that it writes rows into.

    Two parts may be with it at a time, so that it has something to do while the first of them is fetched.

    Raises:
        NoProcessError: it cannot be started.
    """

    def __init__(self) -> None:
        from multiprocessing import Pipe

        self.is_alive = True
        self._file = _memory_file()
        self._memory: mmap.mmap | None = None
        self._connection, theirs = Pipe()
        descriptors = theirs.fileno(), self._file.fileno()
        main = _MAIN.format(path=sys.path, socket=descriptors[0], slab=descriptors[1])
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}  # should a map function import it: no GPU is for this
        command = [sys.executable, "-c", main]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, env=environment, pass_fds=descriptors, start_new_session=True
                )
            except OSError as error:
                self.dismiss()
                raise NoProcessError from error
        self._known: deque[int] = deque(maxlen=KNOWN_TASKS)
        self._given: deque[tuple[int, int]] = deque()
        self._half = 0
        self._turn = 0
        try:
            self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            self._ended()
            raise NoProcessError from error

    def give(self, task: MapTask, contents: Sequence[bytes]) -> None:
        """Gives it contents of records to make rows of.

        Raises:
            DataError: it ended.
        """
        needed = -(-max(1, spans(task.row, len(contents))[-1][1]) // ALIGNMENT) * ALIGNMENT
        if needed > self._half:
            assert not self._given, "memory grows only while there is nothing in it"
            self._half = needed
            os.ftruncate(self._file.fileno(), 2 * needed)
            self._memory = mmap.mmap(self._file.fileno(), 2 * needed)
        begin, self._turn = self._turn * self._half, 1 - self._turn
        is_new = task.number not in self._known
        if is_new:
            self._known.append(task.number)
        content = task.content if is_new else None
        request = task.number, content, 2 * self._half, begin, contents
        try:
            self._connection.send_bytes(pickle.dumps(request))
        except OSError as error:
            raise self._ended() from error
        self._given.append((begin, len(contents)))

    def fetch(self, task: MapTask) -> list[memoryview] | None:
        """The bytes of the rows that what was given first became, valid until two more are given; None if it failed.

        Raises:
            DataError: it ended.
        """
        begin, count = self._given.popleft()
        try:
            answer = self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if answer == FAILED:
            return None
        assert self._memory
        memory = memoryview(self._memory)
        return [memory[first:last] for first, last in spans(task.row, count, begin)]

    def is_running(self) -> bool:
        """Whether the process did not end yet."""
        return self._process.poll() is None

    def drain(self) -> None:
        """Waits for what is with it, and leaves that alone.

        Raises:
            DataError: it ended.
        """
        try:
            while self._given:
                self._given.popleft()
                self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._ended() from error

    def dismiss(self) -> None:
        """Lets it end; it does when it has done what it is at."""
        self._connection.close()
        self._file.close()

    def wait(self) -> int:
        """Waits for its end, for a second, and kills it then. Returns its status."""
        try:
            return self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _ended(self) -> DataError:
        self._given.clear()
        self.is_alive = False
        self.dismiss()
        status = self.wait()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return DataError(
            f"A process that map functions run in {how}: there may be too little memory; "
            "give fewer workers, or processes=False to run them in threads."
        )


_lock = threading.Lock()
_idle: list[Worker] = []
_all: set[Worker] = set()


@contextlib.contextmanager
def acquired() -> Iterator[Worker]:
    """A process that nobody else uses meanwhile, started if there is none.

    Raises:
        NoProcessError: it cannot be started.
    """
    worker = _living()
    if worker is None:
        worker = Worker()
        with _lock:
            _all.add(worker)
    try:
        yield worker
    finally:
        with contextlib.suppress(DataError):  # the next task acquires another one
            worker.drain()
        with _lock:
            if worker.is_alive:
                _idle.append(worker)
            else:
                _all.discard(worker)


def _living() -> Worker | None:
    """One that is idle, and was not killed meanwhile."""
    with _lock:
        while _idle:
            worker = _idle.pop()
            if worker.is_running():
                return worker
            worker.dismiss()
            _all.discard(worker)
    return None


def _memory_file() -> BinaryIO:
    """A file in memory, without a name; on a disk where the system has no such thing."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("rudel-rows"), "r+b", 0)  # noqa: PTH123
    return tempfile.TemporaryFile(buffering=0)


@atexit.register
def _end_all() -> None:
    for worker in _all:
        worker.dismiss()
    for worker in _all:
        worker.wait()
