"""Questions to a process of its own: a driver that hangs or crashes there takes nothing along."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rudel.doctor.answering import MARK
from rudel.errors import DoctorError

_BEGIN = re.compile(r"(WARNING|ERROR|CRITICAL):.*?:\d+: |[WEF]\d{4} .*?\] ")
"""How lines of JAX and of its C++ may begin that say what is wrong."""

_NO_REASON = re.compile(r"\s|$|INFO:|I\d{4} |.* may be present on this machine")
"""How other lines begin: parts of a traceback, what goes well, and JAX' guess that it has no plugin for a device."""

_LEAVING_SECONDS = 2.0
"""Time for a killed process to end; one that hangs in the kernel does not."""


@dataclass(frozen=True)
class Answers:
    """Answers of the process.

    Args:
        devices: platform, kind and memory in bytes, or None, of each device that JAX computes on.
        plugins: of JAX, as they are installed.
        complaint: the last warning or error when JAX began; empty where there was none.
        failure: why something is not known, in a sentence; None where all was said.
        problems: what `keras`, `single`, `jax` and `cluster` lack, each a sentence or None; see `answering.py`.
    """

    devices: tuple[tuple[str, str, int | None], ...] = ()
    plugins: tuple[str, ...] = ()
    complaint: str = ""
    failure: str | None = None
    problems: Mapping[str, str | None] = field(default_factory=dict)

    def check(self, name: str) -> None:
        """Passes on what one of these lacks, or that no device was found.

        Raises:
            DoctorError: says what.
        """
        said = self.problems.get(name, self.failure) if self.devices else self.failure
        if said:
            raise DoctorError(said)


def ask(environment: Mapping[str, str] = os.environ, seconds: float = 60.0) -> Answers:
    """Asks all that needs JAX, Keras and Dask.

    Args:
        environment: variables of the process that answers.
        seconds: to wait for its answers.
    """
    command = [sys.executable, "-P", "-m", "rudel.doctor.answering"]
    try:
        process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return Answers(failure=f"Python cannot be started once more ({error.strerror}): JAX was not asked.")
    late = False
    try:
        written, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        late = True
        written, said = _end(process)
    except BaseException:
        _end(process)
        raise
    found: dict[str, Any] = {}
    for line in written.splitlines():
        if line.startswith(MARK):
            found |= json.loads(line.removeprefix(MARK))
    platforms = environment.get("JAX_PLATFORMS")
    return _answers(
        found, said.splitlines(), seconds if late else None, f" for JAX_PLATFORMS={platforms}" if platforms else ""
    )


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Kills the process and what it has started; returns what it has written, if it ends."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=_LEAVING_SECONDS)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    return "", ""


def _answers(found: dict[str, Any], said: list[str], waited: float | None, wish: str) -> Answers:
    middle = said.index(MARK) if MARK in said else len(said)
    complaint, words = _complaint(said[:middle]), [line.strip() for line in said if line.strip() not in ("", MARK)]
    return Answers(
        devices=tuple(tuple(device) for device in found.get("devices", ())),
        plugins=tuple(found.get("plugins", ())),
        complaint=complaint,
        failure=_failure(found, complaint, words[-1] if words else "nothing", waited, wish),
        problems={name: found[name] for name in ("keras", "single", "jax", "cluster") if name in found},
    )


def _failure(found: dict[str, Any], complaint: str, last: str, waited: float | None, wish: str) -> str | None:
    if "broken" in found:
        return found["broken"]
    if said := found.get("refused"):
        return _refused_by(found["plugins"], said, complaint) or f"JAX finds no device{wish}: {said}"
    if "devices" in found:
        if "cluster" in found:
            return None
        if waited is not None:
            return f"Keras and Dask were not imported within {waited:.0f} s: a disk is slow, or one of them hangs."
        return f"Python crashed when it imported Keras and Dask; its last message: {last}"
    if waited is not None:
        late = f"JAX did not list its devices within {waited:.0f} s"
        return f"{late}: a driver hangs, or another process holds the device."
    return f"JAX finds no device{wish}; its last message: {last}"


def _refused_by(plugins: Sequence[str], said: str, complaint: str) -> str | None:
    """That JAX cannot use the plugins that its own words speak of; None where they speak of none."""
    meant = [name for name in plugins for kind in ("cuda", "rocm", "tpu") if kind in name and kind in said.lower()]
    if not meant:
        return None
    if complaint and "known backends" in said:  # where the plugin was left out before, for that reason
        said = complaint
    return f"JAX has {' and '.join(meant)}, and cannot use {'it' if len(meant) == 1 else 'them'}: {said}"


def _complaint(lines: list[str]) -> str:
    said = [line for line in lines if not _NO_REASON.match(line)]
    return _BEGIN.sub("", said[-1], count=1).strip() if said else ""
