"""What the doctor says of cores, memory and the cache, on systems that are folders of files."""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import LONG

from rudel import cache
from rudel.cache import GPUS, drop_old_programs, jax_cache
from rudel.doctor import machine

BOUND = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def system(root: Path, **files: str) -> Path:
    for name, text in {"proc/meminfo": "MemTotal:        8000000 kB\nMemFree: 1 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_limits_of_control_groups_count(tmp_path: Path) -> None:
    limits = {"sys/fs/cgroup/cpu.max": "50000 100000\n", "sys/fs/cgroup/memory.max": "2000000000\n"}
    seen = machine.describe(system(tmp_path, **limits))
    assert (seen.usable_cores, seen.why_fewer) == (0.5, "a control group limits its time")
    assert (seen.memory, seen.usable_memory) == (8_192_000_000, 2_000_000_000)


def test_without_limits_all_may_be_used(tmp_path: Path) -> None:
    seen = machine.describe(system(tmp_path))
    assert seen.usable_cores == BOUND
    assert seen.usable_memory == seen.memory == 8_192_000_000


def test_a_cache_that_cannot_be_made_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "file" / "cache"))
    assert not machine.describe().cache_writable
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "new" / "cache"))
    seen = machine.describe()
    assert seen.cache_writable
    assert seen.cache == tmp_path / "new" / "cache"
    assert not seen.cache.exists()


def test_programs_are_kept_only_where_they_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "new" / "cache"))
    kept = jax_cache()
    assert kept["jax_compilation_cache_dir"] == str(tmp_path / "new" / "cache" / "jax")
    assert kept["jax_persistent_cache_min_compile_time_secs"] == 0
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "jax").write_text("")
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "cache"))
    assert not jax_cache()  # else JAX warns of each program


def test_programs_that_were_not_read_for_long_are_removed_once_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path))
    drop_old_programs()  # there is no folder yet
    (folder := tmp_path / "jax").mkdir()
    now = time.time()
    for name, made, read in (
        *(("old-cache", 91, 91), (".a.tmp", 91, 91), ("read-cache", 91, 89), ("new-cache", 1, 1)),
        *((".lockfile", 91, 91), ("read-atime", 91, 91)),  # JAX's, of a cache of limited size
    ):
        (folder / name).touch()
        os.utime(folder / name, (now - read * 86_400, now - made * 86_400))
    drop_old_programs()
    assert {path.name for path in folder.iterdir()} == {
        *(".lockfile", ".looked-through", "new-cache", "read-atime", "read-cache")
    }
    os.utime(folder / "new-cache", (0, 0))
    drop_old_programs()
    assert (folder / "new-cache").exists(), "it is looked for again on the next day"


def test_an_old_program_that_cannot_be_removed_keeps_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path))
    (folder := tmp_path / "jax").mkdir()
    for name in ("a-cache", "b-cache", "c-cache"):
        (folder / name).touch()
        os.utime(folder / name, (0, 0))
    refused: list[Path] = []
    unlink = Path.unlink

    def refusing(path: Path) -> None:
        if not refused:
            refused.append(path)
            raise PermissionError
        unlink(path)

    monkeypatch.setattr(Path, "unlink", refusing)
    drop_old_programs()
    assert {path.name for path in folder.iterdir()} == {".looked-through", refused[0].name}


def test_on_a_gpu_programs_are_not_read_where_they_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jax").mkdir()
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    monkeypatch.setattr(cache, "GPUS", (tmp_path / "none",))
    assert jax_cache()["jax_persistent_cache_min_compile_time_secs"] == float("inf")
    monkeypatch.setattr(cache, "GPUS", (tmp_path,))
    assert not jax_cache()


COMPILE = """
import sys, warnings
import rudel, jax
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
warnings.simplefilter("error")
for factor in map(float, sys.argv[1:]):
    jax.jit(lambda x: x * factor)(2.0)
print(hits.count("/jax/compilation_cache/cache_hits"))
"""


@pytest.mark.skipif(sys.platform != "linux" or any(gpu.exists() for gpu in GPUS), reason="privileges of Linux, no GPU")
def test_programs_in_a_folder_that_cannot_be_written_are_read(tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMP", "JAX_PERS"))}
    unprivileged = [] if os.geteuid() else ["setpriv", "--bounding-set=-dac_override"]

    def hits(*factors: str) -> int:
        command = [*unprivileged, sys.executable, "-c", COMPILE, *factors]
        variables["RUDEL_CACHE"] = str(tmp_path / "cache")
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=LONG)
        assert not done.returncode, done.stderr
        return int(done.stdout)

    assert hits("3") == 0
    (tmp_path / "cache" / "jax").chmod(0o555)
    assert hits("3", "5") == 1


@pytest.mark.parametrize(("mode", "words"), [("nat", "networkingMode=mirrored"), ("mirrored", "")])
def test_in_windows_the_network_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, words: str) -> None:
    (tmp_path / "wslinfo").write_text(f"#!/bin/sh\n[ $1 = --networking-mode ] && echo {mode}\n")
    (tmp_path / "wslinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert machine.describe().warning == ""
    monkeypatch.setattr(platform, "release", lambda: "6.6.87.2-microsoft-standard-WSL2")
    found = machine.describe()
    assert found.system.endswith(", WSL 2")
    assert words in found.warning
    assert bool(words) == bool(found.warning)
