"""Rounds of local steps, simulated event by event, and planned by the coordinator's own `Plans`.

Hosts compute without a pause; what they send is under way meanwhile. A host that ends a round before the merge of the
round before has reached it waits for that merge: it is never more than one behind. The coordinator takes one delta
after the other, and closes a round when the last is there. Who is faster gets more steps.

Limits: nobody is lost, and hosts keep their speed. Of a long training, not all rounds are simulated; see
`rudel.planning.periods`.
"""

from collections.abc import Sequence

import numpy as np

from rudel.planning.forecast import Desk, Forecast, Speed, Work
from rudel.planning.links import Links
from rudel.planning.periods import in_periods
from rudel.replicas.members import Member, Piece
from rudel.replicas.plans import Plans, shared

_EVERYTHING, _NO_RATES = {Piece("all", (0, 1), bytes)}, np.zeros(1, np.float32)
"""Stand-ins: neither the examples nor the learning rates change when steps are taken."""


def _period(hosts: Sequence[Speed], length: int) -> int:
    return sum(max(1, share) for share in shared(length * len(hosts), [1 / host.step for host in hosts]))


@in_periods(_period)
def simulate(
    work: Work,
    hosts: Sequence[Speed],
    links: Links,
    length: int,
    message: float,
    desk: Desk | None = None,
) -> Forecast:
    """Simulates a training in rounds.

    Args:
        work: the job.
        hosts: those that train.
        links: between them and the coordinator.
        length: local steps of a round, on average over the hosts.
        message: bytes of a delta and a merge together.
        desk: the driver; None for one that takes no time.
    """
    desk = desk or Desk()
    step = np.array([host.step for host in hosts])
    exchange = np.array([host.exchange for host in hosts])
    first = np.array([host.first for host in hosts])
    count = len(hosts)
    up = links.up
    start, merged = np.zeros(count) + 2 * links.latency, np.zeros(count)
    computed, waited = np.zeros(count), np.zeros(count)
    done, number, free, sent, closed = 0, 0, 0.0, 0.0, 0.0
    members = {
        str(i): Member(str(i), "", i, active=True, step_seconds=host.step, pieces=_EVERYTHING)
        for i, host in enumerate(hosts)
    }
    plans = Plans(members, length, work.steps, lambda first, last, steps: _NO_RATES)
    plans.plan(0, 0, 0, {})
    plans.plan(1, 0, 0, {})
    while plans.planned(number):
        steps = np.array([member.plans.pop(number).steps for member in members.values()])
        computing = steps * step
        ready = start + computing + exchange + (first if number == 0 else 0.0)
        end = np.maximum(ready, merged)
        computed += computing
        waited += end - ready
        arrived, free = up.arrivals(end, message / 2, free)
        closed = _one_by_one(arrived, desk.take) + desk.close
        merged, free = links.arrivals(np.full(count, closed), message / 2, free)
        sent += count * message
        start, done, number = end, done + int(steps.sum()), number + 1
        for member, early in zip(members.values(), arrived.mean() - arrived, strict=True):
            member.early = float(early)
        plans.plan(number + 1, number, done, {})
    exchanged = number * exchange.sum() + first.sum()
    whole = computed.sum() + exchanged + waited.sum()
    return Forecast(
        "diloco",
        tuple(host.name for host in hosts),
        closed,
        float(computed.sum() / whole),
        float(exchanged / whole),
        float(waited.sum() / whole),
        sent,
        number,
        max(work.memory(host.memory, count) for host in hosts),
        min(1.0, links.busy(sent) / closed),
    )


def _one_by_one(ready: np.ndarray, seconds: float) -> float:
    """When the last of these has been served, each of which takes so long.

    >>> _one_by_one(np.array([0.0, 0.1, 5.0]), 1.0)
    6.0
    """
    ordered = np.sort(ready)
    left = np.arange(len(ordered), 0, -1) * seconds
    return float((ordered + left).max())
