"""The packages of a host's own system, brought up to date with apt-get."""

from collections.abc import Callable

import asyncssh

from rudel.cluster import ssh
from rudel.cluster.commands import follow
from rudel.cluster.hosts import Host
from rudel.errors import HostError

_KEEP_SETTINGS = "-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
_UPDATE = f"sudo -n apt-get update && sudo -n env DEBIAN_FRONTEND=noninteractive apt-get --yes {_KEEP_SETTINGS} upgrade"


async def update_system(
    connection: asyncssh.SSHClientConnection, host: Host, on_line: Callable[[str, bool], None]
) -> None:
    """Runs `apt-get update` and `apt-get upgrade` as root; settings that were changed by hand stay.

    Args:
        connection: to the host.
        host: for the sentences.
        on_line: called with each line of output, and whether it is on standard error.

    Raises:
        HostError: the host has no apt-get, sudo asks for a password, or the update failed.
    """
    if (await ssh.run(connection, "sh -c 'command -v apt-get >/dev/null'")).exit_status:
        raise HostError(
            f"`{host}` has no apt-get: update its system by its own means, and leave `--system-update` out."
        )
    if (await ssh.run(connection, "sudo -n true", timeout=30)).exit_status:
        raise HostError(
            f"sudo is not there on `{host}`, or asks for a password: update it there with `sudo apt-get update` and "
            "`sudo apt-get upgrade`, and leave `--system-update` out."
        )
    if status := await follow(connection, _UPDATE, on_line, by_force=False):  # dpkg is not to be killed
        raise HostError(f"The update of the system of `{host}` failed with exit status {status}: see its output.")
