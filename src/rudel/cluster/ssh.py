"""Connections to hosts over SSH, as the user's own SSH configuration, keys and agent allow.

Guarantee: nothing is sent to a host whose key is not known, and a changed key is never accepted. Every failure is a
`HostError` of one sentence that says which host, what happened, and what to do.
"""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from rudel.cluster.hosts import Host, parse_hosts
from rudel.cluster.known_hosts import KnownHosts
from rudel.cluster.ssh_config import read_settings
from rudel.cluster.ssh_failures import Attempt, lost, translated
from rudel.errors import HostError

_KEEPALIVE_SECONDS, _KEEPALIVE_COUNT = 5, 4
_CLOSING_SECONDS = 2.0
_LOOK_SECONDS = 0.01
_LONGEST_WAY = 8


@dataclass(frozen=True)
class Completed:
    """A command that has ended on a host.

    Args:
        stdout: what it printed.
        stderr: what it printed on standard error.
        exit_status: 0 to 255, or minus the number of the signal that ended it.
    """

    stdout: bytes
    stderr: bytes
    exit_status: int


async def connect(
    host: Host, ssh_config: Path | None = None, timeout: float = 15.0, *, accept_new: bool = False
) -> asyncssh.SSHClientConnection:
    """Connects to a host and logs in.

    A connection that is silent for 20 seconds counts as lost.

    Args:
        host: which one.
        ssh_config: an SSH configuration in the place of `~/.ssh/config`.
        timeout: seconds for connecting and logging in, and as long for each host on the way (`ProxyJump`).
        accept_new: whether the key of a host that was never seen is written to the known hosts. A changed key is
            refused even so.

    Raises:
        HostError: the host cannot be reached, is not the known one, or does not let the user in.
    """
    return await _connect(host, ssh_config, timeout, accept_new, None, _LONGEST_WAY)


@contextlib.asynccontextmanager
async def connected(
    host: Host, ssh_config: Path | None = None, timeout: float = 15.0, *, accept_new: bool = False
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """A connection, as of `connect`, for the length of a block."""
    connection = await connect(host, ssh_config, timeout, accept_new=accept_new)
    try:
        yield connection
    finally:
        with contextlib.suppress(TimeoutError, asyncssh.Error, OSError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await ended(connection, connection.close)


async def ended(connection: asyncssh.SSHClientConnection, end: Callable[[], None]) -> None:
    """Ends a connection by one of its methods, and waits until it is closed."""
    end()
    await connection.wait_closed()
    await _programs_ended(connection.get_extra_info("rudel_programs"))


async def _programs_ended(programs: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Waits for the programs of each `ProxyCommand`: AsyncSSH kills them and does not wait for their end.

    It is asyncio that learns of the end: it would warn of a program for which somebody else waited.
    """
    while any(program.returncode is None for program in programs):
        await asyncio.sleep(_LOOK_SECONDS)


def address_of(connection: asyncssh.SSHClientConnection) -> str | None:
    """The address at which a host is reached: empty behind a `ProxyJump`, None where `ProxyCommand` leads there."""
    peer = connection.get_extra_info("peername")
    return str(peer[0]) if peer else None


async def run(
    connection: asyncssh.SSHClientConnection,
    command: str,
    *,
    input: bytes | None = None,
    timeout: float | None = None,
) -> Completed:
    """Runs a command to its end.

    Args:
        connection: to the host.
        command: for the shell of the user there; it begins in the home folder.
        input: what the command reads on standard input.
        timeout: seconds after which it is terminated; None to wait for as long as the connection holds.

    Raises:
        HostError: the connection was lost, or the command did not end in time.
    """
    try:
        process = await connection.create_process(command, encoding=None)
        try:
            give(process, input or b"")
            ended = await process.wait(check=False, timeout=timeout)
        except BaseException:
            with contextlib.suppress(OSError):
                process.terminate()
            raise
    except TimeoutError as error:
        name = connection.get_extra_info("rudel_host")
        raise HostError(f"`{_brief(command)}` did not end within {timeout:g} s on `{name}`.") from error
    except (asyncssh.Error, OSError) as error:
        raise lost(connection, f"while `{_brief(command)}` ran", error) from error
    if ended.returncode is None:
        raise lost(connection, f"while `{_brief(command)}` ran")
    return Completed(bytes(ended.stdout or b""), bytes(ended.stderr or b""), ended.returncode)  # type: ignore[arg-type]


def give(process: asyncssh.SSHClientProcess, input: bytes) -> None:
    """Gives a command all that it shall read; one that has ended already reads nothing."""
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(input)
        process.stdin.write_eof()


class _Client(asyncssh.SSHClient):
    """Decides about keys that AsyncSSH does not know, and remembers what it saw."""

    def __init__(self, known: KnownHosts, accept_new: bool) -> None:
        self.known, self.accept_new = known, accept_new
        self.connected = False
        self.programs: tuple[subprocess.Popen[bytes], ...] = ()
        self.refused: asyncssh.SSHKey | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.connected = True
        if program := conn.get_extra_info("subprocess"):
            self.programs = (program,)

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        known_here = self.known.keys(host, port)
        if not known_here and key in self.known.keys(host, None):
            return True
        if not known_here and self.accept_new:
            self.known.remember(host, port, key)
            return True
        self.refused = key
        return False


async def _connect(
    host: Host,
    ssh_config: Path | None,
    timeout: float,
    accept_new: bool,
    tunnel: asyncssh.SSHClientConnection | None,
    hops: int,
) -> asyncssh.SSHClientConnection:
    settings = await asyncio.to_thread(read_settings, host, ssh_config)
    known = await asyncio.to_thread(KnownHosts, settings.known_hosts, settings.shared_known_hosts)
    if tunnel is None and settings.jump:
        tunnel = await _on_the_way(host, settings.jump, ssh_config, timeout, accept_new, hops)
    on_the_way = tunnel.get_extra_info("rudel_programs") if tunnel else ()
    client = _Client(known, accept_new)
    try:
        connection = await asyncssh.connect(
            host.name,
            port=settings.port,
            username=settings.user,
            options=settings.options,
            config=None,
            known_hosts=known,
            server_host_key_algs=() if settings.key_algorithms else known.algorithms(settings.alias, settings.port),
            client_factory=lambda: client,
            client_keys=[str(path) for path in settings.identities],
            client_certs=[str(path) for path in settings.certificates],
            ignore_encrypted=True,
            tunnel=tunnel,
            gss_kex=False,
            request_pty=False,
            connect_timeout=timeout,
            login_timeout=timeout,
            keepalive_interval=_KEEPALIVE_SECONDS,
            keepalive_count_max=_KEEPALIVE_COUNT,
        )
    except BaseException as error:
        if tunnel:
            tunnel.close()
        await _programs_ended(client.programs + on_the_way)
        if isinstance(error, HostError) or not isinstance(error, Exception):
            raise
        is_known = bool(known.keys(settings.alias, settings.port))
        stop = tunnel.get_extra_info("rudel_host") if tunnel else None
        raise translated(
            error, Attempt(host, settings, ssh_config, timeout, client.connected, client.refused, is_known, stop)
        ) from error
    connection.set_extra_info(rudel_host=str(host), rudel_programs=client.programs + on_the_way)
    if tunnel:
        connection.set_tunnel(tunnel)
    return connection


async def _on_the_way(
    host: Host, jump: str, ssh_config: Path | None, timeout: float, accept_new: bool, hops: int
) -> asyncssh.SSHClientConnection | None:
    """A connection to the last host of a `ProxyJump`, through those before it; None where it names the host itself."""
    way = parse_hosts([part.strip().removeprefix("ssh://") for part in jump.split(",")])
    if way[-1].name == host.name:
        return None
    if not hops:
        raise HostError(f"The route to `{host}` is circular: check `ProxyJump` in the SSH configuration.")
    connection = None
    for stop in way:
        connection = await _connect(stop, ssh_config, timeout, accept_new, connection, hops - 1)
    return connection


def _brief(command: str) -> str:
    first = command.strip().partition("\n")[0]
    return first if len(first) <= 60 else f"{first[:57]}..."
