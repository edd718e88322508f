"""Files that are either wholly there or not there at all.

A file is written beside its final place, flushed to the disk, and renamed over it: a reader, also after a power cut,
sees the old content or the new one, never a part.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from rudel.errors import RudelError


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path with the home folder in the place of `~`.

    Raises:
        RudelError: nobody knows that folder, as of a user that there is not.
    """
    found = Path(os.path.expanduser(path))  # noqa: PTH111 as that of Path raises a RuntimeError
    if found.parts and found.parts[0].startswith("~"):
        raise RudelError(f"There is no home folder `{found.parts[0]}`: write {found} without `~`, or with `./`.")
    return found


@contextlib.contextmanager
def written_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Yields a binary file that takes the place of `path` when the block ends without an error.

    Raises:
        OSError: the folder cannot be written or the disk is full; `path` is then as it was, and nothing is left over.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    file = temporary.open("xb")  # with the permissions of any new file: those that the umask leaves
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def remove_torn_line(path: Path) -> None:
    """Removes a last line that was cut short by a full disk or a killed process; there need be no file.

    Raises:
        OSError: the file cannot be read or written.
    """
    content = path.read_bytes() if path.is_file() else b""
    if (end := content.rfind(b"\n") + 1) < len(content):
        os.truncate(path, end)


def write_json(path: Path, document: Any) -> None:
    """Writes a JSON document atomically, indented, with a line break at the end."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with written_atomically(path) as file:
        file.write(text.encode())


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
