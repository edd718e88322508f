"""`rudel lab`, as it is typed."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from processes import LONG, started

from rudel.lab import Lab

RUDEL = [sys.executable, "-c", "from rudel.cli.main import run; run()", "lab"]


def rudel_lab(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUDEL, *map(str, arguments)], capture_output=True, text=True, check=False)


def options(arguments: dict[str, Any]) -> list[str]:
    return [text for name, value in arguments.items() for text in (f"--{name}", str(value))]


def test_a_lab_in_the_background(own: Callable[[], dict[str, Any]], traces: Callable[[], dict[str, Any]]) -> None:
    before = traces()
    arguments = own()
    prefix = arguments["prefix"]
    first, second = f"{prefix}1", f"{prefix}2"
    up = rudel_lab("up", *options(arguments), "--nodes", 2, "--cpu", "0.4,0.3", "--background", "--json")
    try:
        document = json.loads(up.stdout)
        assert (document["hosts"], document["desktop"]) == ([first, second], f"{arguments['subnet']}.254")
        ssh = ["ssh", "-F", document["ssh_config"]]
        assert subprocess.run([*ssh, first, "true"], check=False).returncode == 0

        done = rudel_lab("exec", first, "--", "sh", "-c", "hostname; whoami; exit 7")
        assert (done.returncode, done.stdout.split()) == (7, [first, "pi"])
        assert rudel_lab("exec", "--root", first, "whoami").stdout == "root\n"

        assert rudel_lab("cut", second).returncode == 0
        ssh += ["-o", "ConnectTimeout=1"]
        assert subprocess.run([*ssh, second, "true"], capture_output=True, check=False).returncode == 255
        assert rudel_lab("heal", second).returncode == 0
        assert subprocess.run([*ssh, second, "true"], check=False).returncode == 0
        assert rudel_lab("crash", second).returncode == 0
        assert rudel_lab("exec", second, "hostname").stdout == f"{second}\n"

        assert rudel_lab("set", "--rate", 20, "--latency", 3, "--prefix", prefix).returncode == 0
        sent = json.loads(rudel_lab("stats", "--json", "--reset", "--prefix", prefix).stdout)
        assert list(sent) == ["desktop", first, second]
        assert sent[first]["bytes"] > 60 * sent[first]["frames"] > 0
        again = json.loads(rudel_lab("stats", "--json", "--prefix", prefix).stdout)
        assert again[first]["frames"] < sent[first]["frames"]
        assert rudel_lab("stats", "--prefix", prefix).stdout.split()[:3] == ["sender", "bytes", "frames"]

        refused = rudel_lab("up", *options(arguments))
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith(f"Error: The lab `{prefix}` is up already: ")
    finally:
        down = rudel_lab("down", "--prefix", prefix)
    assert (down.returncode, down.stderr) == (0, f"The lab `{prefix}` is down.\n")
    assert traces() == before
    assert "nothing to stop" in rudel_lab("down", "--prefix", prefix).stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_lab_in_the_foreground(
    own: Callable[[], dict[str, Any]], traces: Callable[[], dict[str, Any]], number: int
) -> None:
    before = traces()
    arguments = own()
    arguments["state"] /= "my lab"
    command = [*RUDEL, "up", *options(arguments), "--nodes", "1"]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as up:
        assert up.stdout is not None
        lines = [up.stdout.readline() for _ in range(5)]
        assert lines[0] == f"nodes  {arguments['prefix']}1\n", up.communicate()
        shell = lines[3].split(None, 1)[1]
        assert shell == f"ssh -F '{arguments['state']}/ssh_config' {arguments['prefix']}1\n"
        assert subprocess.run([*shlex.split(shell), "hostname"], stdout=subprocess.PIPE, text=True).stdout in lines[0]
        assert traces() != before
        up.send_signal(number)
        _, error = up.communicate()
    assert (up.returncode, error) == (0, "Stopping ...\n")
    assert traces() == before


def test_a_lab_in_the_foreground_ends_when_it_is_stopped_from_elsewhere(own: Callable[[], dict[str, Any]]) -> None:
    arguments = own()
    command = [*RUDEL, "up", *options(arguments), "--nodes", "1"]
    with started(command, stdout=subprocess.PIPE) as up:
        assert up.stdout is not None
        up.stdout.readline()
        assert rudel_lab("down", "--prefix", arguments["prefix"]).returncode == 0
        assert up.wait(LONG) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("up", "--cpu", "much"), "`much` are not numbers: give --cpu one, or one for each node"),
        (("up", "--nodes", 100), "A lab has 1 to 99 nodes, not 100"),
        (("up", "--arch", "mips"), "This machine has no nodes of `mips`"),
        (("stats", "--prefix", "nothing"), "No lab `nothing` is up"),
    ],
)
def test_a_mistake_is_one_sentence(root: None, arguments: tuple[object, ...], message: str) -> None:
    done = rudel_lab(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {message}")
    assert done.stderr.count("\n") == 1


def test_a_node_that_is_not_there(lab: Lab) -> None:
    done = rudel_lab("cut", "nobody")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: No lab has a node `nobody`: the nodes are ")
