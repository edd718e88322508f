"""The computer: cores, memory and disk, and how much of each this process may use."""

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from rudel.cache import cache_folder
from rudel.cores import usable_cores

_NO_LIMIT = 2**60
"""Control groups of version 1 say a number above this where nothing is limited."""


@dataclass(frozen=True)
class Machine:
    """What there is, and what may be used of it.

    Args:
        system: such as `Linux 6.1 on x86_64`.
        python: version and path of the interpreter.
        cores: that the machine has.
        usable_cores: that this process may use: fewer where it is bound to some, or has a share of their time.
        why_fewer: what keeps it from the others; empty where nothing does.
        memory: in bytes; None where the system does not say.
        usable_memory: that a control group leaves of it, in bytes.
        disk: free bytes where the cache is.
        cache: that folder.
        cache_writable: whether it can be written, or made.
    """

    system: str
    python: str
    cores: int
    usable_cores: float
    why_fewer: str
    memory: int | None
    usable_memory: int | None
    disk: int
    cache: Path
    cache_writable: bool


def look(root: Path = Path("/")) -> Machine:
    """Looks at this computer.

    Args:
        root: where `sys` and `proc` are.
    """
    import sys

    cores = os.cpu_count() or 1
    usable, why = _cores(root, cores)
    memory = _memory(root)
    limit = _limit(root)
    cache = cache_folder()
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return Machine(
        system=f"{platform.system()} {platform.release()} on {platform.machine()}",
        python=f"{platform.python_version()} ({sys.executable})",
        cores=cores,
        usable_cores=usable,
        why_fewer=why,
        memory=memory,
        usable_memory=min((size for size in (memory, limit) if size is not None), default=None),
        disk=shutil.disk_usage(there).free,
        cache=cache,
        cache_writable=there.is_dir() and os.access(there, os.W_OK | os.X_OK),
    )


def _cores(root: Path, cores: int) -> tuple[float, str]:
    bound = usable_cores()
    share = _share(root)
    if share is not None and share < bound:
        return share, "a control group limits its time"
    return bound, "it is bound to some of them" if bound < cores else ""


def _share(root: Path) -> float | None:
    """Cores' worth of time that a control group gives, of version 2 or 1."""
    groups = root / "sys/fs/cgroup"
    quota, _, period = _read(groups / "cpu.max").partition(" ")
    if not quota:
        quota, period = _read(groups / "cpu/cpu.cfs_quota_us"), _read(groups / "cpu/cpu.cfs_period_us")
    if not quota.isdigit() or not period.isdigit():  # `max`, -1, or nothing there
        return None
    return int(quota) / int(period)


def _limit(root: Path) -> int | None:
    groups = root / "sys/fs/cgroup"
    text = _read(groups / "memory.max") or _read(groups / "memory/memory.limit_in_bytes")
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT else None


def _memory(root: Path) -> int | None:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return 1024 * int(line.split()[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
