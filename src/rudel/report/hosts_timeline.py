"""Timeline of the hosts: a row for each, from the beginning of the training to its end."""

import numpy as np

from rudel.report.formatting import duration, percent, plural
from rudel.report.markup import Html, element, join, scrolling
from rudel.report.rounds_file import SPANS, HostRecord, Rounds

STATES = (
    ("training", "computing"),
    ("waiting", "waiting"),
    ("lost", "lost, from its last answer on"),
    ("joining", "joining"),
    ("standby", "on standby"),
)
"""Names of the states, and what they mean."""

_WIDTH, _RIGHT, _BOTTOM = 888, 56, 34
_MOST_LETTERS = 24
_MOST_TICKS = 8
_FEW = 12
_LEVELS = 12
"""Heights that the share of computing is drawn with."""

_LEAST_WIDTH = 1.5


def timeline(rounds: Rounds) -> Html:
    """The drawing, in a frame that scrolls when the window is narrow, and a key to its colours."""
    drawn = _Drawing(rounds)
    states = {state for host in rounds.hosts for state, _, _ in host.absences} | {"training", "waiting"}
    keys = [
        element("span", element("span", class_=f"key state-{state}", aria_hidden="true"), meaning)
        for state, meaning in STATES
        if state in states
    ]
    return join([element("p", join(keys), class_="keys"), scrolling(drawn.svg(), "Timeline of the hosts")])


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit to write times of up to so many seconds in: its name, and its seconds.

    >>> time_unit(90.0), time_unit(1000.0)
    (('seconds', 1.0), ('minutes', 60.0))
    """
    if seconds < 180:
        return "seconds", 1.0
    return ("minutes", 60.0) if seconds < 3 * 3600 else ("hours", 3600.0)


def time_ticks(last: float) -> list[float]:
    """Round numbers from 0 to `last`, at most so many of them.

    >>> time_ticks(1.87)
    [0.0, 0.5, 1.0, 1.5]
    """
    steps = (digit * 10.0**power for power in range(-6, 12) for digit in (1, 2, 5))
    step = next(step for step in steps if last / step < _MOST_TICKS)
    return [round(i * step, 6) for i in range(int(last / step) + 1)]


class _Drawing:
    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        few = len(rounds.hosts) <= _FEW
        self._height, self._gap, self._letters = (20, 10, 13) if few else (11, 4, 10)
        self._spans = SPANS if few else SPANS // 2
        longest = max(len(shortened(host.name)) for host in rounds.hosts)
        self._left = round(longest * self._letters * 0.58) + 12
        self._wide = _WIDTH - self._left - _RIGHT
        self._foot = len(rounds.hosts) * (self._height + self._gap)

    def svg(self) -> Html:
        rounds = self._rounds
        parts = [*self._axis(), *(part for row, host in enumerate(rounds.hosts) for part in self._row(row, host))]
        parts += [self._line(seconds, "resumed here", "resumed") for seconds in rounds.resumed]
        height = self._foot + _BOTTOM
        return element(
            "svg",
            join(parts),
            viewBox=f"0 0 {_WIDTH} {height}",
            width=_WIDTH,
            height=height,
            role="img",
            aria_label=_in_words(rounds),
            class_="timeline",
        )

    def _x(self, seconds: float) -> float:
        return self._left + self._wide * seconds / max(self._rounds.seconds, 1e-9)

    def _axis(self) -> list[Html]:
        unit, length = time_unit(self._rounds.seconds)
        ticks = time_ticks(self._rounds.seconds / length)
        lines = [self._line(tick * length, None, "grid") for tick in ticks]
        numbers = [
            _text(self._x(tick * length), self._foot + 14, f"{tick:g}", anchor="middle", class_="muted")
            for tick in ticks
        ]
        middle = self._left + self._wide / 2
        return [*lines, *numbers, _text(middle, self._foot + 31, f"{unit} of training", "middle", class_="muted")]

    def _line(self, seconds: float, title: str | None, kind: str) -> Html:
        x = _short(self._x(seconds))
        return element("path", element("title", title) if title else None, d=f"M{x} 0V{self._foot}", class_=kind)

    def _row(self, row: int, host: HostRecord) -> list[Html]:
        top = row * (self._height + self._gap)
        middle = top + self._height / 2 + 0.36 * self._letters
        share = element("title", f"{host.name}: computing {percent(host.computing, 0)} of its time")
        return [
            _text(self._left - 10, middle, shortened(host.name), "end", size=self._letters),
            element("path", share, d=self._steps(top, *self._heights(host, full=True)), class_="state-waiting"),
            element("path", d=self._steps(top, *self._heights(host)), class_="state-training"),
            *(self._absence(top, host.name, *absence) for absence in self._merged(host)),
            _text(_WIDTH, middle, percent(host.computing, 0), "end", size=self._letters, class_="muted"),
        ]

    def _heights(self, host: HostRecord, full: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Height of each span, int (S,), of 0 to `_LEVELS`, and where it begins and ends, in seconds (S + 1,)."""
        present, computed = (_joined(values, self._spans) for values in (host.present_in, host.computed_in))
        there = present > 1e-9 * self._rounds.seconds
        shares = np.minimum(1.0, np.divide(computed, present, out=np.zeros_like(present), where=there))
        edges = np.linspace(0, self._rounds.seconds, self._spans + 1)
        levels = np.where(there, np.full_like(shares, _LEVELS) if full else np.rint(_LEVELS * shares), 0)
        return levels.astype(int), edges

    def _steps(self, top: float, levels: np.ndarray, edges: np.ndarray) -> str:
        """A path around bars that stand on the bottom of the row; equal neighbours are one bar."""
        bottom = top + self._height
        bars = []
        first = 0
        for i in range(1, len(levels) + 1):
            if i < len(levels) and levels[i] == levels[first]:
                continue
            if levels[first]:
                left, right = (_short(self._x(edges[edge])) for edge in (first, i))
                height = _short(bottom - self._height * levels[first] / _LEVELS)
                bars.append(f"M{left} {bottom}V{height}H{right}V{bottom}z")
            first = i
        return "".join(bars) or "M0 0"

    def _merged(self, host: HostRecord) -> list[tuple[str, float, float]]:
        """Absences, those that would lie closer together than can be seen made into one."""
        least = _LEAST_WIDTH * self._rounds.seconds / self._wide
        merged: list[tuple[str, float, float]] = []
        for state, first, last in host.absences:
            if merged and merged[-1][0] == state and first - merged[-1][2] < least:
                merged[-1] = (state, merged[-1][1], last)
            else:
                merged.append((state, first, last))
        return merged

    def _absence(self, top: float, name: str, state: str, first: float, last: float) -> Html:
        x = self._x(first)
        return element(
            "path",
            element("title", f"{name}: {state} for {duration(last - first)}"),
            d=f"M{_short(x)} {top}H{_short(max(self._x(last), x + _LEAST_WIDTH))}V{top + self._height}H{_short(x)}z",
            class_=f"state-{state}",
        )


def shortened(name: str) -> str:
    """A name that fits before its row, its middle left out if need be."""
    half = _MOST_LETTERS // 2
    return name if len(name) <= _MOST_LETTERS else f"{name[: half - 1]}…{name[-half:]}"


def _joined(values: np.ndarray, spans: int) -> np.ndarray:
    return values.reshape(spans, -1).sum(axis=1)


def _text(x: float, y: float, words: str, anchor: str, size: int = 12, class_: str | None = None) -> Html:
    return element("text", words, x=_short(x), y=_short(y), text_anchor=anchor, font_size=size, class_=class_)


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _in_words(rounds: Rounds) -> str:
    sentences = [
        f"{host.name} computing {percent(host.computing, 0)}" + (f", lost {_times(host.lost)}" if host.lost else "")
        for host in rounds.hosts[:_FEW]
    ]
    more = len(rounds.hosts) - len(sentences)
    rest = [f"and {plural(more, 'more host')}"] if more else []
    return f"What each host did in {duration(rounds.seconds)} of training: " + "; ".join([*sentences, *rest]) + "."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")
