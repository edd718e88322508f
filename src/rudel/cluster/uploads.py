"""Files sent to a host over SFTP: each is wholly there or not at all.

A file grows under another name, which no file of the user has, and is renamed when it is complete. What was broken off
goes on where it stopped, for files whose name says what is in them.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from rudel.cluster.ssh_failures import lost, reason
from rudel.cluster.task_groups import tasks
from rudel.errors import HostError

PART = ".rudel-part"
"""How names of incomplete files end."""

_BLOCK, _ON_THE_WAY = 1 << 15, 64
_LOST = (asyncssh.SFTPNoConnection, asyncssh.SFTPConnectionLost)


@dataclass(frozen=True)
class Uploads:
    """A way for files to a host. All paths there are absolute, or relative to the home folder.

    Args:
        connection: to the host.
        sftp: the session.
    """

    connection: asyncssh.SSHClientConnection
    sftp: asyncssh.SFTPClient

    async def there(self, folder: str) -> dict[str, asyncssh.SFTPAttrs]:
        """Files in a folder, by name; empty where there is no such folder."""
        with self._translating_errors(f"`{folder}` could not be read"), contextlib.suppress(asyncssh.SFTPNoSuchFile):
            return {str(entry.filename): entry.attrs for entry in await self.sftp.readdir(folder)}
        return {}

    async def make_folder(self, folder: str) -> None:
        """Makes a folder and those above it; it may be there."""
        with self._translating_errors(f"the folder `{folder}` could not be made"):
            await self.sftp.makedirs(folder, exist_ok=True)

    async def upload(
        self,
        source: Path | bytes,
        destination: str,
        sent: Callable[[int], None] = lambda count: None,
        *,
        resume: bool = False,
    ) -> int:
        """Sends one file, with its permissions and its time of change where it is a file here.

        Args:
            source: a file here, or the content itself.
            destination: path there; its folder exists.
            sent: called with the bytes of each block that has arrived.
            resume: go on with what an earlier attempt left.

        Returns:
            Bytes that were sent.

        Raises:
            HostError: the source cannot be read; the disk there is full, the folder cannot be written or has a folder
                of that name in it, or the connection was lost.
        """
        part = part_of(destination)
        if isinstance(source, bytes):
            total, attributes = len(source), None
        else:
            with reading(source):
                status = source.stat()  # before its content: a file that changes meanwhile differs from the one there
            total, attributes = status.st_size, _attributes(status)
        with self._translating_errors(f"`{destination}` could not be written"):
            begin = await self._size(part) if resume else 0
            begin = begin if begin <= total else 0
            file = await self.sftp.open(part, "r+b" if begin else "wb", block_size=0)
            await _write(file, source, begin, sent)
            await file.close()
            if attributes:
                await self.sftp.setstat(part, attributes)
            await self._rename(part, destination)
        return total - begin

    async def _size(self, path: str) -> int:
        with contextlib.suppress(asyncssh.SFTPNoSuchFile):
            return (await self.sftp.stat(path)).size or 0
        return 0

    async def _rename(self, part: str, destination: str) -> None:
        try:
            await self._replace(part, destination)
        except asyncssh.SFTPFailure:
            if not await self.sftp.isdir(destination):
                raise
            await self.sftp.remove(part)
            name = self.connection.get_extra_info("rudel_host")
            raise HostError(
                f"On `{name}` `{destination}` is a folder, and a file of that name is to be sent: rename one of them."
            ) from None

    async def _replace(self, part: str, destination: str) -> None:
        try:
            await self.sftp.posix_rename(part, destination)
        except asyncssh.SFTPOpUnsupported:
            with contextlib.suppress(asyncssh.SFTPNoSuchFile):
                await self.sftp.remove(destination)
            await self.sftp.rename(part, destination)

    @contextlib.contextmanager
    def _translating_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except _LOST as error:
            raise lost(self.connection, "while a file was sent", error) from error
        except (asyncssh.SFTPError, OSError) as error:
            why = reason(error)
            why = "the disk is full, or a quota is reached?" if why == "Failure" else why
            raise HostError(f"On `{self.connection.get_extra_info('rudel_host')}` {what} ({why}).") from error
        except asyncssh.Error as error:
            raise lost(self.connection, "while a file was sent", error) from error


@contextlib.asynccontextmanager
async def uploads(connection: asyncssh.SSHClientConnection) -> AsyncIterator[Uploads]:
    """A way for files, for the length of a block.

    Raises:
        HostError: the SSH server of the host offers no SFTP.
    """
    try:
        sftp = await connection.start_sftp_client(path_errors="surrogateescape")  # as names of files are in Python
    except (asyncssh.Error, OSError) as error:
        name = connection.get_extra_info("rudel_host")
        raise HostError(
            f"`{name}` takes no files over SFTP ({reason(error)}): switch that on in its SSH server."
        ) from error
    try:
        yield Uploads(connection, sftp)
    finally:
        sftp.exit()


def part_of(destination: str) -> str:
    """The path under which a file grows, in the folder where it is to be.

    >>> part_of("data/images.npy")
    'data/.db2b474d443c8277.rudel-part'
    """
    folder, slash, name = destination.rpartition("/")
    return f"{folder}{slash}.{hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest()}{PART}"


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Translates errors of a block that reads a file or folder of this computer.

    Raises:
        HostError: it, or something in it, cannot be read.
    """
    try:
        yield
    except OSError as error:
        raise HostError(
            f"`{error.filename or path}` cannot be read on this computer ({error.strerror or reason(error)}): correct "
            "that and try again."
        ) from error


def _attributes(status: os.stat_result) -> asyncssh.SFTPAttrs:
    """The permissions and times of a file here, times in whole seconds as SFTP has them."""
    return asyncssh.SFTPAttrs(
        permissions=status.st_mode & 0o777, atime=int(status.st_atime), mtime=int(status.st_mtime)
    )


async def _write(
    file: asyncssh.SFTPClientFile, source: Path | bytes, position: int, sent: Callable[[int], None]
) -> None:
    """Writes the rest of a source, with some blocks on their way at any time.

    An open file is not closed after an error, since the answer to that may never come; it ends with the session.
    """
    on_the_way = asyncio.Semaphore(_ON_THE_WAY)

    async def write(block: bytes, position: int) -> None:
        try:
            await file.write(block, position)
        finally:
            on_the_way.release()
        sent(len(block))

    async with tasks() as group:
        for block in _blocks(source, position):
            await on_the_way.acquire()
            group.create_task(write(block, position))
            position += len(block)


def _blocks(source: Path | bytes, begin: int) -> Iterator[bytes]:
    if isinstance(source, bytes):
        for start in range(begin, len(source), _BLOCK):
            yield source[start : start + _BLOCK]
        return
    with reading(source), source.open("rb") as file:
        file.seek(begin)
        while block := file.read(_BLOCK):
            yield block
