"""Images examined by the workers of a cluster, while this computer reads them and writes the records.

The bytes of a few files at a time travel to a worker; back comes what it found, and of those that it encoded again the
bytes. A call of a worker that is lost is made again by another one.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudel.cluster.calls import Calls, clients_of
from rudel.data.images.examined_image import ExaminedImage, Refused, examine_all

if TYPE_CHECKING:
    import distributed

    from rudel.cluster.ssh_cluster import Cluster

_TIMEOUT_SECONDS = 120.0


class ImageWorkers:
    """Examines images on the workers of a Dask client; what `rudel.data.images.convert.Spread` wants.

    Args:
        client: a synchronous `distributed.Client`.
        timeout: seconds to wait for a worker when there is none.
    """

    def __init__(self, client: "distributed.Client", timeout: float = _TIMEOUT_SECONDS) -> None:
        self._calls = Calls(client, "examine images", "continues after the finished shards", timeout)

    @property
    def threads(self) -> int:
        """The number of calls to make at the same time."""
        return self._calls.threads

    def __call__(self, contents: list[bytes], max_side: int | None) -> Sequence[ExaminedImage | Refused]:
        """As `examine_all`, elsewhere.

        Raises:
            ClusterError: all workers are lost and none comes back, or they have no Rudel or no Pillow.
        """
        return self._calls(examine_all, contents, max_side)


@contextlib.contextmanager
def image_workers(
    on: "str | Sequence[Any] | Cluster | None" = None,
    scheduler: str | None = None,
    ssh_config: str | Path | None = None,
    min_hosts: int | None = None,
) -> Iterator[ImageWorkers | None]:
    """Yields workers on hosts, or those of a Dask scheduler, for as long as the block lasts; None if neither is given.

    Raises:
        RudelError: as `clients_of` raises.
    """
    with clients_of(on, scheduler, ssh_config, min_hosts) as client:
        yield None if client is None else ImageWorkers(client)
