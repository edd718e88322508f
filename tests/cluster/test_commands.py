import asyncio

import pytest
from processes import LONG

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


def test_output_is_told_while_the_command_runs(lab: Lab) -> None:
    async def until_told() -> None:
        printed = asyncio.Event()
        work = run_on_hosts(lab.hosts[0], "echo begun; sleep 1000", lambda *line: printed.set(), lab.ssh_config)
        running = asyncio.create_task(work)
        await asyncio.wait_for(printed.wait(), LONG)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(until_told())
    assert lab.run(lab.hosts[0], "pgrep", "-x", "sleep").stdout == ""


def test_a_host_that_cannot_be_reached_does_not_stop_the_others(lab: Lab, heard: Heard) -> None:
    ended = asyncio.run(run_on_hosts(["127.0.0.1:1", lab.hosts[0]], "hostname", heard, lab.ssh_config))
    assert ended[0].exit_status is None
    assert "refuses connections" in str(ended[0].problem)
    assert ended[1] == Ended(Host(lab.hosts[0]), 0)
    assert heard.lines == [(lab.hosts[0], lab.hosts[0], False)]


def test_a_command_reads_nothing(lab: Lab, heard: Heard) -> None:
    assert asyncio.run(run_on_hosts(lab.hosts[0], "cat", heard, lab.ssh_config))[0].exit_status == 0
