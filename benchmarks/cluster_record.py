"""What the cluster benchmarks keep: one JSON document, written after every measurement, and gone on with."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import measure
from measure import BenchmarkError, Numbers
from rich.console import Console

from rudel.errors import RudelError

_QUIET = 0.3
_QUIET_SECONDS, _LONGEST_WAIT = 5, 30
_LOOK_SECONDS, _STALL_SECONDS, _ATTEMPTS = 0.1, 1.0, 5


def begun(path: Path | None, benchmark: str, job: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The document so far, or a new one: a round for every seed, and in it the numbers by name.

    Raises:
        BenchmarkError: what is there is of another job.
    """
    fresh = {"benchmark": benchmark, "machine": measure.machine(), "job": dict(job), "seeds": list(seeds)}
    fresh |= {"rounds": [{} for _ in seeds], "failures": [], "claims": []}
    if path is None or not path.exists():
        return fresh
    found = json.loads(path.read_text())
    if (found.get("benchmark"), found.get("job")) != (benchmark, dict(job)):
        raise BenchmarkError(f"{path} is of another job: give another file to --json, or the options that it has.")
    more = [seed for seed in seeds if seed not in found["seeds"]]
    rounds = [*found["rounds"], *({} for _ in more)]
    return found | {"seeds": [*found["seeds"], *more], "rounds": rounds, "failures": []}


def keep(document: Mapping[str, Any], path: Path | None) -> None:
    """Writes the document, whole or not at all."""
    if path is not None:
        beside = path.with_name(f".{path.name}.tmp")
        beside.write_text(json.dumps(document, indent=1) + "\n")
        beside.replace(path)


def measured_names(document: Mapping[str, Any]) -> list[str]:
    """Everything that was measured, in the order of the first round that has it."""
    return list(dict.fromkeys(name for results in document["rounds"] for name in results))


def say(text: str) -> None:
    """Tells how far it is."""
    print(text, file=sys.stderr, flush=True)


def busy_cores() -> float:
    """How many cores of this computer others use, seen for a second; 0 where that cannot be known.

    What ran before may go on for some seconds, as a virtual machine does that gives freed memory back: it is waited for
    until it has been quiet for a while, but not for ever.
    """
    began, quiet, busy = time.monotonic(), 0, 0.0
    while quiet < _QUIET_SECONDS and time.monotonic() - began < _LONGEST_WAIT:
        before = _ticks()
        time.sleep(1.0)
        spent, idle = (later - earlier for later, earlier in zip(_ticks(), before, strict=True))
        busy = (os.cpu_count() or 1) * (1 - idle / spent) if spent else 0.0
        quiet = quiet + 1 if busy <= _QUIET else 0
    if busy > _QUIET:
        say(f"  {busy:.1f} of {os.cpu_count()} cores are busy already: what is measured now will mean little")
    return busy


def _ticks() -> tuple[int, int]:
    """Time of all cores since the start of the system, and the part of it in which they had nothing to do."""
    path = Path("/proc/stat")
    if not path.is_file():
        return 0, 0
    spent = [int(word) for word in path.read_text().split("\n", 1)[0].split()[1:]]
    return sum(spent), spent[3] + spent[4]


@contextlib.contextmanager
def stalls_watched() -> Iterator[list[float]]:
    """Yields the seconds, one by one, for which this computer stood still, filled in while the block lasts.

    A virtual machine that is paused, or one that is asked for far too much, does nothing for a while though the clock
    goes on: what was measured then is worth nothing.
    """
    stalls: list[float] = []
    over = threading.Event()

    def watch() -> None:
        last = time.monotonic()
        while not over.wait(_LOOK_SECONDS):
            now = time.monotonic()
            if now - last - _LOOK_SECONDS > _STALL_SECONDS:
                stalls.append(now - last - _LOOK_SECONDS)
            last = now

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield stalls
    finally:
        over.set()
        watcher.join()


def undisturbed(measured: Callable[[], Numbers]) -> Numbers:
    """Takes a measurement, and takes it again, a few times, while the computer stands still during it.

    Returns:
        What was measured last, with `stalled_seconds`.

    Raises:
        BenchmarkError, RudelError: of the last one.
    """
    for left in reversed(range(_ATTEMPTS)):
        with stalls_watched() as stalls:
            try:
                numbers = measured()
            except (BenchmarkError, RudelError):
                if not (stalls and left):
                    raise
                numbers = {}
        if not (stalls and left):
            return numbers | {"stalled_seconds": sum(stalls)}
        say(f"  this computer stood still for {sum(stalls):.1f} s: measured again")
    raise AssertionError("unreachable")


def wide_console() -> Console:
    """Standard output, wide enough for the tables where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 150)


def end_on_sigterm() -> None:
    """Lets SIGTERM end this program as Ctrl-C does, with all that it has started."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
