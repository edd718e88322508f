"""The trials of one computer, as a driver calls them: on a worker over the network, or in the driver itself.

Trials run in a process of their own, which keeps what it has imported and compiled from trial to trial. A crash in it
ends a trial, and not the worker.
"""

import asyncio
import contextlib
import sys
from collections import deque
from typing import Any

from rudel.tuning.trial_process import HEADER, length_of, pack

OPERATIONS = ("load", "begin", "answer", "next")

_WAIT_SECONDS = 2.0
"""How long an operation waits for something to happen before it says that nothing has."""


class TrialService:
    """See the module, and `rudel.cluster.guest.Service`."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._objective = b""
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._said: deque[str] = deque(maxlen=20)

    async def load(self, objective: bytes) -> None:
        """Takes the objective, pickled; a trial that still runs, of a driver that had lost this computer, is ended."""
        self._objective = objective
        await self.close()

    async def begin(self, number: int, settings: dict[str, Any], files: dict[str, bytes]) -> None:
        """Begins a trial, from these checkpoints where there are some."""
        if self._process is None or self._process.returncode is not None:
            await self._start()
        await self._send({"number": number, "settings": settings, "files": files})

    async def answer(self, **message: object) -> None:
        """Answers the trial's request."""
        await self._send(message)

    async def next(self) -> dict[str, Any] | None:
        """Waits for the next event; None where there was none for a while."""
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                return await self._events.get()
        except TimeoutError:
            return None

    async def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _start(self) -> None:
        await self.close()
        self._events = asyncio.Queue()
        pipe = asyncio.subprocess.PIPE
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rudel.tuning.trial_process", stdin=pipe, stdout=pipe, stderr=pipe,
            start_new_session=True,  # a Ctrl-C is the driver's
        )  # fmt: skip
        self._tasks = [asyncio.create_task(self._read(process)), asyncio.create_task(self._listen(process))]
        await self._send({"objective": self._objective})

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._process
        assert self._process.stdin
        with contextlib.suppress(ConnectionError):  # it has ended, which `_read` says
            self._process.stdin.write(pack(message))
            await self._process.stdin.drain()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        import msgpack

        assert process.stdout
        try:
            while True:
                length = length_of(await process.stdout.readexactly(HEADER))
                await self._events.put(msgpack.unpackb(await process.stdout.readexactly(length)))
        except asyncio.IncompleteReadError:
            code = await process.wait()
            last = next((line for line in reversed(self._said) if line.strip()), "it said nothing")
            await self._events.put({"kind": "died", "text": f"its process ended with {code}: {last}"})

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr
        with contextlib.suppress(ValueError):  # a line too long to be read
            async for line in process.stderr:
                self._said.append(line.decode(errors="replace").rstrip())
