"""Completions for the shell: names of recipes, strategies, forms, runs and hosts, without importing Keras."""

from collections.abc import Iterable
from pathlib import Path


def recipes(incomplete: str) -> list[str]:
    """Built-in recipes, and Python files in the folder that has been typed."""
    from rudel.recipes import BUILT_IN

    folder = incomplete.rpartition("/")[0]
    files = (str(Path(folder) / path.name) for path in sorted(Path(folder or ".").glob("*.py")))
    return _beginning((*BUILT_IN, *files), incomplete)


def strategies(incomplete: str) -> list[str]:
    """Names of strategies."""
    from rudel.training.strategies import STRATEGIES

    return _beginning(STRATEGIES, incomplete)


def forms(incomplete: str) -> list[str]:
    """Forms that a run is exported to."""
    from rudel.export.forms import FORMS

    return _beginning(FORMS, incomplete)


def targets(incomplete: str) -> list[str]:
    """Processors and boards that `rudel micro` compiles for."""
    from rudel.micro.targets import TARGETS

    return _beginning(TARGETS, incomplete)


def runs(incomplete: str) -> list[str]:
    """Run directories in the folder that has been typed, which is `runs` at first."""
    folders = {Path(incomplete.rpartition("/")[0] or "."), *([Path("runs")] if "/" not in incomplete else [])}
    found = {path.parent.as_posix() for folder in folders for path in folder.glob("*/config.json")}
    return _beginning(sorted(found), incomplete)


def hosts(incomplete: str) -> list[str]:
    """Hosts of ~/.ssh/config, behind the comma of those that have been typed."""
    typed, comma, last = incomplete.rpartition(",")
    try:
        lines = (Path.home() / ".ssh" / "config").read_text(errors="replace").splitlines()
    except OSError:
        return []
    words = [line.replace("=", " ").split() for line in lines]
    names = [name for line in words if line and line[0].lower() == "host" for name in line[1:]]
    plain = dict.fromkeys(name for name in names if not set(name) & set("*?!"))
    return [f"{typed}{comma}{name}" for name in _beginning(plain, last)]


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
