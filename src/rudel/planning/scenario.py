"""Clusters that nobody has here: `hosts=1000,rate=20,latency=40,speed=lognormal:0.5,loss=0.01` as hosts and links."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rudel.errors import OptionError
from rudel.planning.forecast import Speed
from rudel.planning.links import Links, links_of

_MOST_HOSTS = 100_000
_SLOWEST, _FASTEST, _MOST_SIGMA = 1e-3, 1e3, 3
_FORM = "give it as in hosts=1000,rate=20,latency=40,speed=lognormal:0.5,loss=0.01"


@dataclass(frozen=True)
class Scenario:
    """A cluster.

    Args:
        hosts: how many.
        rate: Mbit/s that all of them share.
        latency: milliseconds, one way.
        loss: share of segments that are lost on the way.
        speed: of hosts, beside this computer: a number for all, `lognormal:SIGMA` with a median of 1, or
            `uniform:LEAST:MOST`; from a thousandth to a thousand times as fast.
    """

    hosts: int = 4
    rate: float = 100.0
    latency: float = 1.5
    loss: float = 0.0
    speed: str = "1"

    @property
    def links(self) -> Links:
        """Between hosts and coordinator."""
        return links_of(1e6 * self.rate, 1e-3 * self.latency, self.loss)

    def speeds(self, here: Speed, seed: int = 0) -> tuple[Speed, ...]:
        """Its hosts, drawn at random.

        Args:
            here: how fast this computer is.
            seed: of the drawing.
        """
        factors = _distribution(self.speed)(np.random.default_rng(seed), self.hosts)
        return tuple(_scaled(here, f"host{number}", factor) for number, factor in enumerate(factors.tolist(), start=1))


def _scaled(speed: Speed, name: str, factor: float) -> Speed:
    """A host that does everything so many times as fast."""
    step, exchange = speed.tried or (speed.step, speed.exchange)
    return replace(
        speed,
        name=name,
        step=speed.step / factor,
        exchange=speed.exchange / factor,
        first=speed.first / factor,
        tried=(step / factor, exchange / factor),
        link=None,
    )


def parse(text: str) -> Scenario:
    """A scenario from what a user wrote.

    Raises:
        OptionError: says what is wrong with it.

    >>> parse("hosts=8,rate=20").hosts
    8
    """
    given: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not equals or name not in Scenario.__dataclass_fields__ or name in given:
            raise OptionError(f"--simulate does not understand {part.strip()!r}: {_FORM}.")
        given[name] = value
    hosts = _number(given, "hosts", 1, _MOST_HOSTS)
    if hosts != int(hosts):
        raise OptionError(f"--simulate needs a whole number of hosts, not {given['hosts']!r}.")
    _distribution(given.get("speed", "1"))
    return Scenario(
        hosts=int(hosts),
        rate=_number(given, "rate", 1e-3, 1e6),
        latency=_number(given, "latency", 0, 1e5),
        loss=_number(given, "loss", 0, 0.5),
        speed=given.get("speed", "1"),
    )


def _number(given: dict[str, str], name: str, least: float, most: float) -> float:
    text = given.get(name, str(Scenario.__dataclass_fields__[name].default))
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise OptionError(f"--simulate wants {name} to be a number from {least:g} to {most:g}, not {text!r}.")
    return value


def _distribution(text: str) -> Callable[[np.random.Generator, int], np.ndarray]:
    """(generator, N) -> float64 (N,): speeds.

    Raises:
        OptionError: there is no such distribution.
    """
    kind, *texts = text.split(":")
    try:
        numbers = [float(each) for each in texts] if texts else [float(kind)]
    except ValueError:
        numbers = []
    if not texts and len(numbers) == 1 and _SLOWEST <= numbers[0] <= _FASTEST:
        return lambda random, count: np.full(count, numbers[0])
    if kind == "lognormal" and len(numbers) == 1 and 0 <= numbers[0] <= _MOST_SIGMA:
        return lambda random, count: random.lognormal(0.0, numbers[0], count).clip(_SLOWEST, _FASTEST)
    if kind == "uniform" and len(numbers) == 2 and _SLOWEST <= numbers[0] <= numbers[1] <= _FASTEST:
        return lambda random, count: random.uniform(numbers[0], numbers[1], count)
    raise OptionError(
        f"--simulate does not understand speed={text}: a number, lognormal:SIGMA (up to {_MOST_SIGMA}), or "
        f"uniform:LEAST:MOST, where speeds are from {_SLOWEST:g} to {_FASTEST:g}."
    )
