"""Control groups: version 1 or 2, whichever has the CPU."""

from pathlib import Path

import pytest
from processes import started

from rudel.errors import LabError
from rudel.lab.quota import Groups, groups


def test_version_1(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    found = groups(tmp_path)
    found.create("zoo", "zoo1", 0.4)
    group = tmp_path / "cpu/rudel-lab-zoo/zoo1"
    assert (group / "cpu.cfs_period_us").read_text() == "10000"
    assert (group / "cpu.cfs_quota_us").read_text() == "4000"
    assert found.member_file("zoo", "zoo1") == group / "cgroup.procs"
    assert found.labs() == ["zoo"]


def test_version_2_hands_the_controller_down(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("memory\n")
    groups(tmp_path).create("zoo", "zoo1", 0.05)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    assert (tmp_path / "rudel-lab-zoo/cgroup.subtree_control").read_text() == "+cpu"
    assert (tmp_path / "rudel-lab-zoo/zoo1/cpu.max").read_text() == "5000 100000"


def test_no_controller_is_told(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    with pytest.raises(LabError, match="no CPU controller"):
        groups(tmp_path)


def test_a_refusal_of_the_kernel_is_told(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"CPU quota of `zoo1` cannot be set .*No such file"):
        Groups(tmp_path / "nowhere", 1).create("zoo", "zoo1", 0.4)


def test_removing_kills_what_is_in_the_groups(root: None) -> None:
    found = groups()
    found.create("tquota", "tquota1", 0.4)
    member = found.member_file("tquota", "tquota1")
    with started(["sh", "-c", 'echo 0 > "$0" && echo in && exec sleep 1000', member], stdout=-1) as sleeper:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()
        found.remove("tquota")
    assert sleeper.returncode == -9
    assert not member.parent.parent.exists()
    found.remove("tquota")
