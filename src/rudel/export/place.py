"""The place of an export: beside its final place first, and there by a rename, wholly or not at all."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rudel.errors import ExportError, option
from rudel.files import flush


def check_free(out: Path) -> None:
    """Refuses a place that is taken, lies in a file or is a file system's root; an empty folder is not taken.

    Raises:
        ExportError: something is there, or in the place of a folder.
    """
    if not out.absolute().name:
        raise ExportError(f"{out} is a root folder: give another place with {option('out')}.")
    there = next(path for path in out.absolute().parents if path.exists())
    if not there.is_dir():
        raise ExportError(f"{out} cannot be written, as {there} is a file: give another place with {option('out')}.")
    if out.is_symlink() or out.exists():
        if out.is_dir() and not any(out.iterdir()):
            return
        raise ExportError(f"{out} already exists: remove it, or give another place with {option('out')}.")


@contextlib.contextmanager
def workshop(out: Path) -> Iterator[Path]:
    """Yields an empty folder on the file system of `out`, which is removed in the end.

    Raises:
        ExportError: nothing can be written there, or the disk is full.
    """
    near = next(folder for folder in out.absolute().parents if folder.is_dir())
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".tmp", dir=near))
    except OSError as error:
        raise ExportError(
            f"{out} cannot be written ({error.strerror}): give another place with {option('out')}."
        ) from error
    try:
        yield folder
    except OSError as error:
        raise ExportError(f"{out} could not be written ({error.strerror or error}).") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put(made: Path, out: Path) -> None:
    """Moves a file or folder, flushed to the disk, to its final place.

    Raises:
        ExportError: something has come there meanwhile.
        OSError: the disk is full, or the folder cannot be written.
    """
    flush(made)
    check_free(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    if made.is_file() and out.is_dir():
        out.rmdir()
    made.replace(out)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
