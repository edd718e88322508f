"""What can be done here, and what not yet: every feature is asked by the very check that its own command makes."""

import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rudel.doctor.packages import unfit
from rudel.errors import DoctorError, RudelError

Check = Callable[[], object]
"""Raises a RudelError, whose sentence says what is missing and the command that adds it."""


@dataclass(frozen=True)
class Feature:
    """Something that Rudel can do.

    Args:
        command: that does it.
        purpose: what it is for.
        problem: what it lacks here and the command that adds it, in a sentence; None where it is ready.
    """

    command: str
    purpose: str
    problem: str | None


def look(environment: Mapping[str, str] = os.environ, home: Path | None = None) -> tuple[Feature, ...]:
    """Asks all features.

    Args:
        environment: variables of this process.
        home: the user's folder.
    """
    from rudel.cluster.dashboard import check_dashboard
    from rudel.lab.requirements import check_machine
    from rudel.micro.host import c_compiler
    from rudel.serve.server import check_packages

    asked: list[tuple[str, str, list[Check]]] = [
        ("train", "on this computer", [partial(_check_versions, "")]),
        ("train --on", "on other computers, over SSH", [partial(_check_keys, environment, home or Path.home())]),
        ("train --dashboard", "what its workers do, by Dask", [check_dashboard]),
        *_of_exports(),
        ("micro check", "that C computes as the interpreter does", [c_compiler, _check_interpreter]),
        ("micro bench", "memory and instructions on an emulated board", _of_bench()),
        ("serve, play, watch", "models and runs over HTTP", [check_packages, partial(_check_versions, "serve")]),
        ("lab", "a pretend Wi-Fi cluster", [check_machine]),
    ]
    return tuple(Feature(command, purpose, _problem(checks)) for command, purpose, checks in asked)


def _problem(checks: Iterable[Check]) -> str | None:
    for check in checks:
        try:
            check()
        except RudelError as error:
            return str(error)
    return None


def _of_exports() -> list[tuple[str, str, list[Check]]]:
    """Forms with the same needs are one line."""
    from rudel.export.forms import FORMS, check_needs

    groups: dict[tuple[str, ...], list[str]] = {}
    for form in FORMS.values():
        groups.setdefault(form.needs, []).append(form.name)
    return [
        (
            f"export --to {names[0]}",
            ", ".join(names),
            [partial(check_needs, FORMS[names[0]]), partial(_check_versions, "export", only=set(needs))],
        )
        for needs, names in groups.items()
    ]


def _of_bench() -> list[Check]:
    from rudel.micro.bench.tools import PACKAGES, program

    return [partial(program, name) for name in PACKAGES]


def _check_versions(extra: str, only: set[str] | None = None) -> None:
    found = [package for package in unfit(extra) if only is None or package.name in only]
    if found:
        each = ", ".join(
            f"{package.name} {package.wanted} (there is {package.installed or 'none'})" for package in found
        )
        asked = " ".join(f"'{package.name}{package.wanted}'" for package in found)
        raise DoctorError(f"It needs {each}: `pip install {asked}`.")


def _check_keys(environment: Mapping[str, str], home: Path) -> None:
    folder = home / ".ssh"
    if environment.get("SSH_AUTH_SOCK") or (folder / "config").is_file() or any(folder.glob("id_*")):
        return
    raise DoctorError(
        f"There is no SSH key in {folder} and no agent: make one by `ssh-keygen -t ed25519`, and bring it to each host "
        "by `ssh-copy-id HOST`."
    )


def _check_interpreter() -> None:
    if importlib.util.find_spec("ai_edge_litert") is None:
        raise DoctorError("Comparing with LiteRT needs its interpreter: `pip install 'rudel[export]'`.")
