"""`rudel hosts setup`: an environment on every host with the same Rudel, and the same versions, as this computer.

It lies in `~/.rudel/env`, needs no root, and has a fingerprint: where that matches, nothing is done. Packages
come from the package index where the host has a way to it, else as wheels from here.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from rudel.cluster import ssh
from rudel.cluster.commands import Line
from rudel.cluster.hosts import Host, parse_hosts
from rudel.cluster.installation import Installation, Stage
from rudel.cluster.pins import Target, faults, same_version
from rudel.cluster.probe import Facts, Interpreter, probe
from rudel.cluster.setup_lock import turn
from rudel.cluster.suitability import SPACE_FOR_ALL, SPACE_FOR_MINIMAL, best_python, lacks_space, problem
from rudel.cluster.supplies import Supplies
from rudel.cluster.system_update import update_system
from rudel.cluster.task_groups import for_each
from rudel.cluster.versioned_packages import versioned_pins
from rudel.cluster.wheels import Wheel
from rudel.errors import HostError

_SPACE_TO_SPARE = 50_000_000

OnStage = Callable[[Host, Stage], None]


@dataclass(frozen=True)
class Outcome:
    """The result of the set-up of a host.

    Args:
        host: that was set up.
        problem: why it could not be, in one sentence; None where it is ready.
        how: `nothing to do`, `from the package index` or `with wheels from here`.
        packages: that were installed.
        sent: bytes of wheels that were sent to it.
        seconds: that it took.
    """

    host: Host
    problem: str | None
    how: str
    packages: int
    sent: int
    seconds: float


async def set_up_hosts(
    hosts: str | Sequence[str | Host],
    ssh_config: Path | None = None,
    *,
    offline: bool = False,
    minimal: bool = False,
    system_update: bool = False,
    on_stage: OnStage = lambda host, stage: None,
    on_line: Line = lambda host, line, bad: None,
) -> tuple[Outcome, ...]:
    """Installs or updates Rudel on hosts, all at once.

    Args:
        hosts: as for `parse_hosts`. One with a `python` of its own is only compared, and left alone.
        ssh_config: an SSH configuration in the place of `~/.ssh/config`.
        offline: ship wheels from here without trying the package index from the hosts.
        minimal: install only what a worker needs, so that a host can help to train but not train by itself.
        system_update: first bring the system up to date with apt-get.
        on_stage: called when a host begins a stage.
        on_line: what the update of the system prints.

    Returns:
        One outcome for each host, in their order; a host that fails does not stop the others.

    Raises:
        HostError: the hosts cannot be understood.
    """
    supplies = Supplies(minimal)

    async def one(host: Host) -> Outcome:
        begin = time.monotonic()
        work = _SetUp(host, supplies, offline, lambda stage: on_stage(host, stage))
        try:
            work.on_stage(Stage("connecting"))
            async with ssh.connected(host, ssh_config) as connection:
                if system_update:
                    work.on_stage(Stage("updating the system"))
                    await update_system(connection, host, lambda line, bad: on_line(host, line, bad))
                await work.go(connection)
        except HostError as error:
            work.on_stage(Stage("failed"))
            return Outcome(host, str(error), work.how, 0, work.sent, time.monotonic() - begin)
        work.on_stage(Stage("ready"))
        return Outcome(host, None, work.how, work.packages, work.sent, time.monotonic() - begin)

    return await for_each(parse_hosts(hosts), one)


class _SetUp:
    """The set-up of one host, and its result."""

    def __init__(self, host: Host, supplies: Supplies, offline: bool, on_stage: Callable[[Stage], None]) -> None:
        self.host, self.supplies, self.offline, self.on_stage = host, supplies, offline, on_stage
        self.how, self.packages, self.sent = "nothing to do", 0, 0

    async def go(self, connection: asyncssh.SSHClientConnection) -> None:
        self.on_stage(Stage("looking"))
        facts = await probe(connection, self.host)
        if sentence := problem(self.host, facts):
            raise HostError(sentence)
        if self.host.python:
            _compare(self.host, facts)
            return
        python = best_python(facts)
        assert python
        async with turn(
            connection, self.host, python, lambda: self.on_stage(Stage("waiting for another set-up"))
        ) as waited:
            if waited:
                self.on_stage(Stage("looking"))
                facts = await probe(connection, self.host)
            await self._update(connection, facts, python)

    async def _update(self, connection: asyncssh.SSHClientConnection, facts: Facts, python: Interpreter) -> None:
        """Installs what is missing, damaged or of another version, and Rudel."""
        target = Target.of(facts, python)
        fingerprint = await self.supplies.fingerprint(target)
        pins = await self.supplies.pins(target)
        lacking = faults(facts, pins)
        kept = _is_whole(facts) and facts.environment is not None and facts.environment.minor == python.minor
        if kept and not lacking and facts.record.get("fingerprint") == fingerprint:
            if not facts.trouble:
                return
            kept = False  # what is damaged cannot be seen from outside
        record = {"fingerprint": fingerprint, "rudel": (await self.supplies.own()).version, "python": python.minor}
        found: list[str] = []
        for recreate in (False, True) if kept else (True,):
            missing = pins if recreate else {name: version for name, version in pins.items() if name in lacking}
            work = Installation(self.host, connection, python, await self.supplies.pip(), recreate, self.on_stage)
            try:
                await self._install(work, facts, target, missing)
            finally:
                self.sent += work.sent
            self.packages = len(missing) + 1
            self.on_stage(Stage("trying it"))
            facts = await probe(connection, self.host)
            found = [f"{name} {what}" for name, what in faults(facts, pins).items()] or [facts.trouble]
            if found == [""]:
                await work.finish(json.dumps(record))
                return
        raise HostError(
            f"On `{self.host}` what was installed cannot be used ({', '.join(found)}): repair that there and run it "
            "again, or give a Python that has Rudel, by `python=` in the hosts file."
        )

    async def _install(self, work: Installation, facts: Facts, target: Target, missing: dict[str, str]) -> None:
        """Installs what is missing, and Rudel; wheels are fetched before anything on the host is given up."""
        await work.begin()
        from_index = bool(missing) and not self.offline and await work.has_index(missing)
        wheels = [] if from_index else await self._wheels(target, missing)
        needed = sum(wheel.size + wheel.unpacked for wheel in wheels) + _SPACE_TO_SPARE
        if from_index and work.recreate:
            needed = SPACE_FOR_MINIMAL if self.supplies.minimal else SPACE_FOR_ALL
        if not work.recreate:
            _check_space(self.host, facts.disk, needed)
        _check_space(self.host, await work.make_environment(), needed)
        self.how = "from the package index" if from_index else "with wheels from here"
        if from_index:
            try:
                await work.from_index(missing)
            except HostError:
                wheels, self.how = await self._wheels(target, missing), "with wheels from here"
        await work.from_here(wheels, await self.supplies.own())

    async def _wheels(self, target: Target, missing: dict[str, str]) -> list[Wheel]:
        if not missing:
            return []
        found = await self.supplies.wheels(target, lambda text: self.on_stage(Stage(text)))
        return [wheel for wheel in found if wheel.name in missing]


def _check_space(host: Host, free: int, needed: int) -> None:
    if sentence := lacks_space(host, free, needed):
        raise HostError(sentence)


def _compare(host: Host, facts: Facts) -> None:
    """Refuses a Python of the user's own that has not the versions of this computer."""
    for name, here in versioned_pins().items():
        there = facts.installed.get(name)
        if not same_version(there, here):
            raise HostError(
                f"`{host.python}` on `{host}` has {f'{name} {there}' if there else f'no {name}'}, and this computer "
                f"has {here}: install that version there, or leave `python=` out of the hosts file."
            )
    if facts.trouble:
        raise HostError(
            f"`{host.python}` on `{host}` cannot import what a worker needs ({facts.trouble}): repair that there, or "
            "leave `python=` out of the hosts file."
        )


def _is_whole(facts: Facts) -> bool:
    """Whether packages can be put into the environment as it is."""
    return not facts.unfinished and "pip" in facts.installed and "pip" not in facts.damaged
