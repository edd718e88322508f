"""`python -m rudel.cluster.worker`: what runs on a host, for as long as the computer that drives is there.

It reads one line of JSON from standard input: its certificate and key, the scheduler's address, its name. What it has
to
say goes to standard output, a JSON document a line. It ends when standard input does, which is when the SSH connection
that started it is gone, in whatever way; and when it has lost the scheduler.
"""

import asyncio
import importlib
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from rudel.cluster.certificates import Identity


def main() -> None:
    """Reads its order, works, ends."""
    order = json.loads(sys.stdin.buffer.readline())
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    with _only_one(order["cluster"], order["name"]):
        asyncio.run(_work(order))
    os._exit(0)  # threads that still compute are not waited for


async def _work(order: dict[str, Any]) -> None:
    from rudel.cluster.quiet import QuietWorker

    for module in order["modules"]:
        importlib.import_module(module)
    identity = Identity(**order["identity"])
    worker = await QuietWorker(
        order["scheduler"],
        security=identity.security(),
        host=order["address"],
        name=order["name"],
        nthreads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        memory_limit=0,
        death_timeout=60,
    )
    _tell({"event": "ready", "address": worker.address, "pid": os.getpid()})
    driver_gone = asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    done, _ = await asyncio.wait(
        {driver_gone, asyncio.ensure_future(worker.finished())}, return_when=asyncio.FIRST_COMPLETED
    )
    if driver_gone in done:
        os._exit(0)
    _tell({"event": "ended"})


def _tell(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


class _only_one:  # noqa: N801
    """Ends an older worker of the same cluster and name, which a broken connection may have left."""

    def __init__(self, cluster: str, name: str) -> None:
        folder = Path.home() / ".rudel" / "workers"
        folder.mkdir(parents=True, exist_ok=True)
        safe = "".join(c if c.isalnum() else "-" for c in name)
        self._path = folder / f"{cluster}-{safe}"

    def __enter__(self) -> None:
        try:
            number = int(self._path.read_text())
            if "rudel.cluster.worker" in Path(f"/proc/{number}/cmdline").read_text():
                os.kill(number, signal.SIGKILL)
        except (OSError, ValueError):
            pass
        self._path.write_text(str(os.getpid()))

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
