"""The programs that the bench needs, and what to do where one is missing."""

import shutil

from rudel.errors import RudelError


class BenchError(RudelError):
    """A measurement that could not be taken."""


def program(name: str, packages: str) -> str:
    """The path of a program.

    Args:
        name: of the program.
        packages: those of Debian that bring it.

    Raises:
        BenchError: it is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise BenchError(f"`{name}` is needed and is not installed: apt-get install {packages}.")
    return path
