"""The keys of hosts that the user has accepted, looked up as OpenSSH does.

Guarantee: a key counts as known only where a line for the very name says so. AsyncSSH by itself would also take a key
that is known for the address which the name happens to have now, and, where the configuration names no file at all,
every key; neither happens here.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh

from rudel.errors import HostError
from rudel.internals.asyncssh import get_default_certificate_algs, get_default_public_key_algs, host_keys

_DEFAULT_PORT = 22


class KnownHosts(asyncssh.SSHKnownHosts):
    """Host keys from `known_hosts` files.

    Args:
        own: the user's; a new key is written to the first. Files that do not exist are empty, and lines that cannot be
            read are skipped, as OpenSSH does.
        shared: those of the system.
    """

    def __init__(self, own: Sequence[Path], shared: Sequence[Path] = ()) -> None:
        super().__init__()
        self._own = tuple(own)
        for file in (*own, *shared):
            for line in _lines(file):
                try:
                    self.load(line)
                except ValueError:
                    continue

    def match(self, host: str, addr: str, port: int | None) -> Any:
        """Returns the known keys of a host to AsyncSSH: by its name and port, with the address left out.

        Host keys that are known without the port are left out as well, and compared when the host has shown its own:
        another server may answer at that port, whose key is then an unknown one and not a changed one.
        """
        name = host.lower()
        found = super().match(name, "", port)
        if not port or self.keys(host, port):
            return found
        return ((), *found[1:])

    def keys(self, host: str, port: int | None) -> list[asyncssh.SSHKey]:
        """The host keys on lines with this name and port; None and 22 are the same port."""
        exact = None if port == _DEFAULT_PORT else port
        return host_keys(self, host.lower(), exact)

    def algorithms(self, host: str, port: int) -> list[str]:
        """Kinds of keys to ask a host for: those that are known for it first, so that it shows one to be compared."""
        known = self.keys(host, port) or self.keys(host, None)
        first = [algorithm for key in known for algorithm in key.sig_algorithms]
        first = (get_default_certificate_algs() if self._match(host.lower(), "", None)[1] else []) + first
        return [name.decode() for name in dict.fromkeys([*first, *get_default_public_key_algs()])]

    def remember(self, host: str, port: int, key: asyncssh.SSHKey) -> None:
        """Writes a new key to the user's first file, and makes the folder and the file where there are none.

        Raises:
            HostError: there is no such file in the SSH configuration, or it cannot be written.
        """
        if not self._own or self._own[0] == Path(os.devnull):
            raise HostError(
                f"The key of `{host}` cannot be accepted: the SSH configuration names no file for it "
                "(`UserKnownHostsFile`)."
            )
        file = self._own[0]
        name = host.lower() if port == _DEFAULT_PORT else f"[{host.lower()}]:{port}"
        line = f"{name} {key.export_public_key().decode().split(' ')[0]} {_body(key)}\n"
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            there = file.read_bytes() if file.exists() else b""
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write((b"\n" if there and not there.endswith(b"\n") else b"") + line.encode())
        except OSError as error:
            raise HostError(f"The key of `{host}` cannot be written to `{file}` ({error}).") from error
        self.load(line)


def _body(key: asyncssh.SSHKey) -> str:
    return key.export_public_key().decode().split()[1]


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise HostError(f"The known hosts in `{file}` cannot be read ({error}).") from error
