"""The outline of a line drawn with a round pen, as cairo has it: polygons whose union is what the pen covers.

Coordinates are whole numbers of 1/256 of a pixel, y downwards. The pen is a polygon too, with so many corners that it
is nowhere more than a tenth of a pixel from the circle. Along the line go two chains of points, half the pen's width to
either side; where the line turns, the outer one goes around the pen and the inner one by way of the line itself; and a
round cap joins them at either end. They overlap and cross: what counts as covered is what they wind around.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

FIXED = 256
"""Units of a pixel."""

_TOLERANCE = 0.1

Point = tuple[int, int]
Edge = tuple[Point, Point, int]
"""Its upper end, its lower end, and whether it winds around what is to its right once (1) or backwards (-1)."""


@dataclass(frozen=True)
class Pen:
    """A round pen.

    Args:
        radius: pixels.
    """

    radius: float

    @cached_property
    def corners(self) -> list[Point]:
        """Around the middle, from the right by way of below."""
        if self.radius <= _TOLERANCE:
            count = 4
        else:
            count = max(4, math.ceil(2 * math.pi / math.acos(1 - _TOLERANCE / self.radius)))
        count += count % 2
        angles = [2 * math.pi * i / count for i in range(count)]
        return [(round(self.radius * math.cos(a) * FIXED), round(self.radius * math.sin(a) * FIXED)) for a in angles]

    @cached_property
    def sides(self) -> list[Point]:
        """Side i leads from corner i - 1 to corner i."""
        return [_from(self.corners[i - 1], corner) for i, corner in enumerate(self.corners)]

    def around(self, before: Point, after: Point) -> list[Point]:
        """The corners on the outer side of a turn to the right."""
        count, sides = len(self.sides), self.sides
        start = _last(0, count, lambda i: _turn(sides[i], before) < 0)
        start = (start + (_turn(sides[start], before) < 0)) % count
        stop = start
        if _turn(after, sides[(start + 1) % count]) >= 0:
            stop = _last(start, start + count, lambda i: _turn(sides[i % count], after) <= 0)
        return [self.corners[(start + i) % count] for i in range((stop - start) % count)]

    def around_left(self, before: Point, after: Point) -> list[Point]:
        """The corners on the outer side of a turn to the left, or of one that leads back."""
        count, sides = len(self.sides), self.sides
        start = _last(0, count, lambda i: _turn(before, sides[(i + 1) % count]) < 0)
        start = (start + (_turn(before, sides[(start + 1) % count]) < 0)) % count
        stop = start
        if _turn(sides[start], after) <= 0:
            stop = _last(start, start + count, lambda i: _turn(after, sides[(i + 1) % count]) <= 0)
        return [self.corners[(start - i) % count] for i in range((start - stop) % count)]


def outline(points: Sequence[Point], pen: Pen) -> list[Edge]:
    """The edges of what a pen covers that is led along points.

    Args:
        points: at least one.
        pen: what draws.
    """
    line = _joined(points)
    if len(line) == 1:
        right, left = (FIXED, 0), (-FIXED, 0)
        below, above = _beside(line[0], right, pen)
        ring = [*_moved(pen.around_left(left, right), line[0]), below]
        ring += [*_moved(pen.around_left(right, left), line[0]), above]
        return _edges([*ring, ring[0]], -1)
    ways = [_from(a, b) for a, b in itertools.pairwise(line)]
    rightmost: list[Point] = []
    leftmost: list[Point] = []
    for i, way in enumerate(ways):
        left, right = _beside(line[i], way, pen)
        if i and _turn(ways[i - 1], way) < 0:
            rightmost += [*_moved(pen.around(ways[i - 1], way), line[i]), right]
            leftmost += [line[i], left]
        elif i:
            leftmost += [*_moved(pen.around_left(ways[i - 1], way), line[i]), left]
            rightmost += [line[i], right]
        else:
            rightmost, leftmost = [right], [left]
        rightmost.append((right[0] + way[0], right[1] + way[1]))
        leftmost.append((left[0] + way[0], left[1] + way[1]))
    end, start = ways[-1], ways[0]
    leftmost += [*_moved(pen.around_left(end, _back(end)), line[-1]), rightmost[-1]]
    cap = [rightmost[0], *_moved(pen.around_left(_back(start), start), line[0]), leftmost[0]]
    return _edges(leftmost, -1) + _edges(cap, -1) + _edges(rightmost, 1)


def _joined(points: Sequence[Point]) -> list[Point]:
    """The line without points that are on it anyway."""
    line = [points[0]]
    for point in points[1:]:
        if point == line[-1]:
            continue
        if len(line) > 1:
            before, now = _from(line[-2], line[-1]), _from(line[-1], point)
            if before[0] * now[1] == before[1] * now[0] and before[0] * now[0] + before[1] * now[1] > 0:
                line.pop()
        line.append(point)
    return line


def _beside(point: Point, way: Point, pen: Pen) -> tuple[Point, Point]:
    """The points half the pen's width to the left of a way and to the right of it, seen with y upwards."""
    length = math.sqrt(way[0] * way[0] + way[1] * way[1])
    x, y = round(-way[1] / length * pen.radius * FIXED), round(way[0] / length * pen.radius * FIXED)
    return (point[0] + x, point[1] + y), (point[0] - x, point[1] - y)


def _last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The last number from `low` to `high` for which something holds that holds up to there, found by halving."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _turn(a: Point, b: Point) -> int:
    """-1, 0 or 1: how a compares with b, as angles up to half a turn apart."""
    cross = a[1] * b[0] - b[1] * a[0]
    if cross:
        return 1 if cross > 0 else -1
    if a[0] * b[0] < 0 or a[1] * b[1] < 0:
        return -1 if a[0] > 0 or (a[0] == 0 and a[1] > 0) else 1
    return 0


def _edges(chain: Sequence[Point], winding: int) -> list[Edge]:
    pairs = itertools.pairwise(chain)
    return [(a, b, winding) if a[1] < b[1] else (b, a, -winding) for a, b in pairs if a[1] != b[1]]


def _from(a: Point, b: Point) -> Point:
    return b[0] - a[0], b[1] - a[1]


def _back(way: Point) -> Point:
    return -way[0], -way[1]


def _moved(points: Sequence[Point], to: Point) -> list[Point]:
    return [(x + to[0], y + to[1]) for x, y in points]
