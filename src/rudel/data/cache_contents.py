"""Contents of the cache, their sizes, and which of them are no longer of use.

Only what Rudel keeps there is counted and removed, by its name and form: the cache may be a folder that holds other
things as well. All of it can be fetched or regenerated.
"""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rudel.data.images import dataset_file
from rudel.data.images.convert import LOCK
from rudel.data.records.fsspec_packages import is_remote
from rudel.errors import DataError

_HEX = r"[0-9a-f]{16,64}"
_KINDS = {
    "jax": ("compiled programs", r".+-(?:cache|atime)"),
    "pieces": ("data of trainings on several hosts", rf"{_HEX}(?:\..*)?"),
    "play": ("models for pages", rf"{_HEX}|\.making-.+"),
    "quickdraw": ("drawings", _HEX),
    "records": ("where records are in their files", rf"\.?{_HEX}\.npz.*"),
    "tables": ("tables of photographs", rf"\.?{_HEX}\.csv.*"),
    "wheels": ("packages for hosts", r"[a-z0-9_]+-[a-z0-9_]+|pip"),
    "zig": ("compiled C libraries", r"[a-z]|tmp"),
}
"""Folders in the cache: what they hold, and the names in them that are Rudel's."""

_KEY = r"[0-9a-f]{16}"
_CONVERTED = ("photographs", "records")
"""Folders with photographs as records, in folders named by a key; the second is what earlier versions used."""


@dataclass(frozen=True)
class Kept:
    """Something in the cache.

    Args:
        name: where it is, from the cache folder.
        what: it is.
        bytes: size of all its files.
        useless: why it is no longer of use; empty if it is.
    """

    name: str
    what: str
    bytes: int
    useless: str = ""


def kept(cache: Path) -> list[Kept]:
    """All that the cache holds, the largest first."""
    found = [Kept(name, what, sum(map(_size, _own(cache, name)))) for name, (what, _) in _KINDS.items()]
    found = [one for one in found if one.bytes]
    for name in _CONVERTED:
        for folder in _inside(cache / name):
            if re.fullmatch(_KEY, folder.name) and _is_converted(folder):
                source, useless = _source(folder)
                useless = useless if name == _CONVERTED[0] else "of an earlier version"
                found.append(Kept(f"{name}/{folder.name}", f"photographs of {source}", _size(folder), useless))
    return sorted(found, key=lambda one: -one.bytes)


def remove(cache: Path, one: Kept) -> None:
    """Removes what is in the cache.

    Raises:
        DataError: it is being written, or cannot be removed.
    """
    folder = cache / one.name
    try:
        if "/" in one.name:
            with _unused(folder):
                dataset_file.discard(folder)
            return
        for path in _own(cache, one.name):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{error.filename or folder} cannot be removed: {error.strerror}.") from error


@contextlib.contextmanager
def _unused(folder: Path) -> Iterator[None]:
    """Keeps conversions out of a folder of records."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise DataError(f"{folder} is being written by another process: wait for it.") from None
    finally:
        os.close(lock)


def _is_converted(folder: Path) -> bool:
    """Whether a folder holds nothing but what a conversion writes."""
    try:
        names = {path.name for path in folder.iterdir()}
        return bool(names & {dataset_file.DATASET, LOCK}) and not dataset_file.foreign_files(folder)
    except (OSError, DataError):
        return False


def _source(folder: Path) -> tuple[str, str]:
    """The source of converted photographs, and why they are no longer of use."""
    try:
        document = dataset_file.read(folder)
    except DataError:
        document = None
    if document is None:
        return "an unfinished conversion", ""
    source = str(document["source"])
    return source, "" if is_remote(source) or Path(source).exists() else "its source is gone"


def _own(cache: Path, name: str) -> list[Path]:
    form = re.compile(_KINDS[name][1])
    return [path for path in _inside(cache / name) if form.fullmatch(path.name)]


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; links are not followed, and what has just gone does not count."""
    if path.is_symlink() or not path.is_dir():
        with contextlib.suppress(OSError):
            return path.lstat().st_size
        return 0
    return sum(map(_size, _inside(path)))
