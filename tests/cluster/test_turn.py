"""The lock on a host that is set up."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncssh
import pytest

from rudel.cluster.hosts import Host
from rudel.cluster.probe import Interpreter
from rudel.cluster.setup_lock import turn
from rudel.errors import HostError

PYTHON = Interpreter(sys.executable, sys.version_info[:3], 64, "CPython", whole=True)


class _Open(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False


async def _give(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Answers as a host that nobody else sets up."""
    process.stdout.write(b"has it\n")
    await process.stdin.read()
    process.exit(0)


async def _greet(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Answers as a host whose login shell prints something, and that somebody else sets up at first."""
    process.stdout.write(b"Welcome\nto this computer\nwaits\n\n")
    await _give(process)


async def _refuse(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Answers as such a host whose home folder cannot be written."""
    process.stdout.write(b"Welcome\n")
    process.stderr.write(b"PermissionError: not here.\n")
    process.exit(1)


@asynccontextmanager
async def _connected(
    answer: Callable[[asyncssh.SSHServerProcess[bytes]], Awaitable[None]] = _give,
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_host_keys=[key], server_factory=_Open, process_factory=answer, encoding=None
    )
    async with (
        server,
        asyncssh.connect(
            "127.0.0.1", server.get_port(), known_hosts=None, username="user", client_keys=None, config=None
        ) as connection,
    ):
        yield connection


def test_an_error_of_this_computer_is_not_a_lost_connection() -> None:
    async def set_up() -> None:
        async with _connected() as connection, turn(connection, Host("one"), PYTHON, lambda: None) as waited:
            assert not waited
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left on device"):
        asyncio.run(set_up())


def test_what_a_login_shell_prints_is_passed_over() -> None:
    seen: list[str] = []

    async def set_up() -> None:
        async with (
            _connected(_greet) as connection,
            turn(connection, Host("one"), PYTHON, lambda: seen.append("waits")) as waited,
        ):
            assert waited

    asyncio.run(set_up())
    assert seen == ["waits"]


def test_the_command_has_no_line_break_which_csh_would_refuse() -> None:
    commands: list[str] = []

    async def answer(process: asyncssh.SSHServerProcess[bytes]) -> None:
        commands.append(process.command or "")
        await _give(process)

    async def set_up() -> None:
        async with _connected(answer) as connection, turn(connection, Host("one"), PYTHON, lambda: None):
            pass

    asyncio.run(set_up())
    (command,) = commands
    assert not set("\n!") & set(command)


def test_a_folder_that_cannot_be_locked_is_told_with_the_reason() -> None:
    async def set_up() -> None:
        async with _connected(_refuse) as connection, turn(connection, Host("one"), PYTHON, lambda: None):
            pass

    with pytest.raises(HostError, match=r"`.rudel` cannot be locked \(PermissionError: not here\)"):
        asyncio.run(set_up())
