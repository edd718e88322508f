"""Photographs become records: what there is, what of it is done already, the rest, and a description of it all.

The folder of records is whole when it has a `dataset.json`. A conversion that was broken off, in whatever way, goes on
after its last finished shard; one that is done is found to be so by names, sizes and times of the images, without
reading them. Two at the same time into the same folder: one waits for the other.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

from rudel.cores import usable_cores
from rudel.data.file_names import printable
from rudel.data.images import dataset_file
from rudel.data.images.dataset_file import Converted
from rudel.data.images.examined_image import ExaminedImage, Refused, examine_all
from rudel.data.images.image_sources import Source, find_labelled_files
from rudel.data.images.shard_plan import TRAIN, VALIDATION, Options, Shard, check_share, plan_shards
from rudel.data.images.shard_writer import LeftOut, finished, make_shard
from rudel.data.records.fsspec_packages import is_remote
from rudel.errors import DataError, OptionError
from rudel.files import expanded

LOCK = ".lock"
_AHEAD = 3
_NAMED = 3

Progress = Callable[[int, int], None]
"""Called with how many images are done, and of how many."""


class Spread(Protocol):
    """Other computers that examine images."""

    @property
    def threads(self) -> int:
        """The number of calls to make at the same time."""
        ...

    def __call__(self, contents: list[bytes], max_side: int | None) -> Sequence[ExaminedImage | Refused]:
        """As `examine_all`."""
        ...


def convert(
    source: str | Path,
    out: str | Path,
    *,
    labels: str | Path | None = None,
    classes: str | Path | None = None,
    validation: float | str | Path = 0.1,
    max_side: int | None = None,
    shards: int | None = None,
    least_classes: int = 2,
    spread: Spread | None = None,
    progress: Progress = lambda done, total: None,
    frame: str = "",
) -> Converted:
    """Converts images to record shards, or goes on with that, or finds that it is done.

    Args:
        source: a folder with a folder for each class, a CSV file of paths and labels, or a folder of images that
            `labels` has the labels of; or the address of one, as in `s3://bucket/folder`.
        out: a folder to be made, or that a conversion of the same source made.
        labels: a table of file names and labels; by default `labels.csv` or `labels.txt` in a folder without
            folders of classes.
        classes: a file with the names of the classes, one a line, in the order of their labels.
        validation: share that is held out, by the hash of the file's name; or another source, all of whose images are
            for validation, and whose classes are among those of the first.
        max_side: make images smaller that have a longer side, in pixels.
        shards: number of files for the training; by default as many as make them about 128 MB large.
        least_classes: 1 if nobody is to be trained on the records alone, which takes 2.
        spread: other computers that help.
        progress: called as images are done.
        frame: what messages call the frame that the table at `source` was made of, if it was.

    Returns:
        What is there now.

    Raises:
        DataError: there is nothing to convert, or it cannot be, or `out` holds something else.
        OptionError: an option has a value that it cannot take.
    """
    validation = str(validation) if isinstance(validation, Path) else validation
    options = _checked(Options(_origin(validation) if isinstance(validation, str) else validation, max_side, shards))
    address, folder = str(source), expanded(out)
    if is_remote(str(out)):
        raise DataError(f"Records are written to a local folder, not to {out}: give one, and copy it there.")
    _check_apart(address, folder)
    tables = (None if file is None else str(file) for file in (labels, classes))
    found = find_labelled_files(address, *tables, least_classes=least_classes, frame=frame)
    sources = {TRAIN: found}
    if isinstance(validation, str):
        _check_apart(validation, folder)
        sources[VALIDATION] = find_labelled_files(validation, classes=found.classes, least_classes=1)
    held_out = sources[VALIDATION].files if VALIDATION in sources else ()
    planned = plan_shards(found.files, found.classes, options, held_out)
    passed_over = tuple(
        LeftOut(printable(name), reason) for each in sources.values() for name, reason in each.passed_over
    )
    origin = _origin(address)
    made_of = dataset_file.identity(origin, planned, passed_over, options)
    with _written(folder), _held(folder, origin):
        document = dataset_file.read(folder)
        if document is not None and document["made_of"] == made_of:
            converted = dataset_file.as_converted(folder, document)
            if dataset_file.is_whole(converted):
                return converted
        dataset_file.reopen(folder)
        converted = _make(folder, planned, sources, passed_over, options, spread, progress)
        _check_result(converted, least_classes)
        dataset_file.write(converted, origin, options, made_of)
    return converted


def _make(
    folder: Path,
    planned: Sequence[Shard],
    sources: Mapping[str, Source],
    passed_over: tuple[LeftOut, ...],
    options: Options,
    spread: Spread | None,
    progress: Progress,
) -> Converted:
    done, made, new = 0, [], 0
    total, classes = sum(len(shard.files) for shard in planned), sources[TRAIN].classes

    def report(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    examine = partial(spread or examine_all, max_side=options.max_side)
    count = (spread.threads if spread else usable_cores()) + max(each.store.threads for each in sources.values())
    threads = ThreadPoolExecutor(count, "rudel-images")
    try:
        for shard in planned:
            already = finished(folder, shard)
            if already:
                report(len(shard.files))
            else:
                store = sources.get(shard.split, sources[TRAIN]).store
                already = make_shard(folder, shard, store, classes, examine, threads, _AHEAD * count, report)
                new += 1
            made.append(already)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(
            f"Interrupted: {len(made)} of {len(planned)} shards are done, and the same command continues after them."
        ) from interrupt
    finally:
        threads.shutdown(cancel_futures=True)
    return Converted(folder, classes, tuple(made), passed_over, new)


def _checked(options: Options) -> Options:
    if not isinstance(options.validation, str):
        check_share(options.validation)
    if options.max_side is not None and options.max_side < 1:
        raise OptionError(f"`max_side` is at least 1 pixel, not {options.max_side}.")
    if options.shards is not None and not 1 <= options.shards <= 99_999:
        raise OptionError(f"`shards` must be a whole number from 1 to 99,999, not {options.shards}.")
    return options


def _check_apart(address: str, folder: Path) -> None:
    if is_remote(address):
        return
    images, records = expanded(address).resolve(), folder.resolve()
    if records == images or records.is_relative_to(images):
        raise DataError(f"{folder} is in the folder of the images, {address}: put the records elsewhere.")


def _check_result(converted: Converted, least_classes: int) -> None:
    """Refuses records of too few classes, and removes them."""
    counts = zip(converted.classes, converted.counts(TRAIN), converted.counts(VALIDATION), strict=True)
    present = [name for name, train, validation in counts if train or validation]
    if len(present) >= least_classes:
        return
    left_out = converted.left_out
    dataset_file.discard(converted.path)
    examples = "; ".join(f"{one.name}: {dataset_file.describe(one)}" for one in left_out[:_NAMED])
    what = f"images of one class only, `{present[0]}`, are left" if present else "no image is left"
    raise DataError(f"Of all files, {what}, and {len(left_out):,} were left out ({examples}).")


@contextlib.contextmanager
def _held(folder: Path, origin: str) -> Iterator[None]:
    """Makes the folder if need be, and keeps other conversions out of it."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file: name a folder for the records.")
    lock = _locked(folder)
    try:
        _check_folder(folder, origin)
        dataset_file.remove_partial_files(folder)
        yield
    finally:
        with contextlib.suppress(OSError):
            if [path.name for path in folder.iterdir()] == [LOCK]:
                dataset_file.discard(folder)
        os.close(lock)


@contextlib.contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"{folder} cannot be written ({reason}): repair that; the same command continues after what is done."
        ) from error


def _locked(folder: Path) -> int:
    """Waits for the lock of the folder; returns its file descriptor."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            if (folder / LOCK).stat().st_ino == os.fstat(lock).st_ino:
                return lock
        os.close(lock)  # who had it has removed the folder


def _check_folder(folder: Path, origin: str) -> None:
    if foreign := dataset_file.foreign_files(folder):
        raise DataError(f"{folder} holds something else, such as `{foreign[0]}`: name an empty folder for the records.")
    document = dataset_file.read(folder)
    if document is not None and _origin(document["source"]) != origin:
        raise DataError(f"{folder} holds the records of {document['source']}: name another folder.")


def _origin(address: str) -> str:
    """The address of images, the same one however a local folder is written."""
    return address if is_remote(address) else str(expanded(address).resolve())
