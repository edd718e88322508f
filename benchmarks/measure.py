"""What benchmarks share: contestants in processes of their own, rounds of them, and ratios within a round.

Contestants take turns (A B C, A B C, ...), so that a machine that is busy for a while is busy for all of them. A ratio
is computed within each round, between neighbours in time, and only then are the ratios summed up.
"""

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ALONE = Path(__file__).with_name("alone.py")

Numbers = dict[str, Any]
"""What one process measured, by name."""

Rounds = Sequence[Mapping[str, Numbers]]
"""For every round, the numbers by contestant."""


class BenchmarkError(Exception):
    """A benchmark that cannot go on; the message says why in one sentence."""


@dataclass(frozen=True)
class Contestant:
    """A program that does the job and prints one JSON document.

    Args:
        name: what tables call it.
        script: the file to run; it gets the job as JSON in its only argument.
        packages: modules that have to be importable.
        install: what to tell pip where they are not.
        hidden: modules that shall look as if they were not installed (see `alone`).
        settings: to be added to the job.
        environment: variables to set for it.
    """

    name: str
    script: Path
    packages: Sequence[str] = ()
    install: str = ""
    hidden: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def absence(self) -> str:
        """A sentence for a contestant that cannot take part; empty for one that can."""
        missing = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if not missing:
            return ""
        return (
            f"{self.name} is left out, because {' and '.join(missing)} cannot be imported: pip install {self.install}"
        )


@dataclass(frozen=True)
class Spread:
    """The median of some numbers, the least and the largest."""

    median: float
    least: float
    largest: float


def spread(values: Sequence[float]) -> Spread:
    """Sums numbers up.

    >>> spread([3.0, 1.0, 2.0])
    Spread(median=2.0, least=1.0, largest=3.0)
    """
    return Spread(statistics.median(values), min(values), max(values))


def values(rounds: Rounds, contestant: str, number: str) -> list[float]:
    """A number of a contestant over the rounds in which it was measured."""
    found = (numbers.get(contestant, {}).get(number) for numbers in rounds)
    return [value for value in found if value is not None]


def paired_ratios(rounds: Rounds, number: str, above: str, below: str) -> list[float]:
    """A number of one contestant over the same number of another, round by round.

    >>> paired_ratios([{"a": {"s": 6.0}, "b": {"s": 2.0}}, {"a": {"s": 8.0}, "b": {"s": 4.0}}], "s", "a", "b")
    [3.0, 2.0]
    """
    pairs = [(numbers.get(above, {}).get(number), numbers.get(below, {}).get(number)) for numbers in rounds]
    return [a / b for a, b in pairs if a is not None and b]


def run(contestant: Contestant, job: Mapping[str, Any], environment: Mapping[str, str]) -> Numbers:
    """Runs a contestant to its end and returns what it measured, with `job_seconds`, the life of its process.

    Raises:
        BenchmarkError: it failed, or printed no document.
    """
    arguments = [str(contestant.script), json.dumps({**job, **contestant.settings}), *contestant.hidden]
    began = time.perf_counter()
    process = subprocess.run(
        [sys.executable, str(_ALONE), *arguments],
        env={**os.environ, **contestant.environment, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    try:
        numbers = json.loads(process.stdout.strip().splitlines()[-1]) if process.returncode == 0 else None
    except (IndexError, ValueError):
        numbers = None
    if numbers is None:
        last = process.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise BenchmarkError(f"{contestant.name} ended with code {process.returncode} and no result ({last[0]}).")
    return {"job_seconds": seconds} | numbers


def pin(cores: Sequence[int]) -> None:
    """Keeps this process, and all that it starts, on these cores.

    Raises:
        BenchmarkError: the system cannot do that, or has no such core.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise BenchmarkError(f"{platform.system()} cannot keep processes on chosen cores: leave out --cores.")
    try:
        os.sched_setaffinity(0, cores)
    except (OSError, ValueError) as error:
        raise BenchmarkError(f"The cores {list(cores)} cannot be used ({error}).") from error


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """What the numbers were measured on; nothing in it tells whose machine it is."""
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return named[0] if named else platform.processor() or platform.machine()
