"""Options of hosts that follow their names, and the hosts that they are for."""

from rudel.errors import OptionError, option


def hosts_argument(**arguments: object) -> str | None:
    """The name of the one of these arguments that is given; None where none is.

    Raises:
        OptionError: more than one is given.
    """
    given = [name for name, value in arguments.items() if value is not None]
    if len(given) > 1:
        raise OptionError(f"Hosts are given twice, as {option(given[0])} and as {option(given[1])}: give one of them.")
    return given[0] if given else None


def check_used(
    on: object,
    client: object = None,
    *,
    ssh_config: object = None,
    min_hosts: int | None = None,
    dashboard: bool = False,
) -> None:
    """Refuses what would have no effect.

    Args:
        on: hosts to reach over SSH, or None.
        client: a Dask client or the address of a scheduler, whose workers are there already, or None.
        ssh_config: says how hosts of `on` are reached.
        min_hosts: says how many hosts are waited for.
        dashboard: whether Dask's dashboard of the hosts of `on` is to be shown.

    Raises:
        OptionError: there are no hosts that it is said of.
    """
    if on is None and ssh_config is not None:
        raise _unused("ssh_config", "says how hosts are reached over SSH", option("on"))
    if on is None and dashboard:
        raise _unused("dashboard", "shows what hosts do that are started over SSH", option("on"))
    if on is None and client is None and min_hosts is not None:
        raise _unused("min_hosts", "says how many hosts to begin with", f"{option('on')} or {option('client')}")


def _unused(name: str, effect: str, by: str) -> OptionError:
    return OptionError(f"{option(name)} {effect}, and none are named: name them by {by}, or leave it out.")
