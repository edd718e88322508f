"""JAX's devices, and why it does not use a device that is there."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rudel.doctor.asking import Answers


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
    """The devices of JAX.

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


@dataclass(frozen=True)
class _Kind:
    """Accelerators of a kind: how JAX' plugins for them begin, and what the system shows of them."""

    name: str
    plugin: str
    files: str
    mend: str | None


_NVIDIA = _Kind("GPU", "jax-cuda", "/dev/nvidia*", "pip install -U 'jax[cuda13]'")
_AMD = _Kind("GPU", "jax-rocm", "/dev/kfd", None)
_TPU = _Kind("TPU", "libtpu", "/dev/accel* and no /dev/vfio/*", "pip install -U 'jax[tpu]'")

_GOOGLE = "0x1ae0"
"""Google among the makers of PCI devices: other devices are groups of `vfio`, too."""


def describe(answers: Answers, environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Devices:
    """Judges what JAX said.

    Args:
        answers: of the process that imported JAX.
        environment: its variables.
        root: where `dev` and `sys` are.
    """
    wish = _wish(environment)
    why = wish or "JAX takes the fastest kind that it has a plugin for"
    devices = tuple(Device(*each) for each in answers.devices)
    if not devices:
        return Devices((), why, answers.failure)
    if wish or any(device.platform != "cpu" for device in devices):
        return Devices(devices, why)
    return Devices(devices, why, *_unused(answers, root))


def _wish(environment: Mapping[str, str]) -> str | None:
    """The user's choice of devices in the environment, if there is one."""
    if platforms := environment.get("JAX_PLATFORMS"):
        return f"JAX_PLATFORMS is {platforms}"
    if environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES is {environment['CUDA_VISIBLE_DEVICES'] or 'empty'}, which hides every GPU"
    return None


def _unused(answers: Answers, root: Path) -> tuple[str | None, str | None]:
    """Why JAX computes on the processor alone, where that is worth a line, and the command that helps."""
    for kind in (_NVIDIA, _AMD, _TPU):
        plugins = [name for name in answers.plugins if name.replace("_", "-").startswith(kind.plugin)]
        named, it = " and ".join(plugins), "it" if len(plugins) == 1 else "them"
        seen = _is_seen(kind, root)
        if plugins and seen:
            return f"JAX has {named}, and cannot use {it}: {answers.complaint or 'it does not say why.'}", None
        if plugins:
            return (
                f"JAX has {named}, and there is no {kind.name} to be seen (no {kind.files}): install its driver, or "
                "let the container have the device."
            ), None
        if seen and kind.mend:
            return f"There is a {kind.name} in this computer that JAX has no plugin for.", kind.mend
    return None, None


def _is_seen(kind: _Kind, root: Path) -> bool:
    """Whether the system shows an accelerator of a kind, by its device files."""
    from rudel.mesh.hosts.join import has_tpu_chips

    device = root / "dev"
    if kind is _NVIDIA:
        windows = (device / "dxg").exists()  # Linux in Windows (WSL2)
        return windows or (device / "nvidiactl").exists() or any(device.glob("nvidia[0-9]*"))
    if kind is _AMD:
        return (device / "kfd").exists()
    return has_tpu_chips(root) and ((device / "accel0").exists() or _has_googles(root))


def _has_googles(root: Path) -> bool:
    try:
        makers = [path.read_text().strip() for path in (root / "sys/bus/pci/devices").glob("*/vendor")]
    except OSError:
        return False
    return _GOOGLE in makers
