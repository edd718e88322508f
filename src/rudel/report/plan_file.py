"""plan.json, read into memory: what was forecast of every strategy, before one was chosen by that."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rudel.errors import RunError
from rudel.report.formatting import duration, is_number, plural
from rudel.report.markup import printable

_MORE_STEPS = 0.02
"""Share of the steps by which hosts may miss the requested number, as their last rounds do not end in one step."""


@dataclass(frozen=True)
class Forecast:
    """The forecast for one strategy on some hosts.

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
    """All forecasts, and the choice.

    Args:
        chosen: what was taken.
        all: everything that was looked at.
        why: in a sentence.
        hosts: names of those that were chosen.
        steps: that were forecast.
        taken: steps that the run has taken by now, and the hosts that it was on last; None where it has not ended.
    """

    chosen: Forecast
    all: tuple[Forecast, ...]
    why: str
    hosts: frozenset[str] = field(default_factory=frozenset)
    steps: int | None = None
    taken: tuple[float, frozenset[str]] | None = None

    @property
    def seconds(self) -> float | None:
        """Seconds that were forecast for the steps taken; None where these were not taken by that plan."""
        if self.taken is None or self.steps is None:
            return self.chosen.seconds
        steps, hosts = self.taken
        return self.chosen.seconds * steps / self.steps if hosts == self.hosts else None


def read_forecast(path: Path) -> Forecasts | None:
    """Reads `plan.json`, and the steps taken in `summary.json` beside it; None where there is none, or no forecast.

    Raises:
        RunError: it is damaged.
    """
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if "forecasts" not in document and document["why"]:
            return None
        found = tuple(_forecast(entry) for entry in document["forecasts"])
        steps, size = document.get("steps"), document.get("batch_size")
        return Forecasts(
            _forecast(document["forecast"]),
            found,
            printable(str(document["why"])),
            frozenset(map(str, document["forecast"]["hosts"])),
            int(steps) if is_number(steps) and steps > 0 else None,
            _taken(path.parent / "summary.json", size) if is_number(size) and size > 0 else None,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"`{path}` cannot be read as a forecast.") from error


def _taken(path: Path, batch_size: float) -> tuple[float, frozenset[str]] | None:
    """Steps of a finished run, and its hosts."""
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        return summary["samples"] / batch_size, frozenset(map(str, summary["hosts"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def compared(forecast: Forecasts, seconds: float) -> str:
    """Compares the forecast with the measurement, in a line.

    Args:
        forecast: what was forecast.
        seconds: that the training took.

    >>> chosen = Forecast("diloco", 4, 10.0, 0.9, 0.1, 0.0, 1e6)
    >>> compared(Forecasts(chosen, (chosen,), ""), 12.5)
    'diloco on 4 hosts: 10.0\u202fs were forecast, and it took 12.5\u202fs, 25 % longer'
    """
    chosen, expected = forecast.chosen, forecast.seconds
    text = f"{chosen.strategy} on {plural(chosen.hosts, 'host')}: "
    if expected is None:
        return f"{text}{duration(chosen.seconds)} were forecast, and it took {duration(seconds)} on other hosts"
    text += f"{duration(expected)} were forecast"
    if forecast.taken and forecast.steps and abs(forecast.taken[0] / forecast.steps - 1) > _MORE_STEPS:
        text += f" for {forecast.taken[0]:,.0f} steps (of {forecast.steps:,} when it was chosen)"
    return f"{text}, and it took {duration(seconds)}, {_off(seconds / max(expected, 1e-9) - 1)}"


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
