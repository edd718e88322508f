"""Hosts as a user writes them: a list such as `raspi1,pi@raspi2:2222`, or a file with one host a line."""

import getpass
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rudel.errors import HostError
from rudel.files import expanded

REMOTE_FOLDER = ".rudel"
"""Rudel's folder on a host, relative to the home folder there."""

REMOTE_PYTHON = f"{REMOTE_FOLDER}/env/bin/python"
"""The Python of the environment that `rudel hosts setup` makes, relative to the home folder of the host."""

COMPUTER = """echo $(cat /proc/sys/kernel/random/boot_id && readlink /proc/self/ns/net && readlink /proc/self/ns/uts)"""
"""Prints, in a shell on a host, what tells a computer or container from all others, by whatever name it is reached."""

_FORM = re.compile(
    r"(?:(?P<user>[^\s,\[\]]+)@)?(?:\[(?P<address>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<name>[^\s,:@\[\]]+))(?::(?P<port>\d+))?"
)


@dataclass(frozen=True)
class Host:
    """A computer reached by SSH.

    Args:
        name: as the user wrote it: an alias of `~/.ssh/config`, a DNS name or an address; IPv6 without brackets.
        user: who logs in there; None for what the SSH configuration says, else the local user.
        port: of its SSH server; None for what the SSH configuration says, else 22.
        python: an interpreter on the host whose environment is used in the place of the one that Rudel sets up there,
            absolute, relative to the home folder, or a command found there.

    >>> str(Host("fe80::1", user="pi", port=2222))
    'pi@[fe80::1]:2222'
    """

    name: str
    user: str | None = None
    port: int | None = None
    python: str | None = None

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{user}{name}{f':{self.port}' if self.port else ''}"


def parse_hosts(given: str | Path | Sequence[str | Host]) -> tuple[Host, ...]:
    """Hosts from a text with commas, from a sequence, or from a file.

    Args:
        given: a text such as `raspi1,pi@raspi2:2222,[fe80::2%wlan0]`; the path of a file, as a text or a `Path`, with
            one host a line, after it optionally `python=PATH`, and comments after `#`; or a sequence of hosts, as texts
            or as `Host`.

    Returns:
        At least one host, none twice, in the order given.

    Raises:
        HostError: a host is malformed or given twice, there is none, or the file cannot be read.

    >>> [str(host) for host in parse_hosts("raspi1, pi@raspi2:2222")]
    ['raspi1', 'pi@raspi2:2222']
    """
    if isinstance(given, Path):
        hosts = _read(expanded(given))
    elif not isinstance(given, str):
        parts = list(given) if isinstance(given, Iterable) else [given]
        if wrong := [part for part in parts if not isinstance(part, str | Host)]:
            raise HostError(f"{wrong[0]!r:.100} is not a host: write hosts as in `raspi1,pi@raspi2`, or in a list.")
        hosts = [part if isinstance(part, Host) else _parse(part.strip(), "") for part in parts]
    elif _is_file(given):
        hosts = _read(expanded(given))
    elif not given.strip():
        hosts = []
    else:
        hosts = [_parse(part.strip(), f" in `{given}`" if "," in given else "") for part in given.split(",")]
    if not hosts:
        raise HostError("No host was given: write them as in `raspi1,pi@raspi2`, or give the path of a hosts file.")
    for place, host in enumerate(hosts):
        if any((host.name, host.user, host.port) == (other.name, other.user, other.port) for other in hosts[:place]):
            raise HostError(f"The host `{host}` is given twice: give each host once.")
    return tuple(hosts)


def local_user() -> str:
    """The name of the user here; the number where it has none, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the latter since Python 3.13
        return str(os.getuid())


def remote_python(host: Host) -> str:
    """The interpreter of a host's environment, quoted for a shell that starts in the home folder there.

    >>> remote_python(Host("raspi1")), remote_python(Host("raspi1", python="~/my env/bin/python"))
    ('.rudel/env/bin/python', "'my env/bin/python'")
    """
    return shlex.quote((host.python or REMOTE_PYTHON).removeprefix("~/"))


def _is_file(given: str) -> bool:
    if "/" not in given and "," in given:
        return False
    path = expanded(given)
    try:
        if path.exists() and not path.is_dir():  # it may be a pipe
            return True
    except OSError:  # it may not be looked at
        return "/" in given
    if "/" in given or given.endswith(".txt"):
        raise HostError(f"There is no hosts file `{given}`: give an existing file, or hosts as in `raspi1,pi@raspi2`.")
    return False


def _read(path: Path) -> list[Host]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(f"The hosts file `{path}` cannot be read ({error}).") from error
    hosts = []
    for number, line in enumerate(lines, start=1):
        where = f" in line {number} of `{path}`"
        words = line.partition("#")[0].split(maxsplit=1)
        if words:
            hosts.append(_parse(words[0], where, _python(words[1], where) if len(words) > 1 else None))
    if not hosts:
        raise HostError(f"The hosts file `{path}` names no host: write one host a line.")
    return hosts


def _python(option: str, where: str) -> str:
    key, equals, value = option.strip().partition("=")
    if key.strip() != "python" or not equals or not value.strip():
        raise HostError(f"Only `python=PATH` may follow a host, not `{option.strip()}`{where}.")
    return value.strip()


def _parse(text: str, where: str, python: str | None = None) -> Host:
    form = _FORM.fullmatch(text)
    if not form or text.startswith("-"):
        hint = f"; write an IPv6 address in brackets, as in `[{text}]`" if text.count(":") > 1 else ""
        raise HostError(
            f"`{text}` is not a host{where}: it has the form `name`, `user@name` or `user@name:port`{hint}."
        )
    if form["port"] and (len(form["port"].lstrip("0")) > 5 or not 0 < int(form["port"]) < 65536):
        raise HostError(f"The port of `{text}`{where} must be from 1 to 65535.")
    port = int(form["port"]) if form["port"] else None
    return Host(form["address"] or form["name"], form["user"], port, python)
