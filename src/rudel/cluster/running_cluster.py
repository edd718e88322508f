"""`RunningCluster`: the interface of `rudel.Cluster`, of a Dask client's cluster, and of a subset of either."""

from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from distributed import Client

    from rudel.cluster.fleet import Fleet
    from rudel.cluster.hosts import Host

_T = TypeVar("_T")

Hosts: TypeAlias = "str | Path | Sequence[str | Host]"
"""Hosts as `rudel.Cluster` takes them."""


class Background(Protocol):
    """A loop in a thread of its own, in which the connections live."""

    def start(self, coroutine: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Runs a coroutine in the loop."""
        ...


class RunningCluster(Protocol):
    """See the module."""

    @property
    def background(self) -> Background:
        """Runs the coroutines of `fleet`."""
        ...

    @property
    def client(self) -> "Client":
        """The Dask client."""
        ...

    @property
    def count(self) -> int:
        """Number of hosts that are there."""
        ...

    @property
    def min_hosts(self) -> int | None:
        """The number of hosts that must be there to begin; None for all, or for those that are."""
        ...

    @property
    def fleet(self) -> "Fleet":
        """The workers."""
        ...
