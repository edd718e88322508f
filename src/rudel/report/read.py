"""A run directory, read into memory for the report."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudel.errors import RunError
from rudel.report import regression_data
from rudel.report.markup import printable
from rudel.report.plan_file import Forecasts, read_forecast
from rudel.report.predictions import Predictions, load
from rudel.report.regression_data import Regression
from rudel.report.rounds_file import Rounds, read_rounds


@dataclass(frozen=True, eq=False)
class Run:
    """The contents of a run directory. Numbers that are not finite are None.

    Args:
        path: the directory.
        config: the request (`config.json`).
        epochs: what was measured after each epoch, first to last (`metrics.jsonl`).
        summary: how it ended (`summary.json`); None while the run is unfinished.
        predictions: a classifier's answers to the validation examples; None where none were kept.
        rounds: what several hosts did (`rounds.jsonl`); None where one computer trained.
        regression: answers of a model that predicts numbers; None where none were kept.
        forecast: what was forecast, where the strategy was chosen by that (`plan.json`).
    """

    path: Path
    config: Mapping[str, Any]
    epochs: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any] | None
    predictions: Predictions | None
    rounds: Rounds | None = None
    regression: Regression | None = None
    forecast: Forecasts | None = None

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The final metrics; of an unfinished run, the latest."""
        metrics = (self.summary or {}).get("metrics")
        if isinstance(metrics, dict):
            return metrics
        return {key: value for key, value in (self.epochs[-1] if self.epochs else {}).items() if key not in NOT_METRICS}

    @property
    def hosts(self) -> Sequence[str]:
        """Names of the hosts that trained, also before the run was resumed; empty for one computer."""
        if self.rounds:
            return [host.name for host in self.rounds.trained]
        return [str(name) for name in (self.summary or {}).get("hosts") or []]

    def class_name(self, number: int) -> str:
        """The name of a class, or its number where it has none."""
        names = self.config.get("class_names") or []
        return printable(" ".join(str(names[number]).split())) if number < len(names) else str(number)


NOT_METRICS = frozenset({"epoch", "round", "step", "samples", "seconds", "learning_rate"})
"""Keys of a line of `metrics.jsonl` that say when, not how well."""


def read_run(path: Path) -> Run:
    """Reads a run directory, finished or not.

    Raises:
        RunError: there is no such directory, it is not one of a run, or a file in it is damaged.
    """
    if not path.is_dir():
        raise RunError(f"There is no run directory `{path}`.")
    if not (path / "config.json").is_file():
        raise RunError(f"`{path}` is not a run directory: it has no config.json.")
    predictions = path / "predictions.npz"
    numbers = regression_data.load(predictions) if predictions.is_file() else None
    return Run(
        path=path,
        config=_object(path / "config.json"),
        epochs=_lines(path / "metrics.jsonl"),
        summary=_object(path / "summary.json") if (path / "summary.json").is_file() else None,
        predictions=load(predictions) if predictions.is_file() and numbers is None else None,
        rounds=read_rounds(path / "rounds.jsonl"),
        regression=numbers,
        forecast=read_forecast(path / "plan.json"),
    )


def _object(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"`{path}` cannot be read as JSON.") from error
    if not isinstance(document, dict):
        raise RunError(f"`{path}` is damaged: it does not hold a JSON object.")
    return _finite(document)


def _lines(path: Path) -> tuple[dict[str, Any], ...]:
    """The lines of a log: a later line of an epoch replaces an earlier one; a last line that was cut off is ignored."""
    if not path.is_file():
        return ()
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise RunError(f"`{path}` cannot be read.") from error
    epochs: dict[Any, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            parsed = json.loads(line)
            if not isinstance(parsed, dict):
                raise ValueError("not an object")
        except ValueError as error:
            if number == len(lines):
                break
            raise RunError(f"`{path}` is damaged: line {number} is not a JSON object.") from error
        epoch = parsed.get("epoch")
        epoch = epoch if isinstance(epoch, int | float) else number
        epochs[epoch] = _finite({**parsed, "epoch": epoch})
    return tuple(epochs[epoch] for epoch in sorted(epochs))


def _finite(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
