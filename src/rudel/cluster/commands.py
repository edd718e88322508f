"""Commands on many hosts at once, with their output line by line while they run."""

import asyncio
import contextlib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from rudel.cluster import ssh
from rudel.cluster.hosts import Host, parse_hosts
from rudel.cluster.ssh_failures import lost
from rudel.cluster.task_groups import for_each
from rudel.errors import HostError

Line = Callable[[Host, str, bool], None]
"""Called with a host, a line of its output without its end, and whether it was on standard error."""

_LONGEST = 1 << 16
_LINE_END = re.compile(rb"\r*\n|\r+(?=[^\r\n])")
_GRACE_SECONDS = 2.0


@dataclass(frozen=True)
class Ended:
    """The end of a command on a host.

    Args:
        host: where it ran.
        exit_status: 0 to 255, or minus the number of the signal that ended it; None where it could not run or its end
            is not known.
        problem: why that is so, in one sentence; None where there is an exit status.
    """

    host: Host
    exit_status: int | None
    problem: str | None = None


async def run_on_hosts(
    hosts: str | Sequence[str | Host], command: str | Sequence[str], on_line: Line, ssh_config: Path | None = None
) -> tuple[Ended, ...]:
    """Runs a command on all hosts at once. It reads nothing, and gets no terminal.

    Args:
        hosts: as for `parse_hosts`.
        command: a text for the shell there, or words that are to reach the command as they are.
        on_line: called with each line of the output.
        ssh_config: an SSH configuration in the place of `~/.ssh/config`.

    Returns:
        How it ended on each host, in their order. When this is cancelled, the commands are ended as well.

    Raises:
        HostError: the hosts cannot be understood.
    """
    text = command if isinstance(command, str) else shlex.join(command)

    async def one(host: Host) -> Ended:
        try:
            async with ssh.connected(host, ssh_config) as connection:
                return Ended(host, await follow(connection, text, lambda line, bad: on_line(host, line, bad)))
        except HostError as error:
            return Ended(host, None, str(error))

    return await for_each(parse_hosts(hosts), one)


async def follow(connection: asyncssh.SSHClientConnection, command: str, on_line: Callable[[str, bool], None]) -> int:
    """Runs a command without input and reports its output line by line; when this is cancelled, the command is ended.

    Returns:
        Its exit status, or minus the number of the signal that ended it.

    Raises:
        HostError: the connection was lost.
    """
    try:
        process = await connection.create_process(command, encoding=None)
    except (asyncssh.Error, OSError) as error:
        raise lost(connection, "before a command began", error) from error
    try:
        ssh.give(process, b"")
        await asyncio.gather(
            _lines(process.stdout, lambda line: on_line(line, False)),
            _lines(process.stderr, lambda line: on_line(line, True)),
        )
        await process.wait_closed()
    except asyncio.CancelledError:
        await _end(process)
        raise
    except (asyncssh.Error, OSError) as error:
        raise lost(connection, "while a command ran", error) from error
    if process.returncode is None:
        raise lost(connection, "while a command ran")
    return process.returncode


async def _lines(stream: asyncssh.SSHReader, on_line: Callable[[str], None]) -> None:
    """Tells lines as they are complete; a carriage return by itself, as progress bars print it, ends one too."""
    waiting = b""
    while chunk := await stream.read(_LONGEST):
        *lines, waiting = _LINE_END.split(waiting + chunk)
        if len(waiting) > _LONGEST:
            lines, waiting = [*lines, waiting], b""
        for line in lines:
            on_line(line.decode(errors="replace"))
    if waiting:
        on_line(waiting.rstrip(b"\r").decode(errors="replace"))


async def _end(process: asyncssh.SSHClientProcess) -> None:
    """Asks a command to end; closing its channel alone would leave it running."""
    with contextlib.suppress(asyncssh.Error, OSError, TimeoutError):
        process.terminate()
        async with asyncio.timeout(_GRACE_SECONDS):
            await process.wait_closed()
        return
    with contextlib.suppress(asyncssh.Error, OSError):
        process.kill()
        process.close()
