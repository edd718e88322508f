"""Progress of a training on several hosts on the terminal: a line for each, and one for the cost of the network.

A round may end every 100 ms, on a computer that has other things to do: it is only added to some numbers, and lines are
written when they are drawn.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rudel.report.formatting import percent, plural, size
from rudel.report.hosts_words import AWAY, called, happening, is_negligible, negligible_note
from rudel.report.rounds_file import by_number

if TYPE_CHECKING:
    from rich.text import Text


MOST_LINES = 12
"""Hosts that have a line each; of more, only those that do not train."""

_WINDOW = 3.0
"""Seconds over which speeds are averaged; what is older counts less and less."""

_KNOWN = 20.0
"""Seconds of training after which it is known what a host contributes."""

_SILENT = 3.0
"""Rounds without a word after which a host is shown as late."""

_STYLES = {
    "training": "green",
    "waiting": "yellow",
    "late": "yellow",
    "joining": "cyan",
    "lost": "red",
    "standby": "dim",
}
_NARROW = 77


@dataclass(eq=False)
class _Host:
    """A host as it was last heard of; times are seconds of training."""

    name: str
    heard: float
    state: str = "training"
    lost_at: float | None = None
    memory: int = 0
    steps: float = 0.0
    computed: float = 0.0
    cpu: float = 0.0
    seconds: float = 0.0
    moved: int = 0
    since: float = 0.0
    taken: int = 0
    noted: bool = False

    def answered(self, report: Any, now: float) -> None:
        since = max(now - self.heard, 1e-6)
        kept = math.exp(-since / _WINDOW)
        self.steps = self.steps * kept + report.steps
        self.taken += report.steps
        self.computed = self.computed * kept + max(0.0, report.seconds - report.waited)
        self.cpu = self.cpu * kept + report.cpu
        self.moved = report.sent + report.received
        self.seconds = self.seconds * kept + since
        self.heard, self.memory = now, report.memory
        if self.lost_at is None:
            self.state = "waiting" if 2 * report.waited > report.seconds else "training"

    def forget(self, now: float) -> None:
        self.steps = self.computed = self.cpu = self.seconds = 0.0
        self.taken, self.noted = 0, False
        self.heard = self.since = now

    @property
    def speed(self) -> float:
        return self.steps / self.seconds if self.seconds else 0.0

    @property
    def cores(self) -> float:
        return self.cpu / self.seconds if self.seconds else 0.0

    @property
    def computing(self) -> float:
        return min(1.0, self.computed / self.seconds) if self.seconds else 0.0


class HostLines:
    """Keeps the figures of all hosts, and writes them as lines.

    Args:
        clock: seconds, as of `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hosts: dict[str, _Host] = {}
        self._silent: set[str] = set()  # those that have not answered yet
        self._began = math.inf  # when the training began, by the clock
        self._count = self._bytes = 0
        self._unit = "round"
        self._last = 0.0
        self._window = (0.0, 0.0, 0.0)  # rounds, bytes and seconds lately

    def begin(self, names: Sequence[str], counted: str = "rounds") -> None:
        """Takes in the hosts that the first round begins on, and what is counted: rounds or arrivals."""
        self._unit = "arrivals" if counted == "arrivals" else "round"
        self._hosts |= {name: _Host(name, heard=0.0) for name in names if name not in self._hosts}
        self._silent |= set(names)

    def end(self) -> list[str]:
        """Says which hosts were there to the end without a single answer, as far as that was not said before."""
        silent = [host for name, host in sorted(self._hosts.items()) if name in self._silent and not host.noted]
        return [negligible_note(host.name, 0.0) for host in silent if self._count and host.lost_at is None]

    def round(self, closed: Any) -> list[str]:
        """Takes in a `RoundClosed`, and says of which hosts one should know that they contribute next to nothing."""
        now, moved = closed.seconds, closed.sent + closed.received
        self._began = min(self._began, self._clock() - now)
        since = max(now - self._last, 1e-6)
        kept, new = math.exp(-since / _WINDOW), (1, max(0, moved - self._bytes), since)
        self._window = tuple(kept * old + more for old, more in zip(self._window, new, strict=True))
        self._last, self._bytes = now, moved
        self._count += len(closed.arrivals) if self._unit == "arrivals" else 1
        for report in closed.replicas:
            host = self._hosts.get(report.name)
            if host is None:
                host = self._hosts[report.name] = _Host(report.name, heard=0.0)
            host.answered(report, now)
            self._silent.discard(report.name)
        return self._negligible_notes(now)

    def _negligible_notes(self, now: float) -> list[str]:
        there = [h for h in self._hosts.values() if h.lost_at is None and now - h.since > _KNOWN]
        speeds = [host.taken / (now - host.since) for host in there]
        found = [h for h, speed in zip(there, speeds, strict=True) if not h.noted and is_negligible(speed, speeds)]
        for host in found:
            host.noted = True
        steps = max(1, sum(host.taken for host in there))
        return [negligible_note(host.name, host.taken / steps) for host in found]

    def change(self, changed: Any) -> str:
        """Takes in a `HostChanged`, and says in a sentence what happened."""
        now = changed.seconds
        self._began = min(self._began, self._clock() - now)
        host = self._hosts.get(changed.name)
        if host is None:
            host = self._hosts[changed.name] = _Host(changed.name, heard=now)
        away = None if host.lost_at is None else now - host.lost_at
        if changed.event == "lost":
            host.state, host.lost_at = "lost", now
        elif changed.event in AWAY:
            host.state = changed.event
            host.noted |= changed.event == "standby"
        else:
            host.state, host.lost_at = "training", None
            host.forget(now)
        return f"{called(changed.name)} {happening(changed.event, changed.reason, away)}; {self._who_is_left()}."

    def text(self, width: int) -> "Text":
        """All lines, for a terminal of so many columns; empty before the first round."""
        from rich.text import Text

        lines = Text(no_wrap=True, overflow="ellipsis")
        if not self._count:
            return lines
        now = self._clock() - self._began
        hosts = sorted(self._hosts.values(), key=lambda host: by_number(host.name))
        shown = hosts if len(hosts) <= MOST_LINES else [h for h in hosts if self._state(h, now) != "training"]
        shown = shown[:MOST_LINES]
        letters = max([len(host.name) for host in shown], default=0)
        letters = min(letters, max(8, width - _NARROW))
        if shown:
            head = "steps/s  waiting    CPU    memory   network  heard of"
            lines.append(f"{'':<{letters}}  {'':<8}  {head}\n", "dim")
        for host in shown:
            self._append(lines, host, letters, now)
        if len(hosts) > MOST_LINES:
            lines.append(self._summary(hosts, now) + "\n")
        lines.append(self._together(hosts))
        return lines

    def _append(self, lines: "Text", host: _Host, letters: int, now: float) -> None:
        state, ago = self._state(host, now), max(0.0, now - host.heard)
        name = host.name if len(host.name) <= letters else "…" + host.name[1 - letters :]
        lines.append(f"{name:<{letters}}  ")
        lines.append(f"{state:<8}", _STYLES[state])
        if state in AWAY:
            figures = f"  {'–':>7}  {'–':>7}  {'–':>5}"
        else:
            figures = f"  {host.speed:>7,.0f}  {percent(1 - host.computing, 0):>7}  {percent(host.cores, 0):>5}"
        lines.append(f"{figures}  {size(host.memory or None):>8}  {size(host.moved):>8}  {_ago(ago)}\n")

    def _state(self, host: _Host, now: float) -> str:
        rounds, _, seconds = self._window
        if host.state == "training" and now - host.heard > max(1.0, _SILENT * seconds / max(rounds, 1e-9)):
            return "late"
        return host.state

    def _summary(self, hosts: list[_Host], now: float) -> str:
        states = [self._state(host, now) for host in hosts]
        counts = [f"{states.count(state)} {state}" for state in _STYLES if state in states]
        speeds = [host.speed for host, state in zip(hosts, states, strict=True) if state not in AWAY]
        between = f", {min(speeds):,.0f} to {max(speeds):,.0f} steps/s each" if speeds else ""
        return f"{plural(len(hosts), 'host')}: {', '.join(counts)}{between}"

    def _together(self, hosts: list[_Host]) -> str:
        there = [host for host in hosts if host.state not in AWAY and host.seconds]
        seconds = sum(host.seconds for host in there)
        computing = min(1.0, sum(host.computed for host in there) / seconds) if seconds else 0.0
        _, moved, window = self._window
        return (
            f"{self._unit} {self._count:,} · computing {percent(computing, 0)}, waiting {percent(1 - computing, 0)} · "
            f"network {size(self._bytes)}, {size(moved / max(window, 1e-9))}/s"
        )

    def _who_is_left(self) -> str:
        left = sum(host.state not in AWAY for host in self._hosts.values())
        if not left:
            return "no host is left, waiting for one to come back"
        return f"{plural(left, 'host')} {'trains' if left == 1 else 'train'}"


def _ago(seconds: float) -> str:
    if seconds < 1:
        return "now"
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"
