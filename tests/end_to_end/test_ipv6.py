"""Hosts that are reached over IPv6 train, also with others that are reached over IPv4.

They are set up as those of users are, offline and over IPv6.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from homes import furnish, keep_programs
from processes import LONG, set_up_by_rudel

from rudel.lab import Lab


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory, lacking: Callable[[str], NoReturn], lab_machine: None
) -> Iterator[Lab]:
    if not Path("/proc/sys/net/ipv6").exists():
        lacking("The kernel has no IPv6.")
    state = tmp_path_factory.mktemp("lab")
    furnish(state / name / "home" for name in ("tsix1", "tsix2"))
    with Lab(nodes=2, cpu=1.0, rate=1000, latency=0.0, prefix="tsix", subnet="10.95.0", state=state) as lab:
        set_up_by_rudel(lab, [f"pi@[{node.ipv6}]" for node in lab.settings.nodes])
        yield lab
        keep_programs(state / name / "home" for name in ("tsix1", "tsix2"))


Train = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def train(lab: Lab, tmp_path: Path, warm_python: str) -> Train:
    """Trains on two hosts, by the command line."""

    def run(strategy: str, hosts: list[str], *options: str) -> subprocess.CompletedProcess[str]:
        command = [
            Path(warm_python).with_name("rudel"),
            "train",
            "sine",
            "--on",
            ",".join(hosts),
            "--ssh-config",
            str(lab.ssh_config),
        ]
        command += ["--strategy", strategy, "--steps", "60", "--run", str(tmp_path / "run"), *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * LONG)

    return run


def summary_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


def test_one_host_over_ipv6_and_one_over_ipv4_train_in_rounds(lab: Lab, train: Train, tmp_path: Path) -> None:
    first, second = lab.settings.nodes
    hosts = [f"pi@[{first.ipv6}]", second.name]
    done = train("diloco", hosts, "--sync-every", "10")
    assert done.returncode == 0, done.stderr
    assert (summary_of(tmp_path / "run")["hosts"], summary_of(tmp_path / "run")["workers_lost"]) == (hosts, 0)
    rounds = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    closed = [each["hosts"] for each in rounds if "round" in each]  # with those that answered in time
    assert all(any(of[host]["steps"] > 0 for of in closed if host in of) for host in hosts)


def test_a_mesh_of_hosts_over_ipv6_says_all_of_it_by_ipv6(lab: Lab, train: Train, tmp_path: Path) -> None:
    by_ipv4 = {node.name: received_by_ipv4(lab, node.name) for node in lab.settings.nodes}
    done = train("mesh", [f"pi@[{node.ipv6}]" for node in lab.settings.nodes])
    assert done.returncode == 0, done.stderr
    assert summary_of(tmp_path / "run")["steps"] == 60
    for name, before in by_ipv4.items():
        assert received_by_ipv4(lab, name) == before


def received_by_ipv4(lab: Lab, name: str) -> int:
    """Bytes of IPv4 packets that a node has received on its network."""
    table = [line.split() for line in lab.run(name, "cat", "/proc/net/netstat").stdout.splitlines()]
    names, counts = (line for line in table if line[0] == "IpExt:")
    return int(counts[names.index("InOctets")])


def test_a_mesh_over_ipv4_and_ipv6_takes_addresses_that_all_have(lab: Lab, train: Train, tmp_path: Path) -> None:
    first, second = lab.settings.nodes
    done = train("mesh", [f"pi@[{first.ipv6}]", second.name])
    assert done.returncode == 0, done.stderr
    assert summary_of(tmp_path / "run")["steps"] == 60


def test_a_mesh_without_a_common_kind_of_addresses_is_refused(lab: Lab, train: Train) -> None:
    first, second = lab.settings.nodes
    lab.run(first.name, "ip", "address", "del", f"{first.address}/24", "dev", "wlan0", root=True)
    lab.run(second.name, "ip", "address", "del", f"{second.ipv6}/64", "dev", "wlan0", root=True)
    try:
        done = train("mesh", [f"pi@[{first.ipv6}]", second.name])
    finally:
        lab.run(first.name, "ip", "address", "add", f"{first.address}/24", "dev", "wlan0", root=True)
        lab.run(second.name, "ip", "address", "add", f"{second.ipv6}/64", "dev", "wlan0", "nodad", root=True)
    assert done.returncode == 2
    assert (
        f"{second.name} is reached by IPv4 and pi@[{first.ipv6}] by IPv6, and the hosts of a mesh need" in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_a_link_local_address_is_refused_for_training(lab: Lab, train: Train, tmp_path: Path) -> None:
    first, second = lab.settings.nodes
    shown = lab.run(first.name, "ip", "-6", "-oneline", "address", "show", "scope", "link", "dev", "wlan0").stdout
    host = f"[{shown.split()[3].partition('/')[0]}%{lab.settings.tap}]"
    key = next(line.split()[1:] for line in lab.known_hosts.read_text().splitlines() if line.startswith(first.name))
    (tmp_path / "known_hosts").write_text(f"linked {' '.join(key)}\n")
    (tmp_path / "ssh_config").write_text(
        f"Host fe80*\n  User pi\n  IdentityFile {lab.key}\n  HostKeyAlias linked\n"
        f"  UserKnownHostsFile {tmp_path / 'known_hosts'}\n{lab.ssh_config.read_text()}"
    )
    done = train("diloco", [host, second.name], "--ssh-config", str(tmp_path / "ssh_config"))
    assert done.returncode == 2
    assert f"`{host}` is reached at {host.strip('[]').partition('%')[0]}, a link-local address," in done.stderr
    assert "Traceback" not in done.stderr
