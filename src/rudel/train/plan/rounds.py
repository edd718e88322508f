"""Rounds of local steps, simulated event by event, by the rules of `rudel.train.diloco`.

Hosts compute without a pause; what they send is under way meanwhile. A host that ends a round before the merge of the
round before has reached it waits for that merge: it is never more than one behind. The coordinator takes one delta
after the other, and closes a round when the last is there. Who is faster gets more steps.

Limits: nobody is lost, and hosts keep their speed.
"""

from collections.abc import Sequence

import numpy as np

from rudel.train.diloco.lengths import Lengths
from rudel.train.diloco.plans import REST
from rudel.train.plan.forecast import Desk, Forecast, Speed, Work, shares
from rudel.train.plan.links import Links


def simulate(
    work: Work,
    hosts: Sequence[Speed],
    links: Links,
    lengths: Lengths,
    message: float,
    desk: Desk | None = None,
) -> Forecast:
    """How a training in rounds goes.

    Args:
        work: what is to be done.
        hosts: who does it.
        links: between them and the coordinator.
        lengths: local steps of rounds, on average over the hosts.
        message: bytes of a delta and a merge together.
        desk: the computer that drives; None for one that takes no time.
    """
    desk = desk or Desk()
    step = np.array([host.step for host in hosts])
    exchange = np.array([host.exchange for host in hosts])
    first = np.array([host.first for host in hosts])
    count = len(hosts)
    start, merged = np.full(count, 2 * links.latency), np.zeros(count)
    computed, waited = np.zeros(count), np.zeros(count)
    done, number, free, sent, closed = 0, 0, 0.0, 0.0, 0.0
    while done < work.steps:
        full, left = lengths.of(number) * count, work.steps - done
        steps = np.maximum(shares(full if left >= REST * full else left, step), 1)
        computing = steps * step
        ready = start + computing + exchange + (first if number == 0 else 0.0)
        end = np.maximum(ready, merged)
        computed += computing
        waited += end - ready
        arrived, free = links.arrivals(end, message / 2, free)
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
        min(1.0, sent / links.rate / closed),
    )


def _one_by_one(ready: np.ndarray, seconds: float) -> float:
    """When the last of these has been served, each of which takes so long.

    >>> _one_by_one(np.array([0.0, 0.1, 5.0]), 1.0)
    6.0
    """
    ordered = np.sort(ready)
    left = np.arange(len(ordered), 0, -1) * seconds
    return float((ordered + left).max())
