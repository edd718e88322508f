"""Pictures examined by the workers of a cluster, while this computer reads them and writes the records.

The bytes of a few files at a time travel to a worker; back comes what it found, and of those that it made anew the
bytes. A call of a worker that is lost is made again by another one.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from rudel.cluster.engine import Borrowed, Cluster
from rudel.data.images.picture import Picture, Refused, examine_all
from rudel.errors import ClusterError, OptionError

_GLANCE_SECONDS = 2.0
_PATIENCE_SECONDS = 120.0
_CALLS_PER_THREAD = 2
"""One is worked on while the next is on its way."""


class PictureWorkers:
    """Examines pictures on the workers of a Dask client; what `rudel.data.images.convert.Spread` wants.

    Args:
        client: a synchronous `distributed.Client`.
        patience: seconds to wait for a worker when there is none.
    """

    def __init__(self, client: Any, patience: float = _PATIENCE_SECONDS) -> None:
        self._client, self._patience = client, patience

    @property
    def threads(self) -> int:
        """How many calls are well made at the same time."""
        return max(1, _CALLS_PER_THREAD * sum(self._client.nthreads().values()))

    def __call__(self, contents: list[bytes], max_side: int | None) -> Sequence[Picture | Refused]:
        """As `examine_all`, elsewhere.

        Raises:
            ClusterError: all workers are lost and none comes back, or they have no Rudel or no Pillow.
        """
        from distributed import KilledWorker

        future = self._client.submit(examine_all, contents, max_side, pure=False)
        seen = time.monotonic()
        while True:
            try:
                return future.result(timeout=_GLANCE_SECONDS)
            except TimeoutError:
                if self._is_somebody_there():
                    seen = time.monotonic()
                elif time.monotonic() - seen > self._patience:
                    future.cancel()
                    raise ClusterError(
                        f"All workers are lost, and none came back in {self._patience:.0f} s: see to the hosts; the "
                        "same command goes on after the finished shards."
                    ) from None
            except (ImportError, AttributeError) as error:
                raise ClusterError(
                    f"A worker lacks what it needs ({error}): install Rudel there, with Pillow and in the version of "
                    "here, as `rudel hosts setup` without --minimal does."
                ) from error
            except (CancelledError, KilledWorker, OSError) as error:
                raise ClusterError(f"The workers cannot examine pictures ({error}).") from error

    def _is_somebody_there(self) -> bool:
        with contextlib.suppress(OSError, TimeoutError):
            return bool(self._client.nthreads())
        return False


@contextlib.contextmanager
def picture_workers(
    on: Any = None,
    scheduler: str | None = None,
    ssh_config: str | Path | None = None,
    min_hosts: int | None = None,
) -> Iterator[PictureWorkers | None]:
    """Yields workers on hosts, or those of a Dask scheduler, for as long as the block lasts; None if neither is given.

    Raises:
        OptionError: both are given.
        HostError: a host cannot be reached, or has no Rudel.
        ClusterError: the scheduler does not answer, or workers cannot be started.
    """
    if on is not None and scheduler is not None:
        raise OptionError("Hosts are given twice, with `--on` and with `--scheduler`: give one of them.")
    if on is None and scheduler is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        if on is not None:
            cluster: Any = stack.enter_context(Cluster(on, ssh_config=ssh_config, min_hosts=min_hosts))
        else:
            cluster = stack.enter_context(Borrowed(scheduler, min_hosts))
        import dask.config

        # pictures are large, and that is no mistake
        stack.enter_context(dask.config.set({"distributed.admin.large-graph-warning-threshold": "10GB"}))
        yield PictureWorkers(cluster.client)
