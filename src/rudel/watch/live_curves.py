"""Loss and metrics as the page draws them: few enough points, and none that stands out left away."""

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

from rudel.report.curves import Curve, find_curves, wants_log_scale
from rudel.report.formatting import better, is_share, metric_name

_MOST_EPOCHS = 400
"""Epochs of which values are sent, about."""

_FEWEST = 4


def curves(epochs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The loss, each metric and a changing learning rate, for JSON."""
    found = find_curves(epochs)
    shown = _shown(found)
    return [_drawn(curve, shown) for curve in found]


def thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most so many of the points, and of each stretch of them its least and its greatest; NaN is left out.

    >>> thinned([(float(x), float(x == 3)) for x in range(8)], 4)
    [(0.0, 0.0), (3.0, 1.0), (7.0, 0.0)]
    """
    known = [point for point in points if not math.isnan(point[1])]
    if len(known) <= most:
        return known
    length = math.ceil(2 * (len(known) - 1) / (most - 2))
    kept = []
    for first in range(0, len(known) - 1, length):
        stretch = range(first, min(first + length, len(known) - 1))
        least, greatest = (choose(stretch, key=lambda i: known[i][1]) for choose in (min, max))
        kept += [known[i] for i in sorted({least, greatest})]
    return [*kept, known[-1]]


def _shown(found: Sequence[Curve]) -> set[float]:
    """The epochs of which every line has its value: those that are to be seen in any of them."""
    lines = [(curve.epochs, values) for curve in found for _, _, values in curve.lines]
    if not lines or len(found[0].epochs) <= _MOST_EPOCHS:
        return {epoch for epochs, _ in lines for epoch in epochs}
    most = max(_FEWEST, _MOST_EPOCHS // len(lines))
    return {epoch for epochs, values in lines for epoch, _ in thinned(list(zip(epochs, values, strict=True)), most)}


def _drawn(curve: Curve, shown: Set[float]) -> dict[str, Any]:
    lines = [
        {
            "name": name,
            "points": [(x, y) for x, y in zip(curve.epochs, values, strict=True) if x in shown and not math.isnan(y)],
        }
        for name, _, values in curve.lines
    ]
    return {
        "key": curve.key,
        "name": metric_name(curve.key),
        "share": is_share(curve.key),
        "log": wants_log_scale(curve),
        "lines": lines,
        "best": _best(curve),
    }


def _best(curve: Curve) -> dict[str, float] | None:
    """The best value in validation and its epoch, where it is known which is better."""
    sign, values = better(curve.key), curve.validation
    if sign == 0 or values is None:
        return None
    at = max((i for i, value in enumerate(values) if not math.isnan(value)), key=lambda i: sign * values[i])
    return {"epoch": curve.epochs[at], "value": values[at]}
