"""What JAX computes on, asked of a process of its own: a driver that hangs or crashes takes nothing along."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_ASK = """
import json, jax
found = [[d.platform, d.device_kind, (d.memory_stats() or {}).get("bytes_limit")] for d in jax.local_devices()]
print("rudel:" + json.dumps(found))
"""

_PLUGINS = {"gpu": "pip install -U 'jax[cuda13]'", "tpu": "pip install -U 'jax[tpu]'"}


@dataclass(frozen=True)
class Device:
    """A device that JAX computes on.

    Args:
        platform: `cpu`, `gpu` or `tpu`.
        kind: such as `NVIDIA H200`.
        memory: bytes that JAX may use of it; None where it does not say.
    """

    platform: str
    kind: str
    memory: int | None


@dataclass(frozen=True)
class Devices:
    """What JAX computes on.

    Args:
        devices: all of this computer.
        why: why these, in a sentence.
        problem: what is wrong, in a sentence; None where nothing is.
        mend: the command that helps, if one does.
    """

    devices: tuple[Device, ...]
    why: str
    problem: str | None = None
    mend: str | None = None


def look(environment: Mapping[str, str] = os.environ, root: Path = Path("/"), seconds: float = 60.0) -> Devices:
    """Asks JAX for its devices.

    Args:
        environment: variables of the process that is asked.
        root: where `dev` is.
        seconds: to wait for an answer.
    """
    asked = environment.get("JAX_PLATFORMS")
    why = f"JAX_PLATFORMS is {asked}" if asked else "JAX takes the fastest kind that it has a plugin for"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK], env=dict(environment), capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        told = f"JAX did not say within {seconds:.0f} s what it computes on"
        return Devices((), why, f"{told}: a driver hangs, or another process holds the device.")
    answer = [line.removeprefix("rudel:") for line in done.stdout.splitlines() if line.startswith("rudel:")]
    if not answer:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["nothing"]
        return Devices((), why, f"JAX finds no device; its last words: {said[-1].strip()}")
    devices = tuple(Device(*each) for each in json.loads(answer[-1]))
    card = _card(root)
    if asked or card is None or any(device.platform != "cpu" for device in devices):
        return Devices(devices, why)
    return Devices(
        devices, why, f"There is a {card.upper()} in this computer that JAX has no plugin for.", _PLUGINS[card]
    )


def _card(root: Path) -> str | None:
    """The kind of accelerator that the system shows, by its device files."""
    if any((root / "dev").glob("nvidia[0-9]*")):
        return "gpu"
    return "tpu" if any((root / "dev").glob("accel[0-9]*")) else None
