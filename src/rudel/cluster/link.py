"""Rate and latency of the link to a host, and the offset of its clock, measured over an SSH connection."""

import asyncio
import math
import os
import socket
import struct
import time
from dataclasses import dataclass

import asyncssh

from rudel.cluster.hosts import Host
from rudel.cluster.ssh_failures import lost
from rudel.errors import HostError

_FIRST_BYTES, _MOST_BYTES = 1 << 15, 1 << 23
_LONG_ENOUGH = 0.12
_SECONDS = 20.0
_BEGIN, _SAY_BEGIN = b"rudel:begin\n", "echo; echo rudel:begin"
_BYTES_ACKED = 120
"""The offset of the number of acknowledged bytes in the kernel's description of a connection."""


@dataclass(frozen=True)
class Link:
    """A way to a host.

    Args:
        round_trip: seconds for a line there and a line back.
        bits_per_second: from here to the host.
        clock_offset: seconds that the clock of the host is ahead of the one here; right to half a round trip.
    """

    round_trip: float
    bits_per_second: float
    clock_offset: float


async def measure_link(connection: asyncssh.SSHClientConnection, host: Host) -> Link:
    """Measures with 19 MB at most, and for about half a second where the link is a fast one.

    Raises:
        HostError: the connection was lost, or is too slow to be measured.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            async with connection.create_process("exec sh", encoding=None) as shell:
                shell.stdin.write(f"{_SAY_BEGIN}\n".encode())
                await _begun(shell)
                round_trips = [await _round_trip(shell) for _ in range(8)][1:]
                clocks = [await _clock(shell) for _ in range(3)]
                shell.stdin.write_eof()
            speed = await _speed(connection, min(round_trips))
    except TimeoutError as error:
        raise HostError(
            f"The link to `{host}` is too slow: its speed could not be measured within {_SECONDS:g} s."
        ) from error
    except (asyncssh.Error, OSError, ValueError) as error:
        raise lost(connection, "while the link was measured", error) from error
    return Link(sorted(round_trips)[len(round_trips) // 2], speed, min(clocks)[1])


def acknowledged(connection: socket.socket) -> int | None:
    """Bytes that the other end of a TCP connection has acknowledged so far; None where the kernel does not say.

    Source: `tcpi_bytes_acked` of `struct tcp_info` in linux/tcp.h, since Linux 4.1; other systems have none.
    """
    if not hasattr(socket, "TCP_INFO"):
        return None
    try:
        about = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED + 8)
        return struct.unpack_from("=Q", about, _BYTES_ACKED)[0]
    except (OSError, struct.error):
        return None


async def _round_trip(shell: asyncssh.SSHClientProcess) -> float:
    begin = time.perf_counter()
    await _ask(shell, b"echo\n")
    return time.perf_counter() - begin


async def _clock(shell: asyncssh.SSHClientProcess) -> tuple[float, float]:
    """The seconds that asking took, and the offset in seconds."""
    begin = time.time()
    there = float((await _ask(shell, b"date +%s.%N\n")).decode().replace("%N", "5").replace("N", "5"))
    end = time.time()
    return end - begin, there - (begin + end) / 2


async def _speed(connection: asyncssh.SSHClientConnection, round_trip: float) -> float:
    """Bits per second, of blocks that grow until one takes long enough, also when it is sent again.

    The quicker of the two counts: a computer that is busy for a moment makes a link look slow, and nothing makes it
    look fast.
    """
    size = _FIRST_BYTES
    while True:
        took = math.inf
        for _ in range(2):
            took = min(took, await _send(connection, size, round_trip))
            if took <= _LONG_ENOUGH and size < _MOST_BYTES:
                break
        else:
            return 8 * size / took
        size *= 4


async def _send(connection: asyncssh.SSHClientConnection, size: int, round_trip: float) -> float:
    """Seconds that so many bytes take."""
    command = f"{_SAY_BEGIN}; head -c {size} >/dev/null; echo"
    async with connection.create_process(command, encoding=None) as counter:
        await _begun(counter)
        block = os.urandom(size)
        begin = time.perf_counter()
        await _ask(counter, block)
        return max(1e-6, time.perf_counter() - begin - round_trip)


async def _begun(shell: asyncssh.SSHClientProcess) -> None:
    """Reads up to the line with which answers begin: before it, a login shell may print whatever it likes."""
    while await _ask(shell, b"") != _BEGIN:
        pass


async def _ask(shell: asyncssh.SSHClientProcess, line: bytes) -> bytes:
    shell.stdin.write(line)
    answer = await shell.stdout.readline()
    if not answer.endswith(b"\n"):
        raise ConnectionResetError("the shell ended")
    return answer
