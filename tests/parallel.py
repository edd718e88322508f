"""How the tests share a computer's cores: all of them on several processes, a few of them in this one.

A process gets group after group. Tests that share what is expensive to make, such as a lab, are a group. Tests that
measure how long things take run alone: meanwhile, no other process tests. They begin the group that comes first, so
that the others wait once for all of them; it is that of the hosts, whose lab one of them needs.

A lab gives way to whatever else wants the processor, so that the computer that drives it goes first. Each process that
tests is therefore in a control group of the same weight as a lab's: else tests with a lab would wait for all others.
"""

import contextlib
import fcntl
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pages.marks import ON_HOSTS, OWN_LAB

from rudel.errors import LabError
from rudel.lab import quota

MOST_PROCESSES = 4
"""Beyond these it is memory that is short, and the longest group takes as long as all others."""

TOGETHER = {
    "tests/lab/": "labs",
    "tests/end_to_end/test_cluster_faults.py": "labs",
    "tests/cluster/": "hosts",
    "tests/end_to_end/test_hosts_setup.py": "hosts",
    **{
        f"tests/pages/test_run.py::test_a_page_does_what_it_says[{page}]": "pages on hosts"
        for page in sorted({*ON_HOSTS, *OWN_LAB})
    },
    "tests/export/": "export",
    "tests/serve/": "serve",
    "tests/play/": "play",
    "tests/training/replicas/": "diloco",
}
"""Groups of more than a file, by how the names of their tests begin."""

APART = ("tests/pages/", "tests/micro/test_operators.py::")
"""Tests that share nothing with each other, and are each a group: so the last one does not take long."""

FIRST = ("hosts", "labs", "diloco", "pages on hosts", "export", "serve", "play", "tests/pages/")
"""Groups that take long, as their names begin; what is short comes last.

Tests that measure come before all others: later, they would wait for a page of a minute to end.
"""

ALONE = (
    "tests/cluster/test_check.py::test_a_slow_link_is_measured_as_slow",
    "tests/lab/test_air.py::test_a_packet_takes_the_latency_each_way",
    "tests/lab/test_air.py::test_bytes_take_their_time_on_the_air",
    "tests/lab/test_air.py::test_nodes_share_the_air",
    "tests/lab/test_air.py::test_ipv6_takes_its_time_on_the_air_and_is_counted",
    "tests/training/replicas/test_coordinator.py::test_a_slow_worker_is_given_less_to_do",
    "tests/training/replicas/test_training.py::test_arithmetic_holds_up_no_heartbeat",
)
"""Tests that measure how long things take, as their names begin."""


def processes(config: pytest.Config) -> int:
    """How many processes to test in, where the command line does not say: 0 for this one alone.

    One more than there are cores: tests often wait for hosts, browsers and timers.
    """
    everything = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    marked = config.option.markexpr and not config.option.markexpr.startswith("not ")  # which leaves most of them
    if not everything or config.option.keyword or marked or getattr(config.option, "lf", False):
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores + 1, MOST_PROCESSES)


def group_of(name: str) -> str:
    """The group of a test.

    >>> group_of("tests/lab/test_air.py::test_rate"), group_of("tests/report/test_page.py::test_it[a/b]")
    ('labs', 'tests/report/test_page.py')
    """
    if _measures(name):
        return "hosts"
    for begin, group in TOGETHER.items():
        if name.startswith(begin):
            return group
    return name if name.startswith(APART) else name.partition("::")[0]


def order(name: str) -> tuple[bool, int]:
    """A key that puts the tests that measure first, and then those of long groups.

    >>> order("tests/lab/test_air.py::test_nodes_share_the_air") < order("tests/cluster/test_ssh.py::test_it")
    True
    """
    group = group_of(name)
    return not _measures(name), next((i for i, begin in enumerate(FIRST) if group.startswith(begin)), len(FIRST))


def make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What hands groups to processes."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)


def is_one_of_several(config: pytest.Config) -> bool:
    """Whether this process tests beside others; one that a test started does not, whatever its environment says."""
    return hasattr(config, "workerinput")


@contextlib.contextmanager
def while_nobody_measures(item: pytest.Item, following: pytest.Item | None) -> Iterator[None]:
    """Yields when the test may run; tests that measure wait until no other process tests, and they wait for these.

    Whoever waits for the gate holds the turnstile before it, so that tests that measure get through although there is
    always one that does not.
    """
    if not is_one_of_several(item.config):
        yield
        return
    folder = Path(item.config.option.basetemp).parent
    gate, turnstile = _lock_file(folder / "gate"), _lock_file(folder / "turnstile")
    if not (_measures(item.nodeid) and _locked_at_once(gate)):
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        fcntl.flock(gate, fcntl.LOCK_EX if _measures(item.nodeid) else fcntl.LOCK_SH)
        fcntl.flock(turnstile, fcntl.LOCK_UN)
    try:
        yield
    finally:
        ends = item.session.shouldfail or item.session.shouldstop
        if ends or not (following and _measures(item.nodeid) and _measures(following.nodeid)):
            fcntl.flock(gate, fcntl.LOCK_UN)


def weigh_as_a_lab() -> Callable[[], None]:
    """Puts this process, and what it starts from now on, into a control group; returns what undoes that.

    Where there are no control groups, or none that this process may make, it changes nothing.
    """
    undo = contextlib.ExitStack()
    with contextlib.suppress(LabError, OSError):
        groups = quota.groups()
        own = groups.root / f"rudel-tests-{os.getpid()}"
        own.mkdir()
        undo.callback(_leave, own)
        for name, value in quota.WEIGHT[groups.version].items():
            (own / name).write_text(value)
        (own / "cgroup.procs").write_text("0")
    return undo.close


def _leave(group: Path) -> None:
    """Leaves a control group for the one around it, and removes it; it stays where something in it goes on."""
    with contextlib.suppress(OSError):
        (group.parent / "cgroup.procs").write_text("0")
        group.rmdir()


def _locked_at_once(gate: int) -> bool:
    """Locks the gate for this process alone, where nobody has it, or this process has it already."""
    try:
        fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@functools.cache
def _lock_file(path: Path) -> int:
    """A descriptor, open until this process ends, for locks on it."""
    return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC)


def _measures(name: str) -> bool:
    return name.startswith(ALONE)
