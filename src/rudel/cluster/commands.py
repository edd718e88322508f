"""Commands on many hosts at once, with their output line by line while they run."""

import asyncio
import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
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
_GRACE_SECONDS, _FORCE_SECONDS = 2.0, 5.0

_END_OTHERS = """
read -r server </proc/$PPID/comm; case $server in sshd*) ;; *) exit ;; esac
others=$(pgrep -P $PPID | grep -vx $$)
to_all() { for each in $others; do kill -$1 -$each && some=1; done 2>/dev/null; }
to_all TERM
for tenth in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    some=; to_all 0; [ $some ] || exit; sleep 0.1
done
to_all KILL
"""
"""For `sh`: ends all other commands of a connection, and what they have started: the children of the process that
OpenSSH has for it, each with its group. Where the parent is of another server, it may have children for others, and
nothing happens.
"""


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
    # as csh replaces what follows a `!` in quotes by a former command
    text = command if isinstance(command, str) else shlex.join(command).replace("!", r"'\!'")

    async def one(host: Host) -> Ended:
        try:
            async with ssh.connected(host, ssh_config) as connection:
                return Ended(host, await follow(connection, text, lambda line, bad: on_line(host, line, bad)))
        except HostError as error:
            return Ended(host, None, str(error))

    return await for_each(parse_hosts(hosts), one)


async def follow(
    connection: asyncssh.SSHClientConnection,
    command: str,
    on_line: Callable[[str, bool], None],
    *,
    by_force: bool = True,
) -> int:
    """Runs a command without input and reports its output line by line.

    When this is cancelled, or `on_line` raises an error, the command is ended; where that takes more than a signal, as
    for commands of root, so are all others that run on the connection, unless `by_force` is False: then it goes on to
    its end.

    Returns:
        Its exit status, or minus the number of the signal that ended it.

    Raises:
        HostError: the connection was lost.
        Exception: whatever `on_line` raises.
    """
    try:
        process = await connection.create_process(command, encoding=None)
    except (asyncssh.Error, OSError) as error:
        raise lost(connection, "before a command began", error) from error
    try:
        with _translated(connection):
            ssh.give(process, b"")
        await asyncio.gather(
            _lines(connection, process.stdout, lambda line: on_line(line, False)),
            _lines(connection, process.stderr, lambda line: on_line(line, True)),
        )
        with _translated(connection):
            await process.wait_closed()
    except HostError:
        raise
    except BaseException:
        # in a task of its own, as Python 3.11.2 takes the end of a timeout for another cancellation in this one
        await asyncio.create_task(_end(connection, process, by_force))
        raise
    if process.returncode is None:
        raise lost(connection, "while a command ran")
    return process.returncode


@contextlib.contextmanager
def _translated(connection: asyncssh.SSHClientConnection) -> Iterator[None]:
    """Makes a HostError of what the connection raises in a block; `on_line` must be called elsewhere."""
    try:
        yield
    except (asyncssh.Error, OSError) as error:
        raise lost(connection, "while a command ran", error) from error


async def _lines(
    connection: asyncssh.SSHClientConnection, stream: asyncssh.SSHReader, on_line: Callable[[str], None]
) -> None:
    """Reports lines as they are complete; a carriage return by itself, as progress bars print it, ends one too."""
    waiting = b""
    while True:
        with _translated(connection):
            chunk = await stream.read(_LONGEST)
        if not chunk:
            break
        *lines, waiting = _LINE_END.split(waiting + chunk)
        if len(waiting) > _LONGEST:
            lines, waiting = [*lines, waiting], b""
        for line in lines:
            on_line(line.decode(errors="replace"))
    if waiting:
        on_line(waiting.rstrip(b"\r").decode(errors="replace"))


async def _end(connection: asyncssh.SSHClientConnection, process: asyncssh.SSHClientProcess, by_force: bool) -> None:
    """Ends a command; closing its channel alone would leave it running.

    OpenSSH refuses signals for commands of root without a word, so the second attempt sends them by a command.
    """
    with contextlib.suppress(asyncssh.Error, OSError, TimeoutError):
        process.terminate()
        await process.redirect(stdout=asyncssh.DEVNULL, stderr=asyncssh.DEVNULL)  # the end comes after all output
        async with asyncio.timeout(_GRACE_SECONDS):
            await process.wait_closed()
        return
    if by_force:
        with contextlib.suppress(asyncssh.Error, OSError, TimeoutError, HostError):
            async with asyncio.timeout(_FORCE_SECONDS):
                await ssh.run(connection, "exec sh -s", input=_END_OTHERS.encode())
                await process.wait_closed()
            return
    with contextlib.suppress(asyncssh.Error, OSError):
        process.kill()
        process.close()
