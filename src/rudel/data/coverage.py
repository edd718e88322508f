"""How much of every pixel polygons cover, in the arithmetic of cairo's scan converter.

Every pixel row is cut into 15 lines. A line covers what the edges wind around at its middle, with edges rounded to
1/256 of a pixel. A row in which no edge begins, ends or crosses another is done at once, by the areas between edges.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rudel.data.outline import FIXED, Edge

_LINES = 15
_WHOLE = 2 * FIXED * _LINES
"""Of a pixel that is covered."""


@dataclass(frozen=True)
class _Side:
    """An edge, from its first line to the one behind its last; `x`, `y` is its upper end, and `dx`, `dy` leads down."""

    first: int
    end: int
    x: int
    y: int
    dx: int
    dy: int
    winding: int

    @property
    def parts(self) -> int:
        """Of 1/256 of a pixel: the unit of `place`."""
        return 2 * _LINES * self.dy

    def place(self, line: int) -> int:
        """Where the middle of a line meets it, in parts."""
        return self.x * self.parts + (FIXED * (2 * line + 1) - 2 * _LINES * self.y) * self.dx

    def at(self, line: int) -> int:
        """The same, rounded."""
        return (2 * self.place(line) + self.parts) // (2 * self.parts)

    def top(self, line: int) -> int:
        """Where the upper end of a line meets it, in parts; up to half a unit beside it."""
        whole, rest = divmod(2 * FIXED * abs(self.dx), self.parts)
        half = whole // 2 * self.parts + rest // 2
        return self.place(line) - (half if self.dx > 0 else -half)


def coverage(edges: Iterable[Edge], side: int) -> np.ndarray:
    """How much polygons cover of every pixel of a square.

    Args:
        edges: of all polygons, in 1/256 of a pixel.
        side: height and width, pixels.

    Returns:
        int64 (side, side), 0 to 255.
    """
    cells = np.zeros((side, side + 1, 2), np.int64)
    waiting = sorted(_sides(edges, side), key=lambda edge: edge.first // _LINES)
    active: list[_Side] = []
    for row in range(side):
        begins, ends = row * _LINES, (row + 1) * _LINES
        count = next((i for i, edge in enumerate(waiting) if edge.first >= ends), len(waiting))
        new, waiting = waiting[:count], waiting[count:]
        if not active and not new:
            continue
        together = sorted(active + new, key=lambda edge: edge.at(begins))  # done with before the next row
        if all(edge.first <= begins and edge.end >= ends for edge in together) and _in_order(together, ends):
            _cover_row(cells[row], together, begins, ends)
            active = [edge for edge in together if edge.end > ends]
            continue
        for line in range(begins, ends):
            active = [edge for edge in active if edge.end > line] + [edge for edge in new if edge.first == line]
            active.sort(key=lambda edge: edge.at(line))  # done with before the next line
            _cover_line(cells[row], active, line)
        active = [edge for edge in active if edge.end > ends]
        active.sort(key=lambda edge: edge.at(ends))
    covered = np.cumsum(cells[..., 1], axis=1) * (2 * FIXED) - cells[..., 0]
    return ((covered * 17 + 256) >> 9)[:, :side]


def _sides(edges: Iterable[Edge], side: int) -> list[_Side]:
    found = []
    for (x, y), (lower_x, lower_y), winding in edges:
        first, end = max(_line(y), 0), min(_line(lower_y), side * _LINES)
        if first < end:
            found.append(_Side(first, end, x, y, lower_x - x, lower_y - y, winding))
    return found


def _line(y: int) -> int:
    return (_LINES * y + FIXED // 2) // FIXED


def _in_order(active: list[_Side], line: int) -> bool:
    places = [edge.at(line) for edge in active]
    return all(a <= b for a, b in itertools.pairwise(places))


def _cover_line(cells: np.ndarray, active: list[_Side], line: int) -> None:
    """Adds what edges wind around in one line; they are in order."""
    places = [edge.at(line) for edge in active]
    around, start = 0, 0
    for i, edge in enumerate(active):
        if around == 0:
            start = places[i]
        around += edge.winding
        if around == 0:
            _add(cells, start, 1)
            _add(cells, places[i], -1)


def _add(cells: np.ndarray, x: int, sign: int) -> None:
    """The edge of a line: all to the right of it is covered, and of its own pixel what is not to its left."""
    pixel, part = _pixel(cells, x)
    cells[pixel, 0] += sign * 2 * part
    cells[pixel, 1] += sign


def _pixel(cells: np.ndarray, x: int) -> tuple[int, int]:
    """The pixel that x is in, and how far; beyond the borders, their own."""
    if x < 0:
        return 0, 0
    if x >= (len(cells) - 1) * FIXED:
        return len(cells) - 1, 0
    return x // FIXED, x % FIXED


def _cover_row(cells: np.ndarray, active: list[_Side], begins: int, ends: int) -> None:
    """Adds what edges wind around in a whole row; they are in order in all of it."""
    places = [edge.at(begins) for edge in active]
    around, inside = 0, False
    for i, edge in enumerate(active):
        around += edge.winding
        if not inside:
            _add_area(cells, edge, begins, ends, 1)
            inside = True
        elif around == 0 and (i + 1 == len(active) or places[i + 1] != places[i]):
            _add_area(cells, edge, begins, ends, -1)
            inside = False


def _add_area(cells: np.ndarray, edge: _Side, begins: int, ends: int, sign: int) -> None:
    """The edge of an area as high as the row, in whole lines for every pixel that it goes through."""
    left, right = sorted((edge.top(begins), edge.top(ends)))
    (first, enters), (last, leaves) = _pixel(cells, left // edge.parts), _pixel(cells, right // edge.parts)
    if first == last:
        cells[first] += sign * _LINES * (enters + leaves), sign * _LINES
        return
    done = 0
    for pixel in range(first, last + 1):
        reached = _LINES
        if pixel < last:
            reached = ((pixel + 1) * FIXED * edge.parts - left) * _LINES // (right - left)
        beside = FIXED + enters if pixel == first else leaves if pixel == last else FIXED
        cells[pixel] += sign * (reached - done) * beside, sign * (reached - done)
        done = reached
