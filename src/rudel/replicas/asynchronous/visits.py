"""The number of steps that each replica takes until its next exchange.

Faster replicas take more steps, so that all come about equally often (*dynamic local updates* of 2401.09135), and
nobody's delta is much staler than another's. They also take some steps more or fewer so that they come at about the
same time, as far as they can: who comes takes along what others have brought just before. Nobody waits for that.

The last steps are shared out so that all are done with them at the same time, as far as their speeds are known. Steps
that a replica was to do, which is lost or much later than it should be, are for others to do.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rudel.replicas.members import Member
from rudel.replicas.replica_messages import Plan
from rudel.shipping import array_bytes

Rates = Callable[[int, int, int], np.ndarray]

EXCHANGE_SHARE = 0.1
"""A slow replica comes less often if encoding and merging would take more than this share of its time."""

_LATE_FACTOR, _LATE_SECONDS = 2.0, 1.0
"""A replica whose answer takes so many times what it should, and this longer, is not counted on for its steps."""

_MOST_CORRECTED = 0.25
"""At most this share of a visit's steps makes up for not coming when the others do."""

LITTLE = 0.75
"""The last steps are done in ever shorter visits, down to this share of the shortest that pays."""


@dataclass
class Visit:
    """Steps that a replica has been instructed to take.

    Args:
        steps: how many.
        weight: the replica's share of a cycle, in which all come once, when this was planned.
        cycle: steps of a cycle.
    """

    steps: int
    weight: float
    cycle: int


class Visits:
    """Plans visits; all of it is bookkeeping.

    Args:
        members: by name; others add to it and take from it.
        length: local steps of a visit of the fastest replica.
        total_steps: of the training, over all replicas.
        rates: see `rudel.replicas.rounds.Task`.
        clock: seconds.
    """

    def __init__(
        self,
        members: Mapping[str, Member],
        length: int,
        total_steps: int,
        rates: Rates,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._members, self.length, self._total_steps, self._rates = members, length, total_steps, rates
        self._clock = clock
        self._planned: dict[tuple[str, int], Visit] = {}
        self._since: dict[str, float] = {}  # when a replica began with the first visit that is planned for it

    def plan(self, member: Member, number: int, done: int) -> None:
        """Plans what a replica does in its visit of this number, unless that is planned, or nothing is left for it.

        Args:
            member: whose.
            number: of the visit, by which replica and coordinator know it.
            done: steps merged.
        """
        active = self._active()
        if number in member.plans or member not in active:
            return
        busy = {m.name: self._busy(m) for m in active}
        ahead = sum(self._ahead(m) for m in active)
        left = self._total_steps - done - ahead
        if left <= 0:
            return
        lengths = self._lengths(active)
        length = lengths[member.name]
        fair = fair_share(left, member.name, {m.name: m.speed for m in active}, busy)
        if not fair:
            return
        if fair > 2 * length:
            steps = min(left, self._in_step(member, length, active))
        else:
            steps = min(left, self._last_steps(member, fair, left, busy))
        if not steps:
            return
        speed = sum(m.speed for m in active)
        first = done + ahead
        rates = self._rates(first, first + round(steps * speed / member.speed), steps).astype(np.float32)
        rates = rates[:1] if (rates == rates[0]).all() else rates
        pieces = sorted(piece.span for piece in member.pieces) if member.pieces_changed else None
        member.pieces_changed = False
        if not member.plans:  # all are done, or were dropped
            self._since[member.name] = self._clock()
            self._planned = {key: visit for key, visit in self._planned.items() if key[0] != member.name}
        member.plans[number] = Plan(steps, array_bytes.pack([rates]), pieces)
        cycle = sum(lengths.values())
        self._planned[member.name, number] = Visit(steps, length / cycle, cycle)

    def planned(self, member: Member, number: int) -> Visit:
        """The visit that a replica comes with."""
        return self._planned[member.name, number]

    def taken(self, member: Member, number: int, came: float) -> None:
        """A visit is over, which ended at this time, and is no longer planned."""
        member.plans.pop(number, None)
        self._since[member.name] = came
        del self._planned[member.name, number]

    def is_late(self, member: Member) -> bool:
        """Whether its answer takes far longer than it should."""
        if not member.plans:
            return False
        expected = member.plans[min(member.plans)].steps * member.step_seconds
        return self._clock() - self._since[member.name] > _LATE_FACTOR * expected + _LATE_SECONDS

    def _active(self) -> list[Member]:
        return [m for m in self._members.values() if m.active and m.pieces]

    def _ahead(self, member: Member) -> int:
        """Steps that a replica can be counted on to do."""
        return 0 if self.is_late(member) else sum(plan.steps for plan in member.plans.values())

    def _busy(self, member: Member) -> float:
        """Seconds that a replica has to do."""
        steps = sum(plan.steps for plan in member.plans.values())
        if not steps:
            return 0.0
        since = self._clock() - self._since[member.name]
        return max(0.0, steps * member.step_seconds - since) + (math.inf if self.is_late(member) else 0.0)

    def comes_in(self, member: Member) -> float:
        """Seconds until a replica should come, negative if it should be here; infinite if it has nothing to do."""
        if not member.plans:
            return math.inf
        return self._since[member.name] + member.plans[min(member.plans)].steps * member.step_seconds - self._clock()

    def _in_step(self, member: Member, length: int, active: Sequence[Member]) -> int:
        """Steps with which a replica comes when one of the fast ones does, which is the same one for all."""
        fastest = max(other.speed for other in active)
        leader = min((other for other in active if other.speed > fastest / 2), key=lambda other: other.number)
        if leader is member or not leader.plans:
            return length
        first, *others = (plan.steps * leader.step_seconds for _, plan in sorted(leader.plans.items()))
        period = others[-1] if others else first
        return in_step(length, member.speed, self._busy(member), self.comes_in(leader) + sum(others), period)

    def _last_steps(self, member: Member, fair: float, left: int, busy: Mapping[str, float]) -> int:
        """Steps of one of a replica's last visits: half of what is left for it, since nobody knows exactly when it and
        the others will come; or all of it, if that is little. What is too little for anybody is for the one who is done
        with it soonest.
        """
        least, half = self._least(member, self.length), math.ceil(fair / 2)
        if half >= LITTLE * least:
            return half
        if 2 * fair >= least:
            return math.ceil(fair)
        first = min(busy, key=lambda name: busy[name] + left * self._members[name].step_seconds)
        return max(math.ceil(fair), least) if first == member.name else 0

    def _lengths(self, active: Sequence[Member]) -> dict[str, int]:
        """Steps of a visit of each replica."""
        fastest = max(m.speed for m in active)
        return {m.name: max(round(self.length * m.speed / fastest), self._least(m, self.length), 1) for m in active}

    def _least(self, member: Member, whole: int) -> int:
        """Steps below which it does not pay for a replica to come."""
        return min(whole, math.ceil(member.exchange_seconds / (EXCHANGE_SHARE * member.step_seconds)))


def in_step(length: int, speed: float, begins: float, beat: float, period: float) -> int:
    """Steps of a visit that is to end when others come, which is at a whole number of periods before or after a beat.

    Args:
        length: steps that it would have.
        speed: steps a second.
        begins: in seconds, as the beat.
        beat: when somebody comes.
        period: seconds.

    >>> in_step(100, 100.0, begins=0.1, beat=5.0, period=1.0), in_step(100, 100.0, begins=0.8, beat=5.0, period=1.0)
    (90, 120)
    """
    off = (begins + length / speed - beat + period / 2) % period - period / 2
    most = _MOST_CORRECTED * length
    return max(1, length + round(min(most, max(-most, -off * speed))))


def fair_share(left: int, name: str, speeds: Mapping[str, float], busy: Mapping[str, float]) -> float:
    """Steps that one of several takes of those that are left, if all shall end at the same time.

    Args:
        left: steps.
        name: whose share.
        speeds: steps a second, by name.
        busy: seconds that each still has to do, by name; who is busy for too long gets none.

    >>> speeds = {"a": 100.0, "b": 100.0, "c": 10.0}
    >>> round(fair_share(210, "c", speeds, {"a": 0.0, "b": 0.0, "c": 0.0}), 6)
    10.0
    >>> fair_share(50, "a", speeds, {"a": 0.0, "b": 0.5, "c": 9.0})
    50.0
    """
    end, speed, work = 0.0, 0.0, 0.0
    for other in sorted(speeds, key=lambda one: busy[one]):
        if speed and busy[other] >= (left + work) / speed:
            break
        speed += speeds[other]
        work += speeds[other] * busy[other]
        end = (left + work) / speed
    return max(0.0, speeds[name] * (end - busy[name])) if busy[name] < math.inf else 0.0
