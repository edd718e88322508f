"""The first bytes of remote files, over HTTP: only what is wanted travels, and what has arrived is not requested again.

A download goes on where it broke off, in this process or a later one, by a range request that holds only while the
remote file is the same (`If-Range`). Where the file changed, or the server cannot say, it starts over; where the server
knows no ranges, the beginning of the stream is read and the connection closed. Every fault that may pass is retried
with growing pauses, for as long as bytes keep arriving.
"""

import random
import threading
from typing import Protocol

from rudel.data.http_range import (
    Answer,
    ShorterError,
    TransientError,
    Version,
    advice,
    host,
    read_answer,
    request_part,
    translating_errors,
)
from rudel.errors import DownloadError, option
from rudel.retry_policy import RetryPolicy

_CHUNK = 1 << 16


class Sink(Protocol):
    """The destination of the first bytes of a remote file."""

    @property
    def length(self) -> int:
        """Bytes that are there."""
        ...

    @property
    def version(self) -> Version:
        """The state of the remote file that they are of."""
        ...

    @property
    def wanted(self) -> int:
        """Bytes that are to be there in the end; may change with every byte that arrives, for files with a header."""
        ...

    def restart(self, version: Version) -> None:
        """Forgets all bytes; those that follow are of this version."""
        ...

    def append(self, chunk: bytes) -> None:
        """Takes the bytes that follow."""
        ...


class Cancelled(Exception):  # noqa: N818 - nothing went wrong
    """The caller cancelled the download."""


def fetch(url: str, sink: Sink, retry: RetryPolicy, cancelled: threading.Event) -> None:
    """Fetches what `sink` wants and does not have.

    Args:
        url: an http or https address, quoted.
        sink: takes the bytes.
        retry: how long to wait, and how often to try.
        cancelled: set by the caller, from another thread, to give up.

    Raises:
        DownloadError: the server cannot be reached, does not have the file, or did not send it in full.
        Cancelled: `cancelled` was set.
    """
    failures, furthest = 0, sink.length
    while sink.length < sink.wanted:
        if cancelled.is_set():
            raise Cancelled
        failure = None
        try:
            _receive(url, sink, retry.timeout, cancelled)
        except TransientError as error:
            failure = error
            if isinstance(error, ShorterError):
                sink.restart(Version())
        failures = 0 if sink.length > furthest else failures
        furthest = max(furthest, sink.length)
        if failure:
            failures += 1
            _give_up_or_pause(failure, failures, retry, cancelled)


def _give_up_or_pause(failure: TransientError, failures: int, retry: RetryPolicy, cancelled: threading.Event) -> None:
    if failures >= retry.attempts:
        raise DownloadError(
            f"{failure}, {failures} times in a row: check the network, try again later (what has arrived is kept), "
            f"{advice()}."
        ) from failure
    if cancelled.wait(retry.delay(failures, failure.requested_pause) * random.uniform(1.0, 1.25)):
        raise Cancelled


def _receive(url: str, sink: Sink, timeout: float, cancelled: threading.Event) -> None:
    """One request, and what comes of it into the sink."""
    before = sink.length
    begin = before if sink.version.condition else 0
    with request_part(url, begin, sink.wanted, sink.version.condition, timeout) as response:
        answer = read_answer(response, url, begin)
        position = _join(answer, sink, begin)
        while sink.length < sink.wanted and position != answer.end:
            if cancelled.is_set():
                raise Cancelled
            goal = sink.length if position < sink.length else sink.wanted
            goal = goal if answer.end is None else min(goal, answer.end)
            with translating_errors(url, timeout):
                chunk = response.read1(min(_CHUNK, goal - position))
            if not chunk:
                raise TransientError(f"`{host(url)}` closed the connection while sending `{url}`")
            if position == sink.length:
                sink.append(chunk)
            position += len(chunk)
    if sink.wanted > sink.length == sink.version.size:
        raise DownloadError(
            f"`{url}` is truncated at {sink.length:,} bytes: give another source with {option('data')}."
        )
    if sink.wanted > sink.length <= before:
        raise TransientError(f"`{host(url)}` sent nothing new of `{url}`")


def _join(answer: Answer, sink: Sink, begin: int) -> int:
    """Makes the sink ready for an answer and says at which byte of the file the answer begins."""
    if begin and answer.version.same_file(sink.version):
        return answer.start
    sink.restart(answer.version)
    if answer.start:
        raise TransientError("The remote file changed while it was being fetched")
    return 0
