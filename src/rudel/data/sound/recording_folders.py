"""A folder of recordings as windows of samples: a folder for each class, or a table of files and labels."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from rudel.cores import usable_cores
from rudel.data.dataset import aligned_empty
from rudel.data.file_names import printable
from rudel.data.images.image_sources import Source, find_labelled_files
from rudel.data.images.shard_writer import LeftOut
from rudel.data.sound.noise import BACKGROUND
from rudel.data.sound.recording import decode, packages
from rudel.data.window_records import read_windows
from rudel.data.windows import Windows, cut_or_padded
from rudel.errors import DataError, OptionError, option

_NAMED = 3

Progress = Callable[[int, int], None]
"""Called with how many files are read, and of how many."""


def find_recordings(
    source: str, rate: int, seconds: float, progress: Progress | None = None, split: str | None = None, least: int = 2
) -> Windows:
    """The windows of a folder of recordings, or of records that were made of one.

    Args:
        source: the folder.
        rate: samples a second.
        seconds: length of a window.
        progress: called as files are read.
        split: of records; None for all of them.
        least: refuse fewer classes.

    Raises:
        DataError: there is nothing to learn from.
        OptionError: the rate or the length makes no sense, or there is no such split.
    """
    window_length(rate, seconds)
    if (records := read_windows(source, "sound", settings_of(rate, seconds), split)) is not None:
        return records
    if split is not None:
        raise OptionError(f"{option('split')} chooses among records, and {source} has recordings: leave it out.")
    return read_folder(source, rate, seconds, progress or (lambda done, total: None), least)


def settings_of(rate: int, seconds: float) -> dict[str, float]:
    """Settings of the windows, as the description of records has them."""
    return {"rate": rate, "seconds": seconds}


def read_folder(
    source: str | Path, rate: int, seconds: float, progress: Progress = lambda done, total: None, least: int = 2
) -> Windows:
    """Reads all recordings of a folder; those that cannot be read are left out, and so is background noise.

    Args:
        source: a folder or an address, as for `rudel.data.images.image_sources.find_labelled_files`.
        rate: samples a second.
        seconds: length of a window.
        progress: called as files are read.
        least: refuse fewer classes.

    Returns:
        Windows, int16 (N, rate * seconds), of the classes that have a recording.

    Raises:
        DataError: there is nothing to learn from.
        OptionError: the rate or the length makes no sense.
    """
    length = window_length(rate, seconds)
    packages()
    found = _without_noise(find_labelled_files(str(source), least_classes=least, what="recordings"))
    parts: list[np.ndarray | LeftOut] = []
    with ThreadPoolExecutor(usable_cores() + found.store.threads, "rudel-sound") as threads:
        for part in threads.map(lambda one: _windows(found, one.file.name, rate, length), found.files):
            parts.append(part)
            progress(len(parts), len(found.files))
    read = [(part, one) for part, one in zip(parts, found.files, strict=True) if not isinstance(part, LeftOut)]
    unread = [part for part in parts if isinstance(part, LeftOut)]
    left_out = (*(LeftOut(printable(name), reason) for name, reason in found.passed_over), *unread)
    present = sorted({one.label for _, one in read})
    check_classes(str(source), len(present), least, left_out)
    x = aligned_empty((sum(len(part) for part, _ in read), length), np.int16)
    np.concatenate([part for part, _ in read], out=x)
    labels = np.concatenate([np.full(len(part), present.index(one.label), np.int32) for part, one in read])
    names = [one.file.name for part, one in read for _ in part]
    return Windows(str(source), x, labels, names, tuple(found.classes[label] for label in present), left_out)


def check_classes(source: str, classes: int, least: int, left_out: tuple[LeftOut, ...]) -> None:
    """Refuses recordings of too few classes.

    Raises:
        DataError: names some of what was left out.
    """
    if classes >= least:
        return
    examples = "; ".join(f"{one.name}: {(one.detail or one.reason).rstrip('.')}" for one in left_out[:_NAMED])
    raise DataError(
        f"{source} has recordings of {classes} {'class' if classes == 1 else 'classes'} that can be used, and {least} "
        f"are needed; {len(left_out):,} were left out{f' ({examples})' if examples else ''}."
    )


def window_length(rate: int, seconds: float) -> int:
    """Samples of a window.

    Raises:
        OptionError: the rate or the length makes no sense.
    """
    if not 1000 <= rate <= 48_000:
        raise OptionError(f"`rate` is in samples a second, 1,000 to 48,000, not {rate}.")
    if not 0.1 <= seconds <= 60:
        raise OptionError(f"`seconds` is the length of a window, 0.1 to 60, not {seconds:g}.")
    return round(rate * seconds)


def _without_noise(found: Source) -> Source:
    """Leaves out a folder of background noise, which is beside those of the classes."""
    if BACKGROUND not in found.classes:
        return found
    noise = found.classes.index(BACKGROUND)
    words = (one for one in found.files if one.label != noise)
    return replace(
        found,
        classes=tuple(name for name in found.classes if name != BACKGROUND),
        files=tuple(replace(one, label=one.label - (one.label > noise)) for one in words),
    )


def _windows(found: Source, name: str, rate: int, length: int) -> np.ndarray | LeftOut:
    shown = printable(name)
    try:
        content = found.store.read(name)
    except OSError as error:
        return LeftOut(shown, "unreadable", error.strerror or str(error))
    try:
        return cut_or_padded(decode(content, rate), length)
    except DataError as error:
        return LeftOut(shown, "no recording", str(error).rstrip("."))
