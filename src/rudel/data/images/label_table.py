"""Tables of images and labels: CSV files, and lists with a blank or a tab between the two."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

from rudel.data.file_names import composed
from rudel.data.table import long_fields
from rudel.errors import DataError

_PATHS = ("path", "file", "filename", "file_name", "filepath", "image", "name", "id", "image_id")
_LABELS = ("label", "class", "category", "target", "class_name", "breed")


@dataclass(frozen=True)
class Row:
    """An image and its label.

    Args:
        place: "line N" of a file, "row N" of a frame, from 1.
        path: as written.
        label: as written.
    """

    place: str
    path: str
    label: str


def read_table(content: bytes, name: str, frame: bool = False) -> list[Row]:
    r"""Reads a table.

    With a line of headings, as in `path,label`, there may be other columns; without one, there are two: path and label.

    Args:
        content: of the file, in UTF-8.
        name: what to call it in an error.
        frame: whether the file was made of a frame: errors then count its rows, after the line of headings.

    Raises:
        DataError: a line cannot be understood, or names an image for the second time; says which line.

    >>> read_table(b"a.png,cat\nb.png,dog\n", "table.csv")
    [Row(place='line 1', path='a.png', label='cat'), Row(place='line 2', path='b.png', label='dog')]
    """
    with long_fields():
        rows = list(_rows(_text(content, name), name, frame))
    if not rows:
        raise DataError(f"{name} is empty: give a line `PATH,LABEL` for every image.")
    seen: dict[str, str] = {}
    for row in rows:
        before = seen.setdefault(row.path, row.place)
        if before != row.place:
            raise DataError(f"{name} names {row.path} in {before} and in {row.place}: leave one of them out.")
    return rows


def read_names(content: bytes, name: str) -> tuple[str, ...]:
    """The names of classes, one a line, composed (NFC).

    Raises:
        DataError: there are fewer than two, or one is there twice.
    """
    names = composed([line.strip() for line in _text(content, name).splitlines()])
    while names and not names[-1]:
        names.pop()
    for number, one in enumerate(names, 1):
        if not one:
            raise DataError(f"{name} has nothing in line {number}: each line is the name of a class.")
        if one in names[: number - 1]:
            raise DataError(
                f"{name} has the class `{one}` in line {names.index(one) + 1} and in line {number}: leave one out."
            )
    if len(names) < 2:
        raise DataError(f"{name} names {len(names)} class{'' if len(names) == 1 else 'es'}: two are the least.")
    return tuple(names)


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name} is not UTF-8 in line {line}: save it as UTF-8.") from error


def _rows(text: str, name: str, frame: bool) -> Iterator[Row]:
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = next((mark for mark in ("\t", ",", ";") if mark in first), " ")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    columns: tuple[int, int] | None = None
    width, headed = 2, False
    try:
        for number, fields in enumerate(reader):
            cells = [field.strip() for field in fields]
            if not any(cells):
                continue
            if columns is None:
                columns = headings(cells)
                headed = columns is not None
                if columns:
                    width = len(cells)
                    continue
                columns = (0, 1)
            yield _row(cells, columns, width, headed, f"row {number}" if frame else f"line {reader.line_num}", name)
    except csv.Error as error:
        raise DataError(f"{name} cannot be read in line {reader.line_num}: {error}.") from error


def headings(cells: list[str]) -> tuple[int, int] | None:
    """The places of the paths and of the labels in a line of headings; None where the line has other names."""
    words = [cell.lower() for cell in cells]
    path = next((words.index(word) for word in _PATHS if word in words), None)
    label = next((words.index(word) for word in _LABELS if word in words), None)
    return None if path is None or label is None else (path, label)


def _row(cells: list[str], columns: tuple[int, int], width: int, headed: bool, place: str, name: str) -> Row:
    if len(cells) != width:
        fields = f"{len(cells)} field{'' if len(cells) == 1 else 's'}"
        wanted = "one for each heading" if headed else "PATH,LABEL"
        wide = len(cells) > width and not headed
        more = "; with other columns, name two `path` and `label` in the first line" if wide else ""
        raise DataError(
            f"{name} has {fields} in {place}, not {width}: give {wanted}, in quotation marks where they hold commas"
            f"{more}."
        )
    path, label = cells[columns[0]], cells[columns[1]]
    if not path or not label:
        raise DataError(f"{name} has no {'path' if not path else 'label'} in {place}.")
    return Row(place, path, label)
