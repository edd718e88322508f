"""What labs leave when their keeper is killed: control groups, lines in /etc/hosts, folders in /run.

All the rest (network devices, namespaces, processes, mounts) ends with the keeper, as the kernel sees to it.
"""

from rudel.lab import names_file, quota, running


def sweep() -> list[str]:
    """Removes what labs that are not up have left; call it inside `running.exclusive`.

    Returns:
        The names of these labs.

    Raises:
        LabError: a process that was left does not end.
    """
    groups = quota.groups()
    found = {*running.traces(), *names_file.labs(), *groups.labs()}
    left = sorted(lab for lab in found if not running.is_up(lab))
    for lab in left:
        remove(lab, groups)
    return left


def remove(lab: str, groups: quota.Groups) -> None:
    """Removes the traces of one lab.

    Raises:
        LabError: a process that was left does not end.
    """
    names_file.remove(lab)
    groups.remove(lab)
    running.forget(lab)
