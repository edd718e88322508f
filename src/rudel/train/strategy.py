"""Strategies: how the steps of a training are spread over devices and hosts, and what can be chosen of each."""

import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol, runtime_checkable

from rudel.errors import OptionError
from rudel.train.mesh.hosts.join import joined

_HOMES = {
    "diloco": "rudel.train.diloco.options.Diloco",
    "async": "rudel.train.asynchronous.options.Async",
    "mesh": "rudel.train.mesh.options.Mesh",
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

    name: str
    needs_hosts: bool
    any_backend: bool

    def training(self, *arguments: Any, cluster: Any) -> Any:
        """Makes what trains: a `rudel.train.single.Training`, from its arguments and the cluster, or None."""
        ...


def named(strategy: Any, hosts: bool) -> Strategy | None:
    """The options of the strategy that was asked for, or None for `single`.

    Args:
        strategy: one of STRATEGIES, or options; None, as `auto` does before anything is measured, for `diloco` with
            hosts, and for `mesh` in processes that were told to train together.
        hosts: whether there are hosts to train on.

    Raises:
        OptionError: there is no such strategy.
    """
    if isinstance(strategy, Strategy) and not isinstance(strategy, type):
        return strategy
    strategy = "auto" if strategy is None else strategy
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise OptionError(f"`strategy` can be {', '.join(STRATEGIES)} or the options of one, not {strategy!r}.")
    if strategy == "auto":
        strategy = "diloco" if hosts else "mesh" if joined() else "single"
    if strategy == "single":
        return None
    return _options(strategy)()


def with_options(strategy: str | None, given: Mapping[str, Any]) -> Any:
    """The strategy of that name with these options, which may be None for those that nobody gave.

    Where the strategy is `auto` or nobody named one, it is the first one that has all of them.

    Raises:
        OptionError: it has no such option, or not with that value.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if not given or (strategy is not None and strategy not in STRATEGIES):
        return strategy
    strategy = strategy or "auto"
    known = {name: {field.name: field for field in fields(_options(name))} for name in _HOMES}
    for name in _HOMES if strategy == "auto" else [strategy]:
        if given.keys() <= known.get(name, {}).keys():
            return _options(name)(**given)
    strange = next((option for option in given if option not in known.get(strategy, {})), None)
    assert strange
    having = [name for name in _HOMES if strange in known[name]]
    typed = known[having[0]][strange].metadata.get("option", strange.replace("_", "-"))
    raise OptionError(f"--{typed} belongs to the strategy {' and '.join(having)}, not to {strategy}.")


def _options(strategy: str) -> Any:
    """The class with the options of a strategy."""
    module, _, name = _HOMES[strategy].rpartition(".")
    return getattr(importlib.import_module(module), name)
