"""Every strategy on every number of hosts, and which of them is best."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rudel.errors import ClusterError
from rudel.planning import lockstep
from rudel.planning import simulated_rounds as rounds
from rudel.planning import simulated_visits as visits
from rudel.planning.forecast import Desk, Forecast, Speed, Work, sole_steps
from rudel.planning.links import Links
from rudel.replicas.asynchronous.async_options import Async
from rudel.replicas.dealing import worth_of
from rudel.replicas.diloco.diloco_options import Diloco
from rudel.replicas.merging_options import IN_FULL, MergingOptions
from rudel.replicas.round_lengths import SPARSER, Speeds, best_steps

_FEW = 8
"""Up to so many hosts, every number of them is looked at; above, every power of two, and all."""

_WORTH = 0.98
"""More hosts are better only if the training then takes less than this share of the time."""

_MUCH = 0.1
"""Share of the time that is lost in something, above which that is said."""

_WORTH_ANOTHER = {"single": 1.0, "diloco": 1.0, "async": 0.95, "mesh": 0.9}
"""A strategy is better than `diloco` only if it takes less than this share of the time: forecasts are not exact. Of two
others, each has its own to make up for.
"""


@dataclass(frozen=True)
class Planned:
    """Forecasts of all strategies, and the best of them.

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
    """Looks at all strategies with the fastest host, the two that do most, and so on.

    Args:
        work: what is to be done.
        hosts: that could do it.
        links: between them and this computer.
        desk: this computer.
        quiet: a step of the fastest host while no other takes steps, over one while all do.

    Raises:
        ClusterError: no number of these hosts can hold the model and the data.
    """
    sole, most = _sole_first(work, hosts, links), _most_first(work, hosts, links)

    def chosen(count: int) -> list[Speed]:
        crowd = (count - 1) / max(1, len(hosts) - 1)
        factor = quiet + (1 - quiet) * crowd
        holding = [host for host in (sole if count == 1 else most) if work.fits(host.memory, host.disk, count)]
        return [replace(host, step=host.step * factor) for host in holding[:count]]

    forecasts: list[Forecast] = []
    for count in [1, *counts(len(hosts))]:
        taken = chosen(count)
        if len(taken) == count:
            forecasts += _all(work, taken, links, desk)
    if not forecasts:
        raise ClusterError("No number of these hosts can hold the model and the data: take a smaller model, or others.")
    possible = [forecast for forecast in forecasts if not forecast.needs_files]
    best = possible[0]
    for forecast in possible[1:]:
        worth = _WORTH if len(forecast.hosts) > len(best.hosts) else 1.0
        margin = _WORTH_ANOTHER[forecast.strategy] / _WORTH_ANOTHER[best.strategy]
        if forecast.seconds < worth * margin * best.seconds:
            best = forecast
    return Planned(tuple(forecasts), best, _why(possible, best, len(hosts)))


def _sole_first(work: Work, hosts: Sequence[Speed], links: Links) -> list[Speed]:
    """Hosts, the one first that by itself is soonest done: with its steps, and with all weights, there and back."""
    own = links.to(hosts)
    step = np.array([host.step for host in hosts])
    seconds = work.steps * step + work.weights / own.connection + work.weights / own.up.connection
    return [hosts[number] for number in np.lexsort((step, seconds))]


def _most_first(work: Work, hosts: Sequence[Speed], links: Links) -> list[Speed]:
    """Hosts, those first that do most in rounds: by the seconds of a step, with what one takes of a round's messages
    and of what it does beside its steps.
    """
    own = links.to(hosts)
    step, exchange, message = np.array([(host.step, host.exchange, host.message) for host in hosts]).T
    computing = step * best_steps(work.steps / len(hosts), step, exchange, work.sgd)
    there = message / 2 / own.connection + own.delay(message / 2)
    back = message / 2 / own.up.connection + own.delay(message / 2)
    seconds = step * np.maximum(computing + exchange, there + back) / computing
    return [hosts[number] for number in np.lexsort((step, seconds))]


def _all(work: Work, taken: Sequence[Speed], links: Links, desk: Desk | None) -> list[Forecast]:
    """Every strategy on these hosts."""
    links = links.to(taken)
    if len(taken) == 1:
        return [alone(work, taken[0], links, desk)]
    found = [in_rounds(work, taken, links, desk), in_visits(work, taken, links, desk)]
    together = lockstep.simulate(work, taken, links)
    return found if together is None else [*found, together]


def counts(hosts: int) -> list[int]:
    """Numbers of hosts that are worth looking at.

    >>> counts(3), counts(20)
    ([2, 3], [2, 4, 8, 16, 20])
    """
    if hosts <= _FEW:
        return list(range(2, hosts + 1))
    return sorted({2**power for power in range(1, hosts.bit_length()) if 2**power <= hosts} | {hosts})


def alone(work: Work, host: Speed, links: Links, desk: Desk | None = None) -> Forecast:
    """One host trains by itself: in rounds that are merged with nobody's, and long; see `sole_steps`."""
    steps = sole_steps(work, host.step, links.slowest)
    found = rounds.simulate(work, [host], links, steps, 2 * work.weights, desk)
    return replace(found, strategy="single")


def in_rounds(
    work: Work, hosts: Sequence[Speed], links: Links, desk: Desk | None = None, options: Diloco | None = None
) -> Forecast:
    """The strategy `diloco` on these hosts, with the rounds that it would choose."""
    return _as_agreed(rounds.simulate, work, hosts, links, desk, options or Diloco())


def in_visits(work: Work, hosts: Sequence[Speed], links: Links, desk: Desk | None = None) -> Forecast:
    """The strategy `async` on these hosts, with the visits that it would choose."""
    return _as_agreed(visits.simulate, work, hosts, links, desk, Async())


def _as_agreed(
    simulate: Callable[..., Forecast],
    work: Work,
    hosts: Sequence[Speed],
    links: Links,
    desk: Desk | None,
    options: MergingOptions,
) -> Forecast:
    """A forecast with what the hosts will agree upon, once the training has looked at them."""
    count = len(hosts)
    chosen = options.chosen_for(count, work.steps, work.sgd)
    tried = [host.tried or (host.step, host.exchange) for host in hosts]
    speed, exchange, message = (
        sum(values) / count
        for values in ([1 / step for step, _ in tried], [seconds for _, seconds in tried], [h.message for h in hosts])
    )
    latency, slowest = float(np.max(links.latency)), max(step for step, _ in tried)
    worth = worth_of([1 / step for step, _ in tried])
    link, weights = (links.trial(count), 2 * latency), work.weights / 4
    speeds = Speeds(1 / speed, exchange, message, *link, slowest, weights, worth, work.sgd)
    agreed = options.agree(count, work.steps, speeds)
    if agreed.delta_codec == IN_FULL:
        message = work.weights / 2  # a byte for each, there and back
    elif agreed.delta_codec != chosen.delta_codec:
        message *= SPARSER[agreed.delta_codec]
    return simulate(work, hosts, links, agreed.steps, message, desk)


def _why(forecasts: Sequence[Forecast], best: Forecast, hosts: int) -> str:
    """Why this is best, of so many hosts."""
    if hosts == 1:
        return "There is one host."
    most = max(forecasts, key=lambda forecast: (len(forecast.hosts), -forecast.seconds))
    more = [forecast for forecast in forecasts if len(forecast.hosts) > len(best.hosts)]
    little = any(forecast.seconds < best.seconds for forecast in more)
    if len(best.hosts) == 1:
        if not more:
            return "One host can hold the data, and the others cannot hold their share of it."
        if little:
            return "More hosts would gain too little to be worth it."
        longer = most.seconds / best.seconds
        return f"One host is faster: {len(most.hosts)} would need {longer:.1f} times as long{_lost(most)}."
    why, one = f"{len(best.hosts)} hosts", forecasts[0]
    if len(one.hosts) == 1:
        why += f" by `{best.strategy}` are {one.seconds / best.seconds:.1f}x faster than the fastest host alone"
    else:
        why += f" by `{best.strategy}` hold what one alone cannot, and finish first"
    others = [f for f in forecasts if f.strategy != best.strategy and len(f.hosts) == len(best.hosts)]
    if others:
        next_best = min(others, key=lambda forecast: forecast.seconds)
        ratio = next_best.seconds / best.seconds
        why += f"; `{next_best.strategy}` would need {ratio:.1f} times as long" if ratio >= 1.05 else ""
    if little:
        why += "; more would gain too little to be worth it"
    elif more:
        why += f"; {len(most.hosts)} would not be faster{_lost(most)}"
    return f"{why}."


def _lost(forecast: Forecast) -> str:
    """Says what time is lost in beside steps, if that is much."""
    if forecast.waiting + forecast.exchanging < _MUCH:
        return ""
    return f", as they would wait {forecast.waiting:.0%} of the time and merge for {forecast.exchanging:.0%}"
