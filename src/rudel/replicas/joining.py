"""`Joining`: brings workers to where the other replicas are, at the beginning and whenever one comes back.

A worker is prepared once: it gets the examples that its cache does not have, the program, and a snapshot to begin
from. One that is lost and found again gets what it has missed.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rudel.cluster.fleet import TRANSPORT_ERRORS
from rudel.errors import ClusterError
from rudel.replicas.leader import Desk, Leader
from rudel.replicas.link_speeds import LinkSpeeds
from rudel.replicas.members import Member
from rudel.replicas.replica_messages import Merge, Snapshot
from rudel.replicas.round_lengths import Agreed
from rudel.replicas.rounds import GlobalState
from rudel.replicas.slots_by_pieces import SlotsReceiver
from rudel.replicas.supply import Supply
from rudel.replicas.team import HOST_ERRORS
from rudel.shipping import array_bytes

if TYPE_CHECKING:
    from rudel.cluster.fleet import Fleet


_SETTLING_SECONDS = 60.0
"""Time for a replica to take over a snapshot, beside what sending takes: it ends the block of steps that it is in."""

_PING_SECONDS = 2.0

_FIRST_TRY_SECONDS, _TRY_AGAIN_SECONDS = 10.0, 300.0
"""After which it is tried out again how fast a replica on standby is; the first time sooner where only a try-out said
that it is slow, in which its computer may have been held up.
"""

_SOON_SECONDS, _LARGEST_PIECE = 0.5, 2**30
"""Seconds that a piece of slots may take a link where somebody waits for them; and bytes, where none was measured."""

_log = logging.getLogger(__name__)


class Joining:
    """See the module. All methods run in the fleet's event loop.

    Args:
        fleet: the workers.
        desk: of the leader.
        leader: who says what those that join begin with.
        supply: of their examples.
        slots: for them to begin with.
    """

    def __init__(self, fleet: "Fleet", desk: Desk, leader: Leader, supply: Supply, slots: SlotsReceiver) -> None:
        self._fleet, self._task, self._leader, self._supply, self._slots = fleet, desk.task, leader, supply, slots
        self._team, self._calls, self._arithmetic = desk.team, desk.calls, desk.arithmetic
        self._links = LinkSpeeds()

    def begin(self, agreed: Agreed, links: LinkSpeeds) -> None:
        """Takes over what was agreed for all rounds, and how fast links are."""
        self._codecs, self._links = (agreed.delta_codec, agreed.merge_codec), links

    # -- what a worker needs ----------------------------------------------------------------------------------------

    async def prepare(self, member: Member) -> None:
        """Lets a worker compile the program and try it out."""
        description = await self._calls.call(member, "describe", timeout=120.0)
        about = {**description, "name": member.name}
        setup, member.room = await asyncio.to_thread(self._task.setup, member.number, about)
        prepared = await self._calls.call(member, "prepare", setup=setup)
        member.compile_seconds, member.step_seconds = prepared["compile_seconds"], prepared["step_seconds"]
        member.exchange_seconds, member.exchange_bytes = prepared["exchange_seconds"], prepared["exchange_bytes"]
        member.prepared = True
        self._supply.dealing.count()
        member.lose_pieces()

    async def send_snapshot(self, member: Member, with_slots: bool = True) -> GlobalState:
        """Sends a replica the weights of this moment; returns the global state that it has them of."""
        state = self._leader.state
        snapshot = await self._arithmetic.compute(self._snapshot_of, state, with_slots)
        each = snapshot.nbytes / self._links.rate
        sending = 2 * len(self._team.members) * each  # all may get theirs, while others exchange
        await self._calls.restore(member, snapshot, timeout=_SETTLING_SECONDS + sending)
        return state

    def _snapshot_of(self, state: GlobalState, with_slots: bool) -> Snapshot:
        return Snapshot(
            weights=array_bytes.pack([state.weights]),
            statistics=array_bytes.pack(state.statistics),
            slots=self._slots.newest if with_slots else None,
            codecs=self._codecs,
        )

    async def call_to_join(self, member: Member, number: int, merges: Sequence[Merge]) -> None:
        """Lets a replica begin with a round, after these merges."""
        if not member.lost or member.joining:
            fields = [vars(merge) for merge in merges]
            await self._calls.call(member, "join", timeout=_SETTLING_SECONDS, round=number, merges=fields)

    # -- workers that come ------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Notices workers that are there and take no part, new ones and lost ones, and lets them join."""
        while not self._team.ended:
            await asyncio.sleep(0.5)
            try:
                addresses = await self._fleet.members()
            except (*TRANSPORT_ERRORS, ClusterError) as error:  # it may be gone for a while
                _log.info("the scheduler did not answer: %s", error)
                continue
            for name, address in addresses.items():
                self._notice(name, address)

    def _notice(self, name: str, address: str) -> None:
        member = self._team.members.get(name)
        if member is None:
            member = self._team.enlist(name, address)
            member.lost = True
        if address != member.address:
            member.refused = False
        if member.standby and (address != member.address or not self._anybody_trains()):
            member.standby, member.prepared, member.lost = False, False, True
        pause = _TRY_AGAIN_SECONDS if member.measured or member.tried_again else _FIRST_TRY_SECONDS
        if member.standby and time.monotonic() - member.tried_at > pause:
            member.tried_at, member.tried_again = math.inf, True  # one try at a time, however long it takes
            self._team.spawn(self._try_again(member))
        if member.lost and not member.joining and not member.refused:
            member.joining = True
            if address != member.address or not member.prepared:
                self._team.report(member, "joining")
            self._team.spawn(self._join(member, address))

    def _anybody_trains(self) -> bool:
        return any(member.active or member.joining for member in self._team.members.values())

    async def _try_again(self, member: Member) -> None:
        """Lets a replica on standby join if it has become so fast that nobody would wait for it."""
        with contextlib.suppress(*HOST_ERRORS):
            await self.prepare(member)
            member.lately = 0.0, 0.0
            if member.standby and not self._leader.holds_up(member, [*self._team.active, member]):
                member.standby, member.prepared, member.lost = False, False, True
        member.tried_at = time.monotonic()

    async def _join(self, member: Member, address: str) -> None:
        """Brings a worker to where the others are, and lets it take part."""
        team = self._team
        try:
            known = address == member.address and member.prepared
            member.address = address
            about = await self._calls.call(member, "describe", timeout=_PING_SECONDS if known else 60.0)
            known = known and about["prepared"]
            if not known:
                await self.prepare(member)
            self._supply.deal([member])
            await self._supply.bring(member)
            if not known and self._slots.newest is None:
                await self._fresh_slots()
            number, merges = self._leader.join(member, await self.send_snapshot(member, with_slots=not known))
            await self.call_to_join(member, number, merges)
            was_lost, member.lost, member.active = member.lost, False, True
            member.pieces_changed = True
            team.drop_plans(member)
            self._leader.plan_for_joined(member, number)
            if was_lost:
                team.report(member, "joined")
            self.begin_to_follow(member, number)
            team.spawn(team.share_out())
        except HOST_ERRORS as error:
            self._fleet.forget(member.address)
            member.lost = True
            team.blame(member, error)
            if member.refused:
                team.report(member, "lost", member.trouble)
            team.spawn(team.share_out())
        finally:
            member.joining = False

    async def _fresh_slots(self) -> None:
        """Waits for a replica's slots, for others to begin with."""
        self._slots.want(int(min(_SOON_SECONDS * self._links.rate, _LARGEST_PIECE)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                await self._team.until(lambda: self._slots.newest is not None)

    # -- replicas that take part ------------------------------------------------------------------------------------

    def begin_to_follow(self, member: Member, number: int) -> None:
        """Lets the leader exchange with a replica, from round `number`."""
        member.follower = self._team.spawn(self._follow(member, number))

    async def _follow(self, member: Member, number: int) -> None:
        try:
            await self._leader.follow(member, number)
        except HOST_ERRORS as error:
            await self._team.lose(member, error)
        else:
            if not self._team.ended:  # others went on without it
                member.joining, member.active = True, False
                self._team.drop_plans(member)
                self._team.spawn(self._join(member, member.address))
