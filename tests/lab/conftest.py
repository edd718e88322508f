"""Real labs, with names and addresses that no other lab has."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from rudel.lab import Lab

_numbers = itertools.count(100 * os.getpid())  # those of processes with neighbouring numbers stay apart


@pytest.fixture(scope="session")
def root(lacking: Callable[[str], NoReturn]) -> None:
    """The right to have a lab."""
    if os.geteuid() != 0:
        lacking("a lab needs root: sudo env PATH=$PATH python -m pytest tests/lab")


@pytest.fixture(scope="session")
def own(root: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], dict[str, Any]]:
    """Gives arguments for a lab that is in nobody's way."""

    def arguments() -> dict[str, Any]:
        number = next(_numbers)
        letters = "".join(chr(ord("a") + number // 26**place % 26) for place in range(5))
        subnet = f"10.{100 + number // 250 % 100}.{number % 250}"
        return {"prefix": f"t{letters}", "subnet": subnet, "state": tmp_path_factory.mktemp("lab")}

    return arguments


@pytest.fixture(scope="session")
def lab(own: Callable[[], dict[str, Any]]) -> Iterator[Lab]:
    """A lab of two nodes, one with half the cores of the other."""
    with Lab(nodes=2, cpu=(0.4, 0.2), **own()) as lab:
        yield lab


@pytest.fixture
def traces() -> Callable[[], dict[str, Any]]:
    """Tells what of labs is on this machine."""

    def look() -> dict[str, Any]:
        return {
            "devices": {path.name for path in Path("/sys/class/net").glob("lab-t*")},
            "groups": {str(path) for path in Path("/sys/fs/cgroup").glob("**/rudel-lab-t*")},
            "names": [line for line in Path("/etc/hosts").read_text().splitlines() if "lab t" in line],
            "mounts": [line for line in Path("/proc/self/mounts").read_text().splitlines() if "lab" in line],
            "folders": {path.name for path in Path("/run/rudel-lab").glob("t*")},
        }

    return look
