"""What a lab may be, and what it refuses to be."""

import os
import platform
from pathlib import Path
from typing import Any

import pytest

from rudel.errors import LabError
from rudel.lab.requirements import check_machine, check_user
from rudel.lab.settings import from_document, settings


def test_one_value_is_for_all_nodes_and_several_for_one_each() -> None:
    assert [node.cpu for node in settings(nodes=3, cpu=0.5).nodes] == [0.5] * 3
    mixed = settings(nodes=2, cpu=(0.4, 0.2), arch=(platform.machine(), "arm64"))
    assert [(node.name, node.address, node.cpu) for node in mixed.nodes] == [
        ("raspi1", "10.77.0.1", 0.4),
        ("raspi2", "10.77.0.2", 0.2),
    ]
    assert mixed.nodes[0].arch == "native"


def test_settings_travel_as_json() -> None:
    made = settings(nodes=2, cpu=(0.4, 0.2), state="somewhere")
    assert made.state.is_absolute()
    assert from_document(made.document()) == made


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"nodes": 0}, "has 1 to 99 nodes, not 0"),
        ({"cpu": (0.4, 0.4)}, "4 nodes cannot have 2 values of `cpu=`"),
        ({"cpu": 0}, "cannot have 0 cores"),
        ({"cpu": 4096}, "cannot have 4096 cores"),
        ({"rate": 0}, "cannot carry 0 Mbit/s"),
        ({"rate": float("nan")}, "cannot carry nan Mbit/s"),
        ({"latency": -1}, "latency cannot be -1 ms"),
        ({"prefix": "Pi"}, "`Pi` cannot be what names of nodes begin with"),
        ({"prefix": "lab1"}, "a letter at both ends"),
        ({"prefix": "a" * 11}, "at most 10 small letters"),
        ({"subnet": "10.77"}, "`10.77` is not a subnet"),
        ({"subnet": "10.77.300"}, "such as 10.77.0"),
        ({"arch": "mips"}, "no nodes of `mips`: give `arch=`"),
    ],
)
def test_refuses_what_cannot_be(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError, match=message):
        settings(**wrong)


def test_another_user_than_root_is_told_so(root: None) -> None:
    os.seteuid(65534)
    try:
        with pytest.raises(LabError, match="which only root may: run it by `sudo"):
            check_user()
    finally:
        os.seteuid(0)


def test_missing_programs_are_told_with_their_packages(root: None, tmp_path: Path) -> None:
    (tmp_path / "ip").touch(mode=0o755)
    (tmp_path / "nsenter").touch(mode=0o755)
    with pytest.raises(LabError, match=r"`sshd` and `ssh-keygen`.*apt-get install openssh-server openssh-client"):
        check_machine(search=str(tmp_path))


def test_a_missing_device_file_is_told(root: None, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="modprobe tun"):
        check_machine(tun=tmp_path / "tun")
