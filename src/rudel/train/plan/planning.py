"""Every strategy on every number of hosts, and which of them is best."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rudel.train.asynchronous.options import DENSE_BYTES, Async
from rudel.train.diloco.lengths import Speeds
from rudel.train.diloco.options import SMALLER, Diloco
from rudel.train.plan import lockstep, rounds, visits
from rudel.train.plan.forecast import Desk, Forecast, Speed, Work, alone
from rudel.train.plan.links import Links

_FEW = 8
"""Up to so many hosts, every number of them is looked at; above, every power of two, and all."""

_WORTH = 0.98
"""More hosts are better only if the training then takes less than this share of the time."""

_MUCH = 0.1
"""Share of the time that is lost in something, above which that is said."""

_WORTH_ANOTHER = {"single": 1.0, "diloco": 1.0, "async": 0.95, "mesh": 0.9}
"""A strategy is better than `diloco` only if it takes less than this share of the time: forecasts are not exact."""


@dataclass(frozen=True)
class Planned:
    """What can be done, and what is best.

    Args:
        forecasts: all that was looked at, by number of hosts and strategy.
        best: the one that is soonest done; with as few hosts as that takes.
        why: in a sentence.
    """

    forecasts: tuple[Forecast, ...]
    best: Forecast
    why: str


def plan(
    work: Work,
    hosts: Sequence[Speed],
    links: Links,
    desk: Desk | None = None,
    quiet: float = 1.0,
) -> Planned:
    """Looks at all strategies with the fastest host, the two fastest, and so on.

    Args:
        work: what is to be done.
        hosts: that could do it.
        links: between them and this computer.
        desk: this computer.
        quiet: a step of the fastest host while no other takes steps, over one while all do.
    """
    fastest = sorted(hosts, key=lambda host: host.step)

    def chosen(count: int) -> list[Speed]:
        crowd = (count - 1) / max(1, len(hosts) - 1)
        factor = quiet + (1 - quiet) * crowd
        return [replace(host, step=host.step * factor) for host in fastest[:count]]

    forecasts = [alone(work, chosen(1)[0])]
    for count in counts(len(hosts)):
        taken = chosen(count)
        found = (in_rounds(work, taken, links, desk), in_visits(work, taken, links, desk))
        forecasts += [*found, *filter(None, [lockstep.simulate(work, taken, links)])]
    best = forecasts[0]
    for forecast in forecasts[1:]:
        worth = _WORTH if len(forecast.hosts) > len(best.hosts) else 1.0
        if forecast.seconds < worth * _WORTH_ANOTHER[forecast.strategy] * best.seconds:
            best = forecast
    return Planned(tuple(forecasts), best, _why(forecasts, best))


def counts(hosts: int) -> list[int]:
    """Numbers of hosts that are worth looking at.

    >>> counts(3), counts(20)
    ([2, 3], [2, 4, 8, 16, 20])
    """
    if hosts <= _FEW:
        return list(range(2, hosts + 1))
    return sorted({2**power for power in range(1, hosts.bit_length()) if 2**power <= hosts} | {hosts})


def in_rounds(
    work: Work, hosts: Sequence[Speed], links: Links, desk: Desk | None = None, options: Diloco | None = None
) -> Forecast:
    """The strategy `diloco` on these hosts, with the rounds that it would choose."""
    return _as_agreed(rounds.simulate, work, hosts, links, desk, options or Diloco(), SMALLER)


def in_visits(
    work: Work, hosts: Sequence[Speed], links: Links, desk: Desk | None = None, options: Async | None = None
) -> Forecast:
    """The strategy `async` on these hosts, with the visits that it would choose."""
    return _as_agreed(visits.simulate, work, hosts, links, desk, options or Async(), DENSE_BYTES)


def _as_agreed(
    simulate: Callable[..., Forecast],
    work: Work,
    hosts: Sequence[Speed],
    links: Links,
    desk: Desk | None,
    options: Any,
    other: float,
) -> Forecast:
    """A forecast with what the hosts will agree upon, once the training has looked at them.

    Args:
        other: size of a message, over the usual one, where they agree on other codecs.
    """
    count = len(hosts)
    chosen = options.chosen_for(count, work.steps)
    tried = [host.tried or (host.step, host.exchange) for host in hosts]
    speed, exchange, message = (
        sum(values) / count
        for values in ([1 / step for step, _ in tried], [seconds for _, seconds in tried], [h.message for h in hosts])
    )
    agreed = options.agree(chosen, count, Speeds(1 / speed, exchange, message, links.trial(count)))
    size = message * (other if agreed.delta_codec != chosen.delta_codec else 1.0)
    return simulate(work, hosts, links, agreed.lengths, size, desk)


def _why(forecasts: Sequence[Forecast], best: Forecast) -> str:
    one, most = forecasts[0], max(forecasts, key=lambda forecast: (len(forecast.hosts), -forecast.seconds))
    if best is one:
        longer = most.seconds / one.seconds
        return f"One host is faster: {len(most.hosts)} would need {longer:.1f} times as long{_lost(most)}."
    told = f"{len(best.hosts)} hosts are {one.seconds / best.seconds:.1f} times as fast as the fastest of them alone"
    others = [f for f in forecasts if f.strategy != best.strategy and len(f.hosts) == len(best.hosts)]
    if others:
        next_best = min(others, key=lambda forecast: forecast.seconds)
        ratio = next_best.seconds / best.seconds
        told += f" by `{best.strategy}`"
        told += f"; `{next_best.strategy}` would need {ratio:.1f} times as long" if ratio >= 1.05 else ""
    if len(best.hosts) < len(most.hosts):
        told += f"; {len(most.hosts)} would not be faster{_lost(most)}"
    return f"{told}."


def _lost(forecast: Forecast) -> str:
    """Where the time goes that is not spent in steps, if that is much."""
    if forecast.waiting + forecast.exchanging < _MUCH:
        return ""
    return f", as they would wait {forecast.waiting:.0%} of the time and merge for {forecast.exchanging:.0%}"
