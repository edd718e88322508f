"""`Team`: who takes part in a training, and the tasks that serve them.

Only what the network does to a host counts as its loss. A host that says why it cannot take part is left out, and any
other error, here or there, ends the training: it is a defect, which trying again would hide.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from rudel.cluster.fleet import TRANSPORT_ERRORS
from rudel.cluster.guest import Gone
from rudel.errors import ClusterError, RudelError
from rudel.replicas.members import Member
from rudel.replicas.rounds import HostChanged
from rudel.replicas.slots_by_pieces import SlotsReceiver
from rudel.replicas.supply import Supply

if TYPE_CHECKING:
    from rudel.cluster.fleet import Fleet


HOST_ERRORS = (*TRANSPORT_ERRORS, RudelError)
"""Errors of the network and of a host itself, which lose that host. Any other error ends the training."""

_log = logging.getLogger(__name__)


class Team:
    """See the module. All methods run in the fleet's event loop.

    Args:
        fleet: the workers.
        members: by name; this adds to it.
        supply: of their examples.
        slots: what they send of theirs.
        on_event: called with `HostChanged` events.

    Attributes:
        members: by name.
        changed: notified when something has happened that others may wait for.
        began: when the training did, on this computer's clock.
        ended: whether it has.
        stopping: whether it is to end soon; may be set in any thread.
        failure: the error that ends it.
    """

    def __init__(
        self,
        fleet: "Fleet",
        members: dict[str, Member],
        supply: Supply,
        slots: SlotsReceiver,
        on_event: Callable[[HostChanged], None],
    ) -> None:
        self._fleet, self.members, self._supply, self._slots, self._on_event = fleet, members, supply, slots, on_event
        self.changed = asyncio.Condition()
        self.began = time.perf_counter()
        self.ended = self.stopping = False
        self.failure: BaseException | None = None
        self._background: set[asyncio.Task[Any]] = set()

    @property
    def elapsed(self) -> float:
        """Seconds since the training began."""
        return time.perf_counter() - self.began

    @property
    def active(self) -> list[Member]:
        """Those who take part in rounds."""
        return [member for member in self.members.values() if member.active]

    def enlist(self, name: str, address: str) -> Member:
        """Adds a worker that is not known yet."""
        self.members[name] = member = Member(name, address, len(self.members))
        return member

    async def with_all(self, step: Callable[[Member], Awaitable[object]]) -> None:
        """Does something with all members at once; those that are lost meanwhile take no part.

        Raises:
            RudelError: one cannot take part, or none is left.
            Exception: a defect.
        """
        members = [member for member in self.members.values() if not (member.lost or member.standby)]
        results = await asyncio.gather(*map(step, members), return_exceptions=True)
        for member, result in zip(members, results, strict=True):
            if isinstance(result, TRANSPORT_ERRORS):
                member.lost, member.trouble = True, _reason(result)
                _log.info("%s takes no part: %s", member.name, result)
            elif isinstance(result, BaseException):
                raise result
            member.active = not member.lost
        if not any(member.active for member in members):
            raise ClusterError(f"No host could be prepared: {self._troubles()}. Check them, and try again.")

    # -- tasks ------------------------------------------------------------------------------------------------------

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begins a task of which nobody waits for the end; one that fails ends the training."""
        task = asyncio.ensure_future(coroutine)
        self._background.add(task)
        task.add_done_callback(self._ended_task)
        return task

    def _ended_task(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Ends the training by an error."""
        self.failure = self.failure or error

    async def notify(self) -> None:
        """Something has happened that others may wait for."""
        async with self.changed:
            self.changed.notify_all()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Waits until something holds, or the training has ended."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.ended or reached())

    async def end(self) -> None:
        """Ends all tasks."""
        self.ended = True
        await self.notify()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    # -- members that are lost, or on standby -----------------------------------------------------------------------

    async def lose(self, member: Member, error: BaseException | None) -> None:
        """Continues without a replica.

        Args:
            member: whose.
            error: what the network did, or why its host cannot take part, which then is not tried again; None if that
                is known.
        """
        if self.ended or member.lost:
            return
        member.lost, member.active = True, False
        self.drop_plans(member)
        if error:
            self.blame(member, error)
        if member.follower not in (None, asyncio.current_task()):
            member.follower.cancel()
        self._fleet.forget(member.address)
        self.report(member, "lost", member.trouble)
        self.spawn(self.share_out())
        await self.notify()

    def drop_plans(self, member: Member) -> None:
        """What a replica is doing counts no more, nor what it was sending."""
        member.plans.clear()
        self._slots.lose(member.name)

    def blame(self, member: Member, error: BaseException) -> None:
        """Remembers why a replica was lost."""
        member.trouble, member.refused = _reason(error), isinstance(error, RudelError)
        _log.info("%s was lost: %s: %s", member.name, type(error).__name__, error)

    def report(self, member: Member, event: str, reason: str = "") -> None:
        """Reports what became of a member; see `HostChanged`."""
        _log.info("%s at %s: %s %s", member.name, member.address, event, reason)
        self._on_event(HostChanged(member.name, event, self.elapsed, reason))

    def set_aside(self, member: Member) -> None:
        """Lets a replica take part only if all others are lost, or if it has become faster."""
        member.standby, member.active, member.tried_at = True, False, time.monotonic()

    def stand_by(self, member: Member) -> None:
        """Sets a replica aside that takes part."""
        self.set_aside(member)
        self.drop_plans(member)
        if member.follower:
            member.follower.cancel()
        self.report_standby(member)

    def report_standby(self, member: Member) -> None:
        """Reports that a member is set aside, and why."""
        fastest = max((m.steady_speed for m in self.active), default=member.steady_speed)
        times = f"{fastest / member.steady_speed:.0f} times slower than the fastest host"
        reason = f"it is {times}, and the others would wait for it; it takes part when they are lost"
        self.report(member, "standby", reason)

    async def share_out(self) -> None:
        """Deals the examples again to all replicas that take part, and sends them there."""
        await asyncio.gather(*map(self._bring, self._supply.deal()))

    async def _bring(self, member: Member) -> None:
        try:
            await self._supply.bring(member)
        except HOST_ERRORS as error:
            await self.lose(member, error)

    def check_patience(self, alone: float, patience: float, to_continue: str) -> None:
        """Ends a training that nobody takes part in any more, when it is time to.

        Args:
            alone: seconds for which nobody has.
            patience: seconds to wait for a replica to come back.
            to_continue: the way to continue the training, as the end of a sentence.

        Raises:
            ClusterError: says what became of the replicas.
        """
        if alone > patience:
            raise ClusterError(
                f"All hosts were lost, and none came back within {patience:g} s "
                f"({self._troubles()}): check them{to_continue}."
            )
        if all(member.refused for member in self.members.values()):
            raise ClusterError(f"No host can continue: {self._troubles()}.")

    def _troubles(self) -> str:
        return "; ".join(f"{member.name}: {member.trouble}" for member in self.members.values() if member.trouble)


def _reason(error: BaseException) -> str:
    if isinstance(error, Gone):
        return str(error)
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError):
        return "its connection was closed"
    text = " ".join(str(error).split())
    return text[:200] if text else type(error).__name__
