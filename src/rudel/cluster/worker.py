"""`python -m rudel.cluster.worker`: what runs on a host, for as long as the driver is there.

It reads one line of JSON from standard input: its certificate and key, the scheduler's address, its name. What it has
to say goes to standard output, a JSON document a line. It ends when standard input does, also while it starts, which is
when the SSH connection that started it is gone, in whatever way; and when it has lost the scheduler.
"""

import asyncio
import contextlib
import gc
import importlib
import json
import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from rudel.cluster.certificates import Identity
from rudel.cores import fit_threads_to_quota, usable_cores
from rudel.freed_memory import keep_freed_memory
from rudel.garbage_collection import collect_seldom


def main() -> None:
    """Reads its order, works, ends."""
    collect_seldom()
    keep_freed_memory()
    order = json.loads(sys.stdin.buffer.readline())
    begin, end = order["valid"]
    if not begin <= time.time() <= end:
        _report({"event": "clock", "time": time.time()})
        sys.exit(1)
    logging.basicConfig(level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_OneLine())
    mark = _only_one(order["cluster"], order["name"])
    driver = _Driver(mark)
    driver.start()
    fit_threads_to_quota()
    try:
        asyncio.run(_work(order, mark, driver))
    finally:
        _unmark(mark)


class _Driver(threading.Thread):
    """Waits for the end of standard input, and ends the process if it comes while the worker starts.

    Args:
        mark: of this process.

    Attributes:
        gone: done when standard input has ended.
        worker_runs: set by who waits for `gone` from then on.
    """

    def __init__(self, mark: Path) -> None:
        super().__init__(daemon=True)
        self._mark = mark
        self.gone: Future[None] = Future()
        self.worker_runs = threading.Event()

    def run(self) -> None:
        """See the class."""
        with contextlib.suppress(OSError):
            while os.read(sys.stdin.fileno(), 1024):  # not by the reader, whose lock a process that fails waits for
                pass
        self.gone.set_result(None)
        if not self.worker_runs.is_set():
            _unmark(self._mark)
            os._exit(0)


async def _work(order: dict[str, Any], mark: Path, driver: _Driver) -> None:
    """Works until the driver or the scheduler is gone, and ends the process then."""
    from rudel.cluster.quiet import QuietWorker, quiet
    from rudel.cluster.transport import refused_by

    log = _ToDriver()
    log.setFormatter(_OneLine())
    with quiet(log):
        for module in order["modules"]:
            importlib.import_module(module)
        gc.freeze()  # what has been imported stays: it need not be looked through again and again
        identity = Identity(**order["identity"])
        worker = await QuietWorker(
            order["scheduler"],
            security=identity.security(),
            host=order["address"],
            name=order["name"],
            nthreads=usable_cores(),
            memory_limit=0,
            death_timeout=60,
        )
        driver.worker_runs.set()
        driver_gone = asyncio.wrap_future(driver.gone)
        _report({"event": "ready", "address": worker.address, "pid": os.getpid()})
        done, _ = await asyncio.wait(
            {driver_gone, asyncio.ensure_future(worker.finished())}, return_when=asyncio.FIRST_COMPLETED
        )
        if refused := refused_by(worker):
            _report({"event": "refused", "text": refused})
        if driver_gone not in done:
            _report({"event": "ended"})
        _unmark(mark)
        os._exit(0)  # threads that compute, or read, are not waited for


class _OneLine(logging.Formatter):
    """Formats errors without a traceback: they are read on another computer, among the lines of others."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        what = " ".join(record.getMessage().split())
        return f"{what} ({type(error).__name__}: {error})" if error else what


class _ToDriver(logging.Handler):
    """Sends the driver what Dask logs, apart from what else is written on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        _report({"event": "log", "text": self.format(record)})


def _report(document: dict[str, Any]) -> None:
    """Sends the driver an event, unless it is gone."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()


def _only_one(cluster: str, name: str) -> Path:
    """Ends an older worker of the same cluster and name, which a broken connection may have left.

    Returns:
        A file with the number of this process, which says that it is there.
    """
    folder = Path.home() / ".rudel" / "workers"
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f"{cluster}-{''.join(c if c.isalnum() else '-' for c in name)}"
    for path in folder.iterdir():
        number = _worker_of(path)
        if number is None:
            path.unlink(missing_ok=True)
        elif path == mark:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
    mark.write_text(str(os.getpid()))
    return mark


def _worker_of(mark: Path) -> int | None:
    """The number of the worker that left this file; None if it has ended."""
    try:
        number = int(mark.read_text())
        return number if "rudel.cluster.worker" in Path(f"/proc/{number}/cmdline").read_text() else None
    except (OSError, ValueError):
        return None


def _unmark(mark: Path) -> None:
    if _worker_of(mark) in (os.getpid(), None):
        mark.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
