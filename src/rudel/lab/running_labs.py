"""The labs that are up: /run/rudel-lab has a folder for each.

    keeper     a socket of the keeper; it can be connected to as long as that lives, however it ends
    control    a socket of the air, for requests to it
    lab.json   the settings, and the processes of keeper and nodes; there from when all nodes answer

So a folder to whose keeper nobody can connect belongs to a lab that was killed.
"""

import contextlib
import json
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudel.errors import LabError, option
from rudel.files import write_json
from rudel.lab.folder_lock import locked
from rudel.lab.settings import Node, Settings, from_document

_FOLDERS = Path("/run/rudel-lab")
_KEEPER, _CONTROL = "keeper", "control"


@dataclass(frozen=True)
class Running:
    """A lab that is up.

    Args:
        settings: those it was started with. Its air may have been changed since.
        keeper: number of the process that keeps it.
        processes: number of the first process of every node, by name.
    """

    settings: Settings
    keeper: int
    processes: dict[str, int]

    @property
    def name(self) -> str:
        """The name of the lab."""
        return self.settings.prefix

    def node(self, name: str) -> Node:
        """One of its nodes.

        Raises:
            LabError: it has none of that name.
        """
        for node in self.settings.nodes:
            if node.name == name:
                return node
        raise LabError(f"The lab `{self.name}` has no node `{name}`: {', '.join(self.settings.hosts)}.")


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Lets one process at a time begin a lab, or remove what a killed one has left."""
    with locked(_FOLDERS.parent):
        yield


def begin(lab: str) -> tuple[socket.socket, socket.socket]:
    """Makes the lab one that is up; call it inside `exclusive`.

    Returns:
        Socket of the keeper, until whose closing the lab is up; and socket of the air, non-blocking.

    Raises:
        LabError: the lab is up already.
    """
    if is_up(lab):
        raise LabError(
            f"The lab `{lab}` is up already: stop it with `rudel lab down --prefix {lab}`, or give another prefix."
        )
    forget(lab)
    (_FOLDERS / lab).mkdir(mode=0o700, parents=True)
    keeper, control = (_bound(_FOLDERS / lab / name) for name in (_KEEPER, _CONTROL))
    return keeper, control


def forget(lab: str) -> None:
    """Removes the folder of a lab."""
    shutil.rmtree(_FOLDERS / lab, ignore_errors=True)
    with contextlib.suppress(OSError):
        _FOLDERS.rmdir()


def record(running: Running) -> None:
    """Writes down a lab whose nodes answer."""
    document = {"settings": running.settings.document(), "keeper": running.keeper, "processes": running.processes}
    write_json(_FOLDERS / running.name / "lab.json", document)


def connect(lab: str) -> socket.socket:
    """Opens a way to the air of a lab.

    Raises:
        OSError: it is not up.
    """
    return _connected(_FOLDERS / lab / _CONTROL)


def is_up(lab: str) -> bool:
    """Whether the keeper of this lab lives."""
    try:
        _connected(_FOLDERS / lab / _KEEPER).close()
    except OSError:
        return False
    return True


def traces() -> list[str]:
    """Names of all labs that have a folder, whether they are up or were killed."""
    return sorted(path.name for path in _FOLDERS.glob("*"))


def labs() -> list[str]:
    """Names of all labs whose nodes answer."""
    return [lab for lab in traces() if is_up(lab) and _read(lab) is not None]


def find(lab: str) -> Running:
    """A lab that is up.

    Raises:
        LabError: it is not.
    """
    document = _read(lab) if is_up(lab) else None
    if document is None:
        others = " and ".join(f"`{name}`" for name in labs())
        raise LabError(
            f"No lab `{lab}` is up"
            + (f", but {others}: say which with {option('prefix')}." if others else _HOW_TO_START)
        )
    return Running(from_document(document["settings"]), document["keeper"], document["processes"])


def only() -> Running:
    """The one lab that is up.

    Raises:
        LabError: none is, or several are.
    """
    names = labs()
    if len(names) > 1:
        raise LabError(
            f"The labs {' and '.join(f'`{name}`' for name in names)} are up: say which with {option('prefix')}."
        )
    if not names:
        raise LabError("No lab is up" + _HOW_TO_START)
    return find(names[0])


def with_node(name: str) -> Running:
    """The lab that has a node of this name.

    Raises:
        LabError: none that is up has one.
    """
    found = [find(lab) for lab in labs()]
    for running in found:
        if name in running.settings.hosts:
            return running
    if not found:
        raise LabError("No lab is up" + _HOW_TO_START)
    there = ", ".join(host for running in found for host in running.settings.hosts)
    raise LabError(f"No lab has a node `{name}`: the nodes are {there}.")


_HOW_TO_START = ": start one with `rudel lab up`."


def _bound(path: Path) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    bound.bind(str(path))
    return bound


def _connected(path: Path) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        connected.bind("")  # to be answered at, by an address of the kernel's choice
        connected.connect(str(path))
    except OSError:
        connected.close()
        raise
    return connected


def _read(lab: str) -> dict[str, Any] | None:
    try:
        return json.loads((_FOLDERS / lab / "lab.json").read_text())
    except FileNotFoundError:
        return None
