"""Nodes are computers of their own, as far as it goes."""

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest
from processes import LONG, started

from rudel.errors import LabError
from rudel.lab import Lab

PYTHON = "/usr/bin/python3"


def ssh(lab: Lab, name: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ssh", "-F", str(lab.ssh_config), *options, name, command], capture_output=True, text=True, check=False
    )


def test_ssh_leads_to_pi_at_home(lab: Lab) -> None:
    for name in lab.hosts:
        assert ssh(lab, name, "hostname; whoami; pwd").stdout.split() == [name, "pi", "/home/pi"]
    assert ssh(lab, lab.hosts[0], "true", "-o", f"UserKnownHostsFile={os.devnull}").returncode == 255


def test_ssh_leads_to_nodes_by_ipv6_and_by_link_local_addresses(lab: Lab) -> None:
    first, second = lab.settings.nodes
    done = ssh(lab, first.ipv6, "hostname; whoami; echo $SSH_CONNECTION")
    assert done.stdout.split()[:3] == [first.name, "pi", lab.settings.desktop_ipv6]
    greet = f"import socket; print(socket.create_connection(('{second.ipv6}', 22)).recv(4))"
    assert lab.run(first.name, PYTHON, "-c", greet).stdout == "b'SSH-'\n"
    shown = lab.run(first.name, "ip", "-6", "-oneline", "address", "show", "scope", "link", "dev", "wlan0").stdout
    with socket.create_connection((f"{shown.split()[3].partition('/')[0]}%{lab.settings.tap}", 22), LONG) as connection:
        assert connection.recv(4) == b"SSH-"


def test_homes_are_own_and_other_folders_shared(lab: Lab, tmp_path: Path) -> None:
    first, second = lab.hosts
    assert ssh(lab, first, "echo mine > note").returncode == 0
    assert (lab.settings.state / first / "home/note").read_text() == "mine\n"
    assert ssh(lab, second, "cat note").returncode != 0
    (tmp_path / "shared").write_text("ours")
    assert lab.run(second, "cat", str(tmp_path / "shared"), root=True).stdout == "ours"


def test_other_homes_stay_in_sight(lab: Lab) -> None:
    homes = {entry.name for entry in Path("/home").iterdir() if entry.is_dir()}
    assert {*ssh(lab, lab.hosts[0], "ls -A /home").stdout.split()} == homes | {"pi"}


def test_nodes_know_each_other_and_nobody_else(lab: Lab) -> None:
    first, second = lab.hosts
    look = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
    assert lab.run(first, PYTHON, "-c", look, second).stdout == f"{lab.settings.subnet}.2\n"
    assert lab.run(first, PYTHON, "-c", look, "desktop").stdout == f"{lab.desktop}\n"
    began = time.monotonic()
    assert "gaierror" in lab.run(first, PYTHON, "-c", look, "example.org").stderr
    assert time.monotonic() - began < 10, "nobody is asked who does not answer"
    connect = "import socket; socket.create_connection(('192.0.2.1', 80), 1)"
    assert "unreachable" in lab.run(first, PYTHON, "-c", connect).stderr


def test_names_of_nodes_are_known_here(lab: Lab) -> None:
    assert socket.gethostbyname(lab.hosts[1]) == f"{lab.settings.subnet}.2"


def test_a_node_sees_its_own_processes_and_devices(lab: Lab) -> None:
    first = lab.hosts[0]
    assert len(lab.run(first, "sh", "-c", "echo /proc/[0-9]*").stdout.split()) < 10
    assert lab.run(first, "ls", "/sys/class/net").stdout.split() == ["lo", "wlan0"]
    assert lab.run(first, "ls", "-A", "/dev/shm").stdout == ""


def test_no_node_changes_the_users_of_this_machine(lab: Lab) -> None:
    before = Path("/etc/passwd").read_bytes()
    assert "pi" in lab.run(lab.hosts[0], "id").stdout
    assert lab.run(lab.hosts[0], "sh", "-c", "echo own > /etc/own; cat /etc/own", root=True).stdout == "own\n"
    assert not Path("/etc/own").exists()
    assert Path("/etc/passwd").read_bytes() == before


def test_commands_give_their_exit_status_and_keep_their_arguments(lab: Lab) -> None:
    first = lab.hosts[0]
    done = lab.run(first, "sh", "-c", 'printf "%s|" "$@"; exit 7', "sh", "a b", "$c", "--d")
    assert (done.returncode, done.stdout) == (7, "a b|$c|--d|")
    assert lab.run(first, "id", "-u", root=True).stdout == "0\n"
    assert lab.run(first, "pwd").stdout == "/home/pi\n"


def test_what_runs_in_a_node_ends_with_the_command(lab: Lab) -> None:
    with started(lab.command(lab.hosts[0], "sh", "-c", "echo $$; exec sleep 1000"), stdout=-1) as sleeper:
        assert sleeper.stdout is not None
        inside = sleeper.stdout.readline().strip()
        sleeper.kill()
        sleeper.stdout.read()  # ends when the process does
    left = lab.run(lab.hosts[0], "cat", f"/proc/{inside}/stat").stdout
    assert left == "" or left.split()[2] == "Z"  # until this machine's init takes note


def test_a_node_that_is_not_there_is_told_with_those_that_are(lab: Lab) -> None:
    with pytest.raises(LabError, match=f"has no node `nobody`: {lab.hosts[0]}, {lab.hosts[1]}"):
        lab.run("nobody", "true")


def cores_used(lab: Lab, name: str, seconds: float = 2) -> float:
    work = (
        "import os, time\n"
        "os.fork()\n"
        "began = time.monotonic()\n"
        f"while time.monotonic() - began < {seconds}: pass\n"
        "print(time.process_time() / (time.monotonic() - began))"
    )
    return sum(map(float, ssh(lab, name, f'{PYTHON} -c "{work}"').stdout.split()))


def test_quotas_hold_for_all_processes_of_a_node(lab: Lab) -> None:
    for node in lab.settings.nodes:
        assert 0.1 * node.cpu < cores_used(lab, node.name) < 1.2 * node.cpu  # little where this machine has other work


def test_a_quota_can_be_changed(lab: Lab) -> None:
    node = lab.settings.nodes[0]
    lab.set_cpu(node.name, 0.05)
    try:
        assert cores_used(lab, node.name, seconds=1) < 0.15
    finally:
        lab.set_cpu(node.name, node.cpu)
    with pytest.raises(LabError, match="cannot have 0 cores of this machine"):
        lab.set_cpu(node.name, 0)


def test_a_node_that_is_cut_off_is_silent_until_it_is_healed(lab: Lab) -> None:
    first, second = lab.hosts
    echo = "import socket\nserver = socket.create_server(('', 7007))\nprint('ready', flush=True)\n"
    echo += "connection = server.accept()[0]\nwhile data := connection.recv(100): connection.sendall(data)"
    with started(lab.command(first, PYTHON, "-c", echo), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        with socket.create_connection((first, 7007), timeout=LONG) as connection:
            connection.sendall(b"one")
            assert connection.recv(100) == b"one"
            lab.cut(first)
            connection.settimeout(0.5)
            connection.sendall(b"two")
            with pytest.raises(TimeoutError):
                connection.recv(100)
            with pytest.raises(TimeoutError):
                socket.create_connection((first, 22), timeout=0.5)
            assert ssh(lab, second, "true").returncode == 0
            assert "UP" in lab.run(first, "ip", "-brief", "link", "show", "wlan0").stdout
            lab.heal(first)
            connection.settimeout(LONG)
            assert connection.recv(100) == b"two"
    assert ssh(lab, first, "true").returncode == 0


def test_a_crash_ends_all_processes_and_the_node_starts_again(lab: Lab) -> None:
    name = lab.hosts[0]
    command = lab.command(name, "sh", "-c", "touch /run/there; echo in; exec sleep 1000", root=True)
    with started(command, stdout=-1) as sleeper, socket.create_connection((name, 22), timeout=LONG) as connection:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()
        assert connection.recv(4) == b"SSH-"
        lab.crash(name)
        assert sleeper.wait(LONG) == -9
        while connection.recv(100):
            pass
    assert lab.run(name, "ls", "/run/there").returncode != 0
    while ssh(lab, name, "hostname").stdout != f"{name}\n":
        pass
    assert ssh(lab, name, "cat /proc/1/comm").stdout == "sshd\n"
