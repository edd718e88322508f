"""Statistics of a training on several hosts from `rounds.jsonl`, summed over spans of equal length.

Where hosts wait for nobody, a line tells of arrivals in the place of a round: of one, or of several that came together.

The log may have a hundred thousand rounds of many hosts; it is read line by line, and what is kept of it has the same
size for any length. While it is read, sums are kept over spans whose length doubles whenever there are too many of
them; in the end they become spans that divide the whole time evenly.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rudel.errors import RunError
from rudel.report.hosts_words import EVENTS

SPANS = 256
"""Spans that the whole time is divided into."""

MOST_CHANGES = 1000
"""Changes and absences of a host that are kept; what comes after these is only counted."""


@dataclass(frozen=True)
class Change:
    """A host was lost, begins to join, or has joined.

    Args:
        seconds: of training before it.
        host: its name.
        event: `lost`, `joining`, `joined` or `standby`.
        reason: what the training knew of it.
    """

    seconds: float
    host: str
    event: str
    reason: str


@dataclass(frozen=True, eq=False)
class HostRecord:
    """Statistics of one host.

    Args:
        name: of the host.
        rounds, steps: in which its work was used.
        computed, present: seconds that it computed, and that it took part (between being there and its last answer).
        in_steps: seconds of these in which it took steps, the rest being for encoding and merging; 0 where that is
            unknown.
        memory: most bytes held.
        cpu: seconds of processor time.
        moved: bytes to and from it.
        lost: how often.
        steps_in, computed_in, present_in: the same by span, (SPANS,).
        absences: (state, first second, last second) while it was `lost`, `joining` or on `standby`; lost counts from
            the last answer.
    """

    name: str
    rounds: int
    steps: int
    computed: float
    present: float
    in_steps: float
    memory: int
    cpu: float
    moved: int
    lost: int
    steps_in: np.ndarray
    computed_in: np.ndarray
    present_in: np.ndarray
    absences: tuple[tuple[str, float, float], ...]

    @property
    def computing(self) -> float:
        """Share of its time that it computed."""
        return min(1.0, self.computed / self.present) if self.present > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Rounds:
    """Statistics of all rounds.

    Args:
        count: of the rounds.
        seconds: of training.
        hosts: by name, numbers in names by their value.
        sent, received: bytes until the end of each span, (SPANS,).
        changes: what happened to hosts; the first `MOST_CHANGES`.
        changed: how many changes there were.
        resumed: seconds of training before each resumption.
        arrivals: of hosts that wait for nobody; 0 where there are rounds.
    """

    count: int
    seconds: float
    hosts: tuple[HostRecord, ...]
    sent: np.ndarray
    received: np.ndarray
    changes: tuple[Change, ...]
    changed: int
    resumed: tuple[float, ...]
    arrivals: int = 0

    @property
    def steps(self) -> int:
        """Steps of all hosts."""
        return sum(host.steps for host in self.hosts)

    @property
    def trained(self) -> tuple[HostRecord, ...]:
        """The hosts that took steps."""
        return tuple(host for host in self.hosts if host.steps)

    @property
    def computing(self) -> float:
        """Share of the hosts' time that they computed."""
        present = sum(host.present for host in self.hosts)
        return min(1.0, sum(host.computed for host in self.hosts) / present) if present > 0 else 0.0

    @property
    def merging(self) -> float | None:
        """Share of the hosts' time that they encoded and merged, part of `computing`; None where that is unknown."""
        present, in_steps = sum(host.present for host in self.hosts), sum(host.in_steps for host in self.hosts)
        return max(0.0, self.computing - in_steps / present) if in_steps > 0 and present > 0 else None

    @property
    def answers(self) -> int:
        """Rounds of every host, added up."""
        return sum(host.rounds for host in self.hosts)


def read_rounds(path: Path) -> Rounds | None:
    """Reads a `rounds.jsonl`; None if it is not there or has no round.

    Raises:
        RunError: it cannot be read, or a line other than the last is damaged.
    """
    if not path.is_file():
        return None
    log, broken = RoundsLog(), 0
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                if broken:
                    raise RunError(f"`{path}` is damaged: line {broken} is not a round, or what happened to a host.")
                try:
                    log.add(json.loads(line))
                except (ValueError, TypeError, KeyError, AttributeError):
                    broken = number
    except OSError as error:
        raise RunError(f"`{path}` cannot be read.") from error
    return log.summed() if log.count else None


class _Sums:
    """Sums over spans of a time that grows; amounts are spread evenly over the times that they belong to."""

    def __init__(self) -> None:
        self.values = [0.0] * (4 * SPANS)

    def halve(self) -> None:
        pairs = zip(self.values[::2], self.values[1::2], strict=True)
        self.values = [a + b for a, b in pairs] + [0.0] * (2 * SPANS)

    def spread(self, first: float, last: float, amount: float) -> None:
        """Adds an amount to the spans from `first` to `last`, which count spans and parts of them."""
        begin, end = int(first), int(last)
        if begin == end:
            self.values[begin] += amount
            return
        density = amount / (last - first)
        self.values[begin] += density * (begin + 1 - first)
        for i in range(begin + 1, end):
            self.values[i] += density
        self.values[end] += density * (last - end)


@dataclass(eq=False)
class _Host:
    """A host while the log is read.

    Args:
        heard: until when it is accounted for.
        gone: (state, since when) while it takes no part.
        noticed: when its loss was.
        left_over: a round may yet use what it did before it was lost, even while it joins again.
        moved, moved_before: bytes to and from it, and those before the training was resumed: then it counts from 0.
    """

    name: str
    heard: float
    gone: tuple[str, float] | None = None
    noticed: float = 0.0
    left_over: bool = False
    rounds: int = 0
    steps: int = 0
    computed: float = 0.0
    present: float = 0.0
    in_steps: float = 0.0
    memory: int = 0
    cpu: float = 0.0
    moved: int = 0
    moved_before: int = 0
    lost: int = 0
    sums: tuple[_Sums, _Sums, _Sums] = field(default_factory=lambda: (_Sums(), _Sums(), _Sums()))
    absences: list[tuple[str, float, float]] = field(default_factory=list)

    def come_back(self, seconds: float) -> None:
        self.absences = self.absences_until(seconds)
        self.gone, self.heard, self.left_over = None, seconds, False

    def took_part_until(self, seconds: float) -> None:
        """A round has used what it did before it was lost."""
        self.left_over = False
        if self.gone and self.gone[0] == "lost":
            self.gone = ("lost", seconds)
        elif self.absences and self.absences[-1][:2] == ("lost", self.heard):
            self.absences[-1] = ("lost", seconds, self.absences[-1][2])

    def absences_until(self, seconds: float) -> list[tuple[str, float, float]]:
        if self.gone is None or len(self.absences) >= MOST_CHANGES:
            return self.absences
        return [*self.absences, (*self.gone, seconds)]


class RoundsLog:
    """Takes lines of `rounds.jsonl` in, one by one, and sums them up at any time."""

    def __init__(self) -> None:
        self.count = self.changed = self.arrivals = 0
        self._hosts: dict[str, _Host] = {}
        self._changes: list[Change] = []
        self._resumed: list[float] = []
        self._width = 1e-3
        self._now = self._last_round = self._session_began = 0.0
        self._traffic_now = (0.0, 0.0, 0.0)  # when, sent, received
        self._traffic = [self._traffic_now]
        self._every = 1

    def add(self, line: Mapping[str, Any]) -> None:
        """Takes a line of the log in."""
        if "round" in line:
            self._round(line, self._moment(float(line["seconds"])))
        elif line.get("event") == "resumed":
            self._resume(self._moment(float(line["seconds"])))
        elif line.get("event") in EVENTS:
            moment = self._moment(float(line["seconds"]))
            self._change(Change(moment, str(line["host"]), line["event"], str(line.get("reason") or "")))

    def _moment(self, seconds: float) -> float:
        """The time now, and spans long enough to hold it."""
        self._now = max(self._now, seconds)
        while self._now >= (4 * SPANS - 1) * self._width:
            self._width *= 2
            for host in self._hosts.values():
                for sums in host.sums:
                    sums.halve()
        return self._now

    def _resume(self, now: float) -> None:
        self._session_began = now
        self._resumed.append(now)
        for host in self._hosts.values():
            host.come_back(now)
            host.moved_before = host.moved

    def _round(self, line: Mapping[str, Any], now: float) -> None:
        self.count += 1
        for name, figures in line["hosts"].items():
            host = self._hosts.get(name)
            if host is None:
                host = self._hosts[name] = _Host(name, self._session_began)
            since, until = host.heard, now
            if host.gone and host.left_over:
                until = host.noticed
                host.took_part_until(until)
            elif host.gone:  # takes part again, though nothing was said of it
                host.come_back(max(self._last_round, host.gone[1]))
                since = host.heard
            computed = max(0.0, float(figures["seconds"]) - float(figures["waited"]))
            host.rounds += figures.get("arrivals", 1)
            self.arrivals += figures.get("arrivals", 0)
            host.steps += figures["steps"]
            host.computed += computed
            host.in_steps += float(figures.get("computed", 0.0))
            host.present += until - since
            host.memory = max(host.memory, figures["memory"])
            host.cpu += figures["cpu"]
            host.moved = max(host.moved, host.moved_before + figures["sent"] + figures["received"])
            first, last = since / self._width, until / self._width
            for sums, amount in zip(host.sums, (figures["steps"], computed, until - since), strict=True):
                sums.spread(first, last, amount)
            host.heard = until
        self._last_round = now
        self._traffic_now = (now, float(line["sent"]), float(line["received"]))
        if self.count % self._every == 0:
            self._traffic.append(self._traffic_now)
        if len(self._traffic) > 8 * SPANS:
            self._traffic = self._traffic[::2]
            self._every *= 2

    def _change(self, change: Change) -> None:
        self.changed += 1
        if len(self._changes) < MOST_CHANGES:
            self._changes.append(change)
        host = self._hosts.get(change.host)
        if host is None:
            since = change.seconds if change.event == "joined" else self._session_began
            host = self._hosts[change.host] = _Host(change.host, since)
        if change.event == "lost":
            host.lost += 1
            host.gone = host.gone or ("lost", host.heard)
            if not host.left_over:
                host.noticed, host.left_over = change.seconds, True
        elif change.event == "joining" and host.left_over:
            host.absences = host.absences_until(change.seconds)
            host.gone = (change.event, change.seconds)
        else:
            host.come_back(change.seconds)
            host.gone = None if change.event == "joined" else (change.event, change.seconds)

    def summed(self) -> Rounds:
        """All that was taken in so far."""
        moments, sent, received = (np.array(column) for column in zip(*self._traffic, self._traffic_now, strict=True))
        ends = self._now * np.arange(1, SPANS + 1) / SPANS
        return Rounds(
            count=self.count,
            seconds=self._now,
            hosts=tuple(self._record(self._hosts[name]) for name in sorted(self._hosts, key=by_number)),
            sent=np.interp(ends, moments, sent),
            received=np.interp(ends, moments, received),
            changes=tuple(self._changes),
            changed=self.changed,
            resumed=tuple(self._resumed),
            arrivals=self.arrivals,
        )

    def _record(self, host: _Host) -> HostRecord:
        steps, computed, present = (self._evenly(sums.values) for sums in host.sums)
        return HostRecord(
            name=host.name,
            rounds=host.rounds,
            steps=host.steps,
            computed=host.computed,
            present=host.present,
            in_steps=host.in_steps,
            memory=host.memory,
            cpu=host.cpu,
            moved=host.moved,
            lost=host.lost,
            steps_in=steps,
            computed_in=computed,
            present_in=present,
            absences=tuple(host.absences_until(self._now)),
        )

    def _evenly(self, values: list[float]) -> np.ndarray:
        used = int(self._now / self._width) + 1
        ends = np.minimum(self._width * np.arange(used + 1), self._now)
        until = np.interp(np.linspace(0, self._now, SPANS + 1), ends, np.cumsum([0.0, *values[:used]]))
        return np.diff(until)


def by_number(name: str) -> list[str | int]:
    """A key that sorts names with numbers in them as people do.

    >>> sorted(["pi@raspi10", "pi@raspi9"], key=by_number)
    ['pi@raspi9', 'pi@raspi10']
    """
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", name))]
