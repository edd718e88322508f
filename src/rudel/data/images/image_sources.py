"""The images of a data set and the class of each: from folders of classes, or from a table."""

import shlex
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from rudel.data.file_names import printable
from rudel.data.images.label_table import Row, read_names, read_table
from rudel.data.images.stores import File, Store, open_store, parent_and_name
from rudel.data.records.fsspec_packages import is_remote
from rudel.errors import DataError, option
from rudel.files import expanded

TABLES = (".csv", ".tsv")
LABELS_FILES = ("labels.csv", "labels.tsv", "labels.txt")
"""A table in a folder of images; where there are several folders, see `_names_most`."""

_MOST = 0.9
"""Share of the files like those that a table names that it has to name, or else folders name the classes."""

NO_LABEL, MISSING = "without a label", "not there"
NOT_READ = "not read, as folders name the classes"
"""Why files are left out before anyone has looked at them."""

_SPLIT_ALREADY = {"train", "training", "val", "valid", "validation", "test", "testing", "eval"}


@dataclass(frozen=True)
class Labelled:
    """A file and its class.

    Args:
        file: in the store.
        label: position of its class among the classes.
    """

    file: File
    label: int


@dataclass(frozen=True)
class Source:
    """Files with their labels.

    Args:
        address: as a reader would write it.
        store: what reads them.
        classes: their names; a label is a position in it.
        files: at least one, in the order of their names.
        passed_over: names of files that are left out unseen, with the reason.
    """

    address: str
    store: Store
    classes: tuple[str, ...]
    files: tuple[Labelled, ...]
    passed_over: tuple[tuple[str, str], ...]


def find_labelled_files(
    address: str,
    labels: str | None = None,
    classes: str | tuple[str, ...] | None = None,
    least_classes: int = 2,
    what: str = "pictures",
    frame: str = "",
) -> Source:
    """Finds the files of a data set and their labels, without reading the files.

    Args:
        address: a folder with a folder for each class; a CSV file of paths, relative to it, and labels; or a folder
            with images, for which `labels`, or a `labels.csv` or `labels.txt` in it, has the labels. Beside several
            folders, such a file counts only if it can be read and leaves few of the images without a label.
        labels: a table of file names and labels, in place of folders of classes.
        classes: a file with the names of the classes, one a line, in the order of their labels, or these names; by
            default the names that there are, sorted, numbers by their value.
        least_classes: refuse fewer.
        what: what the files are, as messages name them.
        frame: what messages call the frame that the table at `address` was made of, if it was.

    Raises:
        DataError: there are no such files, or too few classes, or labels and classes do not go together.
    """
    known = read_names(_read(classes), classes) if isinstance(classes, str) else classes
    is_table = address.lower().endswith(TABLES)
    if is_table and labels is not None:
        raise DataError(f"{address} has the labels already: leave out `labels`, or give the folder of the {what}.")
    if is_table:
        folder, _ = parent_and_name(address)
        name = frame or address
        rows = read_table(_read(address), name, frame=bool(frame))
        store = open_store(folder)
        found = _looked_up(store, rows)
        source = _from_rows(name, store, rows, found, known, name, what)
    else:
        source = _from_folder(address, labels, known, what)
    if least_classes > 1:
        _check_classes(source, what)
    return source


def check_not_split(names: Collection[str], address: str, what: str = "recordings") -> None:
    """Refuses a folder whose classes would be the splits of a data set.

    Args:
        names: of the classes.
        address: of the folder.
        what: its files are, as for `find_labelled_files`.

    Raises:
        DataError: all of them are names of splits, such as `train` and `test`.
    """
    if len(names) < 2 or not {name.lower() for name in names} <= _SPLIT_ALREADY:
        return
    remedy = f"convert each by itself, into folders of their own, with {option('validation', 0)}"
    if what == "pictures":
        known = sorted(names, key=lambda name: [not name.lower().startswith(word) for word in ("train", "val")])
        train, validation = (shlex.quote(f"{address.rstrip('/')}/{name}") for name in known[:2])
        remedy = f"convert it by `rudel data images {train} --validation {validation} --out DIR`"
    raise DataError(f"{address} seems to be split already, into {_listed(sorted(names))}: {remedy}.")


def _from_folder(address: str, labels: str | None, known: tuple[str, ...] | None, what: str) -> Source:
    if not is_remote(address) and not expanded(address).is_dir():
        is_file = expanded(address).is_file()
        why = f"{address} is a file: give a folder, or a table whose name ends in .csv." if is_file else ""
        raise DataError(why or f"There is no folder {address}.")
    store = open_store(address)
    files = store.files()
    if not files:
        raise DataError(f"{address} is empty: give a folder that has a folder of {what} for each class.")
    names = {file.name for file in files}
    in_doubt = labels is None and len(_folders_of(files)) > 1
    if labels is None:
        beside = next((name for name in LABELS_FILES if name in names), None)
        if beside is None:
            return _from_folders(address, store, files, known, what)
        table, content = f"{address.rstrip('/')}/{beside}", store.read(beside)
    else:
        table, content = labels, _read(labels)
        beside = _inside(labels, store.address)
    others = [file for file in files if file.name != beside]
    try:
        rows = read_table(content, table)
    except DataError:
        if not in_doubt:
            raise
        return _from_folders(address, store, files, known, what)
    found = _found(rows, others)
    labelled = {file.name for file in found.values()}
    if in_doubt and not _names_most(labelled, others):
        return _from_folders(address, store, files, known, what)
    unlabelled = [(file.name, NO_LABEL) for file in others if file.name not in labelled]
    return _from_rows(address, store, rows, found, known, table, what, unlabelled)


def _looked_up(store: Store, rows: Sequence[Row]) -> dict[str, File]:
    """The files that rows name, in whichever form of Unicode, by the path in the row."""
    found = store.look_up(row.path for row in rows)
    for form in ("NFC", "NFD"):
        missing = {unicodedata.normalize(form, row.path): row.path for row in rows if row.path not in found}
        others = [name for name, path in missing.items() if name != path]
        found |= {missing[name]: file for name, file in store.look_up(others).items()}
    return found


def _found(rows: Sequence[Row], files: Sequence[File]) -> dict[str, File]:
    """The files that rows name, with their ending or without it, by the path in the row."""
    by_name = {unicodedata.normalize("NFC", file.name): file for file in files} | {file.name: file for file in files}
    by_stem: dict[str, list[File]] = {}
    for file in files:
        stem = str(PurePosixPath(file.name).with_suffix(""))
        for form in {stem, unicodedata.normalize("NFC", stem)}:
            by_stem.setdefault(form, []).append(file)
    found = {}
    for row in rows:
        composed = unicodedata.normalize("NFC", row.path)
        file = by_name.get(row.path) or by_name.get(composed)
        if file is None and len(same := by_stem.get(row.path) or by_stem.get(composed, [])) == 1:
            file = same[0]
        if file is not None:
            found[row.path] = file
    return found


def _names_most(named: Collection[str], files: Sequence[File]) -> bool:
    """Whether a table names most of the files that are like those it names: in the same folder, with the same ending.

    Then folders such as `00` and `01`, or `images` and `masks`, are not classes.
    """
    kinds = {_kind(name) for name in named}
    return bool(named) and len(named) >= _MOST * sum(_kind(file.name) in kinds for file in files)


def _kind(name: str) -> tuple[str, str]:
    """The folder and the ending of a file."""
    path = PurePosixPath(name)
    return str(path.parent), path.suffix.lower()


def _from_folders(
    address: str, store: Store, files: Sequence[File], known: tuple[str, ...] | None, what: str
) -> Source:
    inside = [file for file in files if "/" in file.name]
    if not inside:
        raise DataError(
            f"{address} has files but no folders of classes: put the {what} of each class into a folder of their "
            f"own, or give a table FILE.csv that says what each of them shows."
        )
    folders = _folders_of(files)
    check_not_split(folders, address, what)
    for name in folders:
        check_name(name, f"the folder `{printable(name)}` in {address}")
    _check_alike(folders, address)
    by_class = {unicodedata.normalize("NFC", name): name for name in folders}
    classes = known or tuple(_sorted(by_class))
    unknown = sorted(set(by_class) - set(classes))
    if unknown:
        raise DataError(
            f"The folder `{unknown[0]}` in {address} is none of the {len(classes):,} classes: add it to them, or move "
            "it elsewhere."
        )
    label = {by_class[name]: number for number, name in enumerate(classes) if name in by_class}
    images = tuple(Labelled(file, label[file.name.partition("/")[0]]) for file in inside)
    loose = [file.name for file in files if "/" not in file.name]
    passed_over = tuple((name, NOT_READ if name in LABELS_FILES else NO_LABEL) for name in loose)
    return Source(address, store, classes, images, passed_over)


def _folders_of(files: Iterable[File]) -> set[str]:
    """Folders at the root of a store that have files."""
    return {file.name.partition("/")[0] for file in files if "/" in file.name}


def _from_rows(
    address: str,
    store: Store,
    rows: Sequence[Row],
    found: Mapping[str, File],
    known: tuple[str, ...] | None,
    table: str,
    what: str,
    unlabelled: Sequence[tuple[str, str]] = (),
) -> Source:
    rows = rows[1:] if _is_heading(rows, found) else rows
    for row in rows:
        check_name(row.label, f"{row.place} of {table}")
    if known is None:
        _check_alike({row.label for row in rows}, table)
    classes = known or tuple(_sorted({unicodedata.normalize("NFC", row.label) for row in rows}))
    positions = {name: number for number, name in enumerate(classes)}
    images = [Labelled(found[row.path], _label(row, positions, table)) for row in rows if row.path in found]
    missing = [(row.path, MISSING) for row in rows if row.path not in found]
    if not images:
        raise DataError(f"None of the {len(rows):,} {what} that {table} names is there: the first is {rows[0].path}.")
    images.sort(key=lambda one: one.file.name)
    return Source(address, store, classes, tuple(images), (*missing, *unlabelled))


def _is_heading(rows: Sequence[Row], found: Mapping[str, File]) -> bool:
    """Whether the first line names the columns, by words of its own: it alone names no file, and no class of others."""
    first, others = rows[0], rows[1:]
    if first.place != "line 1" or first.path in found or PurePosixPath(first.path).suffix or not others:
        return False
    return all(row.path in found and row.label != first.label for row in others)


def _label(row: Row, positions: Mapping[str, int], table: str) -> int:
    name = unicodedata.normalize("NFC", row.label)
    if name in positions:
        return positions[name]
    if name.lstrip("-").isdecimal():
        number = int(name)
        if 0 <= number < len(positions):
            return number
        raise DataError(
            f"Label {number} in {row.place} of {table} is out of range: there are {len(positions):,} classes, and "
            f"labels go from 0 to {len(positions) - 1:,}."
        )
    raise DataError(f"`{row.label}` in {row.place} of {table} is none of the {len(positions):,} classes.")


def _check_classes(source: Source, what: str) -> None:
    used = {image.label for image in source.files}
    if len(used) == 1:
        only = source.classes[next(iter(used))]
        raise DataError(f"{source.address} has {what} of one class only, `{only}`: a classifier needs two or more.")


def check_name(name: str, where: str) -> None:
    """Refuses the name of a class that cannot be shown as it is.

    Args:
        name: of the class.
        where: it is found, for the message.

    Raises:
        DataError: it is not UTF-8, has blanks at its ends, or marks that cannot be printed.
    """
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"The name of a class is not UTF-8, in {where}: rename it.") from error
    if name != name.strip() or not name.isprintable():
        raise DataError(
            f"{where[0].upper()}{where[1:]} cannot name a class, as it has blanks at its ends, or marks that cannot be "
            "printed: rename it."
        )


def _check_alike(names: Iterable[str], where: str) -> None:
    """Refuses two names that are written with the same letters in two ways: nobody could tell them apart."""
    seen: dict[str, str] = {}
    for name in sorted(names):
        before = seen.setdefault(unicodedata.normalize("NFC", name), name)
        if before != name:
            raise DataError(
                f"Two classes of {where} are called `{name}`, in two encodings of the same letters: rename one."
            )


def _sorted(names: Iterable[str]) -> list[str]:
    """Names in order; numbers by value if all are.

    >>> _sorted({"10", "9", "0"}), _sorted({"b", "10", "9"})
    (['0', '9', '10'], ['10', '9', 'b'])
    """
    names = list(names)
    if all(name.isdecimal() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def _read(address: str) -> bytes:
    folder, name = parent_and_name(address)
    try:
        return open_store(folder).read(name)
    except OSError as error:
        raise DataError(f"{address or repr(address)} cannot be read: {error.strerror or error}.") from error


def _inside(file: str, root: str) -> str | None:
    """The name of a file in a store, if it is there."""
    if is_remote(file) or is_remote(root):
        return file.removeprefix(f"{root}/") if file.startswith(f"{root}/") else None
    path = expanded(file).absolute()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else None


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
