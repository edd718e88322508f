"""Recordings of a motion sensor as windows: CSV files with a header, recordings separated by blank lines.

A folder has a file for each class (`punch.csv`), or a folder for each class with files in it. The first line names the
columns, and all files have the same ones. A recording shorter than a window goes on with its last row; of one less than
twice as long, the part that moves most is taken; a longer one is cut into as many windows as it holds.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from rudel.data.file_names import printable
from rudel.data.images.image_sources import check_name, check_not_split
from rudel.data.images.shard_writer import LeftOut
from rudel.data.images.stores import open_store
from rudel.data.records.fsspec_packages import is_remote
from rudel.data.sound.recording_folders import check_classes
from rudel.data.window_records import read_windows
from rudel.data.windows import Windows, cut_or_padded, places_of
from rudel.errors import DataError, OptionError, option
from rudel.files import expanded

_SUFFIX = ".csv"


def find_motions(source: str, samples: int, split: str | None = None, least: int = 2) -> Windows:
    """The windows of a folder of CSV files, or of records that were made of one.

    Args:
        source: the folder, or an address.
        samples: length of a window.
        split: of records; None for all of them.
        least: refuse fewer classes.

    Raises:
        DataError: there is nothing to learn from.
        OptionError: the length makes no sense, or there is no such split.
    """
    if (records := read_windows(source, "motion", {"samples": samples}, split)) is not None:
        return records
    if split is not None:
        raise OptionError(f"{option('split')} chooses among records, and {source} has CSV files: leave it out.")
    return read_folder(source, samples, least)


def read_folder(source: str, samples: int, least: int = 2) -> Windows:
    """Reads all recordings of a folder; files and recordings that cannot be read are left out.

    Args:
        source: the folder, or an address.
        samples: length of a window.
        least: refuse fewer classes.

    Returns:
        Windows, float32 (N, samples, columns).

    Raises:
        DataError: there is nothing to learn from.
        OptionError: the length makes no sense.
    """
    if not 2 <= samples <= 100_000:
        raise OptionError(f"`samples` is the length of a window in rows, 2 to 100,000, not {samples}.")
    if not is_remote(source) and not expanded(source).is_dir():
        raise DataError(f"There is no folder {source}.")
    store = open_store(source)
    files = [file.name for file in store.files()]
    tables = [name for name in files if name.lower().endswith(_SUFFIX)]
    if not tables:
        raise DataError(f"{source} has no CSV file: give a folder with one for each class, such as punch.csv.")
    check_not_split({_class_of(name) for name in tables}, source)
    for name in tables:
        check_name(_class_of(name), f"`{printable(name)}` in {source}")
    header: tuple[str, list[str]] | None = None
    read: list[tuple[str, str, np.ndarray]] = []
    left_out: list[LeftOut] = []
    for name in files:
        try:
            if not name.lower().endswith(_SUFFIX):
                raise DataError("its name does not end in .csv")
            columns, recordings = _table(store.read(name))
            header = header or (name, columns)
            if columns != header[1]:
                raise DataError(f"its columns are not those of {printable(header[0])}")
        except (DataError, OSError) as error:
            left_out.append(LeftOut(printable(name), "unreadable", getattr(error, "strerror", None) or str(error)))
            continue
        for number, found in enumerate(recordings, 1):
            if isinstance(found, str):
                left_out.append(LeftOut(f"{printable(name)}:{number}", "no recording", found))
            else:
                read.append((_class_of(name), f"{name}:{number}", found))
    check_classes(source, len({label for label, _, _ in read}), least, tuple(left_out))
    classes = tuple(sorted({label for label, _, _ in read}))
    parts = [cut_or_padded(values, samples, "edge") for _, _, values in read]
    label_of = {label: number for number, label in enumerate(classes)}
    pairs = list(zip(parts, read, strict=True))
    return Windows(
        source,
        np.concatenate(parts),
        np.concatenate([np.full(len(part), label_of[label], np.int32) for part, (label, _, _) in pairs]),
        [name for part, (_, name, _) in pairs for _ in part],
        classes,
        tuple(left_out),
        channels=tuple(header[1]) if header else (),
    )


def read_rows(path: Path, shape: tuple[int, ...], wanted: Sequence[str] = ()) -> np.ndarray:
    """The recordings of a file as inputs of a model.

    Args:
        path: of a CSV file.
        shape: of one input, (samples, columns).
        wanted: names of the columns, in the order in which the model takes them; empty for that of the file.

    Returns:
        float32 (N, samples, columns).

    Raises:
        DataError: the file, or a recording in it, cannot be read or does not fit.
    """
    try:
        columns, recordings = _table(path.read_bytes())
    except (DataError, OSError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if len(shape) != 2 or len(columns) < shape[1] or (len(columns) > shape[1] and not wanted):
        raise DataError(f"{path} has {len(columns)} columns, and the model takes inputs of shape {shape}.")
    places = places_of(wanted or columns, columns, path)
    for number, found in enumerate(recordings, 1):
        if isinstance(found, str):
            raise DataError(f"Recording {number} in {path} cannot be read: {found}.")
    if not recordings:
        raise DataError(f"{path} has no recording, only a header.")
    return np.concatenate(
        [cut_or_padded(found[:, places], shape[0], "edge") for found in recordings if not isinstance(found, str)]
    )


def _table(content: bytes) -> tuple[list[str], list[np.ndarray | str]]:
    """The columns of a file, and its recordings, or what is wrong with each.

    Raises:
        DataError: it is not UTF-8, has no header, or other separators than commas.
    """
    try:
        lines = io.StringIO(content.decode("utf-8-sig"), newline=None)
    except UnicodeDecodeError:
        raise DataError("it is not UTF-8") from None
    header = lines.readline()
    if "," not in header and re.search("[;\t]", header):
        raise DataError("its columns are not separated by commas: save it with commas, and with decimal points")
    try:
        columns = _checked([column.strip() for column in next(csv.reader([header], skipinitialspace=True))])
        return columns, [
            _parsed(list(csv.reader(rows, skipinitialspace=True)), len(columns)) for rows in _recordings(lines)
        ]
    except csv.Error as error:
        raise DataError(f"it is not a CSV file ({error})") from error


def _checked(names: list[str]) -> list[str]:
    """The columns of a header.

    Raises:
        DataError: they are numbers, are not named, or two have one name.
    """
    if not all(names) or all(_is_number(name) for name in names):
        raise DataError("its first line does not name the columns, such as aX,aY,aZ,gX,gY,gZ")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"its first line names the column {twice} twice")
    return names


def _recordings(lines: Iterable[str]) -> Iterator[list[str]]:
    rows: list[str] = []
    for line in [*lines, ""]:
        if line.strip(' ",\t\n'):
            rows.append(line)
        elif rows:
            yield rows
            rows = []


def _parsed(fields: list[list[str]], columns: int) -> np.ndarray | str:
    """Values, float32 (rows, columns), or what is wrong with them."""
    if odd := next((number for number, row in enumerate(fields, 1) if len(row) != columns), None):
        return f"row {odd} has {len(fields[odd - 1])} fields, not {columns}"
    try:
        values = np.array(fields, np.float64).astype(np.float32)
    except ValueError:
        return "a field is not a number"
    return values if np.isfinite(values).all() else "a field is NaN or infinite"


def _class_of(name: str) -> str:
    path = PurePosixPath(name)
    return unicodedata.normalize("NFC", path.parts[0] if len(path.parts) > 1 else path.stem)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
