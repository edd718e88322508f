"""Counts and times, in the text format that Prometheus reads (version 0.0.4)."""

import bisect
import itertools
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

Labels = tuple[str, ...]


class Histogram:
    """How often values fell between bounds, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Counts a value."""
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str) -> Iterable[str]:
        """Its samples.

        >>> histogram = Histogram((1,))
        >>> histogram.observe(2)
        >>> list(histogram.lines("rows", ""))
        ['rows_bucket{le="1"} 0', 'rows_bucket{le="+Inf"} 1', 'rows_sum{} 2.0', 'rows_count{} 1']
        """
        between = "," if labels else ""
        totals = list(itertools.accumulate(self._counts))
        for bound, total in zip((*map(str, self._bounds), "+Inf"), totals, strict=True):
            yield f'{name}_bucket{{{labels}{between}le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self._sum}"
        yield f"{name}_count{{{labels}}} {totals[-1]}"


class Metrics:
    """All that a server counts. Labels are names of models that are served, so there is no end of memory to fear."""

    def __init__(self) -> None:
        self._began = time.time()
        self._requests: dict[Labels, int] = defaultdict(int)
        self._seconds: dict[Labels, Histogram] = {}
        self._batch_rows: dict[Labels, Histogram] = {}
        self._batch_seconds: dict[Labels, Histogram] = {}

    def request(self, model: str, version: str, route: str, status: int, seconds: float) -> None:
        """Counts a request that was answered.

        Args:
            model: its name, or nothing where the request was about none that exists.
            version: of the model.
            route: what was asked for: `predict`, `infer`, `metadata`, ...
            status: of HTTP.
            seconds: from its beginning to its answer.
        """
        self._requests[(model, version, route, str(status))] += 1
        labels = (model, version, route)
        if labels not in self._seconds:
            self._seconds[labels] = Histogram(_SECONDS)
        self._seconds[labels].observe(seconds)

    def batch(self, model: str, version: str, rows: int, seconds: float) -> None:
        """Counts a batch that a model has computed."""
        labels = (model, version)
        if labels not in self._batch_rows:
            self._batch_rows[labels] = Histogram(_ROWS)
            self._batch_seconds[labels] = Histogram(_SECONDS)
        self._batch_rows[labels].observe(rows)
        self._batch_seconds[labels].observe(seconds)

    def text(self, waiting: Mapping[Labels, int]) -> str:
        """All of it as a document.

        Args:
            waiting: requests that wait, by model and version.
        """
        names, few = ("model", "version", "route"), ("model", "version")
        lines = [
            *_head("rudel_requests_total", "counter", "Requests by model, version, route and status."),
            *(
                f"rudel_requests_total{{{_labels((*names, 'status'), key)}}} {count}"
                for key, count in sorted(self._requests.items())
            ),
            *_family("rudel_request_seconds", "Seconds from a request to its answer.", names, self._seconds),
            *_family("rudel_batch_examples", "Examples that were computed together.", few, self._batch_rows),
            *_family("rudel_batch_seconds", "Seconds that a batch was computed for.", few, self._batch_seconds),
            *_head("rudel_requests_waiting", "gauge", "Requests that wait for a model."),
            *(f"rudel_requests_waiting{{{_labels(few, key)}}} {count}" for key, count in sorted(waiting.items())),
            *_head("process_start_time_seconds", "gauge", "When the server was started, in seconds since 1970."),
            f"process_start_time_seconds {self._began:.3f}",
            *_head("process_resident_memory_bytes", "gauge", "Memory that the server takes."),
            f"process_resident_memory_bytes {resident_bytes()}",
        ]
        return "\n".join(lines) + "\n"


def resident_bytes() -> int:
    """Memory that this process takes now; where the system does not tell, the most that it has taken."""
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  # no file on a disk
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _family(name: str, told: str, names: Labels, histograms: Mapping[Labels, Histogram]) -> Iterable[str]:
    yield from _head(name, "histogram", told)
    for key, histogram in sorted(histograms.items()):
        yield from histogram.lines(name, _labels(names, key))


def _head(name: str, kind: str, told: str) -> list[str]:
    return [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]


def _labels(names: Labels, values: Labels) -> str:
    """Labels as Prometheus writes them.

    >>> _labels(("model",), ('a"b',))
    'model="a\\\\"b"'
    """
    escaped = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for value in values)
    return ",".join(f'{name}="{value}"' for name, value in zip(names, escaped, strict=True))
