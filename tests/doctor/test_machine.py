"""What the doctor says of cores and memory, on systems that are folders of files."""

import os
from pathlib import Path

import pytest

from rudel.doctor import machine

BOUND = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def system(root: Path, **files: str) -> Path:
    for name, text in {"proc/meminfo": "MemTotal:        8000000 kB\nMemFree: 1 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    "files",
    [
        {"sys/fs/cgroup/cpu.max": "50000 100000\n", "sys/fs/cgroup/memory.max": "2000000000\n"},
        {
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000000\n",
        },
    ],
    ids=["version 2", "version 1"],
)
def test_limits_of_control_groups_count(tmp_path: Path, files: dict[str, str]) -> None:
    seen = machine.look(system(tmp_path, **files))
    assert (seen.usable_cores, seen.why_fewer) == (0.5, "a control group limits its time")
    assert (seen.memory, seen.usable_memory) == (8_192_000_000, 2_000_000_000)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/memory.max": "max\n"},
        {
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    ],
    ids=["none", "version 2 without", "version 1 without"],
)
def test_without_limits_all_may_be_used(tmp_path: Path, files: dict[str, str]) -> None:
    seen = machine.look(system(tmp_path, **files))
    assert seen.usable_cores == BOUND
    assert seen.usable_memory == seen.memory == 8_192_000_000


def test_a_cache_that_cannot_be_made_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "file" / "cache"))
    assert not machine.look().cache_writable
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "new" / "cache"))
    seen = machine.look()
    assert seen.cache_writable
    assert seen.cache == tmp_path / "new" / "cache"
    assert not seen.cache.exists()
