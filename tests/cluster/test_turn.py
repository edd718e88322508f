"""The lock on a host that is set up."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncssh
import pytest

from rudel.cluster.hosts import Host
from rudel.cluster.probe import Interpreter
from rudel.cluster.setup_lock import turn


class _Open(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False


async def _give(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Answers as a host that nobody else sets up."""
    process.stdout.write(b"has it\n")
    await process.stdin.read()
    process.exit(0)


@asynccontextmanager
async def _connected() -> AsyncIterator[asyncssh.SSHClientConnection]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_host_keys=[key], server_factory=_Open, process_factory=_give, encoding=None
    )
    async with (
        server,
        asyncssh.connect(
            "127.0.0.1", server.get_port(), known_hosts=None, username="user", client_keys=None, config=None
        ) as connection,
    ):
        yield connection


def test_an_error_of_this_computer_is_not_a_lost_connection() -> None:
    python = Interpreter(sys.executable, sys.version_info[:3], 64, "CPython", whole=True)

    async def set_up() -> None:
        async with _connected() as connection, turn(connection, Host("one"), python, lambda: None) as waited:
            assert not waited
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left on device"):
        asyncio.run(set_up())
