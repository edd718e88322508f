"""Rounds of local steps, simulated event by event, by the rules of `rudel.train.diloco`.

Hosts compute without a pause; what they send is under way meanwhile. A host that ends a round before the merge of the
round before has reached it waits for that merge: it is never more than one behind. The coordinator takes one delta
after the other, and closes a round when the last is there. Who is faster gets more steps.

Limits: nobody is lost, and hosts keep their speed. Of a long training, not all rounds are simulated; see
`rudel.train.plan.periods`.
"""

from collections.abc import Sequence

import numpy as np

from rudel.train.diloco.plans import REST
from rudel.train.plan.forecast import Desk, Forecast, Speed, Work, shares
from rudel.train.plan.links import Links
from rudel.train.plan.periods import extrapolated

_MOST_SHARES = 3_000_000
"""So many shares of hosts in rounds take some seconds to simulate."""


def simulate(
    work: Work,
    hosts: Sequence[Speed],
    links: Links,
    length: int,
    message: float,
    desk: Desk | None = None,
) -> Forecast:
    """How a training in rounds goes.

    Args:
        work: what is to be done.
        hosts: who does it.
        links: between them and the coordinator.
        length: local steps of a round, on average over the hosts.
        message: bytes of a delta and a merge together.
        desk: the computer that drives; None for one that takes no time.
    """
    step = np.array([host.step for host in hosts])
    period = int(_of_a_round(length * len(hosts), step).sum())

    def of(work: Work) -> Forecast:
        return _simulated(work, hosts, links, length, message, desk or Desk())

    return extrapolated(of, work, hosts, period, _MOST_SHARES)


def _simulated(work: Work, hosts: Sequence[Speed], links: Links, length: int, message: float, desk: Desk) -> Forecast:
    """The same, round by round."""
    step = np.array([host.step for host in hosts])
    exchange = np.array([host.exchange for host in hosts])
    first = np.array([host.first for host in hosts])
    count = len(hosts)
    up = links.up
    start, merged = np.zeros(count) + 2 * links.latency, np.zeros(count)
    computed, waited = np.zeros(count), np.zeros(count)
    done, number, free, sent, closed = 0, 0, 0.0, 0.0, 0.0
    while done < work.steps:
        full, left = length * count, work.steps - done
        steps = _of_a_round(full if left >= REST * full else left, step)
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


def _of_a_round(total: int, step: np.ndarray) -> np.ndarray:
    """Steps of each host in a round, int64 (N,): who has nothing to do in one would fall out of step."""
    return np.maximum(shares(total, step), 1)


def _one_by_one(ready: np.ndarray, seconds: float) -> float:
    """When the last of these has been served, each of which takes so long.

    >>> _one_by_one(np.array([0.0, 0.1, 5.0]), 1.0)
    6.0
    """
    ordered = np.sort(ready)
    left = np.arange(len(ordered), 0, -1) * seconds
    return float((ordered + left).max())
