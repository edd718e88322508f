import asyncio
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

import rudel
from rudel.cluster import hosts_check
from rudel.cluster.hosts import Host
from rudel.cluster.hosts_check import HostReport, check_hosts
from rudel.cluster.probe import _INSTALLED, Facts, parse, probe
from rudel.cluster.suitability import best_python, lacks_space, problem
from rudel.cluster.versioned_packages import versioned_pins
from rudel.lab import Lab

RASPBERRY_PI_OS = """
Welcome, says a shell that prints what it should not.
rudel:system=Linux
rudel:machine=aarch64
rudel:elf= 02
rudel:libc=glibc 2.36
rudel:name=Debian GNU/Linux 12 (bookworm)
rudel:cores=4
rudel:memory=MemTotal:        3884360 kB
rudel:disk=24117248
rudel:python=/usr/bin/python3|3.11.2|64|CPython|whole
rudel:end=yes
"""


def facts(**changed: str) -> Facts:
    """Facts of a Raspberry Pi with some answers changed; an empty one is left out."""
    lines = [line for line in RASPBERRY_PI_OS.splitlines() if line.removeprefix("rudel:").split("=")[0] not in changed]
    return parse("\n".join([*lines, *(f"rudel:{key}={value}" for key, value in changed.items() if value)]))


def test_a_report_says_what_a_host_is(lab: Lab) -> None:
    (report,) = asyncio.run(check_hosts(lab.hosts[0], lab.ssh_config))
    assert report.problem is None
    assert report.host_key is not None
    assert report.host_key.startswith("ssh-ed25519 SHA256:")
    assert report.facts is not None
    assert (report.facts.system, report.facts.bits) == ("Linux", 64)
    assert report.facts.cores >= 1
    assert report.facts.memory > 10**8
    assert report.facts.disk > 10**8
    assert report.python is not None
    assert report.link is not None
    assert 0 < report.link.round_trip < 1
    assert 1e6 < report.link.bits_per_second < 1e11
    assert abs(report.link.clock_offset) < 1
    assert report.rudel is None
    assert report.notes == (f"Rudel is not installed on `{lab.hosts[0]}`: run `rudel hosts setup {lab.hosts[0]}`.",)


def test_a_slow_link_is_measured_as_slow(lab: Lab) -> None:
    lab.set_rate(5)
    lab.set_latency(10)
    try:
        (report,) = asyncio.run(check_hosts(lab.hosts[0], lab.ssh_config))
    finally:
        lab.set_rate(1000)
        lab.set_latency(0)
    assert report.link is not None
    assert 0.020 < report.link.round_trip < 0.100
    assert 2e6 < report.link.bits_per_second < 6e6


def test_a_host_that_cannot_be_reached_does_not_stop_the_others(lab: Lab) -> None:
    hosts = ["nothing.invalid", lab.hosts[0], "127.0.0.1:1", lab.hosts[1]]
    reports = asyncio.run(check_hosts(hosts, lab.ssh_config))
    assert [report.reachable for report in reports] == [False, True, False, True]
    assert [bool(report.problem) for report in reports] == [True, False, True, False]


def test_a_python_of_the_users_own_is_asked_for_its_packages(lab: Lab) -> None:
    usual = Host(lab.hosts[0], python="/usr/bin/python3")
    missing = Host(lab.hosts[1], python="no/such/python")
    barred = Host(lab.hosts[0], port=22, python="/etc/passwd")
    reports = asyncio.run(check_hosts([usual, missing, barred], lab.ssh_config))
    assert reports[2].problem == (
        f"`/etc/passwd` on `{barred}` may not be executed: run `chmod +x` on it there, or correct `python=`."
    )
    assert reports[0].problem is None
    assert reports[0].facts is not None
    assert reports[0].facts.environment is not None
    assert f"install it into `/usr/bin/python3` there (version {rudel.__version__})" in reports[0].notes[0]
    assert (
        reports[1].problem
        == f"There is no Python `no/such/python` on `{lab.hosts[1]}`: correct `python=` in the hosts file."
    )


def test_a_host_whose_login_shell_prints_something_is_measured(lab: Lab, homes: dict[str, Path]) -> None:
    (homes[lab.hosts[0]] / ".bashrc").write_text("echo Welcome\nprintf 'to this computer'\n")
    (report,) = asyncio.run(check_hosts(lab.hosts[0], lab.ssh_config))
    assert report.link is not None
    assert abs(report.link.clock_offset) < 1
    assert report.problem is None


@pytest.fixture
def checked(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Callable[..., HostReport]:
    """Checks a host of the lab as if these versions were installed there."""

    def check(host: Host, installed: dict[str, str]) -> HostReport:
        async def found(connection: asyncssh.SSHClientConnection, host: Host) -> Facts:
            there = await probe(connection, host)
            return replace(there, installed=installed, environment=best_python(there))

        monkeypatch.setattr(hosts_check, "probe", found)
        (report,) = asyncio.run(check_hosts([host], lab.ssh_config))
        return report

    return check


def test_a_host_with_another_rudel_cannot_be_used(lab: Lab, checked: Callable[..., HostReport]) -> None:
    report = checked(Host(lab.hosts[0]), {"rudel": "0.0.1"})
    assert report.problem == (
        f"`{lab.hosts[0]}` has Rudel 0.0.1, and this computer has {rudel.__version__}: "
        f"run `rudel hosts setup {lab.hosts[0]}`."
    )


def test_a_python_of_the_users_own_has_to_have_the_versions_that_a_training_needs(
    lab: Lab, checked: Callable[..., HostReport]
) -> None:
    host, same = Host(lab.hosts[0], python="/usr/bin/python3"), versioned_pins()
    assert checked(host, same).problem is None
    assert f"jax is 0.4.1 and not {same['jax']}: repair" in str(checked(host, same | {"jax": "0.4.1"}).problem)
    assert "numpy is missing" in str(checked(host, {k: v for k, v in same.items() if k != "numpy"}).problem)


def test_a_host_that_is_reached_by_another_program_runs_commands_but_does_not_train(
    lab: Lab, configured: Callable[..., Path]
) -> None:
    first, second = lab.hosts
    through = f"ssh -F {lab.ssh_config} -W %h:%p {second}"
    (report,) = asyncio.run(check_hosts(first, configured(ProxyCommand=through)))
    assert report.problem is None
    assert report.notes[0].startswith(f"`{first}` is reached by `ProxyCommand`, so it can run commands but not train:")


def test_a_raspberry_pi_can_be_used() -> None:
    found = facts()
    assert problem(Host("raspi1"), found) is None
    assert (found.cores, found.memory, found.disk, found.libc) == (4, 3884360 * 1024, 24117248 * 1024, (2, 36))
    python = best_python(found)
    assert python is not None
    assert (python.path, python.minor) == ("/usr/bin/python3", "3.11")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"elf": "01"}, "runs a 32-bit system (Debian GNU/Linux 12 (bookworm)), for which there is no JAX: install a"),
        ({"machine": "armv7l", "elf": ""}, "runs a 32-bit system"),
        ({"python": "/usr/bin/python3|3.9.2|64|CPython|whole"}, "is 3.9 (Debian GNU/Linux 12 (bookworm)), and Rudel"),
        ({"python": "/usr/bin/python|2.7.18|64|CPython|parts"}, "is 2.7"),
        ({"python": "/usr/bin/python3|3.19.0|64|CPython|whole"}, "has Python 3.19, for which there is no JAX yet"),
        ({"python": "/usr/bin/python3|3.12.1|32|CPython|whole"}, "is a 32-bit program"),
        ({"python": "/usr/bin/python3|3.12.1|64|CPython|parts"}, "`sudo apt install python3 python3-venv` there"),
        ({"python": ""}, "There is no Python on `raspi1`: install it with `sudo apt install python3"),
        ({"system": "Darwin"}, "`raspi1` runs Darwin: Rudel's hosts have to run Linux."),
        ({"machine": "riscv64"}, "is of the kind riscv64, for which there is no JAX"),
        ({"machine": "x86_64"}, "has no AVX, which JAX needs"),
        ({"libc": "", "name": "Alpine Linux v3.22"}, "has no glibc (Alpine Linux v3.22), which JAX needs"),
    ],
)
def test_a_host_that_cannot_be_used_is_told_why(changed: dict[str, str], sentence: str) -> None:
    message = problem(Host("raspi1"), facts(**changed))
    assert message is not None
    assert sentence in message
    assert message.endswith(".")
    assert "raspi1" in message


def test_the_best_python_is_of_the_version_here_else_the_newest() -> None:
    import sys

    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    lines = [f"rudel:python=/usr/bin/python{v}|{v}.0|64|CPython|whole" for v in ("3.11", "3.12", "3.13", "3.14")]
    lines += ["rudel:python=/usr/bin/python3.13t|3.13.9|64|CPythont|whole"]
    python = best_python(parse("\n".join(lines)))
    assert python is not None
    assert python.minor == here
    others = [line for line in lines if here not in line]
    python = best_python(parse("\n".join(others)))
    assert python is not None
    assert python.path == ("/usr/bin/python3.13" if here == "3.14" else "/usr/bin/python3.14")


def test_a_full_disk_is_told_in_gigabytes() -> None:
    assert lacks_space(Host("raspi1"), facts(disk="500000").disk, 1_200_000_000) == (
        "The disk of `raspi1` is too full: 1.2 GB are needed in the home folder and 0.5 GB are free."
    )


def test_a_broken_record_counts_as_none() -> None:
    assert facts(record="{rubbish").record == {}
    assert facts(record='{"fingerprint": "1"}').record == {"fingerprint": "1"}


def test_of_several_versions_of_a_package_the_one_that_is_imported_counts(tmp_path: Path) -> None:
    """As where an environment that sees the packages of the system has another version of one of them."""
    for folder, name in (("own", "some_thing-2.0"), ("system", "some_thing-1.0"), ("system", "other-3.0")):
        (tmp_path / folder / f"{name}.dist-info").mkdir(parents=True)
    places = f"import sys; sys.path = [{str(tmp_path / 'own')!r}, {str(tmp_path / 'system')!r}, *sys.path]"
    command = [sys.executable, "-I", "-S", "-c", f"{places}\n{_INSTALLED}", "theirs"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert parse(found).installed == {"some-thing": "2.0", "other": "3.0"}


def test_names_of_packages_are_compared_as_pip_does(tmp_path: Path) -> None:
    assert facts(installed="Ml_Dtypes-0.6.0").installed == {"ml-dtypes": "0.6.0"}
