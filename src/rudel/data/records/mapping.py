"""Map functions applied to records, in threads or in processes.

Threads first: nothing has to be started or pickled, rows are written where they belong without being copied, and
decoders (Pillow's among them) release Python's lock while they work. Of a small image they do not release it for
long, though, and threads wait for each other; `delegation` says when processes take over (`pool`, `worker`).

A part of the records that fails in a process is done once more in a thread, so that errors are the same ones. Records
that a map function takes are mapped in the same thread: all threads of the pool may be in such a function.
"""

import functools
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from rudel.aliases import Tree
from rudel.data.records.collection import Collection
from rudel.data.records.delegation import Delegation, Function
from rudel.data.records.example_features import Features
from rudel.data.records.process_pool import MapTask, NoProcessError, acquired
from rudel.data.records.rows import Row
from rudel.errors import DataError

Part = tuple[int, np.ndarray]
"""The place of some records in what is taken, and their numbers."""

_PARTS_PER_WORKER = 5
_LARGEST_PART = 32
_MOST_BYTES = 1 << 22


@dataclass(frozen=True)
class Mapping:
    """The examples made of records by a map function.

    Args:
        collection: the records.
        features: which to read.
        functions: the first gets the features of an example, each other one what the one before it gave.
        workers: threads, and processes.
        delegation: whether to use processes.
    """

    collection: Collection
    features: Features
    functions: tuple[Function, ...]
    workers: int
    delegation: Delegation

    def one(self, number: int) -> Any:
        """Maps one record.

        Raises:
            DataError: it cannot be read, or a function says so.
        """
        (content,) = self.collection.contents(np.array([number]))
        return self._made(content, number)

    def rows(self, row: Row, numbers: np.ndarray) -> list[np.ndarray]:
        """Maps some records, int64 (n,), to the arrays of rows.

        Raises:
            DataError: see `one`; or a record becomes another row than the first.
        """
        arrays = row.empty(len(numbers))
        octets = [array.reshape(-1).view(np.uint8).data for array in arrays]
        size = max(1, min(len(numbers) // (self.workers * _PARTS_PER_WORKER), _LARGEST_PART))
        stays = len(numbers) <= size or hasattr(_THREAD, "is_of_pool")  # whose other threads may all wait for this one
        task = None if stays else self.delegation.task(self.features, self.functions, row)
        if task:
            size = max(1, min(size, _MOST_BYTES // max(1, row.nbytes)))
        parts = ((begin, numbers[begin : begin + size]) for begin in range(0, len(numbers), size))
        parts = _Shared(parts)  # by all workers, so that none is idle while there is something to do
        if task:
            work = functools.partial(self._delegate, row, task, octets, parts)
        else:
            work = functools.partial(self._write_parts, row, octets, parts)
        if stays or (not task and self.workers == 1):
            work()
        else:
            futures = [_threads(self.workers).submit(work) for _ in range(self.workers)]
            try:
                for future in as_completed(futures):
                    future.result()
            finally:
                parts.close()  # nothing is begun any more after an error or Ctrl-C
                wait(futures)
        return arrays

    def _write_parts(self, row: Row, octets: list[memoryview], parts: Iterable[Part]) -> None:
        began, count = time.thread_time(), 0
        for begin, numbers in parts:
            self._write(row, octets, begin, numbers)
            count += len(numbers)
        self.delegation.note(time.thread_time() - began, count)

    def _delegate(self, row: Row, task: MapTask, octets: list[memoryview], parts: Iterable[Part]) -> None:
        """Has parts done by a process: one is fetched while it is at the next."""
        given: deque[Part] = deque()
        try:
            with acquired() as worker:
                for begin, numbers in parts:
                    given.append((begin, numbers))
                    worker.give(task, self.collection.contents(numbers))
                    if len(given) > 1:
                        self._fetch(row, worker.fetch(task), octets, given.popleft())
                while given:
                    self._fetch(row, worker.fetch(task), octets, given.popleft())
        except NoProcessError:
            self.delegation.refuse()
            self._write_parts(row, octets, parts)

    def _fetch(self, row: Row, rows: list[memoryview] | None, octets: list[memoryview], part: Part) -> None:
        begin, numbers = part
        if rows is None:
            self._write(row, octets, begin, numbers)
            self.delegation.refuse()  # no error here: what the functions need is in this process only
            return
        for leaf, target, source in zip(row.leaves, octets, rows, strict=True):
            target[begin * leaf.nbytes : (begin + len(numbers)) * leaf.nbytes] = source

    def _write(self, row: Row, octets: list[memoryview], begin: int, numbers: np.ndarray) -> None:
        contents = self.collection.contents(numbers)
        for place, (content, number) in enumerate(zip(contents, numbers.tolist(), strict=True), begin):
            value = self._made(content, number)
            row.write(value, octets, place, functools.partial(self.collection.name, number))

    def _made(self, content: bytes, number: int) -> Any:
        value: Tree = self.features.of(content, functools.partial(self.collection.name, number))
        try:
            for function in self.functions:
                value = function(value)
        except DataError as error:
            name = self.collection.name(number)
            raise DataError(f"{name[:1].upper()}{name[1:]}: {error}") from error
        except Exception as error:
            error.add_note(f"A map function was given {self.collection.name(number)}.")
            raise
        return value


class _Shared:
    """Parts that several threads take in turn, until there are none or it is closed."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts = iter(parts)
        self._lock = threading.Lock()
        self._is_open = True

    def __iter__(self) -> Iterator[Part]:
        return self

    def __next__(self) -> Part:
        with self._lock:
            if not self._is_open:
                raise StopIteration
            return next(self._parts)

    def close(self) -> None:
        self._is_open = False


_THREAD = threading.local()


@functools.cache
def _threads(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, "rudel-records", initializer=lambda: setattr(_THREAD, "is_of_pool", True))
