"""The service of a Dask worker for a mesh: it keeps the data's pieces, and a member process, which does the training.

The member is a process of its own, because JAX is given the processes of a training only when it starts. The worker
hands bytes to and fro without looking into them. A member ends when its worker does, as it reads the end of its input,
and when what the driver has installed on the worker is removed.
"""

import asyncio
import contextlib
import importlib.metadata
import platform
import shutil
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from typing import Any

from rudel.cluster.guest import Gone, Guest
from rudel.mesh.hosts.channel import SLICE
from rudel.mesh.hosts.join import source_towards
from rudel.shipping import pieces

VERSIONED = ("rudel", "jax", "jaxlib", "keras", "numpy", "distributed")
"""Packages that have to be alike on all hosts."""

_END_SECONDS = 5.0
_LAST_LINES = 40
_MOST_HELD = 2**28
"""Bytes that a member may have said and nobody has heard: on a slow link, it waits before it says more."""


_OPERATIONS = ("describe", "missing", "piece", "towards", "port", "start", "hear", "say", "interrupt", "stop")


def members_guest(purpose: str = "a training") -> Guest:
    """The service of members, as it is installed on workers; see `rudel.cluster.guest`."""
    return Guest(Service, _OPERATIONS, purpose)


class Service:
    """Starts members, one at a time, and speaks with them."""

    def __init__(self) -> None:
        self._member: Member | None = None

    async def describe(self) -> dict[str, Any]:
        """Describes this worker: its host's name, Python, versions; `none` for a package that is missing."""
        return {
            "host": platform.node(),
            "python": ".".join(platform.python_version_tuple()[:2]),
            "versions": {name: _version(name) for name in VERSIONED},
        }

    async def missing(self, names: Sequence[str]) -> list[str]:
        """Those of these pieces that are not in this host's cache."""
        return await asyncio.to_thread(pieces.missing, names)

    async def piece(self, piece: str, content: bytes) -> str:
        """Puts a piece into this host's cache; returns why it cannot, or nothing."""
        try:
            await asyncio.to_thread(pieces.keep, piece, content)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    async def towards(self, host: str) -> str | None:
        """The address from which this host would talk to another one; None if it cannot."""
        return source_towards(host)

    async def port(self, host: str) -> int:
        """A port that is free at an address of this host."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
            return probe.getsockname()[1]

    async def start(self, token: str) -> int:
        """Starts a member, after ending another one; returns its process' number. Its order is said to it."""
        await self.close()
        self._member = await Member.start(token)
        return self._member.process.pid

    async def hear(self, token: str, seconds: float) -> dict[str, Any]:
        """Waits for the next message of the member, at most `seconds`.

        Returns:
            `content`, a slice of its messages, and with the last one, when it has ended, `code` and `trouble`, its last
            words.
        """
        return await self._of(token).hear(seconds)

    async def say(self, token: str, content: bytes) -> None:
        """Hands a slice of messages to the member."""
        await self._of(token).say(content)

    async def interrupt(self, token: str) -> None:
        """Asks the member to write a checkpoint and end."""
        with contextlib.suppress(ProcessLookupError):
            self._of(token).process.terminate()

    async def stop(self, token: str) -> None:
        """Ends the member of this training at once."""
        if self._member and self._member.token == token:
            await self.close()

    async def close(self) -> None:
        """Ends whatever member there is."""
        member, self._member = self._member, None
        if member:
            await member.end()

    def _of(self, token: str) -> "Member":
        if self._member is None or self._member.token != token:
            raise Gone
        return self._member


class Member:
    """A member process, its pipes, and what it has said so far.

    Args:
        token: of its training.
        process: the process.
        folder: where it may keep files; removed with it.
    """

    def __init__(self, token: str, process: asyncio.subprocess.Process, folder: str) -> None:
        self.token, self.process, self._folder = token, process, folder
        self._said, self._room = bytearray(), asyncio.Event()
        self._words: deque[str] = deque(maxlen=_LAST_LINES)
        self._news = asyncio.Event()
        self._readers = [asyncio.create_task(self._read()), asyncio.create_task(self._read_words())]

    @classmethod
    async def start(cls, token: str) -> "Member":
        """Starts one, which waits for its order."""
        pipe, folder = asyncio.subprocess.PIPE, tempfile.mkdtemp(prefix="rudel-mesh-")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rudel.mesh.hosts.member", folder, stdin=pipe, stdout=pipe, stderr=pipe
        )
        return cls(token, process, folder)

    async def say(self, content: bytes) -> None:
        """Hands it a slice of messages."""
        assert self.process.stdin
        with contextlib.suppress(ConnectionError):  # it has ended, which `hear` tells
            self.process.stdin.write(content)
            await self.process.stdin.drain()

    async def hear(self, seconds: float) -> dict[str, Any]:
        """Waits for its next message; see `Service.hear`."""
        if not self._said and not self._ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        self._news.clear()
        answer: dict[str, Any] = {"content": bytes(self._said[:SLICE])}
        del self._said[:SLICE]
        self._room.set()
        if self._ended and not self._said:
            answer |= {"code": await self.process.wait(), "trouble": list(self._words)}
        return answer

    async def end(self) -> None:
        """Kills it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self.process.wait()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    @property
    def _ended(self) -> bool:
        return all(reader.done() for reader in self._readers)

    async def _read(self) -> None:
        assert self.process.stdout
        while content := await self.process.stdout.read(SLICE):
            self._said += content
            self._news.set()
            while len(self._said) > _MOST_HELD:
                self._room.clear()
                await self._room.wait()
        self._news.set()

    async def _read_words(self) -> None:
        assert self.process.stderr
        while line := await self._line():
            if text := line.decode(errors="replace").rstrip():
                self._words.append(text)
        self._news.set()

    async def _line(self) -> bytes:
        assert self.process.stderr
        try:
            return await self.process.stderr.readline()
        except ValueError:  # a line that is longer than the pipe's buffer; what follows is read on
            return b"...\n"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"
