"""One start of the members of a training, on the hosts that are there, until they have ended or one is lost.

JAX cannot lose a process, so with one of them all are lost: those that are left are ended, and the driver begins again
from a checkpoint. A host that does not answer for some seconds is lost, as is one whose member ends by itself; where
only a member fell silent, JAX's own heartbeat ends the others. An answer is a slice of what is said, so a link on which
a checkpoint takes long is none that is silent.
"""

import asyncio
import contextlib
import importlib.metadata
import logging
import platform
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rudel.cluster.fleet import TRANSPORT_ERRORS
from rudel.errors import ClusterError, RudelError
from rudel.listening import is_loopback
from rudel.mesh.hosts.channel import Messages, framed, slices
from rudel.mesh.hosts.endings import EndError, end_of, reason_of
from rudel.mesh.hosts.member_messages import Failed, Order
from rudel.mesh.hosts.member_service import VERSIONED
from rudel.mesh.hosts.processes import Processes
from rudel.replicas.members import Piece
from rudel.runs.checkpoint import Checkpoint

if TYPE_CHECKING:
    from rudel.cluster.fleet import Fleet


SILENCE_SECONDS = 10.0
"""After so long without an answer, a host is lost."""

_HEAR_SECONDS = 1.0
_ASK_SECONDS = 60.0
_STOP_SECONDS = 8.0
_KNOCK_SECONDS = 5.0
_AFTERMATH_SECONDS = 1.0
"""Time for the others to say what they know when one is lost, so that the right one is blamed."""

_log = logging.getLogger(__name__)

_VALUED_CODE = b"cloudpickle"
"""A parcel that brings code of the user's contains this."""


@dataclass(frozen=True)
class Heard:
    """Something that a member said.

    Args:
        host: whose.
        number: of the member.
        message: what; see `messages.py`.
    """

    host: str
    number: int
    message: object


@dataclass(frozen=True)
class Broken:
    """The attempt has ended before its time.

    Args:
        lost: hosts that do not answer any more.
        reason: why it ended.
    """

    lost: tuple[str, ...]
    reason: str


@dataclass
class Attempt:
    """Starts members and follows them.

    Args:
        fleet: the workers.
        hosts: addresses of the workers to train on, by name; the first has member 0.
        parcel: the job.
        pieces: of the data.
        saved: where the training stands.
        asks: whether there are callbacks here.
        devices: virtual devices for each host to make of its processor, or None.
        report: takes in what happens, `Heard` and at last perhaps `Broken`; called in the loop's thread.
    """

    fleet: "Fleet"
    hosts: Mapping[str, str]
    parcel: bytes
    pieces: Sequence[Piece]
    saved: Checkpoint
    asks: bool
    devices: int | None
    report: Callable[[Heard | Broken], None]
    _token: str = field(default_factory=lambda: secrets.token_hex(8))
    _saying: asyncio.Lock = field(default_factory=asyncio.Lock)
    _running: "asyncio.Task[Any] | None" = None

    async def run(self) -> None:
        """Trains; ends the members in any case.

        Raises:
            ClusterError: a host cannot be used.
        """
        self._running = asyncio.current_task()
        names, broken = list(self.hosts), None
        try:
            await self._together([self._bring(name) for name in names])
            processes = await self._processes()
            await self._together([self._train(*each) for each in zip(names, processes, strict=True)])
        except EndError as end:
            broken = end
        finally:
            answered = await asyncio.gather(*(self._stop(name) for name in names))
        if broken:
            lost = tuple(sorted(name for name, there in zip(names, answered, strict=True) if not there))
            self.report(Broken(lost, reason_of(broken, lost)))

    async def end(self) -> None:
        """Ends the members, if `run` still follows them, and waits until that is done."""
        if self._running and not self._running.done():
            self._running.cancel()
            await asyncio.wait([self._running])

    async def say(self, message: object) -> None:
        """Hands a message to member 0; if it cannot be reached, `run` notices."""
        with contextlib.suppress(EndError):
            async with self._saying:
                await self._say(next(iter(self.hosts)), message)

    async def interrupt(self) -> None:
        """Asks member 0 to write a checkpoint and end, with all others."""
        with contextlib.suppress(EndError):
            await self._call(next(iter(self.hosts)), "interrupt", token=self._token)

    async def _bring(self, name: str) -> None:
        """Checks a host, and brings the pieces to it that it does not have."""
        _check(name, await self._call(name, "describe"), _VALUED_CODE in self.parcel)
        missing = set(await self._call(name, "missing", names=[piece.name for piece in self.pieces]))
        for piece in self.pieces:
            if piece.name in missing:
                content = await asyncio.to_thread(piece.content)
                if trouble := await self._call(name, "piece", piece=piece.name, content=content):
                    raise ClusterError(
                        f"{name} cannot keep the data in its cache folder ({trouble}): make room there, or set "
                        "RUDEL_CACHE there to a folder on a larger disk."
                    )

    async def _processes(self) -> list[Processes]:
        """The processes that train together, one entry for each member."""
        names = list(self.hosts)
        addresses = await self._of_one_family([str(urlsplit(address).hostname) for address in self.hosts.values()])
        port = await self._call(names[0], "port", host=addresses[0])
        host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        return [
            Processes(number, len(names), f"{host}:{port}", "the list of hosts", address)
            for number, address in enumerate(addresses)
        ]

    async def _of_one_family(self, addresses: Sequence[str]) -> Sequence[str]:
        """These addresses of the hosts, all IPv4 or all IPv6: gloo cannot connect the one with the other.

        Raises:
            ClusterError: the hosts have no family of addresses in common.
        """
        by_ipv6 = [":" in address for address in addresses]
        first = {family: addresses[by_ipv6.index(family)] for family in by_ipv6}
        if len(first) == 1:
            return addresses
        for family, target in first.items():
            if is_loopback(target) and not all(map(is_loopback, addresses)):
                continue
            found = [
                address if own == family else await self._call(name, "towards", host=target)
                for name, address, own in zip(self.hosts, addresses, by_ipv6, strict=True)
            ]
            if all(found):
                return found
        four, six = (list(self.hosts)[by_ipv6.index(family)] for family in (False, True))
        raise ClusterError(
            f"{four} is reached by IPv4 and {six} by IPv6, and the hosts of a mesh need addresses of one kind: "
            "give all of them by IPv4, or all by IPv6."
        )

    async def _train(self, name: str, processes: Processes) -> None:
        """Starts a member, gives it its order, and follows it to its end."""
        await self._call(name, "start", token=self._token)
        saved = None if processes.number else self.saved
        await self._say(name, Order(processes, self.parcel, saved, self.asks, self.devices))
        await self._follow(processes.number, name)

    async def _say(self, name: str, message: object) -> None:
        for content in slices(await asyncio.to_thread(framed, message)):
            await self._call(name, "say", token=self._token, content=content)

    async def _follow(self, number: int, name: str) -> None:
        failed, messages = "", Messages()
        while True:
            answer = await self._call(name, "hear", token=self._token, seconds=_HEAR_SECONDS, timeout=SILENCE_SECONDS)
            try:
                taken = await asyncio.to_thread(list, messages.take(answer["content"]))
            except ValueError as error:
                raise ClusterError(f"{name} sent something that is not a message: {error}.") from error
            for message in taken:
                if isinstance(message, Failed):
                    failed = message.reason
                else:
                    self.report(Heard(name, number, message))
            if "code" in answer:
                if answer["code"]:
                    raise end_of(name, answer["code"], failed, answer["trouble"])
                return

    async def _stop(self, name: str) -> bool:
        """Ends a member; returns whether its host answered."""
        try:
            await self._call(name, "stop", token=self._token, timeout=_STOP_SECONDS)
        except (EndError, RudelError) as error:
            _log.info("the member on %s could not be stopped: %s", name, error)
            self.fleet.forget(self.hosts[name])
            return False
        return True

    async def _together(self, coroutines: Sequence[Any]) -> None:
        """Waits for all, or for the first that fails and what the others then say.

        Raises:
            EndError: what most likely was the cause.
            ClusterError: a host cannot be used.
        """
        tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
        try:
            done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if rest:
                more, _ = await asyncio.wait(rest, timeout=_AFTERMATH_SECONDS)
                done |= more
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        errors = [error for task in done if not task.cancelled() and (error := task.exception())]
        ends = [error for error in errors if isinstance(error, EndError)]
        for error in errors:
            if not isinstance(error, EndError):
                raise error
        if ends:
            raise max(ends, key=lambda end: end.weight)

    async def _call(self, name: str, operation: str, timeout: float = _ASK_SECONDS, **message: object) -> Any:
        """Calls a handler on a worker.

        Raises:
            EndError: it does not answer.
        """
        try:
            return await self.fleet.call(self.hosts[name], operation, timeout=timeout, **message)
        except TimeoutError as error:
            raise EndError(name, f"{name} has not answered for {timeout:.0f} s", 3) from error
        except TRANSPORT_ERRORS as error:
            _log.info("the connection to %s broke off: %s", name, error)
            raise EndError(name, f"{name} was lost: its connection was closed", 3) from error


async def answering(fleet: "Fleet", doubted: Mapping[str, str]) -> dict[str, str]:
    """Addresses of the workers that are there and serve nobody else, by name; doubted ones only if they answer.

    A worker that is silent stays in the scheduler's list for minutes, and one that has come may be somebody else's.

    Args:
        fleet: the workers.
        doubted: addresses of workers that were silent, by name.
    """
    members = await fleet.members()

    async def is_there(name: str) -> bool:
        if doubted.get(name) != members[name] and fleet.is_ready(members[name]):
            return True
        try:
            await fleet.call(members[name], "describe", timeout=_KNOCK_SECONDS)
        except (*TRANSPORT_ERRORS, RudelError) as error:
            _log.info("%s is left out: %s", name, error)
            fleet.forget(members[name])
            return False
        return True

    found = await asyncio.gather(*(is_there(name) for name in members))
    return {name: members[name] for name, there in zip(members, found, strict=True) if there}


def _check(name: str, description: Mapping[str, Any], code_travels: bool) -> None:
    """Refuses a host whose packages are others than those here.

    Raises:
        ClusterError: names the first that differs, and what mends it.
    """
    for package in VERSIONED:
        here, there = importlib.metadata.version(package), description["versions"].get(package, "none")
        if here != there:
            hint = " without --minimal" if package == "keras" else ""
            raise ClusterError(
                f"{name} has {package} {there}, and this computer has {here}: run `rudel hosts setup {name}`{hint}, or "
                "install the same version there."
            )
    here = ".".join(platform.python_version_tuple()[:2])
    if code_travels and description["python"] != here:
        raise ClusterError(
            f"{name} has Python {description['python']}, and this computer has {here}: code of your own can only be "
            "sent to the same version."
        )
