"""Functions called on the workers of a cluster; a call whose worker is lost is made again by another one."""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudel.cluster.host_options import hosts_argument
from rudel.cluster.ssh_cluster import ClientCluster, Cluster
from rudel.errors import ClusterError

_GLANCE_SECONDS = 2.0
_CALLS_PER_THREAD = 2
"""One is worked on while the next is on its way."""


@dataclass(frozen=True)
class Calls:
    """Calls functions on the workers of a Dask client.

    Args:
        client: a synchronous `distributed.Client`.
        purpose: what the workers do, for messages.
        again: what repeating the command does, for messages.
        timeout: seconds to wait for a worker when there is none, and half of those that a result may be on its way:
            longer than a silent connection lasts.
    """

    client: Any
    purpose: str
    again: str
    timeout: float = 120.0

    @property
    def threads(self) -> int:
        """The number of calls to make at the same time."""
        return max(1, _CALLS_PER_THREAD * sum(self.client.nthreads().values()))

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function, called elsewhere.

        Raises:
            ClusterError: all workers are lost and none comes back, or they lack what the function needs.
        """
        from distributed import KilledWorker

        future = self.client.submit(function, *arguments, pure=False)
        seen = time.monotonic()
        while True:
            try:
                future.exception(timeout=_GLANCE_SECONDS)  # waits for its end alone
                seen = time.monotonic() + 2 * self.timeout
                return future.result(timeout=2 * self.timeout)  # results come together: one given up ends the others
            except TimeoutError:
                if self._is_somebody_there():
                    seen = time.monotonic()
                elif time.monotonic() - seen > self.timeout:
                    future.cancel()
                    raise ClusterError(
                        f"All workers are lost, and none came back in {self.timeout:.0f} s: check the hosts; the "
                        f"same command {self.again}."
                    ) from None
            except (ImportError, AttributeError) as error:
                raise ClusterError(
                    f"A worker lacks what it needs ({error}): install Rudel there, with Pillow and in the version of "
                    "here, as `rudel hosts setup` without --minimal does."
                ) from error
            except (CancelledError, KilledWorker, OSError) as error:
                raise ClusterError(f"The workers cannot {self.purpose} ({error}).") from error

    def _is_somebody_there(self) -> bool:
        with contextlib.suppress(OSError, TimeoutError):
            return bool(self.client.nthreads())
        return False


@contextlib.contextmanager
def clients_of(
    on: Any = None,
    scheduler: str | None = None,
    ssh_config: str | Path | None = None,
    min_hosts: int | None = None,
) -> Iterator[Any]:
    """Yields a Dask client with workers on hosts, or of a scheduler, while the block lasts; None if neither is given.

    Raises:
        OptionError: both are given.
        HostError: a host cannot be reached, or has no Rudel.
        ClusterError: the scheduler does not answer, or workers cannot be started.
    """
    if hosts_argument(on=on, client=scheduler) is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        if on is not None:
            cluster = stack.enter_context(Cluster(on, ssh_config=ssh_config, min_hosts=min_hosts))
        else:
            assert scheduler is not None
            cluster = stack.enter_context(ClientCluster(scheduler, min_hosts))
        import dask.config

        # images are large, and that is no mistake
        stack.enter_context(dask.config.set({"distributed.admin.large-graph-warning-threshold": "10GB"}))
        yield cluster.client
