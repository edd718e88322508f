"""`rudel.Cluster`: Dask workers on hosts, started over SSH, behind certificates, gone when this process is.

The scheduler runs in this process, in a thread of its own. On each host, one SSH connection starts one worker and holds
it by its standard input: when the connection ends, in whatever way, so does the worker. A worker that is lost is
started again. Nothing is installed, no port is open to who has no certificate, and no private key is ever on a command
line or in a file.

Limit: a host must be able to reach this computer at the address from which it is reached by SSH.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudel.cluster.dashboard import check_dashboard
from rudel.cluster.hosts import Host, parse_hosts
from rudel.cluster.probe import WORKER_MODULES
from rudel.errors import ClusterError, OptionError, RudelError, option
from rudel.files import expanded

if TYPE_CHECKING:
    import distributed
    from distributed.security import Security

    from rudel.cluster.background import Background
    from rudel.cluster.launch import Launch

_log = logging.getLogger("rudel.cluster")

_ANSWER_SECONDS = 10

WORKERS_SECONDS = 600.0
"""Time for the workers of somebody else's cluster to come: a queue starts some of them minutes after the others."""


class Cluster:
    """Workers on hosts, for as long as the block lasts.

    Args:
        hosts: a text such as `raspi1,pi@raspi2:2222`, the path of a hosts file, or a sequence of hosts. `rudel hosts
            setup` has prepared them.
        ssh_config: in the place of `~/.ssh/config`.
        min_hosts: how many of them must be there to begin; None for all.
        dashboard: whether Dask's dashboard is to be had at http://127.0.0.1:8787, on this computer only; needs `bokeh`.

    Raises:
        HostError: a host cannot be reached, or has no Rudel.
        ClusterError: a worker cannot be started.

    Examples:
        with rudel.Cluster(["raspi1", "raspi2"]) as cluster:
            rudel.fit(model, x, y, cluster=cluster)
            print(cluster.client)  # the Dask client, for whatever else one wants to compute
    """

    def __init__(
        self,
        hosts: str | Path | Sequence[str | Host],
        *,
        ssh_config: str | Path | None = None,
        min_hosts: int | None = None,
        dashboard: bool = False,
    ) -> None:
        self.hosts = parse_hosts(hosts)
        if min_hosts is not None and not 1 <= min_hosts <= len(self.hosts):
            raise OptionError(
                f"{option('min_hosts')} must be between 1 and {len(self.hosts)}, the number of hosts, not {min_hosts}."
            )
        self._ssh_config = None if ssh_config is None else expanded(ssh_config)
        self.min_hosts = min_hosts
        self._least = min_hosts or len(self.hosts)
        self._dashboard = dashboard
        if dashboard:
            check_dashboard()
        self._background: Background | None = None
        self._caller: _Caller | None = None
        self._sync_client: distributed.Client | None = None
        self._quiet = contextlib.ExitStack()

    def __enter__(self) -> "Cluster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def client(self) -> Any:
        """A Dask client of this cluster, a `distributed.Client`; it unpickles results that hosts send."""
        if self._sync_client is None:
            from distributed import Client

            self._sync_client = Client(self._address, security=self._security, set_as_default=False)
        return self._sync_client

    @property
    def background(self) -> Any:
        """The loop in which scheduler and connections live."""
        if self._background is None:
            raise ClusterError("The cluster is not running: use it in a `with` block, or call `start`.")
        return self._background

    @property
    def fleet(self) -> Any:
        """The workers, for a strategy; see `rudel.cluster.fleet`."""
        from rudel.cluster.fleet import Fleet

        return Fleet(self._caller, proxied=False)

    @property
    def count(self) -> int:
        """Number of hosts."""
        return len(self.hosts)

    @property
    def lost(self) -> int:
        """The number of workers lost so far."""
        return sum(launch.lost for launch in self._launches)

    @property
    def absent(self) -> dict[str, str]:
        """Why hosts do not take part at the moment, in a sentence each, by their names."""
        return {str(launch.host): launch.trouble for launch in self._launches if launch.trouble}

    def start(self) -> None:
        """Starts scheduler and workers; see the class for what it raises."""
        from rudel.cluster.background import Background

        if self._background is not None:
            return
        self._background = Background("rudel-cluster")
        try:
            self._background.run(self._start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends workers and scheduler."""
        if self._background is None:
            return
        if self._sync_client is not None:
            self._sync_client.close()
        with contextlib.suppress(Exception):
            self._background.run(self._close())
        self._background.stop()
        self._background = self._sync_client = None
        self._quiet.close()

    async def _start(self) -> None:
        from rudel.cluster.certificates import ENGINE, Authority
        from rudel.cluster.launch import Launch
        from rudel.cluster.quiet import QUIET_DRIVER, scheduler_with
        from rudel.cluster.transport import SCHEME
        from rudel.internals.dask import rpc

        self._quiet.enter_context(QUIET_DRIVER)
        authority = Authority()
        self._security = authority.issue("driver", is_driver=True).security()
        self._launches: list[Launch] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._scheduler = await scheduler_with(self._security, self._dashboard)
        self._address = f"{SCHEME}://127.0.0.1:{self._scheduler.port}"
        valid = [moment.timestamp() for moment in authority.valid]
        order = {"cluster": secrets.token_hex(8), "modules": list(WORKER_MODULES), "valid": valid}
        self._launches = [
            Launch(host, authority.issue(str(host)), order, self._scheduler.port, self._ssh_config, self._twin)
            for host in self.hosts
        ]
        results = await asyncio.gather(*(launch.started() for launch in self._launches), return_exceptions=True)
        self._leave_out(await self._unusable(results))
        self._keepers = [asyncio.create_task(launch.keep()) for launch in self._launches]
        scheduler = rpc(self._address, connection_args=self._security.get_connection_args(ENGINE))
        self._caller = _Caller(scheduler, self._security)

    async def _unusable(self, results: Sequence[BaseException | None]) -> dict[Any, RudelError]:
        """The launches that failed, and those of a computer that has a worker by another name, each with its reason."""
        found: dict[Any, RudelError] = {}
        for launch, error in zip(self._launches, results, strict=True):
            if isinstance(error, RudelError):
                found[launch] = error
            elif error is not None:
                raise error
        for launch in reversed(self._launches):  # of two names, the first is kept
            if twin := self._twin(launch):
                found[launch] = await launch.refuse(twin)
        return found

    def _twin(self, launch: "Launch") -> Host | None:
        """The host with a worker that is the same computer as this one."""
        return next(
            (
                other.host
                for other in self._launches
                if other is not launch and other.address and launch.address and other.computer == launch.computer != ""
            ),
            None,
        )

    def _leave_out(self, unusable: dict[Any, RudelError]) -> None:
        """Says of each host that does not take part why.

        Raises:
            HostError, ClusterError: too few are left.
        """
        if len(self._launches) - len(unusable) >= self._least:
            for launch, error in unusable.items():
                launch.absent(error)
            return
        errors = [unusable[launch] for launch in self._launches if launch in unusable]
        usable = len(self._launches) - len(errors)
        twice = any(launch.refused for launch in unusable)
        fewer = "" if twice or not usable else f"Or begin with fewer hosts: {option('min_hosts', usable)}."
        if len(errors) == 1:
            raise type(errors[0])(f"{errors[0]} {fewer}".rstrip()) from errors[0]
        listed = "\n  ".join(map(str, errors))
        sentence = f"{len(errors)} of {len(self._launches)} hosts cannot be used:\n  {listed}\n{fewer}"
        raise type(errors[0])(sentence.rstrip())

    async def _close(self) -> None:
        from rudel.cluster.transport import refused_by

        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if self._caller is not None:
            await self._caller.scheduler.close_rpc()
        await asyncio.gather(*(launch.stop() for launch in self._launches), return_exceptions=True)
        if refused := refused_by(self._scheduler):
            _log.warning("%s", refused)
        await self._scheduler.close()


@dataclass(frozen=True)
class _Caller:
    """The part of a Dask client that a `Fleet` needs; it does not unpickle anything that hosts send.

    Args:
        scheduler: calls of the scheduler's handlers.
        security: of the driver.
    """

    scheduler: "distributed.rpc"
    security: "Security"


class ClientCluster:
    """Somebody else's Dask cluster, as a strategy wants it: SLURM, Kubernetes, a `LocalCluster`.

    Args:
        client: a synchronous `distributed.Client`, or the address of a scheduler.
        min_hosts: how many workers must be there to begin; they are waited for. None for those that are.

    Raises:
        OptionError: the client is asynchronous.
        ClusterError: no scheduler answers, or too few workers have come.
    """

    def __init__(self, client: "distributed.Client | str", min_hosts: int | None = None) -> None:
        if min_hosts is not None and min_hosts < 1:
            raise OptionError(f"{option('min_hosts')} must be 1 or more, not {min_hosts}.")
        self._given, self.min_hosts = client, min_hosts
        self._own: distributed.Client | None = None

    def __enter__(self) -> "ClientCluster":
        from distributed import Client

        if isinstance(self._given, str):
            _knock(self._given)
            self._own = Client(self._given, set_as_default=False)
        self._client: Any = self._own or self._given
        if getattr(self._client, "asynchronous", True):
            raise OptionError("`client` must be a synchronous distributed.Client.")
        try:
            self._wait_for_workers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._own is not None:
            self._own.close()

    @property
    def client(self) -> Any:
        """The Dask client of it, a synchronous `distributed.Client`."""
        return self._client

    @property
    def count(self) -> int:
        """Number of workers."""
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    @property
    def background(self) -> "ClientCluster":
        """Something that starts coroutines in the loop of the client."""
        return self

    @property
    def fleet(self) -> Any:
        """The workers."""
        from rudel.cluster.fleet import Fleet

        return Fleet(self._client, proxied=True)

    def _wait_for_workers(self) -> None:
        if self.min_hosts is None:
            return
        try:
            self._client.wait_for_workers(self.min_hosts, timeout=WORKERS_SECONDS)
        except TimeoutError as error:
            raise ClusterError(
                f"{self.count} of {self.min_hosts} Dask workers connected within {WORKERS_SECONDS:.0f} s: are their "
                "jobs still queued, and do they reach the scheduler?"
            ) from error

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Begins a coroutine in the client's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)


def _knock(address: str) -> None:
    """Looks whether a scheduler answers: a `Client` that fails half-way can hang when it is collected.

    Raises:
        ClusterError: none does.
    """
    from distributed.security import Security

    from rudel.cluster.background import Background
    from rudel.internals.dask import connect

    async def talk() -> None:
        comm = await connect(address, timeout=_ANSWER_SECONDS, **Security().get_connection_args("client"))
        await comm.close()

    try:
        with Background("rudel-knock") as background:
            background.run(talk())
    except Exception as error:
        raise ClusterError(
            f"No Dask scheduler answers at {address} ({error}): is it running, and is the address right, as in "
            "tcp://192.168.1.2:8786?"
        ) from error
