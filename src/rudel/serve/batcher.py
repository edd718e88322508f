"""Dynamic batching: what waits when the model is free is computed at once, as one batch.

A request that comes alone is computed alone, without waiting for others; the longer the model takes, the more have
gathered when it is done. A model that is quick is called by the event loop itself, since handing an array to a thread
and back takes longer; others are called in a thread of their own. Every job is answered once: with its result, or with
a `Refusal` when its time is over or too many wait.

All methods are called in the event loop.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from rudel.serve.refusal import Refusal, busy
from rudel.serve.server_limits import Limits

Columns = Sequence[np.ndarray]

_RESERVE = 0.5
"""Share of the time limit that a batch is delayed by at most."""


@dataclass(frozen=True, eq=False, slots=True)
class _Job:
    columns: Columns
    rows: int
    size: int
    shapes: tuple[tuple[int, ...], ...]
    answer: asyncio.Future[Columns]
    began: float


class Batcher:
    """Computes what requests ask of one model.

    Args:
        compute: the model: columns of inputs (N, ...) to columns of outputs (N, ...), for N up to `limits.batch`.
        limits: how many may wait, how long, and how many are computed together.
        quick: whether `compute` is called by the event loop itself.
        observe: called with the number of examples and the seconds of every batch.
    """

    def __init__(
        self,
        compute: Callable[[Columns], Columns],
        limits: Limits,
        quick: bool,
        observe: Callable[[int, float], None],
    ) -> None:
        self._compute = compute
        self._limits = limits
        self._observe = observe
        self._thread = None if quick else ThreadPoolExecutor(1, thread_name_prefix="model")
        self._jobs: deque[_Job] = deque()
        self._suspects: deque[_Job] = deque()
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._computing: Sequence[_Job] = ()
        self._turn: asyncio.Handle | None = None
        self._delayed = False

    @property
    def waiting(self) -> int:
        """Number of jobs that wait."""
        return len(self._jobs)

    async def submit(self, columns: Columns, began: float) -> Columns:
        """Computes examples, with others that ask at the same time.

        Args:
            columns: arrays (N, ...) of the inputs, which fit the model.
            began: when the request came, by `time.perf_counter`.

        Returns:
            Arrays (N, ...) of the outputs.

        Raises:
            Refusal: too many wait, or it took too long.
        """
        rows, most = len(columns[0]), self._limits.batch
        self._check_room(columns)
        if rows <= most:
            return await self._enqueue(columns, rows, began)
        size, done = _size(columns), []
        self._waiting_bytes += size
        try:
            for start in range(0, rows, most):  # one after the other, so that others take turns with them
                part = [column[start : start + most] for column in columns]
                done.append(await self._enqueue(part, len(part[0]), began))
        finally:
            self._waiting_bytes -= size
        return [np.concatenate(outputs) for outputs in zip(*done, strict=True)]

    def expire(self, now: float) -> None:
        """Gives up the jobs whose time is over."""
        oldest = now - self._limits.seconds
        for job in self._unanswered():
            if job.began < oldest:
                job.answer.set_exception(self._too_late())

    async def finish(self) -> None:
        """Waits until every job is answered; one that a request brings later is computed, too."""
        while jobs := self._unanswered():  # of a large request, the next batch is there once this one is answered
            await asyncio.gather(*(job.answer for job in jobs), return_exceptions=True)

    def _check_room(self, columns: Columns) -> None:
        size = _size(columns)
        if len(self._jobs) >= self._limits.waiting or (self._jobs and self._waiting_bytes + size > self._limits.memory):
            raise busy("The model has too much to do: try again later.")

    def _enqueue(self, columns: Columns, rows: int, began: float) -> asyncio.Future[Columns]:
        loop = asyncio.get_running_loop()
        size = _size(columns)
        job = _Job(columns, rows, size, tuple(c.shape[1:] for c in columns), loop.create_future(), began)
        self._jobs.append(job)
        self._waiting_rows += rows
        self._waiting_bytes += size
        full = self._waiting_rows >= self._limits.batch
        if self._computing or (self._turn is not None and not (full and self._delayed)):
            return job.answer
        if self._turn is not None:
            self._turn.cancel()
        self._delayed = self._limits.delay > 0 and not full
        if self._delayed:
            self._turn = loop.call_later(min(self._limits.delay, _RESERVE * self._limits.seconds), self._take_turn)
        else:
            self._turn = loop.call_soon(self._take_turn)
        return job.answer

    def _take_turn(self) -> None:
        self._turn = None
        jobs = self._take()
        if not jobs:
            return
        columns = jobs[0].columns
        if len(jobs) > 1:
            columns = [np.concatenate(arrays) for arrays in zip(*(job.columns for job in jobs), strict=True)]
        self._computing = jobs
        if self._thread is None:
            self._answer(jobs, *self._timed(columns))
            self._next()
        else:
            running = asyncio.get_running_loop().run_in_executor(self._thread, self._timed, columns)
            running.add_done_callback(lambda done: self._come_back(jobs, done))

    def _take(self) -> list[_Job]:
        """The jobs at the head of the queue that fit into one batch, or one of a batch that has failed."""
        if self._suspects:
            return [self._suspects.popleft()]
        jobs: list[_Job] = []
        rows = 0
        oldest = time.perf_counter() - self._limits.seconds
        while self._jobs:
            job = self._jobs[0]
            if jobs and (rows + job.rows > self._limits.batch or job.shapes != jobs[0].shapes):
                break
            self._jobs.popleft()
            self._waiting_rows -= job.rows
            self._waiting_bytes -= job.size
            if job.answer.done():
                continue
            if job.began < oldest:
                job.answer.set_exception(self._too_late())
                continue
            jobs.append(job)
            rows += job.rows
        return jobs

    def _timed(self, columns: Columns) -> tuple[Columns | None, BaseException | None]:
        began = time.perf_counter()
        try:
            outputs = self._compute(columns)
        except Exception as error:
            return None, error
        self._observe(len(columns[0]), time.perf_counter() - began)
        return outputs, None

    def _come_back(
        self, jobs: Sequence[_Job], done: asyncio.Future[tuple[Columns | None, BaseException | None]]
    ) -> None:
        self._answer(jobs, *done.result())
        self._next()

    def _next(self) -> None:
        self._computing = ()
        if (self._jobs or self._suspects) and self._turn is None:
            self._delayed = False
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _answer(self, jobs: Sequence[_Job], outputs: Columns | None, error: BaseException | None) -> None:
        if error is not None and len(jobs) > 1:  # one of them is to blame: each gets a batch of its own
            self._suspects.extend(jobs)
            return
        start = 0
        for job in jobs:
            if not job.answer.done():
                if error is not None:
                    job.answer.set_exception(error)
                elif outputs is not None:
                    job.answer.set_result([output[start : start + job.rows] for output in outputs])
            start += job.rows

    def _unanswered(self) -> list[_Job]:
        return [job for job in (*self._computing, *self._suspects, *self._jobs) if not job.answer.done()]

    def _too_late(self) -> Refusal:
        return Refusal(504, f"The model has not answered within {self._limits.seconds:g} seconds.")


def _size(columns: Columns) -> int:
    return sum(column.nbytes for column in columns)
