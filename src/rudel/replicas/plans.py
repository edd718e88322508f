"""The number of steps of each replica in each round.

Faster replicas get more steps, so that all end their rounds at the same time; who ended earlier than the others gets
some more in a coming round, and who ended later some fewer. Rounds are planned while two earlier ones are under way.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rudel.replicas.members import Member
from rudel.replicas.replica_messages import Answer, Plan
from rudel.shipping import array_bytes

Rates = Callable[[int, int, int], np.ndarray]

_CORRECTED = 0.6
"""The share of a difference between the ends of rounds that the next plan makes up for."""

REST = 1.5
"""The rest of the steps becomes the last round where it is less than so many full ones."""

_MOST_CORRECTED = 0.3
"""At most this share of a replica's steps."""


class Plans:
    """Plans rounds for members; all of it is bookkeeping.

    Args:
        members: by name; others add to it and take from it.
        length: local steps of a round, on average over the replicas.
        total_steps: of the training, over all replicas.
        rates: see `Task`.
    """

    def __init__(self, members: Mapping[str, Member], length: int, total_steps: int, rates: Rates) -> None:
        self._members, self.length, self._total_steps, self._rates = members, length, total_steps, rates

    def planned(self, number: int) -> int:
        """Steps that are planned for a round and not done yet."""
        return sum(m.plans[number].steps for m in self._members.values() if m.active and number in m.plans)

    def longest(self, number: int, waiting: Sequence[Member]) -> float:
        """Seconds that the slowest of these takes for a round, as far as is known."""
        return max((m.plans[number].steps * m.step_seconds for m in waiting), default=0.0)

    def plan(self, number: int, open_round: int, merged: int, answers: Mapping[tuple[str, int], Answer]) -> None:
        """Shares the steps of a round among those that are there.

        Args:
            number: of the round.
            open_round: the first that is not closed.
            merged: steps of closed rounds.
            answers: of the open round, by host and the round that they were planned for.
        """
        active = [m for m in self._members.values() if m.active and m.pieces and number not in m.plans]
        active = [m for m in active if (m.name, number) not in answers]
        under_way = sum(self.planned(n) for n in (number - 2, number - 1) if n >= open_round)
        done = merged + under_way + sum(answer.steps for answer in answers.values())
        remaining = self._total_steps - done
        if remaining <= 0 or not active:
            return
        full = self.length * len(active)
        wanted = full if remaining >= REST * full else remaining
        shares = corrected(shared(wanted, [m.speed for m in active]), active)
        for member, share in zip(active, shares, strict=True):
            steps = max(1, share)  # who has nothing to do in a round falls out of step
            member.plans[number] = self._plan(member, steps, done, done + wanted)

    def plan_late(self, member: Member, number: int, share: float, open_round: int, done: int) -> None:
        """Lets a replica that has just joined take a share of what it could do in a round that others have planned.

        One without pieces has nothing to train on, and gets no plan.

        Args:
            member: the replica.
            number: of the round.
            share: of its length.
            open_round: the first that is not closed.
            done: steps merged, or answered for.
        """
        if number in member.plans or not member.pieces:
            return
        others = [m.plans[number].steps * m.step_seconds for m in self._members.values() if number in m.plans]
        seconds = share * max(others, default=member.step_seconds * self.length)
        left = self._total_steps - done - sum(self.planned(n) for n in range(open_round, number + 2))
        steps = max(1, min(int(seconds / member.step_seconds), left))
        member.plans[number] = self._plan(member, steps, done, done + steps)

    def _plan(self, member: Member, steps: int, first: int, last: int) -> Plan:
        rates = self._rates(first, last, steps).astype(np.float32)
        rates = rates[:1] if (rates == rates[0]).all() else rates
        pieces = sorted(piece.span for piece in member.pieces) if member.pieces_changed else None
        member.pieces_changed = False
        return Plan(steps, array_bytes.pack([rates]), pieces)


def corrected(shares: Sequence[int], members: Sequence[Member]) -> list[int]:
    """Steps changed so that members end together that did not, with the same sum.

    What is planned now takes effect after the round that is under way; what was corrected there is counted as done.
    """
    early = [member.early + member.correction for member in members]
    mean = sum(early) / len(early)
    limits = [_MOST_CORRECTED * share for share in shares]
    wanted = [_CORRECTED * (e - mean) * m.speed for e, m in zip(early, members, strict=True)]
    changes = [round(max(-limit, min(limit, change))) for change, limit in zip(wanted, limits, strict=True)]
    excess = sum(changes)
    sign = 1 if excess > 0 else -1
    largest = [(-sign * change, i) for i, change in enumerate(changes)]
    heapq.heapify(largest)
    for _ in range(abs(excess)):
        change, i = largest[0]
        changes[i] -= sign
        heapq.heapreplace(largest, (change + 1, i))
    for member, change in zip(members, changes, strict=True):
        member.correction = -change * member.step_seconds
    return [share + change for share, change in zip(shares, changes, strict=True)]


def shared(total: int, weights: Sequence[float]) -> list[int]:
    """Whole numbers in proportion to weights that add up to a total (largest remainders).

    >>> shared(10, [2.0, 1.0, 1.0])
    [5, 3, 2]
    """
    whole = sum(weights)
    exact = [total * weight / whole for weight in weights]
    floors = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (floors[i] - exact[i], i))
    for i in by_remainder[: total - sum(floors)]:
        floors[i] += 1
    return floors
