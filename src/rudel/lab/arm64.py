"""A root file system of Debian for 64-bit ARM, which Raspberry Pi OS is made from, and the means to run its programs.

It is built once, by debootstrap, and kept. Nodes use it through a layer of their own, so nothing changes it. Its
programs run under QEMU's user-mode emulation, to which the kernel hands them (binfmt_misc); that the kernel does so is
left switched on, as it is wherever QEMU was installed with its support for that.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from rudel.errors import LabError
from rudel.lab import kernel
from rudel.lab.folder_lock import locked
from rudel.lab.node import PATH

ROOT = Path("/var/cache/rudel-lab/bookworm-arm64")
"""Folder of the root file system."""

_MIRROR = "http://deb.debian.org/debian"
_PACKAGES = "ca-certificates,iproute2,openssh-server,procps,python3,python3-venv,sudo"
_BINFMT = Path("/proc/sys/fs/binfmt_misc")
_HANDLER = "qemu-aarch64"
_QEMU = "qemu-aarch64-static"
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"  # 64 bit, little endian, AArch64
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"


def make_ready(report: Callable[[str], None]) -> None:
    """Makes sure that there is a root file system, and that its programs run here.

    Args:
        report: takes a line for a person, before what takes minutes.

    Raises:
        LabError: a program is missing, or it cannot be built.
    """
    _enable_emulation()
    ROOT.parent.mkdir(parents=True, exist_ok=True)
    with locked(ROOT.parent):
        if not ROOT.exists():
            report(f"Building a root file system of Debian for arm64 in {ROOT}, once; this takes some minutes ...")
            _build(ROOT)


def _enable_emulation() -> None:
    """Has the kernel run programs for 64-bit ARM under QEMU, if it does not yet."""
    try:
        if not (_BINFMT / "register").exists():
            kernel.mount("binfmt_misc", _BINFMT, "binfmt_misc")
        if (_BINFMT / _HANDLER).exists():
            return
        # C: with the credentials of the program, as sudo needs; F: from the file as it is now, whatever root follows.
        (_BINFMT / "register").write_text(f":{_HANDLER}:M::{_MAGIC}:{_MASK}:{_found(_QEMU, 'qemu-user-static')}:OCF")
    except OSError as error:
        raise LabError(
            f"Linux cannot run programs for arm64 ({error}): load binfmt_misc with `modprobe binfmt_misc`."
        ) from error


def _build(root: Path) -> None:
    debootstrap = _found("debootstrap", "debootstrap")
    keys = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if not keys.exists():
        raise LabError("Debian's keys are missing: install them with `apt-get install debian-archive-keyring`.")
    unfinished = root.with_name(f".{root.name}.unfinished")
    log = root.with_name(f"{root.name}.log")
    shutil.rmtree(unfinished, ignore_errors=True)
    fetch = [debootstrap, "--arch=arm64", "--foreign", "--variant=minbase", f"--keyring={keys}"]
    fetch += [f"--include={_PACKAGES}", "bookworm", str(unfinished), _MIRROR]
    install = ["chroot", str(unfinished), "/debootstrap/debootstrap", "--second-stage"]
    environment = {name: value for name, value in os.environ.items() if name.endswith("_proxy")} | {"PATH": PATH}
    with log.open("wb") as said:
        for command in (fetch, install):
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False, env=environment
            )
            if done.returncode:
                raise LabError(f"The root file system for arm64 could not be built: {log} says why.")
    for packages in (unfinished / "var/cache/apt/archives").glob("*.deb"):
        packages.unlink()
    for key in (unfinished / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    unfinished.rename(root)


def _found(program: str, package: str) -> str:
    path = shutil.which(program, path=PATH)
    if path is None:
        raise LabError(f"Nodes of arm64 need `{program}`: install it with `apt-get install {package}`.")
    return path
