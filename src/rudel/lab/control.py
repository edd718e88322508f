"""Control of a running lab: cut nodes off, let them crash, count their traffic, run commands in them."""

import json
import os
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudel.errors import LabError
from rudel.lab import air, running_labs, tap
from rudel.lab.node import HOME, PATH, USER, home_of
from rudel.lab.quota import groups
from rudel.lab.running_labs import Running
from rudel.lab.settings import check_air, check_cpu

_TIMEOUT = 10.0  # seconds
_AGAIN = 0.01  # seconds between two looks whether a node runs


@dataclass(frozen=True)
class Traffic:
    """Traffic that a station has sent.

    Args:
        bytes: of Ethernet frames, headers included.
        frames: how many.
    """

    bytes: int
    frames: int


def ask(lab: str, request: dict[str, Any]) -> dict[str, Any]:
    """Has the air of a lab do something; see `rudel.lab.air.Air.answer`.

    Raises:
        LabError: it does not answer.
    """
    try:
        with running_labs.connect(lab) as asking:
            asking.settimeout(_TIMEOUT)
            asking.send(json.dumps(request).encode())
            return json.loads(asking.recv(1 << 16))
    except OSError as error:
        raise LabError(f"The network of the lab `{lab}` does not answer: stop it with `rudel lab down`.") from error


def traffic(lab: str, reset: bool = False) -> dict[str, Traffic]:
    """Traffic that every station has sent, the desktop too, at this moment.

    Args:
        lab: name of the lab.
        reset: whether to count from 0 again, from this moment on.

    Raises:
        LabError: the lab does not answer.
    """
    sent = ask(lab, {"reset": reset})["sent"]
    return {name: Traffic(**counted) for name, counted in sent.items()}


def cut(lab: Running, name: str) -> None:
    """Cuts a node off: it hears nothing and is not heard, nothing is closed, and no host is notified."""
    ask(lab.name, {"cut": [lab.node(name).name]})


def heal(lab: Running, name: str) -> None:
    """Lets a node that was cut off be heard again."""
    ask(lab.name, {"heal": [lab.node(name).name]})


def crash(lab: Running, name: str) -> None:
    """Kills all processes of a node at once, as `kill -9` does; they are gone when this returns. It then starts again.

    Raises:
        LabError: there is no such node, or a process does not end.
    """
    process = os.pidfd_open(_process(lab, name))
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        ended, _, _ = select.select([process], (), (), _TIMEOUT)
    except ProcessLookupError:
        return
    finally:
        os.close(process)
    if not ended:
        raise LabError(f"The processes of `{name}` do not end: look at what they wait for.")


def change_cpu(lab: Running, name: str, share: float) -> None:
    """Gives a node another share of the processor, as a computer that throttles itself has when it gets too hot.

    Args:
        lab: the lab.
        name: of the node.
        share: cores that all of its processes together may use from now on.

    Raises:
        LabError: there is no such node, or it cannot have that share.
    """
    check_cpu(share)
    groups().limit(lab.name, lab.node(name).name, share)


def change_air(lab: Running, rate: float | None = None, latency: float | None = None) -> None:
    """Changes the air from now on.

    Args:
        lab: the lab.
        rate: Mbit/s.
        latency: ms from the last bit sent to the frame received.

    Raises:
        LabError: it cannot be so.
    """
    check_air(lab.settings.rate if rate is None else rate, lab.settings.latency if latency is None else latency)
    request = {}
    if rate is not None:
        request["rate"] = rate * 1e6
        burst = air.segments_per_burst(rate * 1e6)
        tap.run_ip(tap.tuning(lab.settings.tap, burst))
        for name in lab.settings.hosts:
            tap.run_ip(tap.tuning(tap.DEVICE, burst), f"/proc/{_process(lab, name)}/ns/net")
    if latency is not None:
        request["latency"] = latency / 1e3
    ask(lab.name, request)


def command(lab: Running, name: str, arguments: Sequence[str], root: bool = False) -> list[str]:
    """A command that runs another one in a node, within its quota, in the home of the user, and as long as it lives.

    Args:
        lab: the lab.
        name: of the node.
        arguments: the command and its arguments.
        root: whether it runs as root and not as `pi`.

    Raises:
        LabError: there is no such node, or it does not run.
    """
    owner = home_of(lab.settings, lab.node(name)).stat()
    user, group = (0, 0) if root else (owner.st_uid, owner.st_gid)
    home, who = ("/root", "root") if root else (HOME, USER)
    joined = groups().member_file(lab.name, name)
    environment = [f"HOME={home}", f"USER={who}", f"LOGNAME={who}", "SHELL=/bin/bash", f"PATH={PATH}"]
    environment += [f"{key}={os.environ[key]}" for key in ("TERM", "LANG") if key in os.environ]
    inside = ["nsenter", f"--target={_process(lab, name)}", "--net", "--uts", "--ipc", "--mount", "--pid", "--"]
    inside += ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--pdeathsig=KILL", "--"]
    inside += ["env", "-i", *environment, "sh", "-c", 'cd && exec "$@"', "sh", *arguments]
    return ["sh", "-c", 'echo 0 > "$0" && exec "$@"', str(joined), *inside]


def _process(lab: Running, name: str) -> int:
    """The number of the first process of a node; waits for one that is starting again."""
    lab.node(name)
    deadline = time.monotonic() + _TIMEOUT
    while time.monotonic() < deadline:
        now = running_labs.find(lab.name)
        process = now.processes.get(name)
        if process is not None and _is_child(process, now.keeper):
            return process
        time.sleep(_AGAIN)
    raise LabError(f"The node `{name}` does not start again: see {lab.settings.folder(lab.node(name)) / 'log'}.")


def _is_child(process: int, parent: int) -> bool:
    try:
        state, its_parent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return False
    return int(its_parent) == parent and state != "Z"
