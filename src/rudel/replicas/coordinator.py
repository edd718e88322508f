"""The coordinator of a training by replicas: begins it, keeps everybody busy, and ends it.

The `Leader` decides how work is merged. Workers come to take part in `joining`, and are lost or set aside in `team`;
`host_calls` talks to them, and `answer_book` learns from what they answer. A replica that is lost takes nothing with it
but what it did since its last answer; its examples are dealt to the others. The event loop only keeps the books: see
`arithmetic`.

Limit: what was lost with this process itself is what was under way; the caller's checkpoints keep the rest.
"""

import asyncio
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.cluster.fleet import TRANSPORT_ERRORS
from rudel.errors import ClusterError
from rudel.replicas.answer_book import AnswerBook
from rudel.replicas.arithmetic import Arithmetic
from rudel.replicas.codec.delta_codec import Codec, make_codec
from rudel.replicas.codec.weight_vector import Layout
from rudel.replicas.dealing import even_out, worth_of
from rudel.replicas.host_calls import HostCalls
from rudel.replicas.joining import Joining
from rudel.replicas.leader import Desk, Leader
from rudel.replicas.link_speeds import measured
from rudel.replicas.members import Member
from rudel.replicas.round_lengths import Speeds
from rudel.replicas.rounds import GlobalState, Task
from rudel.replicas.slots_by_pieces import SlotsReceiver
from rudel.replicas.supply import Supply
from rudel.replicas.team import Team

if TYPE_CHECKING:
    from rudel.cluster.fleet import Fleet


_PROBE_SECONDS = 60.0

_EVEN_SECONDS = 2.0
"""Time between two looks whether some examples have fallen behind."""

_log = logging.getLogger(__name__)


class Coordinator:
    """See the module. All methods but `stop` and `want_slots` run in the fleet's event loop.

    Args:
        make_leader: makes the leader from the desk that it works with.
        fleet: the workers.
        task: what to do.
        slots: packed optimizer variables for replicas to begin with, from a checkpoint.
        on_event: called with `RoundClosed` and `HostChanged` events.

    Attributes:
        compile_seconds: of the program, on the slowest host.
    """

    def __init__(
        self,
        make_leader: Callable[[Desk], Leader],
        fleet: "Fleet",
        task: Task,
        slots: bytes | None,
        on_event: Callable[[Any], None],
    ) -> None:
        members: dict[str, Member] = {}
        received = SlotsReceiver(slots)
        self._fleet, self._task, self._calls = fleet, task, HostCalls(fleet)
        self._supply = Supply(task.pieces, members, self._calls.call, self._calls.count_sent)
        self._book = AnswerBook(members, self._calls, self._supply.dealing, received, task.batch_size, on_event)
        self._team, self._arithmetic = Team(fleet, members, self._supply, received, on_event), Arithmetic()
        desk = Desk(task, self._team, self._calls, self._book, self._arithmetic)
        self._leader = make_leader(desk)
        self._joining = Joining(fleet, desk, self._leader, self._supply, received)
        self.compile_seconds = 0.0

    @property
    def state(self) -> GlobalState:
        """The global state."""
        return self._leader.state

    @property
    def delivered(self) -> tuple[int, int] | None:
        """Bytes that have arrived, and all that were sent; None where nothing was, or where that is not known.

        Can be read in any thread.
        """
        sent, delivered = self._calls.sent, self._fleet.delivered()
        return None if delivered is None or not sent else (min(delivered, sent), sent)

    def stop(self) -> None:
        """Ends the training soon; can be called from any thread."""
        self._team.stopping = True

    def want_slots(self) -> None:
        """Asks for a replica's optimizer slots with the next answers; can be called from any thread."""
        self._book.want_slots()

    async def prepare(self) -> None:
        """Brings program, examples and weights to all workers that are there.

        Raises:
            ClusterError: there are none, or one cannot take part.
        """
        addresses = await self._fleet.members()
        if not addresses:
            raise ClusterError("The cluster has no workers: start some, and look at the Dask scheduler's log.")
        members = [self._team.enlist(name, addresses[name]) for name in sorted(addresses)]
        await self._team.with_all(self._joining.prepare)
        for member in self._holding_up():
            self._team.set_aside(member)
        even_out(self._team.active)
        for member in self._supply.deal():
            _log.info("%s takes %.4g steps/s, and gets %d pieces", member.name, member.speed, len(member.dealt))
        await self._team.with_all(self._supply.bring)
        await self._agree(self._team.active)
        await self._team.with_all(self._joining.send_snapshot)
        self.compile_seconds = max(member.compile_seconds for member in members)
        self._calls.sent = 0
        for member in members:
            member.sent = 0

    async def run(self) -> None:
        """Trains to the end.

        Raises:
            ClusterError: all replicas were lost, and none came back.
            NonFiniteError: the loss became NaN or infinite.
        """
        team, joining, first = self._team, self._joining, self.state.round
        members = [member for member in team.members.values() if not member.standby]
        try:
            calls = (joining.call_to_join(member, first, []) for member in members)
            joined = await asyncio.gather(*calls, return_exceptions=True)
            team.began = time.perf_counter()
            for member, error in zip(members, joined, strict=True):
                if error is not None and not isinstance(error, TRANSPORT_ERRORS):
                    raise error
                if member.lost or error is not None:
                    member.lost = False
                    await team.lose(member, error)
            for member in team.members.values():
                if member.standby:
                    team.report_standby(member)
            self._leader.plan_first(first)
            for member in members:
                if member.active:
                    joining.begin_to_follow(member, first)
            team.spawn(joining.watch())
            team.spawn(self._keep_even())
            await self._leader.lead()
        finally:
            await team.end()
            self._arithmetic.close()

    async def _agree(self, members: Sequence[Member]) -> None:
        """Measures the links, and lets it be decided how rounds shall be."""
        links = await measured(members, self._probe)
        speed, size = (sum(getattr(m, name) for m in members) / len(members) for name in ("speed", "exchange_bytes"))
        exchange = statistics.median(member.exchange_seconds for member in members)
        slowest, worth = max(member.step_seconds for member in members), worth_of([m.speed for m in members])
        agreed = self._task.agree(
            len(members),
            Speeds(1 / speed, exchange, size, links.rate, links.round_trip, slowest, self._task.layout.size, worth),
        )
        _log.info("agreed with %d hosts, at %.3g bytes/s to all: %s", len(members), links.rate, agreed)
        codecs = make_codec(agreed.delta_codec), make_codec(agreed.merge_codec)
        self._leader.begin(agreed, codecs, len(members) * size / links.rate)
        self._joining.begin(agreed, links)
        for codec in codecs:  # so that it is fast when the first round ends
            await self._arithmetic.compute(_try_out, codec, self.state.weights, self._task.layout)

    async def _probe(self, member: Member, content: bytes) -> None:
        await self._calls.call(member, "probe", timeout=_PROBE_SECONDS, content=content)

    async def _keep_even(self) -> None:
        """Deals the examples again whenever some have fallen behind."""
        team = self._team
        while not team.ended:
            await asyncio.sleep(_EVEN_SECONDS)
            for slow in self._holding_up():
                if slow.known:
                    team.stand_by(slow)
                    team.spawn(team.share_out())
            if behind := self._supply.dealing.behind():
                before = {name: set(member.dealt) for name, member in team.members.items()}
                await team.share_out()
                moved = sum(len(m.dealt - before.get(name, set())) for name, m in team.members.items())
                if moved:
                    _log.info("%d pieces of the data had fallen behind, %d were moved", len(behind), moved)

    def _holding_up(self) -> list[Member]:
        """Members without which the others would progress faster."""
        active = self._team.active
        return [member for member in active if self._leader.holds_up(member, active)]


def _try_out(codec: Codec, weights: np.ndarray, layout: Layout) -> None:
    message, _ = codec.encode(weights, layout)
    codec.weighted_sum([(message, 1)], layout)
