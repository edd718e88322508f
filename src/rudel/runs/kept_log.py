"""The log of a run, log.txt: what Rudel's modules log while it trains.

Runs that train at the same time, in threads, keep a log each. Limit: what is logged in a thread that belongs to none of
them, as one that reads ahead, is in the logs of all.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from rudel.counted_context import CountedContext

_logger = logging.getLogger("rudel")


class _Onward(logging.Handler):
    """Passes records on to the root logger, without those that it would not get if no run kept a log."""

    def __init__(self) -> None:
        super().__init__(_logger.getEffectiveLevel())
        self._is_last_resort = not _logger.hasHandlers()

    def emit(self, record: logging.LogRecord) -> None:
        root = logging.getLogger()
        if root.handlers or self._is_last_resort:
            root.handle(record)


class _LogFile(logging.FileHandler):
    """A log that does not report a full disk or a folder that is gone, of which the training's error tells."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _open.get() or self in _open.get()

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # raised where the file is opened
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the name is of logging
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


_open: ContextVar[tuple[_LogFile, ...]] = ContextVar("open logs", default=())
"""The logs of the runs that train in this thread, one within the other."""


@contextlib.contextmanager
def _details_logged() -> Iterator[None]:
    """Inside the block, Rudel's modules log information, of which other handlers get no more than before."""
    level, propagates = _logger.level, _logger.propagate
    onward = _Onward()
    if propagates:
        _logger.addHandler(onward)
    _logger.setLevel(min(logging.INFO, level or logging.INFO))
    _logger.propagate = False
    try:
        yield
    finally:
        _logger.setLevel(level)
        _logger.propagate = propagates
        _logger.removeHandler(onward)


_DETAILS_LOGGED = CountedContext(_details_logged)


@contextlib.contextmanager
def keeping_log(path: Path) -> Iterator[None]:
    """Adds to a file what Rudel's modules log while the block lasts; other handlers get no more than before."""
    with _DETAILS_LOGGED:
        file = _LogFile(path, encoding="utf-8", delay=True)
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
        before = _open.set((*_open.get(), file))
        _logger.addHandler(file)
        try:
            yield
        finally:
            _logger.removeHandler(file)
            _open.reset(before)
            with contextlib.suppress(OSError):  # the disk is full, as the error under way says
                file.close()
