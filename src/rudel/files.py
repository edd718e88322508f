"""Files that are either wholly there or not there at all.

A file is written beside its final place, flushed to the disk, and renamed over it: a reader, also after a power cut,
sees the old content or the new one, never a part. Devices and pipes such as `/dev/stdout` are written to as they are.
"""

import contextlib
import errno
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from rudel.errors import RudelError

_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
"""File descriptors of what may be redirected to a file: opened by its path, it would be written from its beginning."""


def expanded(path: str | os.PathLike[str]) -> Path:
    """A path with the home folder in the place of `~`.

    A file whose own name begins with `~` has an absolute path afterwards: it stays the same when it is expanded again.

    Raises:
        RudelError: it is neither text nor a `Path`; or nobody knows that folder, as of a user that there is not, and
            there is no such file either.
    """
    try:
        found = Path(os.path.expanduser(path))  # noqa: PTH111 as that of Path raises a RuntimeError
    except TypeError as error:
        raise RudelError(f"A path is a text or a pathlib.Path, not {path!r:.100}: give one of these.") from error
    if not found.parts or not found.parts[0].startswith("~"):
        return found
    if found.exists() or not os.fspath(path).startswith("~"):
        return found.absolute()
    raise RudelError(
        f"There is no home folder `{found.parts[0]}`: write {found} without `~`, or as {found.absolute()}."
    )


@contextlib.contextmanager
def written_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Yields a binary file that takes the place of `path` when the block ends without an error.

    Raises:
        OSError: the folder cannot be written or the disk is full; `path` is then as it was, and nothing is left over.
    """
    is_device = path.exists() and not (path.is_file() or path.is_dir())
    number = _STREAMS.get(str(path.absolute()))
    if is_device or number is not None:
        if sys.stdout:
            sys.stdout.flush()
        with path.open("wb") if number is None else os.fdopen(os.dup(number), "wb") as device:
            yield device
        return
    with written_together([path]) as (file,):
        yield file


@contextlib.contextmanager
def written_together(paths: Sequence[Path], replaced: Iterable[Path] = ()) -> Iterator[Sequence[IO[bytes]]]:
    """Yields binary files that take the places of `paths` when the block ends without an error.

    All are on the disk before the first is renamed to its place; they are renamed in the order of `paths`.

    Args:
        paths: all in one folder.
        replaced: files to remove, in this order, before the first new one takes its place; they may be among `paths`.

    Raises:
        OSError: the folder cannot be written or the disk is full; all files are then as they were, and nothing is left
            over.
    """
    for path in paths:
        if not path.name:  # such as `/`
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = [path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp") for path in paths]
    try:
        with contextlib.ExitStack() as opened:
            # with the permissions of any new file: those that the umask leaves
            files = [opened.enter_context(path.open("xb")) for path in temporary]
            yield files
            for file in files:
                file.flush()
                os.fsync(file.fileno())
        for path in replaced:
            path.unlink(missing_ok=True)
        for new, path in zip(temporary, paths, strict=True):
            new.replace(path)
    except BaseException:
        for path in temporary:
            path.unlink(missing_ok=True)
        raise
    _flush(paths[0].parent)


def flush(path: Path) -> None:
    """Flushes a file, or a folder with all that is in it, to the disk.

    Raises:
        OSError: the disk is full.
    """
    for each in (path, *path.rglob("*")):
        _flush(each)


def replace_folder(new: Path, place: Path, old: Path) -> None:
    """Lets a folder take the place of another by renames, so that one of both is whole whenever the process is killed.

    Args:
        new: all of it is on the disk.
        place: where it goes; there need be no folder yet.
        old: where the other lies until it is removed; after a kill, `restore_folder` puts it back.

    Raises:
        OSError: the folders cannot be renamed.
    """
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def restore_folder(place: Path, old: Path) -> None:
    """Puts back what `replace_folder` had moved to `old` where the process was killed between its renames.

    Raises:
        OSError: the folder cannot be renamed.
    """
    if old.exists() and not place.exists():
        old.rename(place)


def remove_torn_line(path: Path) -> None:
    """Removes a last line that was cut short by a full disk or a killed process; there need be no file.

    Raises:
        OSError: the file cannot be read or written.
    """
    content = path.read_bytes() if path.is_file() else b""
    if (end := content.rfind(b"\n") + 1) < len(content):
        os.truncate(path, end)


def write_json(path: Path, document: Any) -> None:
    """Writes a JSON document atomically; see `json_bytes`."""
    with written_atomically(path) as file:
        file.write(json_bytes(document))


def json_bytes(document: Any) -> bytes:
    r"""A JSON document as it stands in a file: UTF-8, indented, with a line break at the end.

    Names of files that are not UTF-8 are written with escapes, from which `json.loads` reads the same names.

    >>> json_bytes("na\udcefve")
    b'"na\\udcefve"\n'
    """
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode(errors="backslashreplace")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
