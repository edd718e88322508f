"""What follows from the measurements: time to accuracy, what was sent until then, and the speed-up over one host.

Time to accuracy is defined in `evaluate_page.DEFINITION`.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from evaluate_cells import ALONE, CENTRE_RATES, EXTRAPOLATED, MODELS, Cell, every_cell


def first_reached(curve: Sequence[Sequence[float]], target: float) -> float:
    """Where a curve of (place, accuracy) is first at or above an accuracy; infinite if it never is.

    >>> first_reached([(10, 0.5), (20, 0.7), (30, 0.9)], 0.7)
    20.0
    """
    return next((float(place) for place, accuracy in curve if accuracy >= target), math.inf)


def median_of(values: Sequence[float]) -> float:
    """The median, the upper of the two in the middle, so that misses are never averaged away.

    >>> median_of([3.0, 1.0, math.inf])
    3.0
    """
    return statistics.median_high(values)


def summarised(cell: Cell, runs: Sequence[Mapping[str, Any]], curves: Sequence[Any]) -> dict[str, Any]:
    """What the measurements of a cell, one or one for each seed, come to.

    Args:
        cell: which.
        runs: what was measured.
        curves: (step, accuracy) of trainings on one host, one for each seed, for cells whose time is extrapolated.

    Returns:
        Medians of what was measured, and:

        - `target_seconds`, `target_steps`, `target_bytes`: medians over the seeds; None if the median run misses the
          target.
        - `target_range`: seconds of the fastest and of the slowest seed, infinite if one misses.
        - `accuracy`: mean over the seeds in the end; None where that is the accuracy of one host.
        - `seeds`: how many there are.
        - `day`: of the earliest run, as 2026-11-25; empty for those of before days were kept.
    """
    target = MODELS[cell.model].target
    step_seconds = median_of([run["step_seconds"] for run in runs])
    if cell.strategy in EXTRAPOLATED:
        seconds = [first_reached(curve, target) * step_seconds for curve in curves]
        ends = [curve[-1][1] for curve in curves] if cell.strategy in ALONE else []
    else:
        seconds = [first_reached(run["curve"], target) for run in runs]
        ends = [run["accuracy"] for run in runs]
    reached = median_of(seconds)
    steps = None if math.isinf(reached) else reached / step_seconds
    middle = {name: median_of([run[name] for run in runs]) for name in ("steps", "cores_busy", "cores_of_others")}
    a_step = median_of([run["air_bytes_a_step"] for run in runs])
    return {
        **middle,
        "step_seconds": step_seconds,
        "target_steps": steps,
        "target_seconds": None if steps is None else reached,
        "target_range": (min(seconds), max(seconds)),
        "target_bytes": None if steps is None else steps * a_step,
        "accuracy": statistics.fmean(ends) if ends else None,
        "seeds": len(seconds),
        "disturbed": any(run["disturbed"] for run in runs),
        "day": min(run.get("day", "") for run in runs),
    }


class Numbers:
    """What was measured, by cell, and what follows from it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        named = {cell.name: cell for cell in every_cell()}
        self.curves: Mapping[str, Sequence[Any]] = document["curves"]
        self.cells: Mapping[str, Any] = {
            name: summarised(named[name], runs, self.curves[named[name].learner])
            for name, runs in document["cells"].items()
        }
        self.failures: Mapping[str, str] = document["failures"]
        self.day: str = max((found["day"] for found in self.cells.values()), default="")
        self.cores: int = document["machine"]["cores"]
        self.quota: float = document["job"]["cpu"]

    def of(self, strategy: str, model: str, hosts: int, rate: int) -> Mapping[str, Any] | None:
        """The numbers of a cell; None if it was not measured."""
        return self.cells.get(Cell(strategy, model, hosts, rate).name)

    def alone(self, model: str, baseline: str = "single") -> Mapping[str, Any] | None:
        """Those of one host by itself."""
        return self.of(baseline, model, 1, CENTRE_RATES[0])

    def speed_up(self, strategy: str, model: str, hosts: int, rate: int, baseline: str = "single") -> float | None:
        """Time to accuracy of one host over that of a cell; None if one is not known or misses the target."""
        one, many = self.alone(model, baseline), self.of(strategy, model, hosts, rate)
        if not one or not many or not one["target_seconds"] or not many["target_seconds"]:
            return None
        return one["target_seconds"] / many["target_seconds"]

    def throughput(self, strategy: str, model: str, hosts: int, rate: int) -> float | None:
        """Examples a second of a cell, over those of one host by itself; None if one is not known."""
        one, many = self.alone(model), self.of(strategy, model, hosts, rate)
        return one["step_seconds"] / many["step_seconds"] if one and many else None
