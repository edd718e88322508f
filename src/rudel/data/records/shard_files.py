"""The files of a set of records: `train-00000-of-00004.tfrecord` and its like, none missing.

Names of TensorFlow Datasets (`mnist-train.tfrecord-00000-of-00001`), and files that are not cut into shards
(`train.tfrecord`), are understood as well.
"""

import glob
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rudel.data.records.byte_sources import open_source
from rudel.data.records.fsspec_packages import filesystem, is_remote
from rudel.errors import DataError

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A folder, a file, a pattern, or several files; on this computer or at an fsspec address."""

_SHARD = re.compile(r"(?P<set>.*?)-(?P<number>\d{5,})-of-(?P<count>\d{5,})(?P<ending>\.\w+)?")
_ENDING = re.compile(r"\.(?:tfrecords?|tfrec)$")
_PATTERN = re.compile(r"[*?\[]")


def find_shards(paths: Paths, split: str | None) -> list[str]:
    """The files that are meant, in order.

    Args:
        paths: a folder, of which the files of `split` are taken; one file; where there is neither, a pattern (`*`, `?`,
            `[...]`) of files; or several. Files that are named one by one are taken as they are; of folders and
            patterns, sets must be complete.
        split: which set of a folder; None for all of them.

    Raises:
        DataError: there is no such file or set, a shard is missing, or more than one set could be meant.
    """
    if not isinstance(paths, str | os.PathLike):
        if not paths:
            raise DataError("The list of records is empty: name files or folders of records.")
        return [file for path in paths for file in find_shards(path, split)]
    path = os.path.expanduser(os.fspath(paths))  # noqa: PTH111 as Path would spoil addresses
    if _PATTERN.search(path) and not Path(path).exists():
        files = sorted(_matching(path))
        if not files:
            raise DataError(f"No file fits {path}: check the pattern.")
        _check_complete(files)
        return files
    names = _names_in(path)
    return [path] if names is None else [_joined(path, name) for name in _of_split(path, names, split)]


def has_records(folder: str, split: str | None = None) -> bool:
    """Whether a folder has files of records, or of one split, by their names; not where it cannot be listed."""
    try:
        names = _names_in(folder) or ()
    except (DataError, OSError):
        names = ()
    # an ending of their own, as that of `photo-00001-of-00009.jpg`, is that of other files
    sets = _sets(name for name in names if "tfrec" in name or ((one := _SHARD.fullmatch(name)) and not one["ending"]))
    return bool(sets if split is None else _meant(sets, split))


def _of_split(folder: str, names: Iterable[str], split: str | None) -> list[str]:
    """The names of a split's files, or of those of all splits, in order."""
    sets = _sets(names)
    if not sets:
        raise DataError(f"{folder} has no TFRecord files: give a folder of them, or make one by `rudel data images`.")
    if split is None:
        files = [name for files in sets.values() for name in files]
        _check_complete(files, folder)
        return files
    meant = _meant(sets, split)
    if not meant:
        there = ", ".join(sorted({f"`{name}`" for name, _ in sets}))
        raise DataError(f"{folder} has no records of the split `{split}`; it has {there}.")
    if len(meant) > 1 or (sets[meant[0]][1:] and not meant[0][1]):
        there = ", ".join(sets[key][0] for key in meant)
        raise DataError(
            f"{folder} has more than one set of records for `{split}` ({there}): name the files that you mean."
        )
    _check_complete(sets[meant[0]], folder)
    return sets[meant[0]]


def _sets(names: Iterable[str]) -> dict[tuple[str, int], list[str]]:
    """Files of records, in order, by the name of their set and its number of shards, 0 where it is not cut."""
    sets: dict[tuple[str, int], list[str]] = defaultdict(list)
    for name in sorted(names):
        if found := _SHARD.fullmatch(name):
            sets[_ENDING.sub("", found["set"]), int(found["count"])].append(name)
        elif _ENDING.search(name):
            sets[_ENDING.sub("", name), 0].append(name)
    return sets


def _meant(sets: Iterable[tuple[str, int]], split: str) -> list[tuple[str, int]]:
    """The sets that are of a split by their names."""
    return [key for key in sets if key[0] == split] or [key for key in sets if key[0].endswith(f"-{split}")]


def _check_complete(files: Sequence[str], folder: str = "") -> None:
    there: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    for file in files:
        if found := _SHARD.fullmatch(file):
            there[found["set"], found["count"], found["ending"] or ""].add(int(found["number"]))
    for (name, count, ending), numbers in there.items():
        missing = sorted(set(range(int(count))) - numbers)
        if missing:
            file = _joined(folder, f"{name}-{missing[0]:05}-of-{count}{ending}")
            more = f" and {len(missing) - 1:,} more of its set" if missing[1:] else ""
            raise DataError(f"The shard {file}{more} is missing: bring it back, or name the files to read one by one.")


def _matching(pattern: str) -> list[str]:
    if not is_remote(pattern):
        return glob.glob(pattern)  # noqa: PTH207 as a pattern may be absolute
    files, path = filesystem(pattern)
    found = _listed(pattern, lambda: files.glob(path))
    return [files.unstrip_protocol(name) for name in found]


def _names_in(path: str) -> list[str] | None:
    """Names of the files in a folder; None for what is no folder."""
    if not is_remote(path):
        folder = Path(path)
        if folder.is_dir():
            return [child.name for child in folder.iterdir()]
        if not folder.exists():
            raise DataError(f"There is no {path}: give a folder of records, a file or a pattern.")
        return None
    last = path.rstrip("/").rpartition("/")[2]
    if _ENDING.search(last) or _SHARD.fullmatch(last):
        return None
    files, inside = filesystem(path)
    listed = _listed_in_document(path)
    if listed is not None:
        return listed
    return [name.rstrip("/").rpartition("/")[2] for name in _listed(path, lambda: files.ls(inside, detail=False))]


def _listed_in_document(folder: str) -> list[str] | None:
    """Names of the shards in `dataset.json`, as not every server lists its folders."""
    try:
        source = open_source(_joined(folder, "dataset.json"))
        document = json.loads(source.read(0, source.size))
        return [str(shard["file"]) for shard in document["shards"]]
    except (DataError, ValueError, KeyError, TypeError):
        return None


def _listed(address: str, ask: Callable[[], list[str]]) -> list[str]:
    try:
        return ask()
    except Exception as error:  # whatever the package that fsspec uses raises
        message = str(error).strip().partition("\n")[0] or type(error).__name__
        raise DataError(f"{address} cannot be listed ({message}): check the address, or name the files.") from error


def _joined(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if folder else name
