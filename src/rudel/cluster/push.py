"""`rudel hosts push`: files and folders sent to every host, those left out that are there and alike."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from rudel.cluster import ssh
from rudel.cluster.hosts import Host, parse_hosts
from rudel.cluster.task_groups import for_each, tasks
from rudel.cluster.uploads import PART, Uploads, uploads
from rudel.errors import HostError
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
        to: the folder there, relative to the home folder or absolute; made if it is not there.
        ssh_config: an SSH configuration in the place of `~/.ssh/config`.
        on_progress: called as bytes are sent.

    Returns:
        What was sent to each host, in their order; a host that fails does not stop the others.

    Raises:
        HostError: the hosts cannot be understood, or there is nothing at `path`.
    """
    parsed, files = parse_hosts(hosts), await asyncio.to_thread(_files, path)

    async def one(host: Host) -> Pushed:
        work = _Push(
            files,
            to.removeprefix("~").lstrip("/") or "." if to.startswith("~") else to,
            lambda done, total: on_progress(host, done, total),
        )
        try:
            async with ssh.connected(host, ssh_config) as connection, uploads(connection) as there:
                await work.go(there)
        except HostError as error:
            return Pushed(host, str(error), work.files, work.alike, work.sent)
        return Pushed(host, None, work.files, work.alike, work.sent)

    return await for_each(parsed, one)


class _Push:
    """The files for one host, and what has become of them."""

    def __init__(self, files: dict[str, list[Path]], to: str, on_progress: Callable[[int, int], None]) -> None:
        self._folders, self._to, self._on_progress = files, to, on_progress
        self._total = sum(path.stat().st_size for paths in files.values() for path in paths)
        self._done = 0
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


def _files(path: Path) -> dict[str, list[Path]]:
    """All files to be sent, by the folder that they go to; folders without files as well."""
    path = expanded(path)
    if path.is_file():
        return {"": [path]}
    if not path.is_dir():
        raise HostError(f"There is nothing to send at `{path}`: give an existing file or folder.")
    path = path.resolve() if path.name in ("", "..") else path.absolute()
    if not path.name:
        raise HostError(f"`{path}` has no name that it could have on a host: give a folder in it.")
    found = {}
    inside: dict[str, set[str]] = {}  # by a folder that is sent, the real ones that it lies in, and its own
    for folder, folders, names in os.walk(path, followlinks=True):
        real, around = os.path.realpath(folder), inside.get(str(Path(folder).parent), set())
        if real in around:  # a link that goes in circles
            folders.clear()
            continue
        inside[folder] = {*around, real}
        place = Path(path.name) / Path(folder).relative_to(path)
        whole = (name for name in sorted(names) if not name.endswith(PART))  # others are of a push to this computer
        found[place.as_posix()] = [Path(folder, name) for name in whole if Path(folder, name).is_file()]
    return found
