"""Visits of hosts that wait for nobody, simulated event by event, by the rules of `rudel.replicas.asynchronous`.

A host takes its steps, brings what it learned, and goes on at once; what the others did reaches it during its next
visit, and it waits only where that has not come by the end of it. Faster hosts take more steps, so that all come about
equally often, and the last visits become shorter, so that all are done at the same time.

Limits: nobody is lost, hosts keep their speed, and they do not wait for each other to come at the same time. Of a long
training, not all visits are simulated; see `rudel.planning.periods`.
"""

import heapq
import math
from collections.abc import Sequence

import numpy as np

from rudel.planning.forecast import Desk, Forecast, Speed, Work
from rudel.planning.links import Each, Links
from rudel.planning.periods import in_periods
from rudel.replicas.asynchronous.visits import EXCHANGE_SHARE, LITTLE


def _period(hosts: Sequence[Speed], length: int) -> int:
    return sum(steps for steps, _ in _of_a_cycle(hosts, length, min(host.step for host in hosts)))


@in_periods(_period)
def simulate(
    work: Work,
    hosts: Sequence[Speed],
    links: Links,
    length: int,
    message: float,
    desk: Desk | None = None,
) -> Forecast:
    """Simulates a training in which nobody waits for anybody.

    The arguments are those of `rudel.planning.simulated_rounds.simulate`; `length` is that of the fastest host.
    """
    desk = desk or Desk()
    count, half = len(hosts), message / 2
    fastest, together = min(host.step for host in hosts), sum(1 / host.step for host in hosts)
    delay, own, own_up = (
        _each(value, count) for value in (links.delay(half), half / links.connection, half / links.up.connection)
    )
    taken, taken_up = half / links.rate, half / links.up.rate
    of_a_cycle = _of_a_cycle(hosts, length, fastest)
    merged, coming = [0.0] * count, []
    planned = arrivals = 0
    up = down = busy = ended = computed = exchanged = waited = 0.0

    def go_on(number: int, begins: float) -> None:
        """Plans the next visit of a host, if there is something left to do."""
        nonlocal planned, computed, exchanged, waited
        host, left = hosts[number], work.steps - planned
        whole, least = of_a_cycle[number]
        steps = _steps(left, whole, least, left / host.step / together)
        if not steps:
            return
        beside = host.exchange + (0.0 if begins else host.first)
        ready = begins + steps * host.step + beside
        end = max(ready, merged[number])
        planned, computed = planned + steps, computed + steps * host.step
        exchanged, waited = exchanged + beside, waited + end - ready
        heapq.heappush(coming, (end, number))

    for number in range(count):
        go_on(number, 0.0)
    while coming:
        end, number = heapq.heappop(coming)
        arrivals += 1
        up = max(up, end) + taken_up
        busy = max(busy, max(up, end + own_up[number]) + delay[number]) + desk.take + desk.close
        down = max(down, busy) + taken
        merged[number] = max(down, busy + own[number]) + delay[number]
        ended = max(ended, busy)
        go_on(number, end)
    everything = computed + exchanged + waited
    sent = arrivals * message
    ended = max(ended, links.busy(sent))
    return Forecast(
        "async",
        tuple(host.name for host in hosts),
        ended,
        computed / everything,
        exchanged / everything,
        waited / everything,
        sent,
        arrivals,
        max(work.memory(host.memory, count) for host in hosts),
        min(1.0, links.busy(sent) / ended),
    )


def _each(value: Each, count: int) -> list[float]:
    return np.broadcast_to(np.asarray(value, float), count).tolist()


def _of_a_cycle(hosts: Sequence[Speed], whole: int, fastest: float) -> list[tuple[int, int]]:
    """Steps of a visit of each host, where the fastest takes so many, and how many are the least that pay."""
    least = [min(whole, math.ceil(host.exchange / (EXCHANGE_SHARE * host.step))) for host in hosts]
    return [(max(round(whole * fastest / host.step), few, 1), few) for host, few in zip(hosts, least, strict=True)]


def _steps(left: int, length: int, least: int, fair: float) -> int:
    """Steps of the next visit of a host.

    >>> _steps(1000, 100, 10, 500.0), _steps(100, 100, 10, 50.0), _steps(10, 100, 10, 5.0), _steps(0, 100, 10, 0.0)
    (100, 25, 5, 0)
    """
    if left <= 0:
        return 0
    if fair > 2 * length:
        return min(left, length)
    half = math.ceil(fair / 2)
    return min(left, half if half >= LITTLE * least else max(1, math.ceil(fair)))
