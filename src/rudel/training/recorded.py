"""The arguments of a training as its run directory keeps them."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rudel.cluster.hosts import Host


def recorded(given: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments of `rudel.train_recipe` as config.json keeps them, so that `resume` can pass them again.

    Args:
        given: the arguments by name, without `run`, `resume` and those that only say what is shown.

    Returns:
        Plain data, and the `folder` in which they were given, to which relative paths in them belong; None where an
        argument is an object that a file cannot hold, such as a callback or a running cluster.
    """
    given = dict(given)
    on, client, strategy = given.pop("on"), given.pop("client"), given.pop("strategy")
    if given.pop("callbacks") or given.pop("cluster") is not None or not isinstance(client, str | None):
        return None
    if not isinstance(given["data"], str | Path | None):
        return None
    hosts, spread = _hosts(on), _strategy(strategy)
    if (on is not None and hosts is None) or (strategy is not None and spread is None):
        return None
    given["options"] = {k: list(v) if isinstance(v, tuple) else v for k, v in (given["options"] or {}).items()}
    for name in ("recipe", "data", "ssh_config", "start_from"):
        given[name] = None if given[name] is None else str(given[name])
    arguments = given | {"on": hosts, "client": client, "strategy": spread, "folder": _folder()}
    return arguments if _is_plain(arguments) else None


def _folder() -> str | None:
    """The working directory; None if somebody has removed it."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return None


def _hosts(on: object) -> str | list[str] | None:
    """Hosts as texts; None where there are none, or where one says more than its text does."""
    if on is None or isinstance(on, str):
        return on
    hosts = list(on) if isinstance(on, Sequence) else [None]
    plain = all(isinstance(host, str) or (isinstance(host, Host) and host.python is None) for host in hosts)
    return [str(host) for host in hosts] if plain else None


def _strategy(strategy: Any) -> dict[str, Any] | None:
    """The name of a strategy and those of its options that are not at their defaults; None where it has no name."""
    if isinstance(strategy, str):
        return {"name": strategy, "options": {}}
    name = getattr(strategy, "name", "auto")
    try:
        options = {field.name: getattr(strategy, field.name) for field in fields(strategy)}
        default = type(strategy)()
    except TypeError:
        return None
    changed = {key: value for key, value in options.items() if value != getattr(default, key)}
    return {"name": name, "options": changed}


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
