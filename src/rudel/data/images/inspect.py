"""Inspection of a folder of records, whoever wrote it: counts, sizes, and a verification of every checksum."""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from rudel.data.images.dataset_file import DATASET, LABELS
from rudel.data.images.stores import Store, open_store, parent_and_name
from rudel.data.images.tally import Tally
from rudel.data.records.byte_sources import Source, open_source
from rudel.data.records.fsspec_packages import is_remote
from rudel.data.records.index import FileIndex, walk
from rudel.errors import DataError

_SHARD = re.compile(r"(?P<split>.+?)[-.](?P<number>\d{5})-of-(?P<count>\d{5})(?:\..+)?")
_RECORDS = re.compile(r".*\.tfrecords?(?:[.-].*)?", re.IGNORECASE)
_READ_BYTES = 1 << 23


@dataclass(frozen=True)
class Damage:
    """A place where a file is not as it was written.

    Args:
        file: its name.
        offset: of the damaged record, in bytes from the file's beginning.
    """

    file: str
    offset: int


@dataclass(frozen=True)
class Split:
    """Records that belong together.

    Args:
        name: of the split.
        files: how many.
        bytes: of all files.
        records: sound ones.
        classes: records by class.
    """

    name: str
    files: int
    bytes: int
    records: int
    classes: Mapping[str, int]


@dataclass(frozen=True)
class Inspection:
    """The result of an inspection.

    Args:
        address: of the folder or file.
        splits: sorted by name, the training first.
        classes: in the order of their labels.
        features: names of the features of the first record.
        sizes: smallest, middle and largest height and width in pixels; None where records do not tell.
        damage: in the order of files and places.
        problems: what else is wrong, a sentence each.
        first: by class, the first images, encoded.
    """

    address: str
    splits: tuple[Split, ...]
    classes: tuple[str, ...]
    features: tuple[str, ...]
    sizes: Mapping[str, tuple[int, int, int]] | None
    damage: tuple[Damage, ...]
    problems: tuple[str, ...]
    first: Mapping[str, tuple[bytes, ...]]

    @property
    def records(self) -> int:
        """Sound records in all splits."""
        return sum(split.records for split in self.splits)


def inspect(address: str, progress: Callable[[int, int], None] = lambda done, total: None) -> Inspection:
    """Reads all records.

    Args:
        address: a folder of TFRecord files, or one such file; here, or wherever fsspec reaches.
        progress: called with how many bytes are read, and of how many.

    Raises:
        DataError: there are no records, or a file cannot be read.
    """
    store, names = _files_of(address)
    sources = {name: open_source(f"{store.address}/{name}") for name in names}
    known = _known_classes(store)
    tally = Tally(known)
    damage: list[Damage] = []
    total, done = sum(source.size for source in sources.values()), 0
    for name, source in sources.items():
        index = walk(source, skip_corrupt=True)
        damage += [Damage(name, int(offset)) for offset in index.damaged]
        for content in _contents(source, index):
            tally.add(_split_of(name), content)
        done += source.size
        progress(done, total)
    classes = tally.classes()
    counted = [
        Split(
            split,
            sum(_split_of(name) == split for name in names),
            sum(source.size for name, source in sources.items() if _split_of(name) == split),
            tally.records[split],
            {one: tally.by_class[split][one] for one in classes},
        )
        for split in sorted({_split_of(name) for name in names}, key=lambda split: ("train" not in split, split))
    ]
    problems = (*_missing(names), *_not_as_described(store, sources, tally), *tally.problems())
    features = tuple(tally.features)
    return Inspection(address, tuple(counted), classes, features, tally.sizes(), tuple(damage), problems, tally.first())


def _files_of(address: str) -> tuple[Store, list[str]]:
    folder, name = parent_and_name(address)
    store = open_store(folder)
    if _RECORDS.fullmatch(name) and name in store.look_up([name]) and not _is_folder(store, name):
        return store, [name]
    store = open_store(address)
    names = [file.name for file in store.files() if "/" not in file.name]
    names = [name for name in names if _RECORDS.fullmatch(name) or _SHARD.fullmatch(name)]
    if not names:
        raise DataError(f"{address} has no records: files that end in .tfrecord, or in a number as in -00000-of-00004.")
    return store, names


def _is_folder(store: Store, name: str) -> bool:
    from pathlib import Path

    return not is_remote(store.address) and Path(store.address, name).is_dir()


def _known_classes(store: Store) -> tuple[str, ...] | None:
    try:
        names = store.read(LABELS).decode("utf-8-sig").splitlines()
    except (OSError, ValueError):
        return None
    return tuple(names) or None


def _contents(source: Source, index: FileIndex) -> Iterator[bytes]:
    """The contents of all records; some megabytes are read at a time."""
    begins, ends = index.begins.tolist(), (index.begins + index.lengths).tolist()
    first = 0
    while first < len(begins):
        base = begins[first]
        last = max(first + 1, bisect_right(ends, base + _READ_BYTES))
        block = source.read(base, ends[last - 1] - base)
        for number in range(first, last):
            yield block[begins[number] - base : ends[number] - base]
        first = last


def _split_of(name: str) -> str:
    """The split that a file belongs to, by its name.

    >>> _split_of("train-00001-of-00004.tfrecord"), _split_of("mnist-test.tfrecord-00000-of-00001")
    ('train', 'mnist-test')
    """
    found = _SHARD.fullmatch(name)
    stem = found["split"] if found else PurePosixPath(name).name
    return re.sub(r"\.tfrecords?$", "", stem, flags=re.IGNORECASE)


def _missing(names: list[str]) -> Iterator[str]:
    """Which shards of a set are not there."""
    sets: dict[tuple[str, int], set[int]] = {}
    for name in names:
        if found := _SHARD.fullmatch(name):
            sets.setdefault((found["split"], int(found["count"])), set()).add(int(found["number"]))
    for (split, count), there in sets.items():
        if absent := sorted(set(range(count)) - there):
            are = "is missing" if len(absent) == 1 else "are missing"
            numbers = ", ".join(f"{number:05d}" for number in absent[:3]) + (", ..." if len(absent) > 3 else "")
            yield f"Of the {count:,} shards of {split}, {len(absent):,} {are}: number {numbers}."


def _not_as_described(store: Store, sources: Mapping[str, Source], tally: Tally) -> Iterator[str]:
    """Differences from `dataset.json`, a sentence each."""
    try:
        document = json.loads(store.read(DATASET))
        shards = {shard["file"]: shard["bytes"] for shard in document["shards"]}
        records = {split: summary["records"] for split, summary in document["splits"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name, source in sources.items():
        if name in shards and source.size != shards[name]:
            yield f"{name} has {source.size:,} bytes, and {DATASET} says {shards[name]:,}."
    if len(sources) > 1:
        for split, count in records.items():
            if tally.records[split] != count:
                yield f"{split} has {tally.records[split]:,} sound records, and {DATASET} says {count:,}."
        for name in sorted(set(shards) - set(sources)):
            yield f"{name} is missing, which {DATASET} names."
