"""Strategies: how the steps of a training are spread over devices and hosts, and what can be chosen of each."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from rudel.errors import OptionError, option
from rudel.mesh.hosts.join import joined

if TYPE_CHECKING:
    from rudel.cluster.running_cluster import RunningCluster
    from rudel.session.engine import Engine
    from rudel.session.job import Job

_HOMES = {
    "diloco": "rudel.replicas.diloco.diloco_options.Diloco",
    "async": "rudel.replicas.asynchronous.async_options.Async",
    "mesh": "rudel.mesh.mesh_options.Mesh",
}
"""Classes with the options of the strategies, which are imported when they are used."""

STRATEGIES = ("auto", "single", *_HOMES)


@runtime_checkable
class Strategy(Protocol):
    """Options of a strategy; frozen, and comparable.

    Attributes:
        name: as `--strategy` and the run directory have it.
        needs_hosts: whether it trains on the hosts of a cluster only.
        any_backend: whether it trains where Keras runs on TensorFlow or PyTorch, too.
    """

    name: ClassVar[str]
    needs_hosts: ClassVar[bool]
    any_backend: ClassVar[bool]

    def engine(self, job: "Job", cluster: "RunningCluster | None") -> "Engine":
        """Makes what takes the steps.

        Args:
            job: the training.
            cluster: a running `rudel.Cluster`, or None.
        """
        ...


@dataclass(frozen=True)
class Auto:
    """The strategy `auto`, with what can be said before it is known which one that will be.

    Args:
        patience: seconds to wait for a host to come back when all are lost; None for what the strategies say.
    """

    patience: float | None = field(default=None, metadata={"option": "host_timeout"})

    def given_to(self, options: Any) -> Any:
        """Options of a strategy, or None, with these in them, as far as it has them."""
        if options is None:
            return None
        names = {each.name for each in fields(options)}
        given = {name: value for name, value in vars(self).items() if value is not None and name in names}
        return replace(options, **given) if given else options


def as_auto(strategy: object) -> Auto | None:
    """The strategy `auto`, if that is the one."""
    return strategy if isinstance(strategy, Auto) else Auto() if strategy == "auto" else None


def named(strategy: object, hosts: bool) -> Strategy | None:
    """The options of the requested strategy, or None for `single`.

    Args:
        strategy: one of STRATEGIES, or options; None, as `auto` does before anything is measured, for `diloco` with
            hosts, and for `mesh` in processes that are configured to train together.
        hosts: whether there are hosts to train on.

    Raises:
        OptionError: there is no such strategy.
    """
    if isinstance(strategy, Strategy) and not isinstance(strategy, type):
        return strategy
    if isinstance(strategy, Auto):
        return strategy.given_to(named("auto", hosts))
    if type(strategy).__module__.startswith("tensorflow."):
        raise OptionError(
            f"{option('strategy')} takes Rudel's strategies, not TensorFlow's: {option('strategy', 'mesh')} sums "
            f"gradients over devices in every step, and {option('strategy', 'async')} has a server of parameters."
        )
    strategy = "auto" if strategy is None else strategy
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise OptionError(
            f"{option('strategy')} can be {', '.join(STRATEGIES)} or the options of one, not {strategy!r}."
        )
    if strategy == "auto":
        strategy = "diloco" if hosts else "mesh" if joined() else "single"
    if strategy == "single":
        return None
    return _options(strategy)()


def with_options(strategy: str | None, given: Mapping[str, Any]) -> Any:
    """Returns the strategy of that name with these options.

    Where nobody named a strategy, it is the first one that has all of them.

    Args:
        strategy: its name, or None.
        given: values by the name of the option on the command line, with underscores; None for what nobody gave. That
            is the name of the field or the `option` in its metadata.

    Raises:
        OptionError: it has no such option, or not with that value.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if not given or (strategy is not None and strategy not in STRATEGIES):
        return strategy
    classes = {name: _options(name) for name in _HOMES} | {"auto": Auto}
    known = {name: _fields_by_option(each) for name, each in classes.items()}
    for name in [strategy] if strategy else _HOMES:
        if given.keys() <= known.get(name, {}).keys():
            return classes[name](**{known[name][option]: value for option, value in given.items()})
    strange = next((option for option in given if option not in known.get(strategy or "auto", {})), None)
    assert strange
    having = [name for name in _HOMES if strange in known[name]]
    belongs = f"--{strange.replace('_', '-')} belongs to the strategy {' and '.join(having)}"
    if strategy is None:
        raise OptionError(f"{belongs}, and other options to others: give those of one strategy.")
    if strategy == "auto":
        raise OptionError(
            f"{belongs}, which `auto` may not choose: leave it out, or give {option('strategy', having[0])}."
        )
    raise OptionError(f"{belongs}, not to {strategy}.")


def _fields_by_option(options: Any) -> dict[str, str]:
    """Names of fields by the names of their options on the command line, current and former."""
    pairs = {each.metadata.get("option", each.name): each.name for each in fields(options)}
    return {each.name: each.name for each in fields(options)} | pairs


def _options(strategy: str) -> Any:
    """The class with the options of a strategy."""
    module, _, name = _HOMES[strategy].rpartition(".")
    return getattr(importlib.import_module(module), name)
