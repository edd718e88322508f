"""plan.json, read into memory: what was forecast of every strategy, before one was chosen by that."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudel.errors import RunError
from rudel.report.markup import printable
from rudel.report.words import duration, is_number, plural


@dataclass(frozen=True)
class Forecast:
    """What was forecast of one strategy on some hosts.

    Args:
        strategy: its name.
        hosts: how many.
        seconds: from the first step to the last.
        computing, exchanging, waiting: shares of the hosts' time.
        sent: bytes over the network.
    """

    strategy: str
    hosts: int
    seconds: float
    computing: float
    exchanging: float
    waiting: float
    sent: float


@dataclass(frozen=True)
class Forecasts:
    """What was forecast, and chosen.

    Args:
        chosen: what was taken.
        all: everything that was looked at.
        why: in a sentence.
    """

    chosen: Forecast
    all: tuple[Forecast, ...]
    why: str


def read_forecast(path: Path) -> Forecasts | None:
    """What `plan.json` says, or None where there is none.

    Raises:
        RunError: it is damaged.
    """
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = tuple(_forecast(entry) for entry in document["forecasts"])
        return Forecasts(_forecast(document["forecast"]), found, printable(str(document["why"])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"`{path}` cannot be read as a forecast.") from error


def compared(forecast: Forecasts, seconds: float) -> str:
    """What was forecast beside what happened, in a line.

    Args:
        forecast: what was forecast.
        seconds: that the training took.

    >>> chosen = Forecast("diloco", 4, 10.0, 0.9, 0.1, 0.0, 1e6)
    >>> compared(Forecasts(chosen, (chosen,), ""), 12.5)
    'diloco on 4 hosts: 10.0\u202fs were forecast, and it took 12.5\u202fs, 25 % longer'
    """
    chosen = forecast.chosen
    told = f"{chosen.strategy} on {plural(chosen.hosts, 'host')}: {duration(chosen.seconds)} were forecast"
    return f"{told}, and it took {duration(seconds)}, {_off(seconds / max(chosen.seconds, 1e-9) - 1)}"


def _off(share: float) -> str:
    if abs(share) < 0.005:
        return "as forecast"
    return f"{abs(share):.0%} {'longer' if share > 0 else 'less'}".replace("%", " %")


def _forecast(entry: dict[str, Any]) -> Forecast:
    names = ("seconds", "computing", "exchanging", "waiting", "sent")
    numbers = [entry[name] for name in names]
    if not all(is_number(number) for number in numbers):
        raise ValueError("not numbers")
    return Forecast(printable(str(entry["strategy"])), len(entry["hosts"]), *numbers)
