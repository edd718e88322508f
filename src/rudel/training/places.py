"""The place of a training: here, or on the hosts of a cluster, by a strategy."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudel.backend import backend_name
from rudel.cluster.host_options import check_used, hosts_argument
from rudel.errors import ModelError, OptionError, option
from rudel.mesh.hosts.lifecycle import join_for
from rudel.training.strategies import Strategy, as_auto, named

if TYPE_CHECKING:
    from distributed import Client

    from rudel.cluster.running_cluster import Hosts, RunningCluster
    from rudel.training.strategies import Auto, Strategy


def check_place(
    on: "Hosts | None",
    cluster: "RunningCluster | None",
    client: "Client | str | None",
    strategy: "Strategy | Auto | str | None",
    ssh_config: str | Path | None = None,
    min_hosts: int | None = None,
    dashboard: bool = False,
) -> Strategy | None:
    """Refuses what does not go together, before anything is started; returns the options of the strategy.

    Raises:
        OptionError: says what.
        ModelError: Keras runs on a backend by which that strategy cannot train.
    """
    given = hosts_argument(on=on, cluster=cluster, client=client)
    check_used(on, client, ssh_config=ssh_config, min_hosts=min_hosts, dashboard=dashboard)
    auto = as_auto(strategy)
    if auto and auto.patience is not None and not given:
        raise OptionError(
            f"{option('patience')} says how long to wait when all hosts are lost, and none are named: name them by "
            f"{option('on')} or {option('client')}, or leave it out."
        )
    options = named(strategy, bool(given))
    if given and options is None:
        raise OptionError(
            f"The strategy `single` trains on this computer: leave out {option(given)}, or take `diloco`."
        )
    if not given and options is not None and options.needs_hosts:
        raise OptionError(
            f"The strategy `{options.name}` needs hosts: name them, as in {option('on', 'raspi1,raspi2')}."
        )
    _check_backend(options)
    return options


def _check_backend(options: Strategy | None) -> None:
    backend = backend_name()
    if backend == "jax" or (options is not None and options.any_backend):
        return
    if options is not None:
        raise ModelError(
            f"Keras runs on {backend} here, and the strategy `{options.name}` trains on JAX alone: set "
            "KERAS_BACKEND=jax, or take `diloco`."
        )
    raise ModelError(
        f"Keras runs on {backend} here, and on one computer Rudel trains on JAX alone: set KERAS_BACKEND=jax before "
        "Keras is imported, or import rudel first; or train by model.fit, or on hosts (on=...)."
    )


@contextlib.contextmanager
def place(
    on: "Hosts | None" = None,
    cluster: "RunningCluster | None" = None,
    client: "Client | str | None" = None,
    strategy: "Strategy | Auto | str | None" = None,
    ssh_config: str | Path | None = None,
    min_hosts: int | None = None,
    dashboard: bool = False,
) -> Iterator[tuple[Any, Strategy | None]]:
    """Yields the running cluster to train on, or None to train here, and the strategy, or None for `single`.

    A cluster that is started for this is ended at the end of the block.
    """
    options = check_place(on, cluster, client, strategy, ssh_config, min_hosts, dashboard)
    if on is cluster is client is None:
        join_for(options)
        yield None, options
        return
    from rudel.cluster.ssh_cluster import ClientCluster, Cluster

    if cluster is not None:
        yield cluster, options
    elif client is not None:
        with ClientCluster(client, min_hosts) as borrowed:
            yield borrowed, options
    elif on is not None:
        with Cluster(on, ssh_config=ssh_config, min_hosts=min_hosts, dashboard=dashboard) as started:
            yield started, options
