"""A subset of the hosts of a cluster, for a training that does not need the others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rudel.errors import ClusterError

if TYPE_CHECKING:
    from rudel.cluster.fleet import Fleet
    from rudel.cluster.running_cluster import RunningCluster


class ClusterSubset:
    """A running cluster as a strategy sees it, with some of its workers only.

    Args:
        cluster: a running `rudel.Cluster`, or a client taken over by `rudel.cluster.ssh_cluster.ClientCluster`.
        names: of the workers that take part.
    """

    def __init__(self, cluster: "RunningCluster", names: Sequence[str]) -> None:
        self._cluster, self._names = cluster, frozenset(names)

    @property
    def background(self) -> Any:
        """The loop in which the connections live."""
        return self._cluster.background

    @property
    def client(self) -> Any:
        """The Dask client of the whole cluster."""
        return self._cluster.client

    @property
    def count(self) -> int:
        """Number of hosts that take part and are there."""
        return len(self.background.start(self.fleet.members()).result())

    @property
    def min_hosts(self) -> int | None:
        """The number of hosts that must be there to begin."""
        least = getattr(self._cluster, "min_hosts", None)
        return None if least is None else min(least, len(self._names))

    @property
    def absent(self) -> dict[str, str]:
        """Why hosts of the whole cluster do not take part, by their names."""
        return getattr(self._cluster, "absent", {})

    @property
    def fleet(self) -> Any:
        """The workers that take part."""
        return _Some(self._cluster.fleet, self._names)


class _Some:
    """A fleet of which only some members are seen."""

    def __init__(self, fleet: "Fleet", names: frozenset[str]) -> None:
        self._fleet, self._names = fleet, names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    async def members(self) -> dict[str, str]:
        """Addresses of the workers that are there now, by name.

        Raises:
            ClusterError: the scheduler does not answer, or none of them is there.
        """
        there = await self._fleet.members()
        found = {name: address for name, address in there.items() if name in self._names}
        if not found and there:
            raise ClusterError(
                f"None of the hosts that this training is planned for is available: {', '.join(sorted(self._names))}."
            )
        return found
