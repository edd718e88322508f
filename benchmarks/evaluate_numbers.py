"""What follows from the numbers of the evaluation: time and bytes to the target, and how much faster than one node."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from evaluate_cells import CENTRE_RATES, EXTRAPOLATED, MODELS, Cell, every_cell


def crossing(curve: Sequence[Sequence[float]], target: float) -> float | None:
    """Where a curve of (place, accuracy) first reaches an accuracy, on the line between its neighbours.

    >>> crossing([(10, 0.5), (20, 0.7), (30, 0.9)], 0.8)
    25.0
    """
    if curve and curve[0][1] >= target:
        return float(curve[0][0])
    for (before, low), (after, high) in itertools.pairwise(curve):
        if high >= target:
            return before + (after - before) * (target - low) / (high - low)
    return None


def completed(cell: Cell, found: Mapping[str, Any], curve: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The numbers of a cell, and what it takes to the target: `target_steps`, `target_seconds`, `target_bytes`.

    Args:
        cell: which.
        found: what was measured.
        curve: (step, accuracy) of one computer, which whoever exchanges in every step has too.
    """
    target, step_seconds = MODELS[cell.model].target, found["step_seconds"]
    if cell.strategy in EXTRAPOLATED:
        steps = crossing(curve, target)
        seconds = None if steps is None else steps * step_seconds
    else:
        seconds = crossing(found["curve"], target)
        steps = None if seconds is None else seconds / step_seconds
    size = None if steps is None else steps * found["air_bytes_a_step"]
    return {**found, "target_steps": steps, "target_seconds": seconds, "target_bytes": size}


class Numbers:
    """What was measured, by cell, and what follows from it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        named = {cell.name: cell for cell in every_cell()}
        self.curves: Mapping[str, Sequence[Sequence[float]]] = document["curves"]
        self.cells: Mapping[str, Any] = {
            name: completed(named[name], found, self.curves[named[name].model])
            for name, found in document["cells"].items()
        }
        self.failures: Mapping[str, str] = document["failures"]
        self.cores: int = document["machine"]["cores"]
        self.quota: float = document["job"]["cpu"]

    def of(self, strategy: str, model: str, hosts: int, rate: int) -> Mapping[str, Any] | None:
        """The numbers of a cell; None if it was not measured."""
        return self.cells.get(Cell(strategy, model, hosts, rate).name)

    def alone(self, model: str) -> Mapping[str, Any] | None:
        """Those of the same node by itself."""
        return self.of("single", model, 1, CENTRE_RATES[0])

    def speed_up(self, strategy: str, model: str, hosts: int, rate: int) -> float | None:
        """Seconds to the target by itself, over those of a cell; None if one is not known."""
        one, many = self.alone(model), self.of(strategy, model, hosts, rate)
        if not one or not many or not one["target_seconds"] or not many["target_seconds"]:
            return None
        return one["target_seconds"] / many["target_seconds"]

    def throughput(self, strategy: str, model: str, hosts: int, rate: int) -> float | None:
        """Examples a second of a cell, over those of the same node by itself; None if one is not known."""
        one, many = self.alone(model), self.of(strategy, model, hosts, rate)
        return one["step_seconds"] / many["step_seconds"] if one and many else None
