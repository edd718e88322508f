"""The leader of rounds: closes them, and steps the outer optimizer, whatever happens to a replica.

It has all that is needed to continue: the weights that all replicas have, the outer optimizer's state, the movement
that they have not heard of yet (the residual), the count of steps done. A merge is the movement of a round, encoded;
what that leaves out is added to the next one. So replicas only add what they receive, and momentum costs them nothing.

A replica that is lost takes with it the steps of its current round, which others do instead; its examples are dealt to
them; when it comes back, it begins from a snapshot of that moment.

A round closes when all replicas that take part have answered, or when a quorum, half of them, has and a grace time is
over. A delta that comes after that counts in the next round; a replica that is later than that begins again from a
snapshot. Deltas are weighted by the steps that they stand for, and faster replicas are given more steps, so that all
end their rounds together. One call in each direction per replica and round carries everything: the request brings the
last merge and the plan of the next round, the answer the delta.

Guarantee: the steps that were merged are at least as many as requested, whoever did them. Limit: what was lost
with this process itself is the round under way; the caller's checkpoints keep the rest.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Iterable, Sequence

import numpy as np

from rudel.replicas.codec.delta_codec import Codec
from rudel.replicas.codec.weight_vector import Layout
from rudel.replicas.leader import Desk, not_finite
from rudel.replicas.members import Member
from rudel.replicas.outer_optimizer import Outer, make_outer
from rudel.replicas.plans import Plans
from rudel.replicas.replica_messages import Answer, Merge
from rudel.replicas.round_lengths import Agreed
from rudel.replicas.rounds import Arrival, GlobalState
from rudel.replicas.shared_variables import mean_of
from rudel.replicas.team import HOST_ERRORS
from rudel.report.hosts_words import is_negligible
from rudel.shipping import array_bytes

LEAST_GRACE, LONGEST_GRACE = 1.0, 4.0
"""Seconds to wait for the others when half of the replicas have answered: half a round, but within these, and what an
exchange takes all of them on the link.
"""

_PATIENCE_WITH_MANY = 3
"""By how much longer fewer than half of the replicas wait for the others."""

_HISTORY = 256
"""Merges that are kept for replicas that join, at most."""

_HISTORY_SNAPSHOTS, _SMALL_HISTORY = 4, 2**20
"""Snapshots, without slots, that have as many bytes as all merges that are kept, where these are more than so many: a
replica whose link takes that long for a snapshot could not keep up with the merges.
"""

_Answers = dict[tuple[str, int], Answer]
"""Answers by host, and by the round that they were planned for."""


class RoundLeader:
    """Closes rounds; see the module, and `rudel.replicas.leader.Leader` for the methods.

    Args:
        desk: what it works with.
        state: from where to begin.
    """

    def __init__(self, desk: Desk, state: GlobalState) -> None:
        self._task, self._team, self._calls, self._book = desk.task, desk.team, desk.calls, desk.book
        self._compute, self.state = desk.arithmetic.compute, state
        self._merges: dict[int, Merge] = {}
        self._open: _Answers = {}
        self._plans = Plans(self._team.members, 1, self._task.total_steps, self._task.rates)

    def begin(self, agreed: Agreed, codecs: tuple[Codec, Codec], link_seconds: float) -> None:
        """See `Leader`."""
        self._plans.length, self._outer = agreed.steps, make_outer(agreed.outer)
        self._codecs, self._link_seconds = codecs, link_seconds

    def holds_up(self, member: Member, members: Sequence[Member]) -> bool:
        """See `Leader`: whether it is negligible beside the others."""
        return is_negligible(member.steady_speed, [other.steady_speed for other in members])

    async def lead(self) -> None:
        """See `Leader`."""
        while self.state.steps < self._task.total_steps and not self._team.stopping:
            await self._close_round()

    def plan_first(self, number: int) -> None:
        """See `Leader`: this round and the next one."""
        self._plan(number)
        self._plan(number + 1)

    # -- rounds ---------------------------------------------------------------------------------------------------

    async def _close_round(self) -> None:
        """Waits for the answers of the open round and closes it; the replicas get the merge before the rest is done."""
        number = self.state.round
        if not await self._enough_answers(number):
            return
        closing, self._open = self._open, {}
        before = self.state
        merge, self.state = await self._compute(self._merged, closing, before)
        self._remember(number, merge)
        self._measure_skew(closing)
        if self.state.steps < self._task.total_steps and not self._plans.planned(number + 1):
            self._plan(number + 1)  # somebody was lost in what was to be the last round
        self._plan(number + 2)
        seconds = self._team.elapsed
        await self._team.notify()
        steps = _steps_of(closing) / len(closing)
        self.state = await self._compute(self.state.averaged, before, self._task.averages, steps)
        self._book.report(
            self.state,
            seconds,
            [(name, answer) for (name, _), answer in closing.items()],
            [Arrival(answer.delta, answer.steps) for answer in closing.values()],
        )

    def _remember(self, number: int, merge: Merge) -> None:
        """Keeps the merge of a round, and of the rounds before it as many as are worth it."""
        self._merges[number] = merge
        snapshot = self.state.weights.nbytes + sum(value.nbytes for value in self.state.statistics)
        most = max(_HISTORY_SNAPSHOTS * snapshot, _SMALL_HISTORY)
        while len(self._merges) > _HISTORY or sum(merge.nbytes for merge in self._merges.values()) > most:
            del self._merges[next(iter(self._merges))]

    def _merged(self, closing: _Answers, state: GlobalState) -> tuple[Merge, GlobalState]:
        """The merge that replicas get after a round, and the global state after it."""
        of_all = zip(*(array_bytes.unpack(answer.statistics) for answer in closing.values()), strict=True)
        statistics = [mean_of(values, [answer.steps for answer in closing.values()]) for values in of_all]
        deltas = [(answer.delta, answer.steps) for answer in closing.values()]
        message, after = outer_step(state, deltas, statistics, self._outer, *self._codecs, self._task.layout)
        return Merge(message, array_bytes.pack(statistics)), after

    @property
    def _longest_grace(self) -> float:
        return LONGEST_GRACE + self._link_seconds

    def _longest_silence(self, waiting: Sequence[Member]) -> float:
        """Seconds after which it is odd that not one of these has answered."""
        return _PATIENCE_WITH_MANY * (self._plans.longest(self.state.round, waiting) + self._longest_grace)

    def _plan(self, number: int) -> None:
        if self._team.stopping:
            return
        idle = [member for member in self._team.members.values() if number not in member.plans]
        self._plans.plan(number, self.state.round, self.state.steps, self._open)
        self._book.ask_for_slots([member for member in idle if number in member.plans], number)

    def _plan_late(self, member: Member, number: int, share: float) -> None:
        self._plans.plan_late(member, number, share, self.state.round, self.state.steps + _steps_of(self._open))

    def _measure_skew(self, answers: Iterable[tuple[str, int]]) -> None:
        """Learns who ended the round earlier or later than the others."""
        ended = [self._team.members[name] for name in {name for name, _ in answers}]
        mean = sum(member.answered_at for member in ended) / len(ended)
        for member in self._team.members.values():
            member.early = mean - member.answered_at if member in ended else 0.0

    async def _enough_answers(self, number: int) -> bool:
        """Waits until the round can be closed, and sets those aside that did not answer in time.

        Returns:
            False if the training is to end without this round.
        """
        team, began, alone_since, asked_at = self._team, time.monotonic(), None, 0.0
        deadline = stop_by = math.inf
        async with team.changed:
            while True:
                if team.failure:
                    raise team.failure
                waiting = [member for member in team.active if number in member.plans]
                if self._open and not waiting:
                    return True
                now = time.monotonic()
                in_time = sum(planned_for == number for _, planned_for in self._open)
                if in_time:
                    patience = 1 if in_time >= len(waiting) else _PATIENCE_WITH_MANY
                    deadline = min(deadline, now + patience * self._grace(waiting))
                    if now >= deadline:
                        for member in waiting:
                            member.active = False
                            team.spawn(self._recover(member))
                        return True
                elif now - max(began, asked_at) > self._longest_silence(waiting):
                    asked_at = now
                    for member in waiting:
                        team.spawn(self._ask(member))
                if team.stopping:
                    stop_by = min(stop_by, now + self._longest_grace)
                    if now >= stop_by or not waiting:
                        return False
                if not waiting:
                    if team.active:
                        self._plan(number)
                        team.changed.notify_all()
                    alone_since = alone_since or now
                    team.check_patience(now - alone_since, self._task.patience, self._task.to_continue)
                else:
                    alone_since = None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.001, min(1.0, deadline - now, stop_by - now))):
                        await team.changed.wait()

    def _grace(self, waiting: Sequence[Member]) -> float:
        return grace(self._plans.longest(self.state.round, waiting), self._link_seconds)

    async def follow(self, member: Member, number: int) -> None:
        """See `Leader`."""
        team, newest_plan, newest_merge = self._team, number - 1, number - 1
        while not team.ended:
            await team.until(lambda number=number: any(planned >= number for planned in member.plans))
            if team.ended or number not in member.plans or self._forgotten(newest_merge + 1):
                return
            plans = [(n, plan) for n, plan in member.plans.items() if n > newest_plan]
            newest_plan = max(n for n, _ in plans) if plans else newest_plan
            merges = [(n, self._merges[n]) for n in range(newest_merge + 1, self.state.round)]
            newest_merge = max(newest_merge, self.state.round - 1)
            answer = await self._calls.exchange(member, number, plans, merges)
            await self._deliver(member, number, answer)
            if not member.active and number < self.state.round - 1:  # too late to go on from where it is
                return
            await team.until(lambda number=number: self.state.round > number)
            number += 1

    async def _deliver(self, member: Member, number: int, answer: Answer) -> None:
        if answer.bad_step >= 0:
            self._team.fail(not_finite(member, f"round {number + 1:,}", answer, self._task.why_not_finite()))
        self._book.learn(member, answer)
        async with self._team.changed:
            member.plans.pop(number, None)
            if number >= self.state.round - 1:
                if answer.bad_step < 0:
                    self._open[member.name, number] = answer
                if not member.active and not member.lost:
                    member.active = True  # late, but still in step
                    for missed in range(number + 1, self.state.round + 2):
                        self._plan_late(member, missed, 1.0)
            self._team.changed.notify_all()

    # -- replicas that come and go --------------------------------------------------------------------------------

    async def _ask(self, member: Member) -> None:
        """Loses a replica that is silent, or whose worker is."""
        try:
            await self._calls.call(member, "describe", timeout=self._longest_grace)
        except HOST_ERRORS as error:
            await self._team.lose(member, error)

    async def _recover(self, member: Member) -> None:
        """Gives a replica that did not answer in time some seconds more; then it counts as lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._longest_grace):
                await self._team.until(lambda: member.active or member.joining or member.lost)
        if not (self._team.ended or member.active or member.joining or member.lost):
            await self._team.lose(member, TimeoutError())

    def _forgotten(self, number: int) -> bool:
        """Whether so many rounds have closed after this one that its merge is no longer kept."""
        return number < next(iter(self._merges), 0)

    def join(self, member: Member, snapshot: GlobalState) -> tuple[int, Sequence[Merge]]:
        """See `Leader`."""
        if self._forgotten(snapshot.round):
            raise TimeoutError("while the weights were sent to it, the others closed too many rounds")
        return self.state.round, [self._merges[number] for number in range(snapshot.round, self.state.round)]

    def plan_for_joined(self, member: Member, number: int) -> None:
        """See `Leader`."""
        for missed in range(number, self.state.round + 2):  # rounds may have closed while it joined
            self._plan_late(member, missed, (missed - self.state.round + 1) / 2)


def outer_step(
    state: GlobalState,
    deltas: Sequence[tuple[bytes, int]],
    statistics: list[np.ndarray],
    outer: Outer,
    delta_codec: Codec,
    merge_codec: Codec,
    layout: Layout,
) -> tuple[bytes, GlobalState]:
    """Closes a round.

    Args:
        state: the global state before it; unchanged.
        deltas: of the replicas, encoded, and the steps that each stands for.
        statistics: means of the averaged variables.
        outer, delta_codec, merge_codec, layout: how the weights move, and how replicas and coordinator talk of it.

    Returns:
        The message to the replicas, and the global state after the round.

    Raises:
        ValueError: a delta is damaged.
    """
    steps, momentum = sum(steps for _, steps in deltas), state.momentum.copy()
    mean = delta_codec.weighted_sum(deltas, layout)
    mean /= np.float32(steps)
    movement = outer.step(mean, momentum)
    movement += state.residual
    message, sent = merge_codec.encode(movement, layout)
    movement -= sent
    return message, GlobalState(
        state.round + 1, state.steps + steps, state.weights + sent, momentum, movement, statistics
    )


def _steps_of(answers: _Answers) -> int:
    """Local steps that have been answered for."""
    return sum(answer.steps for answer in answers.values())


def grace(longest: float, link: float) -> float:
    """Seconds to wait for the others when half of the replicas have answered.

    Args:
        longest: seconds that the longest of the others' rounds takes.
        link: seconds in which all replicas exchange what a round has to, all at once.

    >>> grace(0.5, link=0.02), grace(5.0, link=0.02), grace(60.0, link=3.0)
    (1.02, 2.52, 7.0)
    """
    return min(max(LEAST_GRACE, longest / 2), LONGEST_GRACE) + link
