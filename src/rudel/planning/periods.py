"""Trainings too long to be simulated whole: from two shorter ones, which differ by periods that are all alike.

Rounds, and visits, soon do nothing new: after so many steps, a period, every host is where it was. The shorter ones
leave whole periods out, so that they begin and end as the long one does.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from rudel.planning.forecast import Forecast, Speed, Work

_MOST, _LEAST = 300, 8
"""Periods of the longer of the two, of few hosts and of many; the other has half of them."""


def extrapolated(
    simulate: Callable[[Work], Forecast], work: Work, hosts: Sequence[Speed], period: int, affordable: int
) -> Forecast:
    """The forecast of a training, however long it is.

    Args:
        simulate: forecasts a training, in a time that is proportional to its steps.
        work: what is to be done.
        hosts: who does it.
        period: steps of all hosts, after which they are where they were.
        affordable: how many periods of single hosts may be simulated.
    """
    longer = min(_MOST, max(_LEAST, affordable // len(hosts)))
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
