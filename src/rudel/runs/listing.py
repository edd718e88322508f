"""All runs below a folder, a line each: what they are, how well they did, how long they took."""

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rudel.errors import OptionError, RunError
from rudel.report.formatting import better
from rudel.runs.run_directory import RunDirectory

_DEPTH = 3
"""Folders below the one that is named in which runs are looked for: those of a sweep lie in its folder."""

_NOT_METRICS = frozenset({"epoch", "round", "step", "samples", "seconds", "time", "learning_rate"})

State = Literal["finished", "failed", "unfinished"]


@dataclass(frozen=True)
class Line:
    """One run in a list.

    Args:
        name: its path below the folder.
        path: its directory.
        recipe: of which it was made, or the model's name.
        started: when, in UTC; None where the run does not say.
        strategy: how its steps were spread.
        metrics: the last ones, by Keras' names; NaN and infinities are left out.
        seconds: of training so far.
        state: finished; failed, where it ended by an error; or unfinished.
    """

    name: str
    path: Path
    recipe: str
    started: datetime.datetime | None
    strategy: str
    metrics: dict[str, float]
    seconds: float
    state: State


def runs_in(folder: Path) -> list[Line]:
    """The runs below a folder, oldest first; damaged ones are left out.

    Raises:
        RunError: there is no such folder.
    """
    if not folder.is_dir():
        raise RunError(f"There is no folder {folder}: name the one that holds your runs with --in.")
    depths = ["/".join(["*"] * depth) for depth in range(1, _DEPTH + 1)]
    found = sorted({path.parent for depth in depths for path in folder.glob(f"{depth}/config.json")})
    lines = [line for path in found if (line := _line(path, folder))]
    return sorted(lines, key=lambda line: (line.started is None, line.started, line.name))


def sort_runs(lines: Sequence[Line], by: str) -> list[Line]:
    """Runs in the order of a column or of a metric, the best first; those without that metric come last.

    Raises:
        OptionError: no run has such a metric.
    """
    if by in ("name", "recipe", "strategy", "state"):
        return sorted(lines, key=lambda line: getattr(line, by))
    if by == "date":
        return sorted(lines, key=lambda line: (line.started is None, line.started))
    if by == "time":
        return sorted(lines, key=lambda line: line.seconds)
    known = sorted({name for line in lines for name in line.metrics})
    if by not in known:
        raise OptionError(
            f"Runs cannot be sorted by `{by}`: take name, recipe, date, strategy, state, time"
            f"{', or a metric: ' + ', '.join(known) if known else ''}."
        )
    sign = -(better(by) or 1)
    return sorted(lines, key=lambda line: (by not in line.metrics, sign * line.metrics.get(by, 0.0)))


def _line(path: Path, folder: Path) -> Line | None:
    run = RunDirectory(path)
    try:
        config, summary = run.read_config(), run.read_summary()
        last = _last_record(path / "metrics.jsonl")
    except (RunError, OSError):
        return None
    if "identity" not in config:  # the configuration of something else
        return None
    metrics = summary.get("metrics", {}) if summary else {k: v for k, v in last.items() if k not in _NOT_METRICS}
    try:
        return Line(
            name=str(path.relative_to(folder)),
            path=path,
            recipe=Path(str(config.get("recipe"))).stem,
            started=_time(config.get("started")),
            strategy=str(config.get("strategy")),
            metrics={name: float(value) for name, value in metrics.items() if isinstance(value, int | float)},
            seconds=float((summary or {}).get("train_seconds") or last.get("seconds") or 0.0),
            state="finished" if summary else "failed" if (path / "failure.json").is_file() else "unfinished",
        )
    except (AttributeError, TypeError, ValueError, OverflowError):  # values of another kind than Rudel writes
        return None


def _time(text: Any) -> datetime.datetime | None:
    """A time that was written in ISO format, in UTC; one without a time zone is this computer's."""
    return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC) if text else None


def _last_record(path: Path) -> dict[str, Any]:
    """The last whole line of metrics.jsonl; empty where there is none."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    for line in reversed(lines):
        try:
            found = json.loads(line)
        except ValueError:  # it is being written, or was cut off
            continue
        return found if isinstance(found, dict) else {}
    return {}
