"""The runs that are watched, for everyone who looks at the page."""

import hashlib
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rudel.report.between_runs import names_of
from rudel.watch.watched import Watched

EVERY_SECONDS = 0.5
"""Time between two looks, however many pages are open."""

_SHARE = 0.05
"""The most of its time that a core looks; a run with very many epochs is looked at less often."""


@dataclass(frozen=True)
class Sight:
    """The state of all runs at one moment.

    Args:
        text: JSON with a document for each run, that of `Watched.document` and its `name`.
        tag: differs where the text does.
    """

    text: str
    tag: str


class Board:
    """Looks at run directories when asked to, and no oftener than twice a second, so that trainings do not feel it.

    Args:
        paths: of the run directories.

    Raises:
        RunError: a path cannot be that of a run.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self._runs = [Watched(path) for path in paths]
        self._names = names_of(self.paths)
        self._lock = threading.Lock()
        self._seen: Sight | None = None
        self._next = 0.0

    def current(self) -> Sight:
        """The runs as they are now, or were a moment ago."""
        with self._lock:
            began = time.monotonic()
            if self._seen is None or began >= self._next:
                runs = [{"name": n} | run.document() for n, run in zip(self._names, self._runs, strict=True)]
                text = json.dumps({"runs": runs}, separators=(",", ":"))
                self._seen = Sight(text, hashlib.sha256(text.encode()).hexdigest()[:16])
                ended = time.monotonic()
                self._next = max(began + 0.9 * EVERY_SECONDS, ended + (ended - began) / _SHARE)
            return self._seen
