"""Shards, made by several threads and written in order; each is wholly there or not at all.

Threads rather than processes: decoding, reading and checksums release Python's lock, and nothing has to start. What
each shard was made of lies beside it, hidden, until `dataset.json` describes all of them; so a conversion that was
broken off goes on after the last finished shard.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rudel.data.file_names import printable
from rudel.data.images.examined_image import (
    NOT_AN_IMAGE,
    TOO_MANY_BYTES,
    UNREADABLE,
    ExaminedImage,
    NotAnImage,
    Refused,
    check_beginning,
)
from rudel.data.images.image_sources import Labelled
from rudel.data.images.record import record_of
from rudel.data.images.shard_plan import Shard
from rudel.data.images.stores import MOST_BYTES, File, Store
from rudel.files import json_bytes, write_json, written_together

_PIECE_FILES, _PIECE_BYTES = 64, 2_000_000

Examine = Callable[[list[bytes]], Sequence[ExaminedImage | Refused]]
"""Looks at the contents of files, here or elsewhere."""


@dataclass(frozen=True)
class LeftOut:
    """A file that did not become a record.

    Args:
        name: of the file.
        reason: one of a few, to be counted by.
        detail: more of it, or nothing.
    """

    name: str
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class Made:
    """A finished shard.

    Args:
        file: its name.
        split: `train` or `validation`.
        bytes: its size.
        records: how many there are in it.
        classes: records by label.
        changes: how many images were changed in which way.
        left_out: files that it would have had.
        made_of: see `Shard`.
    """

    file: str
    split: str
    bytes: int
    records: int
    classes: dict[int, int]
    changes: dict[str, int]
    left_out: tuple[LeftOut, ...]
    made_of: str

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Made":
        """Reads what `document` wrote."""
        left_out = tuple(LeftOut(**one) for one in document["left_out"])
        classes = {int(label): count for label, count in document["classes"].items()}
        return cls(**(document | {"left_out": left_out, "classes": classes}))

    def document(self) -> dict[str, Any]:
        """This, as JSON takes it."""
        return asdict(self)


@dataclass(frozen=True)
class _Result:
    record: bytes
    label: int
    changes: tuple[str, ...]


def finished(folder: Path, shard: Shard) -> Made | None:
    """Reads the note of a shard that is there already, made of the very same; None if it has to be made."""
    made = _read_note(folder, shard)
    if made is None or made.made_of != shard.made_of:
        return None
    try:
        return made if (folder / shard.file).stat().st_size == made.bytes else None
    except OSError:
        return None


def make_shard(
    folder: Path,
    shard: Shard,
    store: Store,
    classes: Sequence[str],
    examine: Examine,
    threads: Executor,
    ahead: int,
    report: Callable[[int], None],
) -> Made:
    """Writes a note of what a shard was made of, and the shard, which is never there without its note.

    Args:
        folder: to write to.
        shard: what to write.
        store: reads the images.
        classes: names of the classes.
        examine: looks at images; called in several threads at once.
        threads: where images are read and examined.
        ahead: how many pieces of work are begun before the first has to be done.
        report: called now and then with how many more images are done.

    Raises:
        OSError: the folder cannot be written or the disk is full; the shard is then not there.
    """
    records, size = 0, 0
    labels: Counter[int] = Counter()
    changes: Counter[str] = Counter()
    left_out: list[LeftOut] = []

    def work(piece: Sequence[Labelled]) -> list[_Result | LeftOut]:
        return _made(piece, store, classes, examine)

    place = folder / shard.file
    with written_together([_note(folder, shard.file), place], replaced=[place]) as (note, file):
        for results in _in_order(work, _pieces(shard.files), threads, ahead):
            kept = [result for result in results if isinstance(result, _Result)]
            file.writelines(result.record for result in kept)
            records += len(kept)
            size += sum(len(result.record) for result in kept)
            labels.update(result.label for result in kept)
            changes.update(change for result in kept for change in result.changes)
            left_out += [result for result in results if isinstance(result, LeftOut)]
            report(len(results))
        counted = dict(sorted(labels.items())), dict(sorted(changes.items()))
        made = Made(shard.file, shard.split, size, records, *counted, tuple(left_out), shard.made_of)
        note.write(json_bytes(made.document()))
    return made


def write_note(folder: Path, made: Made) -> None:
    """Puts beside a shard what is known of it."""
    write_json(_note(folder, made.file), made.document())


def has_note(folder: Path, file: str) -> bool:
    """Whether it is known what a shard was made of."""
    return _note(folder, file).exists()


def forget_notes(folder: Path) -> None:
    """Removes the notes beside the shards, when a document has all that they say."""
    for note in folder.glob(".*.tfrecord.json"):
        note.unlink(missing_ok=True)


def _made(piece: Sequence[Labelled], store: Store, classes: Sequence[str], examine: Examine) -> list[_Result | LeftOut]:
    contents = [_content(store, image.file) for image in piece]
    examined = iter(examine([content for content in contents if isinstance(content, bytes)]))
    results: list[_Result | LeftOut] = []
    for image, content in zip(piece, contents, strict=True):
        name = image.file.name
        found = next(examined) if isinstance(content, bytes) else content
        if isinstance(found, Refused):
            results.append(LeftOut(printable(name), found.reason, found.detail))
            continue
        assert isinstance(content, bytes)
        record = record_of(found, content, name, image.label, classes[image.label])
        results.append(_Result(record, image.label, found.changes))
    return results


def _content(store: Store, file: File) -> bytes | Refused:
    """The content of what may be an image; of other files only the beginning is read."""
    if file.size > MOST_BYTES:
        return Refused(TOO_MANY_BYTES, f"{file.size:,} bytes, more than {MOST_BYTES:,}")
    try:
        return store.read(file.name, check_beginning)
    except NotAnImage as error:
        return Refused(NOT_AN_IMAGE, str(error))
    except OSError as error:
        return Refused(UNREADABLE, error.strerror or str(error))


def _pieces(images: Sequence[Labelled]) -> Iterator[Sequence[Labelled]]:
    """Images in parts that are worth a thread's while, and small enough to balance and to hold in memory."""
    begin, size = 0, 0
    for number, image in enumerate(images):
        if number > begin and (number - begin >= _PIECE_FILES or size + image.file.size > _PIECE_BYTES):
            yield images[begin:number]
            begin, size = number, 0
        size += image.file.size
    if begin < len(images):
        yield images[begin:]


def _in_order(work: Callable[[Any], Any], pieces: Iterator[Any], threads: Executor, ahead: int) -> Iterator[Any]:
    """Results of the work in the order of the pieces; a few pieces are worked on at a time."""
    running: deque[Future[Any]] = deque()
    try:
        for piece in pieces:
            running.append(threads.submit(work, piece))
            if len(running) > ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for one in running:
            one.cancel()


def _note(folder: Path, file: str) -> Path:
    return folder / f".{file}.json"


def _read_note(folder: Path, shard: Shard) -> Made | None:
    try:
        return Made.from_document(json.loads(_note(folder, shard.file).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
