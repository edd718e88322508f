"""Requirements of a lab on the machine."""

import os
import shutil
import sys
from pathlib import Path

from rudel.errors import LabError
from rudel.lab.node import PATH

_PROGRAMS = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
}
"""Programs, and the Debian packages that they are in."""


def check_machine(search: str = PATH, tun: Path = Path("/dev/net/tun")) -> None:
    """Refuses a machine or user that cannot have a lab.

    Args:
        search: folders in which programs are looked for, divided by colons.
        tun: the device file for making network devices.

    Raises:
        LabError: not Linux, not root, or something is not there.
    """
    check_user()
    missing = [program for program in _PROGRAMS if not shutil.which(program, path=search)]
    if missing:
        packages = " ".join(dict.fromkeys(_PROGRAMS[program] for program in missing))
        raise LabError(
            f"The lab needs {' and '.join(f'`{program}`' for program in missing)}: "
            f"install it with `apt-get install {packages}`."
        )
    if not tun.exists():
        raise LabError(f"The lab needs the device {tun} to make networks: load it with `modprobe tun`.")


def check_user() -> None:
    """Refuses another system than Linux, and another user than root.

    Raises:
        LabError: it is so.
    """
    if sys.platform != "linux":
        raise LabError("The lab is made of parts of the Linux kernel: run it on Linux, also in a virtual machine.")
    if os.geteuid() != 0:
        raise LabError(
            "The lab makes networks and control groups, which only root may: run it by "
            '`sudo "$(command -v rudel)" lab ...`.'
        )
