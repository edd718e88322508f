"""Counts and times for Prometheus, by its own Python client.

Labels are names of models that are served, so their number is bounded; those of a version that is no longer served are
dropped with it.
"""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from rudel.serve.batcher import Batcher

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_VERSION = ("model", "version")
_ROUTE = (*_VERSION, "route")


class Metrics:
    """All that a server counts."""

    def __init__(self) -> None:
        disable_created_metrics()  # a second series for each, which nothing here needs
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        about: dict[str, Any] = {"registry": self._registry}
        requests = Counter(
            "rudel_requests", "Requests by model, version, route and status.", (*_ROUTE, "status"), **about
        )
        seconds = Histogram(
            "rudel_request_seconds", "Seconds from a request to its answer.", _ROUTE, buckets=_SECONDS, **about
        )
        self._families = requests, seconds
        self._rows = Histogram(
            "rudel_batch_examples", "Examples that were computed together.", _VERSION, buckets=_ROWS, **about
        )
        self._batch_seconds = Histogram(
            "rudel_batch_seconds", "Seconds that a batch was computed for.", _VERSION, buckets=_SECONDS, **about
        )
        self._waiting = Gauge("rudel_requests_waiting", "Requests that wait for a model.", _VERSION, **about)
        self._load_failed = Gauge(
            "rudel_load_failed",
            "1 where a version of the model that is there now could not be loaded, else 0.",
            ("model",),
            **about,
        )
        self.others = RequestMetrics(requests, seconds, ("", ""))
        """Those that concern no model."""

    def version(self, model: str, number: int) -> "VersionMetrics":
        """The metrics of a version that is served from now on."""
        return VersionMetrics(self._families, self._rows, self._batch_seconds, self._waiting, (model, str(number)))

    def load_failed(self, model: str, failed: bool) -> None:
        """Shows whether a version of a model that is there now could not be loaded."""
        self._load_failed.labels(model).set(failed)

    def text(self, accept: str) -> tuple[bytes, str]:
        """All of it as a document, and its content type.

        Args:
            accept: the formats that the client can read, as in HTTP's header.
        """
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # of a version that is not a number
            encode, content_type = choose_encoder("")
        return encode(self._registry), content_type


class RequestMetrics:
    """The requests about one version. Those that end after `drop` are not counted: they would bring its labels back.

    Args:
        requests: counts by model, version, route and status.
        seconds: times by model, version and route.
        labels: model and version.
    """

    def __init__(self, requests: Counter, seconds: Histogram, labels: tuple[str, str]) -> None:
        self._requests = requests
        self._seconds = seconds
        self._labels = labels
        self._dropped = False
        self._known: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def count(self, route: str, status: int, seconds: float) -> None:
        """Counts a request that was answered; called in the event loop.

        Args:
            route: the kind of request: `predict`, `infer`, `metadata`, ...
            status: of HTTP.
            seconds: from its beginning to its answer.
        """
        if self._dropped:
            return
        known = self._known.get((route, status))
        if known is None:
            counter = self._requests.labels(*self._labels, route, str(status))
            known = self._known[route, status] = counter, self._seconds.labels(*self._labels, route)
        known[0].inc()
        known[1].observe(seconds)

    def drop(self) -> None:
        """Drop their series: the version is no longer served."""
        self._dropped = True
        for route, status in self._known:
            self._requests.remove(*self._labels, route, str(status))
        for route in {route for route, _ in self._known}:
            self._seconds.remove(*self._labels, route)


class VersionMetrics:
    """All that is counted of one version; see `Metrics.version`."""

    def __init__(
        self,
        families: tuple[Counter, Histogram],
        rows: Histogram,
        batch_seconds: Histogram,
        waiting: Gauge,
        labels: tuple[str, str],
    ) -> None:
        self.requests = RequestMetrics(*families, labels)
        self._of_version = rows, batch_seconds, waiting
        self._labels = labels
        self._rows, self._batch_seconds = rows.labels(*labels), batch_seconds.labels(*labels)
        self._waiting = waiting.labels(*labels)

    def batch(self, rows: int, seconds: float) -> None:
        """Counts a batch that the model has computed, perhaps in a thread of its own."""
        self._rows.observe(rows)
        self._batch_seconds.observe(seconds)

    def watch(self, batcher: Batcher) -> None:
        """Shows how many requests wait for the version."""
        self._waiting.set_function(lambda: batcher.waiting)

    def drop(self) -> None:
        """Drop all its series: the version is no longer served."""
        self.requests.drop()
        for family in self._of_version:
            family.remove(*self._labels)
