import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import LONG, until

from rudel.cluster.commands import Ended, run_on_hosts
from rudel.cluster.hosts import Host
from rudel.lab import Lab


class Heard:
    """Lines as they came."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, bool]] = []

    def __call__(self, host: Host, line: str, bad: bool) -> None:
        self.lines.append((str(host), line, bad))


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_lines_and_ends_of_all_hosts_are_told(lab: Lab, heard: Heard) -> None:
    command = "hostname; echo oh >&2; [ $(hostname) = htest1 ] && exit 3; kill -TERM $$"
    ended = asyncio.run(run_on_hosts(lab.hosts, command, heard, lab.ssh_config))
    assert ended == (Ended(Host("htest1"), 3), Ended(Host("htest2"), -15))
    assert sorted(heard.lines) == [(name, *rest) for name in lab.hosts for rest in ((name, False), ("oh", True))]


def test_words_reach_the_command_as_they_are(lab: Lab, heard: Heard) -> None:
    words = ["printf", "%s|", "a b", "$HOME", "it's", ";", ""]
    asyncio.run(run_on_hosts(lab.hosts[0], words, heard, lab.ssh_config))
    assert heard.lines == [(lab.hosts[0], "a b|$HOME|it's|;||", False)]


def test_lines_end_in_many_ways_and_may_be_long_or_no_text(lab: Lab, heard: Heard) -> None:
    command = r"printf 'a\r\nb\n\nc\rd\r\r\n\303\244\377\n'; head -c 200000 /dev/zero | tr '\0' x; printf end"
    asyncio.run(run_on_hosts(lab.hosts[0], command, heard, lab.ssh_config))
    lines = [line for _, line, _ in heard.lines]
    assert lines[:6] == ["a", "b", "", "c", "d", "ä�"]
    assert "".join(lines[6:]) == "x" * 200_000 + "end"


async def cancelled_when_it_prints(lab: Lab, host: str, command: str) -> None:
    printed = asyncio.Event()
    work = run_on_hosts(host, command, lambda *line: printed.set(), lab.ssh_config)
    running = asyncio.create_task(work)
    async with asyncio.timeout(LONG):
        await printed.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_output_is_told_while_the_command_runs(lab: Lab) -> None:
    asyncio.run(cancelled_when_it_prints(lab, lab.hosts[0], "echo begun; sleep 1000"))
    assert lab.run(lab.hosts[0], "pgrep", "-x", "sleep").stdout == ""


@pytest.fixture
def admin(lab: Lab) -> Iterator[str]:
    """The first computer, with a user of the user ID 0 and the home of `pi`."""
    host = lab.hosts[0]
    lab.run(host, "sh", "-c", "echo admin:x:0:0::/home/pi:/bin/bash >> /etc/passwd", root=True)
    yield f"admin@{host}"
    lab.run(host, "sed", "-i", "/^admin:/d", "/etc/passwd", root=True)


@pytest.mark.parametrize(
    "command", ["sleep 1000 & wait", "trap '' TERM; sleep 1000", "sh -c \"trap '' TERM; sleep 1000\"; :"]
)
def test_a_command_of_root_ends_as_well(lab: Lab, admin: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSH refuses signals for it."""
    monkeypatch.setattr("rudel.cluster.commands._GRACE_SECONDS", 0.5)
    asyncio.run(cancelled_when_it_prints(lab, admin, f"id -u; {command}"))
    until(lambda: lab.run(lab.hosts[0], "pgrep", "-x", "sleep").stdout == "")


CSH = """#!/bin/sh
case "$2" in *"
"* | *[!\\\\]!*) echo "csh would refuse this" >&2; exit 1 ;; esac
exec /bin/bash "$@"
"""
"""A shell that takes no line break and no exclamation mark in quotes, as csh does."""


@pytest.fixture
def with_csh(lab: Lab, homes: dict[str, Path], admin: str) -> str:
    """The user `admin`, with such a login shell."""
    shell = homes[lab.hosts[0]] / "csh"
    shell.write_text(CSH)
    shell.chmod(0o755)
    lab.run(lab.hosts[0], "sed", "-i", "/^admin:/s|/bin/bash|/home/pi/csh|", "/etc/passwd", root=True)
    return admin


def test_a_command_of_root_ends_in_csh_too(lab: Lab, with_csh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rudel.cluster.commands._GRACE_SECONDS", 0.5)
    asyncio.run(cancelled_when_it_prints(lab, with_csh, "id -u; sleep 1000"))
    until(lambda: lab.run(lab.hosts[0], "pgrep", "-x", "sleep").stdout == "")


def test_words_reach_a_command_in_csh_as_they_are(lab: Lab, with_csh: str, heard: Heard) -> None:
    asyncio.run(run_on_hosts(with_csh, ["printf", "%s|", "a!b", "it's!"], heard, lab.ssh_config))
    assert [line for _, line, _ in heard.lines] == ["a!b|it's!|"]


def test_an_error_of_this_computer_is_not_a_lost_connection_and_ends_the_command(lab: Lab) -> None:
    def write(host: Host, line: str, bad: bool) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left on device"):
        asyncio.run(run_on_hosts(lab.hosts[0], "yes", write, lab.ssh_config))
    until(lambda: lab.run(lab.hosts[0], "pgrep", "-x", "yes").stdout == "")


def test_a_host_that_cannot_be_reached_does_not_stop_the_others(lab: Lab, heard: Heard) -> None:
    ended = asyncio.run(run_on_hosts(["127.0.0.1:1", lab.hosts[0]], "hostname", heard, lab.ssh_config))
    assert ended[0].exit_status is None
    assert "refuses connections" in str(ended[0].problem)
    assert ended[1] == Ended(Host(lab.hosts[0]), 0)
    assert heard.lines == [(lab.hosts[0], lab.hosts[0], False)]


def test_a_command_reads_nothing(lab: Lab, heard: Heard) -> None:
    assert asyncio.run(run_on_hosts(lab.hosts[0], "cat", heard, lab.ssh_config))[0].exit_status == 0
