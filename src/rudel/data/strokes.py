"""Drawings as strokes, and the bitmaps that *Quick, Draw!* makes of them.

A drawing is a list of strokes, and a stroke is `[xs, ys]`, in a box of 256 units, y downwards: the "simplified
drawings" of the data set. `bitmap` gives the very bytes of the data set's bitmaps: the box centred by what is drawn, a
round pen of 16 units, 24 units free on every side, all scaled by 28/304, white on black. Google rendered them with
cairo; what is done here, in whole numbers, are cairo's own approximations: coordinates in 1/256 of a pixel, a pen with
twelve corners, fifteen lines a pixel. So no other renderer would do.

`simplified` is what the data set's makers did to what people drew.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rudel.data.coverage import coverage
from rudel.data.outline import FIXED, Pen, outline
from rudel.errors import DataError

BOX = 256
"""Units of the box that drawings are in."""

LINE_WIDTH = 16
"""Units; as many again are left free on every side, beside half the line."""

Stroke = Sequence[Sequence[float]]
"""`[xs, ys]`: of a point, or of a line through points."""


def bitmap(drawing: Sequence[Stroke], side: int = 28, line_width: float = LINE_WIDTH) -> np.ndarray:
    """A drawing as a picture, as *Quick, Draw!* has it.

    Args:
        drawing: strokes, in a box of 256 units from 0; further stray points are cut off.
        side: height and width of the picture, pixels.
        line_width: of the pen, units.

    Returns:
        uint8 (side, side), white on black.

    Raises:
        DataError: a stroke has no points, or coordinates that are no finite numbers.

    Examples:
        >>> bitmap([[[0, 255], [0, 0]]])[13:16, 12:15].tolist()
        [[187, 187, 187], [187, 187, 187], [0, 0, 0]]
    """
    strokes = [_checked(stroke) for stroke in drawing]
    pixels = np.zeros((side, side), np.int64)
    if not strokes:
        return pixels.astype(np.uint8)
    scale = side / (BOX + 2 * LINE_WIDTH + line_width)
    margin = LINE_WIDTH + line_width / 2
    middle = [(BOX - max(max(stroke[axis]) for stroke in strokes)) / 2 for axis in (0, 1)]
    pen = Pen(line_width / 2 * scale)
    for stroke in strokes:
        xs, ys = ([round((scale * (v + middle[a]) + scale * margin) * FIXED) for v in stroke[a]] for a in (0, 1))
        ink = coverage(outline(list(zip(xs, ys, strict=True)), pen), side)
        behind = pixels * (255 - ink) + 127
        pixels = np.minimum(ink + ((behind + (behind >> 8)) >> 8), 255)
    return pixels.astype(np.uint8)


def simplified(drawing: Sequence[Stroke], tolerance: float = 2.0) -> list[list[list[int]]]:
    """What somebody drew, in any units, as the data set has it.

    It is moved to the corner, scaled so that the longer side has 255 units, and rid of points that lie within 2 units
    of the line through the others (Ramer, Douglas and Peucker), with whole numbers as coordinates.

    Args:
        drawing: strokes, y downwards.
        tolerance: units.

    Returns:
        Strokes.

    Raises:
        DataError: a stroke has no points, or coordinates that are no finite numbers.

    Examples:
        >>> simplified([[[10, 20, 30], [5, 5.1, 5]], [[10, 30], [5, 15]]])
        [[[0, 255], [0, 0]], [[0, 255], [0, 128]]]
    """
    strokes = [_checked(stroke) for stroke in drawing]
    if not strokes:
        return []
    least = [min(min(stroke[axis]) for stroke in strokes) for axis in (0, 1)]
    size = max(max(max(stroke[axis]) for stroke in strokes) - least[axis] for axis in (0, 1))
    scale = (BOX - 1) / size if size > 0 else 1.0
    placed = [
        [((x - least[0]) * scale, (y - least[1]) * scale) for x, y in zip(*stroke, strict=True)] for stroke in strokes
    ]
    kept = [_without_needless(points, tolerance) for points in placed]
    return [[[math.floor(point[axis] + 0.5) for point in points] for axis in (0, 1)] for points in kept]


def read_drawings(path: Path) -> list[list[list[list[int]]]]:
    """The drawings of an `.ndjson` file of the data set.

    Raises:
        DataError: the file cannot be read, or has other content.
    """
    try:
        with path.open(encoding="utf-8") as file:
            return [json.loads(line)["drawing"] for line in file if line.strip()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read as drawings: give an .ndjson file of Quick, Draw!.") from error


def _checked(stroke: Stroke) -> tuple[list[float], list[float]]:
    if len(stroke) < 2 or len(stroke[0]) != len(stroke[1]) or not stroke[0]:
        raise DataError("A stroke must be two lists of the same length, x and y, with at least one point.")
    xs, ys = [float(value) for value in stroke[0]], [float(value) for value in stroke[1]]
    if not all(map(math.isfinite, xs + ys)):
        raise DataError("A stroke has a coordinate that is no finite number.")
    return xs, ys


def _without_needless(points: list[tuple[float, float]], tolerance: float) -> list[tuple[float, float]]:
    kept = [False] * len(points)
    kept[0] = kept[-1] = True
    spans = [(0, len(points) - 1)]
    while spans:
        first, last = spans.pop()
        farthest, distance = 0, tolerance
        for i in range(first + 1, last):
            away = _distance(points[i], points[first], points[last])
            if away > distance:
                farthest, distance = i, away
        if farthest:
            kept[farthest] = True
            spans += [(first, farthest), (farthest, last)]
    return [point for point, keep in zip(points, kept, strict=True) if keep]


def _distance(point: tuple[float, float], start: tuple[float, float], end: tuple[float, float]) -> float:
    """From a point to the line between two others."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    x, y = point[0] - start[0], point[1] - start[1]
    squared = dx * dx + dy * dy
    along = min(max((x * dx + y * dy) / squared, 0.0), 1.0) if squared else 0.0
    x, y = x - along * dx, y - along * dy
    return math.sqrt(x * x + y * y)
