"""`rudel hosts check`: what every host is, whether Rudel can run there, and how fast it is reached."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import asyncssh

from rudel.cluster import ssh
from rudel.cluster.hosts import Host, parse_hosts
from rudel.cluster.link import Link, measure_link
from rudel.cluster.pins import Target, faults, worker_pins
from rudel.cluster.probe import Facts, probe
from rudel.cluster.suitability import SPACE_FOR_MINIMAL, best_python, lacks_space, problem, problem_of_address
from rudel.cluster.task_groups import for_each
from rudel.cluster.versioned_packages import versioned_pins
from rudel.errors import HostError

_CLOCK_OFF = 60.0
_TIMEOUT = 15.0
"""Seconds for a host to let the user in."""


@dataclass(frozen=True)
class HostReport:
    """The result of a check of a host.

    Args:
        host: that was checked.
        problem: why it cannot be used, with what to do, in one sentence; None where it can.
        incomplete: whether an environment is there that lacks something or is of another version, as the problem says.
        notes: what else to know, one sentence each.
        host_key: kind and fingerprint of its key; None where it was not accepted.
        facts: what the host says about itself; None where it could not be reached.
        link: how fast it is reached; None where that was not measured.
    """

    host: Host
    problem: str | None = None
    incomplete: bool = False
    notes: tuple[str, ...] = ()
    host_key: str | None = None
    facts: Facts | None = None
    link: Link | None = None

    @property
    def reachable(self) -> bool:
        """Whether the host let the user in."""
        return self.host_key is not None

    @property
    def python(self) -> str | None:
        """The version of Python that Rudel uses there, or the newest that there is."""
        if not self.facts:
            return None
        found = self.facts.environment or best_python(self.facts)
        found = found or max(self.facts.pythons, key=lambda python: python.version, default=None)
        return ".".join(str(number) for number in found.version) if found else None

    @property
    def rudel(self) -> str | None:
        """The version of Rudel there."""
        return self.facts.installed.get("rudel") if self.facts else None

    @property
    def jax(self) -> str | None:
        """The version of JAX there."""
        return self.facts.installed.get("jax") if self.facts else None


async def check_hosts(
    hosts: str | Sequence[str | Host],
    ssh_config: Path | None = None,
    *,
    accept_new: bool = False,
) -> tuple[HostReport, ...]:
    """Checks hosts, all at once; only their links are measured one after the other, as they may share one medium.

    Args:
        hosts: as for `parse_hosts`.
        ssh_config: an SSH configuration in the place of `~/.ssh/config`.
        accept_new: whether keys of hosts that were never seen are accepted; changed ones are refused even so.

    Returns:
        One report for each host, in their order; what is wrong with a host is in its report, not raised.

    Raises:
        HostError: the hosts or the SSH configuration cannot be understood.
    """
    one_at_a_time = asyncio.Lock()

    async def one(host: Host) -> HostReport:
        return await _check(host, ssh_config, accept_new, one_at_a_time)

    return _with_twins(await for_each(parse_hosts(hosts), one))


def _with_twins(reports: tuple[HostReport, ...]) -> tuple[HostReport, ...]:
    """Adds to each report of a computer that is given under several names that it is."""
    first: dict[str, Host] = {}
    found = []
    for report in reports:
        computer = report.facts.computer if report.facts else ""
        if computer and first.setdefault(computer, report.host) != report.host:
            sentence = f"`{report.host}` is the same computer as `{first[computer]}`: give each computer once."
            report = replace(report, notes=(*report.notes, sentence))
        found.append(report)
    return tuple(found)


async def _check(host: Host, ssh_config: Path | None, accept_new: bool, one_at_a_time: asyncio.Lock) -> HostReport:
    key, facts, link, notes = None, None, None, []
    try:
        async with ssh.connected(host, ssh_config, _TIMEOUT, accept_new=accept_new) as connection:
            key = _described(connection.get_server_host_key())
            facts = await probe(connection, host)
            if unreachable := problem_of_address(host, ssh.address_of(connection)):
                notes.append(unreachable)
            async with one_at_a_time:
                link = await measure_link(connection, host)
    except HostError as error:
        if not facts:
            return HostReport(host, str(error), host_key=key)
        notes.append(str(error))
    notes += _notes(host, facts)
    if link and abs(link.clock_offset) > _CLOCK_OFF:
        notes.append(
            f"The clock of `{host}` is {link.clock_offset:+.0f} s off: set it there with "
            "`sudo timedatectl set-ntp true`."
        )
    found = problem(host, facts)
    if not found and not facts.record and not host.python:
        found = lacks_space(host, facts.disk, SPACE_FOR_MINIMAL)
    lacking = None if found else await asyncio.to_thread(_lacking, host, facts)
    return HostReport(host, found or lacking, lacking is not None, tuple(notes), key, facts, link)


def _described(key: asyncssh.SSHKey | None) -> str:
    return f"{key.get_algorithm()} {key.get_fingerprint()}" if key else "certificate"


def _lacking(host: Host, facts: Facts) -> str | None:
    """Says in one sentence why the Rudel that is there cannot be used from here, and what to do; None where it can."""
    from rudel import __version__

    there = facts.installed.get("rudel")
    if there is None or facts.environment is None:
        return None  # that is in the notes
    if there != __version__:
        return f"`{host}` has Rudel {there}, and this computer has {__version__}: {_remedy(host)}."
    pins = versioned_pins() if host.python else worker_pins(Target.of(facts, facts.environment))
    found = faults(facts, pins)
    lacking = [f"{name} {what}" for name, what in found.items()]
    if facts.trouble and not lacking:
        lacking = [f"a worker cannot import what it needs ({facts.trouble})"]
    if not lacking:
        return None
    remedy = f"repair the environment of `{host.python}` there" if host.python else f"run `rudel hosts setup {host}`"
    return f"Rudel on `{host}` is incomplete: {', '.join(lacking)}: {remedy}."


def _notes(host: Host, facts: Facts) -> list[str]:
    if problem(host, facts) or "rudel" in facts.installed:
        return []
    return [f"Rudel is not installed on `{host}`: {_remedy(host)}."]


def _remedy(host: Host) -> str:
    from rudel import __version__

    if host.python:
        return f"install it into `{host.python}` there (version {__version__})"
    return f"run `rudel hosts setup {host}`"
