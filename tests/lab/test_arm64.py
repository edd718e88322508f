"""Nodes of another architecture, emulated."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from rudel.lab import Lab, arm64


@pytest.fixture(scope="module")
def built(root: None) -> None:
    """The root file system; building it takes minutes and the internet, so it is not done here."""
    if not arm64.ROOT.exists():
        pytest.skip("arm64 nodes need their root file system: build it once with `rudel lab up --arch arm64`")


def test_an_arm64_node_beside_one_of_this_machines_own(built: None, own: Callable[[], dict[str, Any]]) -> None:
    with Lab(nodes=2, cpu=1.0, arch=("native", "arm64"), **own()) as lab:
        first, second = lab.hosts
        look = "uname -m; hostname; whoami; python3 -c 'import platform; print(platform.machine())'"
        told = subprocess.run(
            ["ssh", "-F", str(lab.ssh_config), second, look], capture_output=True, text=True, check=True
        ).stdout
        assert told.split() == ["aarch64", second, "pi", "aarch64"]
        assert lab.run(first, "uname", "-m").stdout != "aarch64\n"

        lab.run(second, "sh", "-c", "echo kept > /home/pi/note; echo lost > /etc/note", root=True)
        lab.crash(second)
        assert lab.run(second, "cat", "note").stdout == "kept\n"
        assert lab.run(second, "cat", "/etc/note").returncode != 0
        assert not (arm64.ROOT / "etc/note").exists()
        assert lab.run(second, "ls", "/sys/class/net").stdout.split() == ["lo", "wlan0"]
