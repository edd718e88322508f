"""Trainings too long to be simulated whole: from two shorter ones, which differ by periods that are all alike.

Rounds, and visits, soon do nothing new: after so many steps, a period, every host is where it was. The shorter ones
leave whole periods out, so that they begin and end as the long one does.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ParamSpec

from rudel.planning.forecast import Forecast, Speed, Work
from rudel.planning.links import Links

Of = ParamSpec("Of")

_MOST, _LEAST = 300, 8
"""Periods of the longer of the two, of few hosts and of many; the other has half of them."""

_AFFORDABLE = 20_000
"""So many periods of single hosts take some tenths of a second to simulate."""


def in_periods(
    period_of: Callable[[Sequence[Speed], int], int],
) -> Callable[[Callable[Of, Forecast]], Callable[Of, Forecast]]:
    """Decorates a simulation that takes a time proportional to its steps, so that long trainings take little, too.

    Args:
        period_of: (hosts, length) to the steps of all hosts after which they are where they were. The simulation's
            first arguments are work, hosts, links and length.
    """

    def decorate(simulate: Callable[..., Forecast]) -> Callable[..., Forecast]:
        @functools.wraps(simulate)
        def simulate_some(
            work: Work, hosts: Sequence[Speed], links: Links, length: int, *more: Any, **named: Any
        ) -> Any:
            def of(work: Work) -> Forecast:
                return simulate(work, hosts, links, length, *more, **named)

            return _extrapolated(of, work, hosts, period_of(hosts, length))

        return simulate_some

    return decorate


def _extrapolated(simulate: Callable[[Work], Forecast], work: Work, hosts: Sequence[Speed], period: int) -> Forecast:
    longer = min(_MOST, max(_LEAST, _AFFORDABLE // len(hosts)))
    shorter = longer // 2
    left = work.steps // period - longer
    if left <= shorter:
        return simulate(work)
    steps = work.steps - left * period
    one = simulate(replace(work, steps=steps - (longer - shorter) * period))
    other = simulate(replace(work, steps=steps))

    def after_all(number: Callable[[Forecast], float]) -> float:
        return number(other) + (number(other) - number(one)) * left / (longer - shorter)

    def share(of: Callable[[Forecast], float]) -> float:
        return min(1.0, max(0.0, after_all(lambda forecast: of(forecast) * forecast.seconds) / seconds))

    seconds = after_all(lambda forecast: forecast.seconds)
    return replace(
        other,
        seconds=max(seconds, work.steps / sum(1 / host.step for host in hosts)),
        computing=share(lambda forecast: forecast.computing),
        exchanging=share(lambda forecast: forecast.exchanging),
        waiting=share(lambda forecast: forecast.waiting),
        sending=share(lambda forecast: forecast.sending),
        sent=after_all(lambda forecast: forecast.sent),
        rounds=round(after_all(lambda forecast: forecast.rounds)),
    )
