"""The lines of labs in /etc/hosts, between two comments for each lab.

Everything else in the file stays as it is, byte by byte. The file is replaced as a whole (or written in place where it
is a mount of its own, as in containers), under a lock that all labs of a machine share.
"""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rudel.errors import LabError
from rudel.lab.folder_lock import locked

FILE = Path("/etc/hosts")

_BLOCK = r"# the lab {0} of rudel: from here\n(?:.*\n)*?# the lab {0} of rudel: to here\n"


def add(lab: str, lines: Sequence[str], file: Path = FILE) -> None:
    """Gives a lab its lines, instead of any that it has.

    Args:
        lab: name of the lab.
        lines: "10.77.0.1 raspi1" and so on.
        file: the file.
    """
    _change(file, lambda text: with_block(without_block(text, lab), lab, lines))


def remove(lab: str, file: Path = FILE) -> None:
    """Takes the lines of a lab away, if it has any."""
    _change(file, lambda text: without_block(text, lab))


def check_free(names: Sequence[str], file: Path = FILE) -> None:
    """Refuses names that mean something else already.

    Raises:
        LabError: one of them is in the file.
    """
    known = {name for line in _read(file).splitlines() for name in line.partition("#")[0].split()[1:]}
    for name in names:
        if name in known:
            raise LabError(f"`{name}` has an address in {file} already: give the lab another prefix.")


def labs(file: Path = FILE) -> list[str]:
    """Names of all labs that have lines."""
    return re.findall(r"^# the lab (\S+) of rudel: from here$", _read(file), re.MULTILINE)


def with_block(text: str, lab: str, lines: Sequence[str]) -> str:
    """The text with the lines of a lab at its end.

    >>> print(with_block("127.0.0.1 localhost", "zoo", ["10.77.0.1 zoo1"]), end="")
    127.0.0.1 localhost
    # the lab zoo of rudel: from here
    10.77.0.1 zoo1
    # the lab zoo of rudel: to here
    """
    gap = "" if not text or text.endswith("\n") else "\n"
    block = [f"# the lab {lab} of rudel: from here", *lines, f"# the lab {lab} of rudel: to here"]
    return f"{text}{gap}" + "".join(f"{line}\n" for line in block)


def without_block(text: str, lab: str) -> str:
    """The text without the lines of a lab.

    >>> without_block(with_block("127.0.0.1 localhost\\n", "zoo", ["10.77.0.1 zoo1"]), "zoo")
    '127.0.0.1 localhost\\n'
    """
    return re.sub(_BLOCK.format(re.escape(lab)), "", text)


def _change(file: Path, change: Callable[[str], str]) -> None:
    file = file.resolve()  # a link stays one
    with locked(file.parent):
        old = _read(file)
        new = change(old)
        if new != old:
            _replace(file, new)


def _read(file: Path) -> str:
    return file.read_bytes().decode(errors="surrogateescape")


def _replace(file: Path, text: str) -> None:
    content = text.encode(errors="surrogateescape")
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as beside:
            beside.write(content)
        shutil.copystat(file, name)
        Path(name).replace(file)
    except OSError as error:
        Path(name).unlink()
        if error.errno != errno.EBUSY:
            raise
        file.write_bytes(content)
