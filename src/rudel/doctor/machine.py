"""The computer: cores, memory and disk, and how much of each this process may use."""

import contextlib
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from rudel.cache import cache_folder, cache_place
from rudel.cores import bound_cores
from rudel.limits import cpu_quota, memory_limit


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
    limit = memory_limit(root)
    there = cache_place()
    return Machine(
        system=f"{platform.system()} {platform.release()} on {platform.machine()}",
        python=f"{platform.python_version()} ({sys.executable})",
        cores=cores,
        usable_cores=usable,
        why_fewer=why,
        memory=memory,
        usable_memory=min((size for size in (memory, limit) if size is not None), default=None),
        disk=shutil.disk_usage(there).free,
        cache=cache_folder(),
        cache_writable=there.is_dir() and os.access(there, os.W_OK | os.X_OK),
    )


def _cores(root: Path, cores: int) -> tuple[float, str]:
    bound, quota = bound_cores(), cpu_quota(root)
    if quota is not None and quota < bound:
        return quota, "a control group limits its time"
    return bound, "it is bound to some of them" if bound < cores else ""


def _memory(root: Path) -> int | None:
    with contextlib.suppress(OSError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return 1024 * int(line.split()[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
