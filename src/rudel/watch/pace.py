"""How far a training is, how fast it goes, and when it will be done."""

import itertools
import json
import math
import re
import zipfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MOST_SPANS = 200
_MOST_NEWS = 12
_CHECKPOINT = re.compile(r"step-(\d+)\.npz")


@dataclass(frozen=True, order=True)
class Mark:
    """So many seconds of training took so many steps; both since the beginning of the run."""

    seconds: float
    step: int


@dataclass(frozen=True)
class Saved:
    """The newest checkpoint.

    Args:
        step: steps done.
        written: seconds since 1970.
        mark: the same with the seconds of training; None if the file cannot be read just now.
    """

    step: int
    written: float
    mark: Mark | None


def total_steps(config: Mapping[str, Any]) -> int | None:
    """How many steps a run is to take, by its `config.json`.

    >>> total_steps({"epochs": 3, "steps": None, "steps_per_epoch": 32})
    96
    """
    steps = config.get("steps")
    if isinstance(steps, int):
        return steps
    epoch = steps_per_epoch(config)
    return epoch * int(config.get("epochs") or 1) if epoch else None


def steps_per_epoch(config: Mapping[str, Any]) -> int | None:
    """Steps in one pass over the training data; of the number of examples where an older version wrote the file."""
    if isinstance(steps := config.get("steps_per_epoch"), int):
        return steps
    examples, batch = (config.get("data") or {}).get("train"), config.get("batch_size")
    return -(-examples // batch) or None if isinstance(examples, int) and isinstance(batch, int) and batch else None


def spans(marks: Sequence[Mark], most: int = _MOST_SPANS) -> list[tuple[float, float, float]]:
    """Steps a second between marks, as (first second, last second, speed); of many marks, only every so many count.

    >>> spans([Mark(0.0, 0), Mark(2.0, 100), Mark(4.0, 300)])
    [(0.0, 2.0, 50.0), (2.0, 4.0, 100.0)]
    """
    every = math.ceil(max(len(marks) - 1, 1) / most)
    kept = [*marks[:-1:every], *marks[-1:]]
    pairs = [(a, b) for a, b in itertools.pairwise(kept) if b.seconds > a.seconds and b.step >= a.step]
    return [(a.seconds, b.seconds, (b.step - a.step) / (b.seconds - a.seconds)) for a, b in pairs]


class Pace:
    """The speed by the clock on the wall, over the latest news; pauses for evaluation and checkpoints are in it."""

    def __init__(self) -> None:
        self._news: deque[tuple[float, int]] = deque(maxlen=_MOST_NEWS)

    def heard(self, when: float, step: int) -> None:
        """At this moment, so many steps were done."""
        if self._news and step < self._news[-1][1]:
            self._news.clear()
        if not self._news or (step > self._news[-1][1] and when > self._news[-1][0]):
            self._news.append((when, step))

    def forget(self) -> None:
        """Forgets all events so far."""
        self._news.clear()

    @property
    def steps_per_second(self) -> float | None:
        """None before there are two news."""
        if len(self._news) < 2:
            return None
        (first, before), (last, now) = self._news[0], self._news[-1]
        return (now - before) / (last - first)

    @property
    def gap(self) -> float:
        """The longest time between two of the latest news, in seconds."""
        moments = [when for when, _ in self._news]
        return max((b - a for a, b in itertools.pairwise(moments)), default=0.0)


def newest_checkpoint(run: Path, known: Saved | None) -> Saved | None:
    """The newest checkpoint in a run directory; `known` itself if that is still the newest."""
    try:
        found = [(int(name[1]), path) for path in (run / "checkpoints").iterdir() if (name := _named(path))]
        if not found:
            return None
        step, path = max(found)
        written = path.stat().st_mtime
    except OSError:
        return None
    if known and (known.step, known.written) == (step, written):
        return known
    return Saved(step, written, _mark_of(path, step))


def _named(path: Path) -> re.Match[str] | None:
    return _CHECKPOINT.fullmatch(path.name)


def _mark_of(path: Path, step: int) -> Mark | None:
    """Reads nothing of the checkpoint but its document; see `rudel.runs.checkpoint`."""
    try:
        with zipfile.ZipFile(path) as stored:
            content = stored.read("document.npy")
        document = json.loads(content[content.index(b"{", content.index(b"\n")) :])
        return Mark(float(document["document"]["clock"]["train"]), step)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
        return None
