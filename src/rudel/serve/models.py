"""The models and versions that are served: looked up by every request, and changed only between two of them."""

import asyncio
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rudel.serve.batcher import Batcher
from rudel.serve.metrics import Metrics, VersionMetrics
from rudel.serve.refusal import Refusal, missing
from rudel.serve.runtimes.runtime import Loaded
from rudel.serve.server_limits import Limits


@dataclass(frozen=True, eq=False)
class Version:
    """A version that is served.

    Args:
        model: its name.
        number: the version.
        loaded: what computes.
        batcher: brings requests to it.
        metrics: what is counted of it.
    """

    model: str
    number: int
    loaded: Loaded
    batcher: Batcher
    metrics: VersionMetrics


class Models:
    """The served models.

    Args:
        limits: for their batchers.
        metrics: what is counted.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._versions: dict[str, dict[int, Version]] = {}
        self._unserved: dict[str, str] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._batchers: weakref.WeakSet[Batcher] = weakref.WeakSet()  # also of versions that only requests still have

    @property
    def names(self) -> list[str]:
        """Of all models, also of those that cannot be served."""
        return sorted(self._versions.keys() | self._unserved.keys())

    @property
    def unserved(self) -> dict[str, str]:
        """Why models cannot be served, by their names."""
        return dict(sorted(self._unserved.items()))

    @property
    def all(self) -> list[Version]:
        """All versions of all models that are served."""
        return [version for name in sorted(self._versions) for version in self._versions[name].values()]

    def versions(self, name: str) -> list[int]:
        """The numbers of the versions of a model.

        Raises:
            Refusal: there is no such model, or it could not be loaded.
        """
        if name in self._unserved:
            raise Refusal(503, f"The model `{name}` cannot be served: {self._unserved[name]}")
        if name not in self._versions:
            raise missing(f"There is no model `{name[:100]}`: there are {', '.join(self.names)}.")
        return sorted(self._versions[name])

    def find(self, name: str, number: str | None = None) -> Version:
        """A version of a model, by default the newest.

        Raises:
            Refusal: there is none.
        """
        versions = self._versions.get(name)
        if versions is None:
            self.versions(name)
            raise AssertionError
        if number is None:
            return versions[max(versions)]
        found = versions.get(int(number)) if number.isascii() and number.isdigit() and len(number) < 19 else None
        if found is None:
            numbers = ", ".join(map(str, sorted(versions)))
            raise missing(f"The model `{name}` has no version `{number[:100]}`: there are {numbers}.")
        return found

    def cannot_load(self, name: str, reason: str) -> None:
        """Notes that a version of a model could not be loaded.

        Where no other is served, requests are answered with the reason, a sentence, until one is put.
        """
        self.note_failed(name, True)
        if not self._versions.get(name):
            self._unserved[name] = reason

    def note_failed(self, name: str, failed: bool) -> None:
        """Shows whether a version of a model that is there now could not be loaded."""
        self._metrics.load_failed(name, failed)

    def put(self, name: str, number: int, loaded: Loaded, seconds: float, *, alone: bool = False) -> None:
        """Serves a version from now on, in the place of one with the same number, or of all others (`alone`).

        Args:
            name: of the model.
            number: of the version.
            loaded: what computes it.
            seconds: that its largest batch takes.
            alone: whether to remove all other versions.
        """
        self._unserved.pop(name, None)
        old = self._versions.get(name, {})
        metrics = old[number].metrics if number in old else self._metrics.version(name, number)
        batcher = Batcher(loaded.compute, self._limits, seconds < self._limits.quick, metrics.batch)
        metrics.watch(batcher)
        self._batchers.add(batcher)
        left = {number} & old.keys() if not alone else set(old)
        self._versions[name] = {n: v for n, v in old.items() if n not in left} | {
            number: Version(name, number, loaded, batcher, metrics)
        }
        self._let_go([old[n] for n in left])

    def remove(self, name: str, number: int) -> None:
        """Serves a version no more; what it has begun is finished."""
        self._let_go([self._versions[name].pop(number)])

    def expire(self, now: float) -> None:
        """Gives up the requests whose time is over."""
        for batcher in self._batchers:
            batcher.expire(now)

    def _let_go(self, versions: Sequence[Version]) -> None:
        for version in versions:
            task = asyncio.get_running_loop().create_task(self._leave(version))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _leave(self, version: Version) -> None:
        await version.batcher.finish()
        if version.number not in self._versions[version.model]:
            version.metrics.drop()


def seconds_of(loaded: Loaded, rows: int) -> float:
    """Duration of a batch of zeros in seconds, once the model is warm; infinity where that depends on the request."""
    inputs = loaded.signature.inputs
    if loaded.signature.is_open or any(tensor.dtype == "bytes" for tensor in inputs):
        return float("inf")
    columns = [np.zeros((rows, *tensor.shape), tensor.dtype) for tensor in inputs]
    taken = []
    for _ in range(3):
        began = time.perf_counter()
        try:
            loaded.compute(columns)
        except Refusal:  # it takes no zeros
            return float("inf")
        taken.append(time.perf_counter() - began)
        if taken[-1] > 1:
            break
    return min(taken)
