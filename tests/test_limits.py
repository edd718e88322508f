"""Limits of control groups: on systems that are folders of files, and in groups of this one."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from rudel.cores import bound_cores
from rudel.limits import cpu_quota, memory_left, memory_limit


def system(root: Path, **files: str) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def group_v2(folder: str, cpu: str, memory: str, used: int = 0, files: int = 0) -> dict[str, str]:
    return {
        f"sys/fs/cgroup{folder}/cpu.max": f"{cpu} 100000\n",
        f"sys/fs/cgroup{folder}/memory.max": f"{memory}\n",
        f"sys/fs/cgroup{folder}/memory.current": f"{used}\n",
        f"sys/fs/cgroup{folder}/memory.stat": f"anon 5\ninactive_file {files}\nactive_file 7\n",
    }


def group_v1(folder: str, cpu: str, memory: str, used: int = 0, files: int = 0) -> dict[str, str]:
    return {
        f"sys/fs/cgroup/cpu{folder}/cpu.cfs_quota_us": f"{cpu}\n",
        f"sys/fs/cgroup/cpu{folder}/cpu.cfs_period_us": "100000\n",
        f"sys/fs/cgroup/memory{folder}/memory.limit_in_bytes": f"{memory}\n",
        f"sys/fs/cgroup/memory{folder}/memory.usage_in_bytes": f"{used}\n",
        f"sys/fs/cgroup/memory{folder}/memory.stat": f"cache 3\ninactive_file 1\ntotal_inactive_file {files}\n",
    }


GROUPS = {2: group_v2, 1: group_v1}
NO_LIMIT = {2: ("max", "max"), 1: ("-1", "9223372036854771712")}
NAMED = {2: "0::{}\n", 1: "9:cpu,cpuacct:{0}\n4:memory:{0}\n1:name=systemd:/\n0::/\n"}
"""What /proc/self/cgroup says of a process, by version."""


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest) -> int:
    return request.param


def test_the_tightest_of_the_groups_that_hold_each_other_counts(tmp_path: Path, version: int) -> None:
    group = GROUPS[version]
    files = group("/pod", "150000", "4000") | group("/pod/one", "250000", "6000") | group("", *NO_LIMIT[version])
    root = system(tmp_path, **files, **{"proc/self/cgroup": NAMED[version].format("/pod/one")})
    assert (cpu_quota(root), memory_limit(root)) == (1.5, 4000)


def test_what_is_left_is_that_of_the_fullest_group_and_files_read_are_no_use(tmp_path: Path, version: int) -> None:
    group = GROUPS[version]
    files = group("/pod", "100000", "9000", used=8000, files=1500) | group("/pod/one", "100000", "6000", used=900)
    root = system(tmp_path, **files, **{"proc/self/cgroup": NAMED[version].format("/pod/one")})
    assert memory_left(root) == 2500
    assert memory_left(system(tmp_path, **group("/pod", "100000", "9000", used=99_999))) == 0


@pytest.mark.parametrize("name", ["/docker/0123", "/../other", "/"])
def test_in_a_container_the_groups_of_the_host_have_no_folder(tmp_path: Path, version: int, name: str) -> None:
    files = GROUPS[version]("", "50000", "3000", used=1000)
    root = system(tmp_path, **files, **{"proc/self/cgroup": NAMED[version].format(name)})
    assert (cpu_quota(root), memory_limit(root), memory_left(root)) == (0.5, 3000, 2000)


def test_without_limits_there_are_none(tmp_path: Path, version: int) -> None:
    assert (cpu_quota(tmp_path), memory_limit(tmp_path), memory_left(tmp_path)) == (None, None, None)
    root = system(tmp_path, **GROUPS[version]("", *NO_LIMIT[version]))
    assert (cpu_quota(root), memory_limit(root), memory_left(root)) == (None, None, None)


@contextlib.contextmanager
def own_group(controller: str, limits: dict[str, dict[str, str]]) -> Iterator[Path]:
    """A new control group of this system, with these limits: for each version, what is written into which file."""
    top = Path("/sys/fs/cgroup")
    for version, folder in (("v1", top / controller), ("v2", top)):
        if (folder / "cgroup.procs").exists():
            made = folder / f"rudel-test-{os.getpid()}"
            made.mkdir()
            try:
                for name, text in limits[version].items():
                    (made / name).write_text(text)
                yield made
            finally:
                made.rmdir()
            return
    raise FileNotFoundError(f"there is no control group {controller}")


def said_in(group: Path, code: str) -> str:
    enter = f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')\n"
    done = subprocess.run([sys.executable, "-c", enter + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


THREADS = """
from pathlib import Path
from rudel.backend import keras_on_jax
keras_on_jax(light=True).ops.ones(3)
names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
print(sum(name.startswith("tf_XLAEigen") for name in names))
"""
"""Prints the number of XLA's threads."""


def test_a_process_with_a_quota_has_fewer_cores(lacking: Callable[[str], NoReturn]) -> None:
    quota = {
        "v1": {"cpu.cfs_period_us": "10000", "cpu.cfs_quota_us": "4000"},
        "v2": {"cpu.max": "4000 10000"},
    }
    try:
        with own_group("cpu", quota) as group:
            assert said_in(group, "from rudel.cores import usable_cores; print(usable_cores())") == "1"
            assert said_in(group, "from rudel.limits import cpu_quota; print(cpu_quota())") == "0.4"
            if bound_cores() > 1:
                assert said_in(group, THREADS) == "1"
                assert said_in(group, f"import os; os.environ['NPROC'] = '2'\n{THREADS}") == "2"
    except OSError as error:
        lacking(f"Control groups of the processor cannot be made here ({error}): run this test as root.")


def test_a_worker_tells_of_no_more_memory_than_its_group_may_have(lacking: Callable[[str], NoReturn]) -> None:
    limit = 1_000_000_000
    code = "from rudel.replicas.replica_service import _describe; print(_describe('tensorflow')['memory'])"
    try:
        with own_group(
            "memory", {"v1": {"memory.limit_in_bytes": f"{limit}"}, "v2": {"memory.max": f"{limit}"}}
        ) as group:
            assert 0 < int(float(said_in(group, code))) + 600e6 < limit
    except OSError as error:
        lacking(f"Control groups of memory cannot be made here ({error}): run this test as root.")
