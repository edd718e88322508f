"""Tables of what was measured."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import measure
from rich.table import Table

_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("time per step, µs", "step_seconds", lambda seconds: f"{seconds * 1e6:,.0f}"),
    ("compile, s", "compile_seconds", lambda seconds: f"{seconds:.2f}"),
    ("job, s", "job_seconds", lambda seconds: f"{seconds:.1f}"),
    ("peak, MB", "peak_bytes", lambda size: f"{size / 1e6:,.0f}"),
    ("accuracy", "accuracy", lambda share: f"{share:.3f}"),
)

_VERDICTS = {True: "[green]holds[/]", False: "[red]does not hold[/]", None: "cannot be said"}


def results_table(rounds: measure.Rounds) -> Table:
    """A row for every contestant: medians, with the least and the largest."""
    table = Table("contestant", *(heading for heading, _, _ in _COLUMNS), title="median (least to largest)")
    for name in rounds[0]:
        table.add_row(name, *(_told(measure.values(rounds, name, key), write) for _, key, write in _COLUMNS))
    return table


def ratios_table(ratios: Mapping[str, Sequence[float]]) -> Table:
    """A row for every rival."""
    table = Table("contestant", "median", "least", "largest", title="time per step over Rudel's, round by round")
    for name, found in ratios.items():
        if found:
            spread = measure.spread(found)
            table.add_row(name, *(f"{value:.2f}" for value in (spread.median, spread.least, spread.largest)))
    return table


def claims_table(verdicts: Sequence[Mapping[str, Any]]) -> Table:
    """A row for every claim."""
    table = Table("claim", "median", "", title="claims")
    for verdict in verdicts:
        median = verdict["median"]
        table.add_row(verdict["text"], "" if median is None else _compact(median), _VERDICTS[verdict["holds"]])
    return table


def _told(found: Sequence[float], write: Callable[[float], str]) -> str:
    if not found:
        return ""
    spread = measure.spread(found)
    return f"{write(spread.median)} ({write(spread.least)} to {write(spread.largest)})"


def _compact(value: float) -> str:
    return f"{value / 1e6:,.0f} MB" if value > 1e6 else f"{value:.3g}"
