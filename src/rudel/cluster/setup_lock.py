"""A lock on a host: one set-up at a time; released when its holder or the connection is gone."""

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Callable

import asyncssh

from rudel.cluster.hosts import REMOTE_FOLDER, Host
from rudel.cluster.probe import Interpreter
from rudel.cluster.ssh_failures import lost
from rudel.errors import HostError

_BEAT_SECONDS, _SILENCE_SECONDS = 10.0, 60

_HOLD = f"""
import fcntl, os, select
os.makedirs({REMOTE_FOLDER!r}, exist_ok=True)
folder = os.open({REMOTE_FOLDER!r}, os.O_RDONLY)
try:
    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("\\nwaits", flush=True)
    fcntl.flock(folder, fcntl.LOCK_EX)
print("\\nhas it", flush=True)
while select.select([0], [], [], {_SILENCE_SECONDS})[0] and os.read(0, 100):
    pass
"""


@contextlib.asynccontextmanager
async def turn(
    connection: asyncssh.SSHClientConnection, host: Host, python: Interpreter, waits: Callable[[], None]
) -> AsyncIterator[bool]:
    """Waits until nobody else sets up the host, and keeps others waiting for the length of a block.

    Args:
        connection: to the host.
        host: for the sentences.
        python: an interpreter there.
        waits: called when somebody else is at it.

    Yields:
        Whether somebody else was, so that what was known of the host may have changed.

    Raises:
        HostError: the folder for Rudel cannot be made there, or the connection was lost.
    """
    # in one line, as csh takes no line break in quotes
    command = f"exec {shlex.quote(python.path)} -c \"exec(bytes.fromhex('{_HOLD.encode().hex()}'))\""
    async with contextlib.AsyncExitStack() as stack:
        try:
            holder = await stack.enter_async_context(connection.create_process(command, encoding=None))
            waited, said = False, b""
            while said != b"has it\n" and (said := await holder.stdout.readline()):  # others are of the login shell
                if said == b"waits\n":
                    waited = True
                    waits()
            if not said:
                why = (await holder.stderr.read()).decode(errors="replace").strip().rpartition("\n")[2]
                raise HostError(f"On `{host}` the folder `{REMOTE_FOLDER}` cannot be locked ({why.rstrip('.')}).")
        except (asyncssh.Error, OSError) as error:
            raise lost(connection, "while it was set up", error) from error
        beat = asyncio.create_task(_beat(holder))
        try:
            yield waited
        finally:
            beat.cancel()
            with contextlib.suppress(OSError):
                holder.stdin.write_eof()


async def _beat(holder: asyncssh.SSHClientProcess[bytes]) -> None:
    """Says every now and then that this computer is still there."""
    with contextlib.suppress(OSError):
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            holder.stdin.write(b".")
