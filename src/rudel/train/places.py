"""Where a training takes its steps: here, or on the hosts of a cluster, by which strategy."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rudel.errors import OptionError

STRATEGIES = ("auto", "single", "diloco")


def check_place(on: Any, cluster: Any, client: Any, strategy: Any) -> None:
    """Refuses what does not go together, before anything is started.

    Raises:
        OptionError: says what.
    """
    given = [name for name, value in (("on", on), ("cluster", cluster), ("client", client)) if value is not None]
    if len(given) > 1:
        raise OptionError(f"Hosts are given twice, as `{given[0]}` and as `{given[1]}`: give one of them.")
    if strategy not in STRATEGIES and not _is_diloco(strategy):
        raise OptionError(f"`strategy` can be {', '.join(STRATEGIES)} or a rudel.Diloco, not {strategy!r}.")
    if given and strategy == "single":
        raise OptionError(f"The strategy `single` trains on this computer: leave out `{given[0]}`, or take `diloco`.")
    if not given and strategy not in ("auto", "single"):
        raise OptionError(
            "This strategy needs hosts: name them, as in `--on raspi1,raspi2` or `on=['raspi1', 'raspi2']`."
        )


@contextlib.contextmanager
def place(
    on: Any = None,
    cluster: Any = None,
    client: Any = None,
    strategy: Any = "auto",
    ssh_config: str | Path | None = None,
    min_hosts: int | None = None,
    dashboard: bool = False,
) -> Iterator[tuple[Any, Any]]:
    """Yields the running cluster to train on and the options of the strategy, or (None, None) to train here.

    A cluster that is started for this is ended at the end of the block.
    """
    check_place(on, cluster, client, strategy)
    if on is cluster is client is None:
        yield None, None
        return
    from rudel.cluster.engine import Borrowed, Cluster
    from rudel.train.diloco.options import Diloco

    options = strategy if isinstance(strategy, Diloco) else Diloco()
    if cluster is not None:
        yield cluster, options
    elif client is not None:
        with Borrowed(client) as borrowed:
            yield borrowed, options
    elif on is not None:
        with Cluster(on, ssh_config=ssh_config, min_hosts=min_hosts, dashboard=dashboard) as started:
            yield started, options


def _is_diloco(strategy: Any) -> bool:
    from rudel.train.diloco.options import Diloco

    return isinstance(strategy, Diloco)
