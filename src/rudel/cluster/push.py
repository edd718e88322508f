"""`rudel hosts push`: files and folders sent to every host, those left out that are there and alike."""

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import asyncssh

from rudel.cluster import ssh
from rudel.cluster.hosts import Host, parse_hosts
from rudel.cluster.task_groups import for_each, tasks
from rudel.cluster.uploads import PART, Uploads, reading, uploads
from rudel.errors import HostError, option
from rudel.files import expanded

_AT_ONCE = 16


@dataclass(frozen=True)
class Pushed:
    """Files that were sent to a host.

    Args:
        host: where it was sent.
        problem: why it is not all there, in one sentence; None where it is.
        files: that were sent.
        alike: files that were there already.
        sent: bytes.
    """

    host: Host
    problem: str | None
    files: int
    alike: int
    sent: int


OnProgress = Callable[[Host, int, int], None]
"""Called with a host, the bytes that are done and the bytes in all."""


async def push_to_hosts(
    hosts: str | Sequence[str | Host],
    path: Path,
    to: str = ".",
    ssh_config: Path | None = None,
    on_progress: OnProgress = lambda host, done, total: None,
) -> tuple[Pushed, ...]:
    """Sends a file, or a folder with all that is in it, to all hosts at once.

    A file is alike where its size and its time of change are those of the file here. Links are followed.

    Args:
        hosts: as for `parse_hosts`.
        path: of the file or folder here; it keeps its name there.
        to: the folder there, relative to the home folder (also with `~/`) or absolute; made if it is not there.
        ssh_config: an SSH configuration in the place of `~/.ssh/config`.
        on_progress: called as bytes are sent.

    Returns:
        What was sent to each host, in their order; a host that fails does not stop the others.

    Raises:
        HostError: the hosts or `to` cannot be understood, or there is nothing at `path`, or a folder that cannot be
            read.
    """
    parsed, folder = parse_hosts(hosts), _folder_there(to)
    with reading(path):
        files = await asyncio.to_thread(_files, path)
        total = sum(file.stat().st_size for found in files.values() for file in found)

    async def one(host: Host) -> Pushed:
        work = _Push(files, total, folder, lambda done, total: on_progress(host, done, total))
        try:
            async with ssh.connected(host, ssh_config) as connection, uploads(connection) as there:
                await work.go(there)
        except HostError as error:
            return Pushed(host, str(error), work.files, work.alike, work.sent)
        return Pushed(host, None, work.files, work.alike, work.sent)

    return await for_each(parsed, one)


class _Push:
    """The files for one host, and what has become of them."""

    def __init__(
        self, files: dict[str, list[Path]], total: int, to: str, on_progress: Callable[[int, int], None]
    ) -> None:
        self._folders, self._to, self._on_progress = files, to, on_progress
        self._total, self._done = total, 0
        self.files, self.alike, self.sent = 0, 0, 0

    async def go(self, there: Uploads) -> None:
        at_once = asyncio.Semaphore(_AT_ONCE)
        for folder, paths in self._folders.items():
            remote = f"{self._to}/{folder}" if folder else self._to
            await there.make_folder(remote)
            found = await there.there(remote)
            async with tasks() as group:
                for path in paths:
                    group.create_task(self._send(there, path, f"{remote}/{path.name}", found.get(path.name), at_once))

    async def _send(
        self,
        there: Uploads,
        path: Path,
        remote: str,
        found: asyncssh.SFTPAttrs | None,
        at_once: asyncio.Semaphore,
    ) -> None:
        with reading(path):
            status = path.stat()
        if found and (found.size, found.mtime) == (status.st_size, int(status.st_mtime)):
            self.alike += 1
            self._advance(status.st_size)
            return
        async with at_once:
            count = await there.upload(path, remote, self._advance)
            self.sent, self.files = self.sent + count, self.files + 1

    def _advance(self, count: int) -> None:
        self._done += count
        self._on_progress(self._done, self._total)


def _folder_there(to: str) -> str:
    """The folder on a host, absolute or relative to the home folder.

    Raises:
        HostError: it is empty, or in the home folder of a user who is named.
    """
    first, _, rest = to.partition("/")
    if not to:
        raise HostError(f"{option('to')} is empty: name a folder, or leave it out for the home folder.")
    if first == "~":
        return rest.lstrip("/") or "."
    if first.startswith("~"):
        raise HostError(f"Files cannot be sent to `{to}`: give the absolute path of the folder, or `./{to}`.")
    return to


def _files(path: Path) -> dict[str, list[Path]]:
    """All files to be sent, by the folder that they go to; folders without files as well.

    Raises:
        HostError: there is nothing at the path, or it has no name.
        OSError: a folder cannot be read.
    """
    path = expanded(path)
    if _is_file(path):
        return {"": [path]}
    if not path.is_dir():
        raise HostError(f"There is nothing to send at `{path}`: give an existing file or folder.")
    path = path.resolve() if path.name in ("", "..") else path.absolute()
    if not path.name:
        raise HostError(f"`{path}` has no name that it could have on a host: give a folder in it.")
    found = {}
    inside: dict[str, set[str]] = {}  # by a folder that is sent, the real ones that it lies in, and its own
    for folder, folders, names in os.walk(path, onerror=_refuse, followlinks=True):
        real, around = os.path.realpath(folder), inside.get(str(Path(folder).parent), set())
        if real in around:  # a link that goes in circles
            folders.clear()
            continue
        inside[folder] = {*around, real}
        place = Path(path.name) / Path(folder).relative_to(path)
        whole = (name for name in sorted(names) if not name.endswith(PART))  # others are of a push to this computer
        found[place.as_posix()] = [file for name in whole if _is_file(file := Path(folder, name))]
    return found


def _is_file(path: Path) -> bool:
    """Whether there is a file at a path, or at the end of a link; `Path.is_file` hides some errors, by the Python.

    Raises:
        OSError: that cannot be found out.
    """
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise


def _refuse(error: OSError) -> NoReturn:
    """Ends a walk at a folder that cannot be read, which would be left out otherwise."""
    raise error
