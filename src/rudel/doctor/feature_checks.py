"""Checks of all features on this computer, each as its own command makes it.

Checks import what they need themselves: what is broken is reported for the features that need it, and for no other.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rudel.doctor.asking import Answers
from rudel.doctor.problems import Check, problem
from rudel.errors import DoctorError
from rudel.files import expanded


@dataclass(frozen=True)
class Feature:
    """Something that Rudel can do.

    Args:
        command: that does it.
        purpose: what it is for.
        problem: what it lacks here and the command that adds it, in a sentence; None where it is ready.
        note: what would make it better, in a sentence; None where nothing would.
    """

    command: str
    purpose: str
    problem: str | None
    note: str | None = None


def check_all(
    answers: Answers, environment: Mapping[str, str] = os.environ, home: Path | None = None
) -> tuple[Feature, ...]:
    """Asks all features.

    Args:
        answers: of the process that imported JAX, Keras and Dask.
        environment: variables of this process.
        home: the user's folder.
    """
    from rudel.play.module import what_is_missing

    def said(*names: str) -> list[Check]:
        return [partial(answers.check, name) for name in names]

    keys = partial(_check_keys, environment, home or Path.home())
    listed: list[tuple[str, str, list[Check]]] = [
        ("train", "on this computer", [partial(_check_versions, ""), *said("keras", "single")]),
        ("train --on", "on other computers, over SSH", [*said("keras", "cluster"), keys]),
        ("train --dashboard", "Dask's dashboard of the workers", [_check_dashboard]),
        *_of_exports(),
        ("micro check", "comparison of C with the interpreter", [_check_compiler, _check_interpreter]),
        ("micro bench", "memory and instructions on an emulated board", [_check_bench, _check_compiler]),
        ("serve, watch", "models and runs over HTTP", [_check_server, partial(_check_versions, "serve")]),
        ("play", "a page to draw on", said("jax")),
        ("tune", "sweeps of settings", [partial(_check_versions, "tune")]),
        ("data sound", "FLAC files and other sample rates", [partial(_check_versions, "sound")]),
        ("data collect", "recordings of a board", [partial(_check_versions, "board")]),
        ("train table", "tables in Parquet", [partial(_check_versions, "parquet")]),
        ("lab", "a simulated Wi-Fi cluster", [_check_lab]),
    ]
    notes = {"play": what_is_missing()}
    return tuple(Feature(command, purpose, problem(*checks), notes.get(command)) for command, purpose, checks in listed)


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


def _check_versions(extra: str, only: set[str] | None = None) -> None:
    from rudel.doctor.installed_packages import unfit

    found = [package for package in unfit(extra) if only is None or package.name in only]
    if found:
        each = ", ".join(
            f"{package.name} {package.wanted} (there is {package.installed or 'none'})" for package in found
        )
        requirements = " ".join(f"'{package.name}{package.wanted}'" for package in found)
        raise DoctorError(f"It needs {each}: `pip install {requirements}`.")


def _check_keys(environment: Mapping[str, str], home: Path) -> None:
    configuration = environment.get("RUDEL_SSH_CONFIG")
    if configuration:
        _check_configuration(expanded(configuration))
        return
    folder = home / ".ssh"
    try:
        names = {path.name for path in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError):
        names = set()
    except OSError as error:
        raise DoctorError(
            f"{folder} cannot be read ({error.strerror}): `ls -ld {folder}` says whose it is, and it has to be yours."
        ) from error
    keys = any(name.startswith("id_") and not name.endswith(".pub") for name in names)
    if keys or "config" in names or environment.get("SSH_AUTH_SOCK"):
        return
    raise DoctorError(
        f"There is no SSH key in {folder} and no agent: make one by `ssh-keygen -t ed25519`, and bring it to each host "
        "by `ssh-copy-id HOST`."
    )


def _check_configuration(file: Path) -> None:
    try:
        with file.open():
            return
    except OSError as error:
        raise DoctorError(
            f"RUDEL_SSH_CONFIG names {file}, which cannot be read ({error.strerror}): name another file, or unset it."
        ) from error


def _check_dashboard() -> None:
    from rudel.cluster.dashboard import check_dashboard

    check_dashboard()


def _check_compiler() -> None:
    from rudel.micro.host import c_compiler

    c_compiler()


def _check_interpreter() -> None:
    from rudel.micro.interpreters import check_interpreter

    check_interpreter("litert")


def _check_bench() -> None:
    from rudel.micro.bench.boards import core
    from rudel.micro.bench.tools import program

    for name in core("cortex-m4").programs:
        program(name)


def _check_server() -> None:
    from rudel.serve.server import check_packages

    check_packages()


def _check_lab() -> None:
    from rudel.lab.requirements import check_machine

    check_machine()
