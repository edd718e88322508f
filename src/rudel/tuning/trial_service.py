"""The trials of one computer, as a driver calls them: on a worker over the network, or in the driver itself.

Trials run in a process of their own, which keeps what it has imported and compiled from trial to trial. A crash in it
ends a trial, and not the worker. Its temporary files are in a folder that is removed after it.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from typing import Any

from rudel.mesh.hosts.channel import SLICE
from rudel.tuning.trial_process import pack

OPERATIONS = ("load", "begin", "say", "hear")

_WAIT_SECONDS = 2.0
"""How long an operation waits for something to happen before it says that nothing has."""

_END_SECONDS = 5.0
_LAST_WORDS = 4096
_NO_LIMIT = 2**62
"""All that the process writes is read at once: `Process.wait` returns only after its pipes are empty."""


class TrialService:
    """See the module, and `rudel.cluster.guest.Service`. It hands bytes to and fro without looking into them."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._objective = b""
        self._words = b""
        self._listening: asyncio.Task[None] | None = None

    async def load(self, objective: bytes) -> None:
        """Takes the objective, pickled; a trial that still runs, of a driver that had lost this computer, is ended."""
        self._objective = objective
        await self.close()

    async def begin(self) -> None:
        """Starts the process, unless it runs: a trial is said to it next."""
        if self._process is None or self._process.returncode is not None:
            await self._start()

    async def say(self, content: bytes) -> None:
        """Hands a slice of messages to the process."""
        assert self._process
        assert self._process.stdin
        with contextlib.suppress(ConnectionError):  # it has ended, which `hear` says
            self._process.stdin.write(content)
            await self._process.stdin.drain()

    async def hear(self) -> dict[str, Any]:
        """Waits for what the process says.

        Returns:
            `content`, a slice of its messages, empty where it said nothing for a while; once it has ended, `died`, why.
        """
        process = self._process
        assert process
        assert process.stdout
        content = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_SECONDS):
                content = await process.stdout.read(SLICE)
        if content or (process.returncode is None and not process.stdout.at_eof()):
            return {"content": content}
        await self._wait(process)
        lines = self._words.decode(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return {"content": b"", "died": f"its process ended with {process.returncode}: {last.strip()}"}

    async def close(self) -> None:
        """Ends the process, and removes its temporary files."""
        process, self._process = self._process, None
        folder, self._folder = self._folder, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await self._wait(process)
        if folder is not None:
            await asyncio.to_thread(folder.cleanup)

    async def _start(self) -> None:
        await self.close()
        pipe = asyncio.subprocess.PIPE
        self._words = b""
        self._folder = tempfile.TemporaryDirectory(prefix="rudel-", ignore_cleanup_errors=True)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rudel.tuning.trial_process", stdin=pipe, stdout=pipe, stderr=pipe, limit=_NO_LIMIT,
            start_new_session=True,  # a Ctrl-C is the driver's
            env=os.environ | {"TMPDIR": self._folder.name},
        )  # fmt: skip
        self._listening = asyncio.create_task(self._listen(self._process))
        await self.say(pack({"objective": self._objective}))

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        """Waits until a process has ended and its last words are known, not for others that hold its pipes."""
        assert self._listening
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
                await self._listening

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Keeps the last words of a process; the line of a progress bar may be as long as the training."""
        assert process.stderr
        while words := await process.stderr.read(SLICE):
            self._words = (self._words + words)[-_LAST_WORDS:]
