"""Every strategy on every number of hosts, and which of them is best."""

from collections.abc import Sequence
from dataclasses import dataclass

from rudel.train.diloco.lengths import Speeds
from rudel.train.diloco.options import SMALLER, Diloco
from rudel.train.plan.forecast import Forecast, Speed, Work, alone
from rudel.train.plan.links import Links
from rudel.train.plan.rounds import simulate

_FEW = 8
"""Up to so many hosts, every number of them is looked at; above, every power of two, and all."""

_WORTH = 0.98
"""More hosts are better only if the training then takes less than this share of the time."""


@dataclass(frozen=True)
class Planned:
    """What can be done, and what is best.

    Args:
        forecasts: all that was looked at, by strategy and number of hosts.
        best: the one that is soonest done; with as few hosts as that takes.
        why: in a sentence.
    """

    forecasts: tuple[Forecast, ...]
    best: Forecast
    why: str


def plan(work: Work, hosts: Sequence[Speed], links: Links, options: Diloco | None = None) -> Planned:
    """Looks at all strategies with the fastest host, the two fastest, and so on.

    Args:
        work: what is to be done.
        hosts: that could do it.
        links: between them and this computer.
        options: of the strategy `diloco`.
    """
    fastest = sorted(hosts, key=lambda host: host.step)
    forecasts = [alone(work, fastest[0])]
    for count in counts(len(hosts)):
        forecasts.append(in_rounds(work, fastest[:count], links, options or Diloco()))
    best = forecasts[0]
    for forecast in forecasts[1:]:
        if forecast.seconds < _WORTH * best.seconds:
            best = forecast
    return Planned(tuple(forecasts), best, _why(forecasts[0], best, max(forecasts, key=lambda f: len(f.hosts))))


def counts(hosts: int) -> list[int]:
    """Numbers of hosts that are worth looking at.

    >>> counts(3), counts(20)
    ([2, 3], [2, 4, 8, 16, 20])
    """
    if hosts <= _FEW:
        return list(range(2, hosts + 1))
    return sorted({2**power for power in range(1, hosts.bit_length()) if 2**power <= hosts} | {hosts})


def in_rounds(work: Work, hosts: Sequence[Speed], links: Links, options: Diloco) -> Forecast:
    """The strategy `diloco` on these hosts, with the rounds that it would choose."""
    chosen = options.chosen_for(len(hosts), work.steps)
    speed, exchange, message = (
        sum(values) / len(hosts)
        for values in ([1 / h.step for h in hosts], [h.exchange for h in hosts], [h.message for h in hosts])
    )
    agreed = options.agree(chosen, len(hosts), Speeds(1 / speed, exchange, message, links.rate))
    smaller = agreed.delta_codec != chosen.delta_codec
    return simulate(work, hosts, links, agreed.lengths, message * (SMALLER if smaller else 1))


def _why(one: Forecast, best: Forecast, most: Forecast) -> str:
    if best is one:
        longer = most.seconds / one.seconds
        return f"One host is faster: {len(most.hosts)} would need {longer:.1f} times as long, {_lost(most)}."
    told = f"{len(best.hosts)} hosts are {one.seconds / best.seconds:.1f} times as fast as the fastest of them alone"
    if len(best.hosts) < len(most.hosts):
        told += f"; {len(most.hosts)} would not be faster, {_lost(most)}"
    return f"{told}."


def _lost(forecast: Forecast) -> str:
    """Where the time goes that is not spent in steps."""
    return f"as they would wait {forecast.waiting:.0%} of the time and merge for {forecast.exchanging:.0%}"
