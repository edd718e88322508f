"""Leftovers of labs whose keeper was killed: control groups, lines in /etc/hosts, folders in /run.

All the rest (network devices, namespaces, processes, mounts) ends with the keeper, as the kernel sees to it.
"""

import time
from pathlib import Path

from rudel.lab import names_file, quota, running_labs
from rudel.lab.settings import tap_name

_ENDING = 5.0  # seconds that a device may take to end
_AGAIN = 0.01  # seconds between two looks whether it has


def sweep() -> list[str]:
    """Removes what labs that are not up have left; call it inside `running_labs.exclusive`.

    Returns:
        The names of these labs.

    Raises:
        LabError: a process that was left does not end.
    """
    groups = quota.groups()
    found = {*running_labs.traces(), *names_file.labs(), *groups.labs()}
    left = sorted(lab for lab in found if not running_labs.is_up(lab))
    for lab in left:
        _wait_for_the_end(tap_name(lab))
        remove(lab, groups)
    return left


def remove(lab: str, groups: quota.Groups) -> None:
    """Removes the traces of one lab.

    Raises:
        LabError: a process that was left does not end.
    """
    names_file.remove(lab)
    groups.remove(lab)
    running_labs.forget(lab)


def _wait_for_the_end(device: str) -> None:
    """Waits for the air of a killed keeper, which ends soon after that and takes its network device along."""
    deadline = time.monotonic() + _ENDING
    while Path(f"/sys/class/net/{device}").exists() and time.monotonic() < deadline:
        time.sleep(_AGAIN)
