"""Statistics of several hosts: each one now, and the totals so far."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rudel.report.hosts_plots import speeds
from rudel.report.hosts_words import AWAY, EVENTS, happening
from rudel.report.rounds_file import SPANS, Change, HostRecord, Rounds, RoundsLog

LEVELS = 9
"""Heights of the timeline: how much of a span a host computed, in ninths."""

MOST_HOSTS = 64
"""Hosts that the page shows; those beyond are in the sums."""

_WINDOW = 5.0
"""Seconds of training that count as now."""

_LATE_ROUNDS = 3
_MOST_CHANGES = 20
_STRIP = 128
_ABSENT = "-"


@dataclass(eq=False)
class _Now:
    """The latest of a host: (second of training, steps, seconds, waited) of its rounds."""

    state: str = "training"
    last_round: int = 0
    rounds: deque[tuple[float, int, float, float]] = field(default_factory=deque)

    def answered(self, number: int, second: float, figures: Mapping[str, Any]) -> None:
        took, waited = float(figures["seconds"]), float(figures["waited"])
        self.rounds.append((second, int(figures["steps"]), took, waited))
        while len(self.rounds) > 2 and self.rounds[1][0] < second - _WINDOW:
            self.rounds.popleft()
        self.last_round = number
        if self.state not in AWAY:
            self.state = "waiting" if 2 * waited > took else "training"

    @property
    def steps_per_second(self) -> float | None:
        if len(self.rounds) < 2:
            return None
        since = self.rounds[-1][0] - self.rounds[0][0]
        return sum(steps for _, steps, _, _ in list(self.rounds)[1:]) / since if since > 0 else None


class Hosts:
    """Takes lines of `rounds.jsonl` in, and tells what the page shows of them."""

    def __init__(self) -> None:
        self._log = RoundsLog()
        self._now: dict[str, _Now] = {}
        self._last_round = 0
        self.step = 0
        """Steps that all hosts have taken."""

    def add(self, line: Mapping[str, Any]) -> None:
        """Takes a line in; one that is not as it should be is passed over.

        Raises:
            ValueError: it is not.
        """
        try:
            self._log.add(line)
            if "round" in line:
                self._last_round, self.step = int(line["round"]), int(line["step"])
                for name, figures in line["hosts"].items():
                    self._of(name).answered(self._last_round, float(line["seconds"]), figures)
            elif line.get("event") in EVENTS:
                host = self._of(str(line["host"]))
                host.state = "training" if line["event"] == "joined" else str(line["event"])
                host.last_round = self._last_round
                host.rounds.clear()
            elif line.get("event") == "resumed":
                self._now.clear()
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError("no round") from error

    def summed(self) -> Rounds | None:
        """All so far; None before the first round."""
        return self._log.summed() if self._log.count else None

    def document(self, rounds: Rounds, live: bool) -> dict[str, Any]:
        """For JSON: a row for each host, their timeline, traffic, speeds, and what happened.

        Args:
            rounds: of `summed`.
            live: whether the training is under way, so that hosts have a state.
        """
        shown = rounds.hosts[:MOST_HOSTS]
        every = SPANS // _STRIP
        return {
            "count": len(rounds.hosts),
            "rounds": rounds.count,
            "arrivals": rounds.arrivals,
            "seconds": rounds.seconds,
            "steps": rounds.steps,
            "computing": rounds.computing,
            "rows": [self._row(host, live) for host in shown],
            "sent": [int(amount) for amount in rounds.sent[every - 1 :: every]],
            "received": [int(amount) for amount in rounds.received[every - 1 :: every]],
            "resumed": list(rounds.resumed),
            "changes": _described_changes(rounds.changes)[-_MOST_CHANGES:],
            "changed": rounds.changed,
        }

    def _of(self, name: str) -> _Now:
        return self._now.setdefault(name, _Now())

    def _row(self, host: HostRecord, live: bool) -> dict[str, Any]:
        now = self._now.get(host.name)
        return {
            "name": host.name,
            "state": self._state(now) if live and now else None,
            "steps": host.steps,
            "now": now.steps_per_second if live and now else None,
            "average": host.steps / host.present if host.present > 0 else None,
            "computing": host.computing if host.present > 0 else None,
            "cpu": host.cpu / host.present if host.present > 0 else None,
            "memory": host.memory or None,
            "moved": host.moved,
            "lost": host.lost,
            "strip": strip(host),
            "absences": [[state, first, last] for state, first, last in host.absences[-SPANS:]],
        }

    def _state(self, now: _Now) -> str:
        late = now.state in ("training", "waiting") and self._last_round - now.last_round >= _LATE_ROUNDS
        return "late" if late else now.state


def _described_changes(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Events of hosts, in words."""
    lost: dict[str, float] = {}
    described = []
    for change in changes:
        away = change.seconds - lost[change.host] if change.host in lost else None
        what = happening(change.event, change.reason, away)
        described.append({"seconds": change.seconds, "host": change.host, "what": what})
        if change.event == "lost":
            lost[change.host] = change.seconds
        elif change.event == "joined":
            lost.pop(change.host, None)
    return described


def speed(rounds: Rounds) -> list[tuple[float, float, float]]:
    """Steps a second of all hosts together, as (first second, last second, speed)."""
    together = speeds(rounds, rounds.hosts).sum(axis=0)
    length = rounds.seconds / len(together)
    return [(i * length, (i + 1) * length, round(float(value), 3)) for i, value in enumerate(together)]


def strip(host: HostRecord) -> str:
    """A character for each of 128 spans: how much of it the host computed, in ninths, or `-` where it took no part."""
    present, computed = (values.reshape(_STRIP, -1).sum(axis=1) for values in (host.present_in, host.computed_in))
    there = present > 1e-6 * max(float(present.max()), 1e-9)
    shares = [min(1.0, c / p) if t else None for c, p, t in zip(computed, present, there, strict=True)]
    return "".join(_ABSENT if share is None else str(round(LEVELS * share)) for share in shares)
