"""CPU quotas: a control group for every node, in one for the lab, by cgroups v1 or v2.

A node may use its share of every 10 ms. So short a period keeps what a node does even: with the usual 100 ms, one of
0.4 cores would compute for 40 ms and then be silent for 60.

Where a node and the driver of the lab want the same core, the latter goes first: in the world that is played
here, it has cores of its own.
"""

import contextlib
import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path

from rudel.errors import LabError

_PREFIX = "rudel-lab-"
_PERIOD, _LONG_PERIOD = 10_000, 100_000  # microseconds
_LEAST_QUOTA = 1000  # microseconds, the kernel's
_ENDING = 10.0  # seconds that killed processes may take to end

WEIGHT = {1: {"cpu.shares": "64"}, 2: {"cpu.weight": "6"}}
"""By the version of cgroups: of all nodes of a lab together, where a process without a group has 1024, or 100."""


@dataclass(frozen=True)
class Groups:
    """The hierarchy of control groups of the CPU.

    Args:
        root: folder of the hierarchy.
        version: 1 or 2.
    """

    root: Path
    version: int

    def member_file(self, lab: str, node: str) -> Path:
        """The file into which a process writes 0 to become a part of a node's group."""
        return self.root / f"{_PREFIX}{lab}" / node / "cgroup.procs"

    def create(self, lab: str, node: str, share: float) -> None:
        """Makes the group of a node.

        Args:
            lab: name of the lab.
            node: name of the node.
            share: cores that all of its processes together may use.

        Raises:
            LabError: the kernel refuses.
        """
        group = self.member_file(lab, node).parent
        parent = group.parent
        try:
            if self.version == 2:
                _hand_down(self.root)
            parent.mkdir(exist_ok=True)
            for name, value in WEIGHT[self.version].items():
                (parent / name).write_text(value)
            if self.version == 2:
                _hand_down(parent)
            group.mkdir()
        except OSError as error:
            raise _refused(node, group, error) from error
        self.limit(lab, node, share)

    def limit(self, lab: str, node: str, share: float) -> None:
        """Sets how many cores all processes of a node together may use, from now on.

        Raises:
            LabError: the kernel refuses.
        """
        group = self.member_file(lab, node).parent
        try:
            for name, value in _limits(share, self.version).items():
                (group / name).write_text(value)
        except OSError as error:
            raise _refused(node, group, error) from error

    def remove(self, lab: str) -> None:
        """Kills what is left in the groups of a lab, and removes them.

        Raises:
            LabError: a process does not end.
        """
        parent = self.root / f"{_PREFIX}{lab}"
        groups = [path for path in parent.glob("*") if path.is_dir()] if parent.is_dir() else []
        for group in groups:
            _empty(group)
            group.rmdir()
        with contextlib.suppress(FileNotFoundError):
            parent.rmdir()

    def labs(self) -> list[str]:
        """Names of all labs that have groups."""
        return [path.name.removeprefix(_PREFIX) for path in self.root.glob(f"{_PREFIX}*") if path.is_dir()]


def groups(root: Path = Path("/sys/fs/cgroup")) -> Groups:
    """The hierarchy that has the CPU's controller.

    Args:
        root: where control groups are mounted.

    Raises:
        LabError: there is none.
    """
    if (root / "cpu").is_dir():
        return Groups(root / "cpu", 1)
    controllers = root / "cgroup.controllers"
    if controllers.is_file() and "cpu" in controllers.read_text().split():
        return Groups(root, 2)
    raise LabError(f"There is no CPU controller in {root}: mount cgroups there (v2: mount -t cgroup2 none {root}).")


def _refused(node: str, group: Path, error: OSError) -> LabError:
    return LabError(
        f"The CPU quota of `{node}` cannot be set in {group} ({error.strerror}): "
        "the lab needs control groups that it may write to, so run it outside of containers."
    )


def _limits(share: float, version: int) -> dict[str, str]:
    period = _PERIOD if share * _PERIOD >= _LEAST_QUOTA else _LONG_PERIOD
    quota = round(share * period)
    if version == 1:
        return {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(quota)}
    return {"cpu.max": f"{quota} {period}"}


def _hand_down(group: Path) -> None:
    control = group / "cgroup.subtree_control"
    if "cpu" not in (control.read_text().split() if control.exists() else []):
        control.write_text("+cpu")


def _empty(group: Path) -> None:
    """Kills all processes of a group until there are none, waiting for each to end."""
    while pids := (group / "cgroup.procs").read_text().split():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                process = os.pidfd_open(int(pid))
                try:
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    ended, _, _ = select.select([process], (), (), _ENDING)
                finally:
                    os.close(process)
                if not ended:
                    raise LabError(f"Process {pid} of the lab in {group} does not end: look at what it waits for.")
