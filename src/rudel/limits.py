"""Limits of memory and processor time that control groups set for this process (Linux, versions 1 and 2).

A process is in a group, that in another, and so on up to the root; the tightest of them counts. In a container, the
names of its groups may be those of the host, where they mean nothing: the root that it sees is its own group then.
"""

import os
from collections.abc import Iterator
from pathlib import Path

_NO_LIMIT = 2**60
"""Version 1 says a number above this where memory is not limited."""


def memory_limit(root: Path = Path("/")) -> int | None:
    """The most memory that this process and those that share its groups may have, in bytes; None for no limit.

    Args:
        root: where `proc` and `sys` are.
    """
    return min((limit for _, limit in _memory_limits(root)), default=None)


def memory_left(root: Path = Path("/")) -> int | None:
    """Memory within the limit that is not in use, in bytes; None for no limit.

    Files that were read and may be forgotten (`inactive_file`) do not count as use.

    Args:
        root: where `proc` and `sys` are.
    """
    return min((max(0, limit - _used(group)) for group, limit in _memory_limits(root)), default=None)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of time that this process and those that share its groups get; None for no limit.

    Args:
        root: where `proc` and `sys` are.
    """
    quotas = (_quota(group) for group in _groups(root, "cpu"))
    return min((quota for quota in quotas if quota is not None), default=None)


def _memory_limits(root: Path) -> Iterator[tuple[Path, int]]:
    for group in _groups(root, "memory"):
        limit = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
        if limit and limit < _NO_LIMIT:
            yield group, limit


def _used(group: Path) -> int:
    used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes") or 0
    words = _read(group / "memory.stat").split()
    stat = dict(zip(words[::2], words[1::2], strict=False))
    return used - int(stat.get("total_inactive_file") or stat.get("inactive_file") or 0)


def _quota(group: Path) -> float | None:
    quota, _, period = _read(group / "cpu.max").partition(" ")
    if not quota:
        quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
    if not quota.isdigit() or not period.isdigit():  # `max`, -1, or nothing there
        return None
    return int(quota) / int(period)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the process's groups in both versions, from its own up to the root."""
    names = {"": "/", controller: "/"}
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        names |= dict.fromkeys(controllers.split(","), name)
    mounted = root / "sys/fs/cgroup"
    for top, name in ((mounted, names[""]), (mounted / controller, names[controller])):
        group = top / name.lstrip("/")
        if ".." in name.split("/") or not os.path.isdir(group):  # noqa: PTH112  # where Path raises, this says no
            group = top
        yield group
        while group != top:
            group = group.parent
            yield group


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
