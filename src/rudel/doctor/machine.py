"""The computer: cores, memory and disk, and how much of each this process may use."""

import contextlib
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rudel.cache import cache_folder, cache_place
from rudel.cores import bound_cores
from rudel.limits import cpu_quota, memory_limit


@dataclass(frozen=True)
class Machine:
    """Resources of the computer, and the share that this process may use.

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
        warning: what will not work here, and what to do, in a sentence; empty for nothing.
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
    warning: str


def describe(root: Path = Path("/")) -> Machine:
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
    in_windows = "microsoft" in platform.release().lower()
    return Machine(
        system=f"{platform.system()} {platform.release()} on {platform.machine()}{', WSL 2' if in_windows else ''}",
        python=f"{platform.python_version()} ({sys.executable})",
        cores=cores,
        usable_cores=usable,
        why_fewer=why,
        memory=memory,
        usable_memory=min((size for size in (memory, limit) if size is not None), default=None),
        disk=shutil.disk_usage(there).free,
        cache=cache_folder(),
        cache_writable=there.is_dir() and os.access(there, os.W_OK | os.X_OK),
        warning=_wsl_network_warning() if in_windows else "",
    )


def _wsl_network_warning() -> str:
    """The warning for a Linux in Windows that other computers cannot reach."""
    try:
        done = subprocess.run(["wslinfo", "--networking-mode"], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""  # a version of WSL that does not say
    mode = done.stdout.strip()
    if mode == "mirrored":
        return ""
    return (
        f"Hosts cannot connect back to this computer, because WSL's network is {mode}: write networkingMode=mirrored "
        "under [wsl2] in %UserProfile%\\.wslconfig, and run `wsl --shutdown` in Windows."
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
