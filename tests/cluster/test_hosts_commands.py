"""`rudel hosts`, as it is typed."""

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import LONG, started
from typer.testing import CliRunner

from rudel.cli.hosts import app
from rudel.errors import HostError
from rudel.lab import Lab

Configured = Callable[..., Path]


@dataclass(frozen=True)
class Result:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def hosts(lab: Lab) -> Callable[..., Result]:
    """Runs `rudel hosts ARGUMENTS` with the SSH configuration of the lab."""

    def run(command: str, *arguments: object) -> Result:
        words = [command, "--ssh-config", str(lab.ssh_config), *map(str, arguments)]
        done = CliRunner().invoke(app, words)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Result(done.exit_code, done.stdout, done.stderr)

    return run


def test_check_prints_a_line_for_each_host_and_a_sentence_for_each_trouble(
    lab: Lab, hosts: Callable[..., Result]
) -> None:
    done = hosts("check", f"{lab.hosts[0]},127.0.0.1:1")
    headings, first, second = done.out.splitlines()
    assert headings.split()[:4] == ["host", "state", "key", "system"]
    assert first.split()[:4] == [lab.hosts[0], "not", "set", "up"]
    assert second.split()[:3] == ["127.0.0.1:1", "unreachable", "-"]
    assert len({len(line.rstrip()) for line in (headings, first)}) == 1
    assert "run `rudel hosts setup" in done.err
    assert "`127.0.0.1:1` refuses connections" in done.err
    assert done.code == 2


def test_check_as_json_is_one_document(lab: Lab, hosts: Callable[..., Result]) -> None:
    done = hosts("check", ",".join(lab.hosts), "--json")
    assert done.code == 0
    found = json.loads(done.out)["hosts"]
    assert [host["host"] for host in found] == lab.hosts
    for host in found:
        assert (host["usable"], host["problem"], host["bits"], host["rudel"]) == (True, None, 64, None)
        assert host["host_key"].startswith("ssh-ed25519 SHA256:")
        assert host["bits_per_second"] > 0


def test_run_prefixes_lines_and_tells_how_it_ended(lab: Lab, hosts: Callable[..., Result]) -> None:
    done = hosts("run", ",".join(lab.hosts), "--", "hostname; [ $(hostname) = htest1 ]")
    assert sorted(done.out.splitlines()) == ["htest1 | htest1", "htest2 | htest2"]
    assert done.err.splitlines() == ["htest1: exit status 0", "htest2: exit status 1"]
    assert done.code == 1


def test_run_passes_options_of_the_command_on(lab: Lab, hosts: Callable[..., Result]) -> None:
    done = hosts("run", lab.hosts[0], "--", "printf", "%s\\n", "--json", "a  b")
    assert done.out.splitlines() == ["htest1 | --json", "htest1 | a  b"]
    assert done.code == 0


def test_run_says_what_killed_a_command_and_who_was_not_there(lab: Lab, hosts: Callable[..., Result]) -> None:
    done = hosts("run", f"{lab.hosts[0]},127.0.0.1:1", "kill -KILL $$")
    assert done.err.splitlines()[0] == "htest1: ended by SIGKILL"
    assert "127.0.0.1:1: `127.0.0.1:1` refuses connections" in done.err.splitlines()[1]
    assert done.code == 2


def test_run_says_that_a_signal_without_a_name_in_ssh_ended_a_command(lab: Lab, hosts: Callable[..., Result]) -> None:
    done = hosts("run", lab.hosts[0], "kill -BUS $$")
    assert done.err.splitlines() == ["htest1: ended by a signal"]
    assert done.code == 1


def test_push_tells_what_was_sent_and_what_was_there(
    lab: Lab, homes: dict[str, Path], hosts: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(bytes(100_000))
    assert hosts("push", lab.hosts[0], tmp_path / "data").out == "htest1: 1 sent (0.1 MB), 0 were there\n"
    assert hosts("push", lab.hosts[0], tmp_path / "data").out == "htest1: 0 sent (0.0 MB), 1 were there\n"
    assert (homes["htest1"] / "data").stat().st_size == 100_000


def test_a_mistake_in_the_hosts_is_an_error_of_the_command(hosts: Callable[..., Result]) -> None:
    for command in ("check", "setup"):
        with pytest.raises(HostError, match="The host `a` is given twice"):
            hosts(command, "a,a")


def test_interrupting_run_ends_the_command_on_the_hosts(lab: Lab) -> None:
    code = "from rudel.cli.hosts import app; app()"
    words = ["run", "--ssh-config", str(lab.ssh_config), ",".join(lab.hosts), "--", "echo begun; sleep 1000 & wait"]
    with started([sys.executable, "-c", code, *words], stdout=-1, stderr=-1) as process:
        assert process.stdout is not None
        assert {process.stdout.readline().split(" | ")[1] for _ in lab.hosts} == {"begun\n"}
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "Interrupted."
    assert "Traceback" not in errors
    assert [lab.run(name, "pgrep", "-x", "sleep").stdout for name in lab.hosts] == ["", ""]
