"""Tables from CSV and Parquet files, and from frames of pandas, Polars or PyArrow: the values of each column.

A CSV file is UTF-8, has its columns' names in the first line, and commas, semicolons or tabs between fields; where
these are semicolons, a number may have a decimal comma.
"""

import contextlib
import csv
import io
import itertools
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rudel.errors import DataError
from rudel.files import expanded

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_LONGEST_FIELD = 2**31 - 1
_PARQUET = (".parquet", ".pq")
_JSON = (".json", ".jsonl", ".ndjson")

_field_limit = threading.Lock()


@dataclass(frozen=True, eq=False)
class Table:
    """A table.

    Args:
        name: what messages call it.
        columns: values by name, (N,) each: numbers, or objects such as texts, and None where one is missing.
        decimal_commas: names of columns in which decimal commas have become points.
    """

    name: str
    columns: Mapping[str, np.ndarray]
    decimal_commas: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, rows: np.ndarray) -> "Table":
        """Some of the rows, by number or by a mask."""
        return replace(self, columns={name: values[rows] for name, values in self.columns.items()})


def is_table(path: str | Path) -> bool:
    """Whether a file's name says that it holds a table."""
    return Path(path).suffix.lower() in (".csv", ".tsv", *_PARQUET)


def read_table(source: Any) -> Table:
    """Reads a table.

    Args:
        source: the path of a CSV or Parquet file; or a frame, or a dict, with an array (N,) for each name.

    Raises:
        DataError: it cannot be read, is of another kind or empty, has a column twice, or is a Parquet file without
            PyArrow installed.
    """
    if isinstance(source, str | Path):
        path = expanded(source)
        if not path.is_file():
            raise DataError(f"There is no file {path}: give a table, CSV or Parquet.")
        if path.suffix.lower() in _JSON:
            raise DataError(f"{path} is not a CSV or Parquet file: save the table as one.")
        table = _parquet(path) if path.suffix.lower() in _PARQUET else _csv(path)
    else:
        table = _frame(source, f"the {type(source).__name__}")
    if not table.columns or not len(table):
        raise DataError(f"{table.name} has no rows: give a table with the names of its columns and at least one row.")
    return table


@contextlib.contextmanager
def long_fields() -> Iterator[None]:
    """Lets Python's `csv` read fields of any length in the block; one thread at a time is in it."""
    with _field_limit:
        before = csv.field_size_limit(_LONGEST_FIELD)
        try:
            yield
        finally:
            csv.field_size_limit(before)


@long_fields()
def _csv(path: Path) -> Table:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8, nor a Parquet file by its name: save it as CSV in UTF-8.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from error
    lines = io.StringIO(text, newline="")
    delimiter = _delimiter(lines)
    reader = _reader(lines, delimiter)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if not row:
                continue
            if rows and len(row) != len(rows[0]):
                raise DataError(
                    f"{path} has {len(row)} fields in line {reader.line_num}, and {len(rows[0])} columns: give every "
                    "row as many, in quotation marks where they hold a delimiter."
                )
            rows.append(row)
    except csv.Error as error:
        raise DataError(f"{path} cannot be read in line {reader.line_num}: {error}.") from error
    names = _names(rows[0] if rows else [], str(path))
    columns = dict(zip(names, zip(*rows[1:], strict=True), strict=True)) if rows[1:] else {}
    commas = {name for name, values in columns.items() if delimiter == ";" and any(map(_has_comma, values))}
    for name in commas:
        columns[name] = tuple(value.replace(",", ".") if _has_comma(value) else value for value in columns[name])
    arrays = {name: np.array(values, object) for name, values in columns.items()}
    return Table(str(path), arrays, frozenset(commas))


def _delimiter(lines: io.StringIO) -> str:
    """The character between the fields of a CSV file.

    It is one that splits the first two lines into equally many fields, more than one, with a name for each: a tab or a
    semicolon, if all commas between them are decimal, else the one that gives most fields. Where none does, it is the
    most frequent one in the first line.
    """
    begins = {delimiter: _first_rows(lines, delimiter) for delimiter in "\t;,"}
    even = {each: rows for each, rows in begins.items() if _is_even(rows)}
    for delimiter in "\t;":
        if delimiter in even and all(_DECIMAL_COMMA.fullmatch(cell) for cell in even[delimiter][-1] if "," in cell):
            return delimiter
    found = even or dict(reversed(begins.items()))
    return max(found, key=lambda each: len(found[each][0]))


def _first_rows(lines: io.StringIO, delimiter: str) -> list[list[str]]:
    """The fields of each of the first two lines, as far as there are; none where they cannot be read."""
    try:
        return list(itertools.islice(filter(None, _reader(lines, delimiter)), 2)) or [[]]
    except csv.Error:
        return [[]]


def _is_even(rows: list[list[str]]) -> bool:
    return len(rows[0]) > 1 and len({len(row) for row in rows}) == 1 and all(name.strip() for name in rows[0])


def _reader(lines: io.StringIO, delimiter: str) -> Any:
    lines.seek(0)
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)


def _parquet(path: Path) -> Table:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise DataError(
            f"Reading {path} needs PyArrow: install it by `pip install 'rudel[parquet]'`, or give a CSV file."
        ) from error
    try:
        return _frame(parquet.read_table(path), str(path))
    except (ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as a Parquet file: {' '.join(str(error).split())}.") from error


def _frame(frame: Any, name: str) -> Table:
    """The columns of what has names and gives an array for each, without those that are the index in pandas."""
    if hasattr(type(frame), "collect"):  # a LazyFrame of Polars
        frame = frame.collect()
    given = list(frame) if isinstance(frame, Mapping) else list(getattr(frame, "column_names", None) or _columns(frame))
    of_pandas = getattr(getattr(frame, "schema", None), "pandas_metadata", None) or {}
    given = [each for each in given if each not in of_pandas.get("index_columns", ())]
    columns = {own: _values(frame[each]) for own, each in zip(_names(given, name), given, strict=True)}
    if any(values.ndim != 1 for values in columns.values()) or len({len(values) for values in columns.values()}) > 1:
        raise DataError(f"The columns of {name} are not all (N,): give as many values in each.")
    return Table(name, columns)


def _columns(frame: Any) -> list[Any]:
    columns = getattr(frame, "columns", None)
    if columns is None:
        raise DataError(
            f"{type(frame).__name__} is not a table: give the path of a CSV or Parquet file, or a frame of pandas, "
            "Polars or PyArrow."
        )
    return list(columns)


def _values(column: Any) -> np.ndarray:
    kind: Any = getattr(column, "type", None)
    if hasattr(kind, "index_type"):  # a dictionary of PyArrow, which gives NumPy its last value for a missing one
        column = column.cast(kind.value_type)
    values = np.asarray(column)
    is_whole = "int64" in str(kind or getattr(column, "dtype", "")).lower()
    if is_whole and values.dtype.kind == "f" and (np.abs(values) > 2**53).any():  # float64 beside a missing one
        values = np.array(column.to_list() if kind is None else column.to_pylist(), object)
    if values.dtype.kind in "mM" and np.datetime_data(values.dtype)[0] == "ns":  # of which objects are plain integers
        values = values.astype(f"{values.dtype.kind}8[us]")
    return values if values.dtype.kind in "iuf" else values.astype(object)


def _names(found: list[Any], table: str) -> list[Any]:
    names = [name.strip() if isinstance(name, str) else name for name in found]
    for number, name in enumerate(names, 1):
        if not isinstance(name, str) or not name:
            raise DataError(f"The column {number} of {table} has no name: write the columns' names in the first line.")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{table} has the column `{twice[0]}` twice: rename one.")
    return names


def _has_comma(value: str) -> bool:
    return _DECIMAL_COMMA.fullmatch(value.strip()) is not None
