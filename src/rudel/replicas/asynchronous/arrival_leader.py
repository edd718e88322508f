"""The leader of arrivals: what a replica brings is applied at once, and it takes away what the others have done.

A replica visits: it takes its steps, and its delta comes here. The delta moves the global weights at once (see
`delayed`), and the answer is the difference between the global weights and what this replica holds, which both sides
know. So what a coded difference leaves out is in the next one, and nobody has to remember residuals for others. The
replica goes on meanwhile, and takes the difference in when it comes, as in a round of `diloco`: to it, a visit is a
round whose merge is added to its weights.

Nobody waits for anybody: a slow replica comes less often or with fewer steps, a silent one is probed
when its answer is overdue, and is lost if not; a lost one begins again from a snapshot.

Guarantee: the steps that were merged are at least as many as requested, whoever did them. Limit: what was under
way when the training ends, because somebody stopped it or because others did a late replica's steps, is left out.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rudel.array_types import Float32
from rudel.replicas.asynchronous.delayed import Delayed, freshness, make_delayed
from rudel.replicas.asynchronous.visits import Visits
from rudel.replicas.averages import Averages
from rudel.replicas.codec.delta_codec import Codec
from rudel.replicas.leader import Desk, not_finite
from rudel.replicas.members import Member
from rudel.replicas.replica_messages import Answer, Merge, Plan
from rudel.replicas.round_lengths import Agreed
from rudel.replicas.rounds import Arrival, GlobalState
from rudel.replicas.shared_variables import moved_towards
from rudel.shipping import array_bytes

REPORT_SECONDS = 0.1
"""Arrivals that follow each other by less than this are reported together."""

_MEMORY = 0.5
"""The weight of the last exchange's seconds against earlier ones."""

ASKED_SECONDS = 4.0
"""Time for a replica that is silent to say that it is there."""

_HELD = 0.125
"""Share of its next visit for which a replica's answer is held back if others are about to come."""

_LEAST_HELD_SECONDS = 0.005

_SILENT_FACTOR, _SILENT_SECONDS = 2.0, 3.0
"""A replica is probed when its answer takes so many times what it should, and this longer."""

_LOOK_SECONDS = 0.25
"""Time between two looks whether somebody has nothing to do, or is late."""


@dataclass(frozen=True)
class _Held:
    """The state of a replica, as far as the coordinator knows it.

    Args:
        weights: the global weights as it has them.
        steps: merged when they were sent to it.
    """

    weights: np.ndarray
    steps: int


class ArrivalLeader:
    """Takes deltas as they come; see the module, and `rudel.replicas.leader.Leader` for the methods.

    Args:
        desk: what it works with.
        state: from where to begin.
    """

    def __init__(self, desk: Desk, state: GlobalState) -> None:
        self._task, self._team, self._calls, self._book = desk.task, desk.team, desk.calls, desk.book
        self._compute, self.state = desk.arithmetic.compute, state
        self._visits = Visits(self._team.members, 1, self._task.total_steps, self._task.rates)
        self._held: dict[str, _Held] = {}
        self._came: list[tuple[str, Answer, Arrival]] = []
        self._seconds = self._reported_at = 0.0
        self._applying = asyncio.Lock()

    def begin(self, agreed: Agreed, codecs: tuple[Codec, Codec], link_seconds: float) -> None:
        """See `Leader`."""
        self._visits.length, self._outer = agreed.steps, make_delayed(agreed.outer)
        (self._delta_codec, self._merge_codec), self._link_seconds = codecs, link_seconds

    def holds_up(self, member: Member, members: Sequence[Member]) -> bool:
        """See `Leader`: nobody waits for it."""
        return False

    async def lead(self) -> None:
        """See `Leader`."""
        team, alone_since = self._team, None
        while self.state.steps < self._task.total_steps and not team.stopping:
            if team.failure:
                raise team.failure
            now = time.monotonic()
            if team.active:
                alone_since = None
            else:
                alone_since = alone_since or now
                team.check_patience(now - alone_since, self._task.patience, self._task.to_continue)
            self._report_arrivals(REPORT_SECONDS)
            there = {member.name for member in team.members.values() if member.active or member.joining}
            self._held = {name: held for name, held in self._held.items() if name in there}
            async with team.changed:
                team.changed.notify_all()  # there may be work now for replicas that have none
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await team.changed.wait()
        self._report_arrivals(0.0)

    # -- visits -----------------------------------------------------------------------------------------------------

    def plan_first(self, number: int) -> None:
        """See `Leader`: this visit of each, and the next one."""
        active = self._team.active
        self._held = dict.fromkeys((member.name for member in active), _Held(self.state.weights, self.state.steps))
        for ahead in (number, number + 1):
            for member in active:
                self._plan(member, ahead)

    def _plan(self, member: Member, number: int) -> bool:
        """Plans a visit, if there is something to do; whether it is planned."""
        if not self._team.stopping and number not in member.plans:
            self._visits.plan(member, number, self.state.steps)
            self._book.ask_for_slots([member] if number in member.plans else [], number)
        return number in member.plans

    async def follow(self, member: Member, number: int) -> None:
        """See `Leader`."""
        team, newest_plan, merges = self._team, number - 1, []
        while not team.ended:
            await team.until(lambda number=number: self._plan(member, number))
            if team.ended:
                return
            self._plan(member, number + 1)
            plans = [(n, plan) for n, plan in member.plans.items() if n > newest_plan]
            newest_plan = max([newest_plan, *(n for n, _ in plans)])
            answer = await self._answer(member, number, plans, merges)
            self._book.learn(member, answer)
            member.exchange_seconds += _MEMORY * (answer.exchange_seconds - member.exchange_seconds)
            if answer.bad_step >= 0:
                team.fail(not_finite(member, f"visit {number + 1:,}", answer, self._task.why_not_finite()))
                merges = []
            else:
                await self._arrive(member, number, answer)
                await team.notify()
                await self._others(member, number + 1)
                merges = [(number, await self._merge_for(member))]
            number += 1

    async def _answer(
        self, member: Member, number: int, plans: Sequence[tuple[int, Plan]], merges: Sequence[tuple[int, Merge]]
    ) -> Answer:
        """The answer of a replica, which is probed from time to time if that takes long.

        Raises:
            OSError: it is not.
        """
        call = asyncio.ensure_future(self._calls.exchange(member, number, plans, merges))
        expected = member.plans[number].steps * member.step_seconds
        silent = _SILENT_FACTOR * expected + _SILENT_SECONDS + self._link_seconds
        try:
            while True:
                done, _ = await asyncio.wait([call], timeout=silent)
                if done:
                    return call.result()
                await self._calls.call(member, "describe", timeout=ASKED_SECONDS + self._link_seconds)
        finally:
            call.cancel()

    async def _others(self, member: Member, number: int) -> None:
        """Waits for others who are about to come, so that a replica, which is in the midst of its visit of this number,
        gets what they bring.
        """
        if (plan := member.plans.get(number)) is None:
            return
        until = time.perf_counter() + _HELD * plan.steps * member.step_seconds
        while not self._team.ended and (left := until - time.perf_counter()) > _LEAST_HELD_SECONDS:
            others = [other for other in self._team.active if other is not member and not self._visits.is_late(other)]
            if all(self._visits.comes_in(other) > left for other in others):
                return
            async with self._team.changed:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._team.changed.wait()

    async def _arrive(self, member: Member, number: int, answer: Answer) -> None:
        """Applies what a replica has brought, after what others have brought before."""
        came = time.perf_counter()
        async with self._applying:
            visit, held = self._visits.planned(member, number), self._held[member.name]
            weight, fresh = visit.weight, freshness((self.state.steps - held.steps) / visit.cycle)
            self.state = await self._compute(self._applied, self.state, answer, weight, fresh)
            self._visits.taken(member, number, came)
        self._came.append((member.name, answer, Arrival(answer.delta, answer.steps, weight, fresh)))
        self._seconds = self._team.elapsed
        self._report_arrivals(REPORT_SECONDS)

    def _applied(self, state: GlobalState, answer: Answer, weight: float, fresh: float) -> GlobalState:
        """The state after a replica's delta."""
        delta = self._delta_codec.decode(answer.delta, self._task.layout)
        own = array_bytes.unpack(answer.statistics)
        statistics = [moved_towards(s, o, weight) for s, o in zip(state.statistics, own, strict=True)]
        arrival = Arrival(answer.delta, answer.steps, weight, fresh)
        after = arrived(state, delta, arrival, self._outer, self._task.averages)
        return replace(after, statistics=statistics)

    async def _merge_for(self, member: Member) -> Merge:
        """The message for a replica: how the weights differ from those that it has."""
        state, held = self.state, self._held[member.name]
        merge, self._held[member.name] = await self._compute(self._difference, state, held)
        return merge

    def _difference(self, state: GlobalState, held: _Held) -> tuple[Merge, _Held]:
        """The message for a replica with these weights, and the weights that it has afterwards."""
        message, sent = self._merge_codec.encode(state.weights - held.weights, self._task.layout)
        return Merge(message, array_bytes.pack(state.statistics)), _Held(held.weights + sent, state.steps)

    def _report_arrivals(self, seconds: float) -> None:
        """Reports the arrivals since the last report, if that was so many seconds ago."""
        if not self._came or time.perf_counter() - self._reported_at < seconds:
            return
        came, self._came, self._reported_at = self._came, [], time.perf_counter()
        answers, arrivals = [(name, answer) for name, answer, _ in came], [arrival for _, _, arrival in came]
        self._book.report(self.state, self._seconds, answers, arrivals)

    # -- replicas that come and go ----------------------------------------------------------------------------------

    def join(self, member: Member, snapshot: GlobalState) -> tuple[int, Sequence[Merge]]:
        """See `Leader`."""
        self._held[member.name] = _Held(snapshot.weights, snapshot.steps)
        return self.state.round + 2, []  # beyond the rounds that were planned for it before

    def plan_for_joined(self, member: Member, number: int) -> None:
        """See `Leader`: that is planned when it is followed."""


def arrived(
    state: GlobalState, delta: Float32[np.ndarray, "weights"], arrival: Arrival, outer: Delayed, averages: Averages
) -> GlobalState:
    """The global state after a replica's delta.

    Args:
        state: before it; unchanged.
        delta: decoded, float32 (N,).
        arrival: what came, and how much it counts.
        outer: what it does to the weights.
        averages: see `Task`.
    """
    weights, momentum = state.weights.copy(), state.momentum.copy()
    outer.step(delta, arrival.weight, arrival.fresh, momentum, weights)
    done = state.round + 1, state.steps + arrival.steps
    after = GlobalState(*done, weights, momentum, state.residual, state.statistics)
    return after.averaged(state, averages, arrival.steps * arrival.weight)
