"""Tables from CSV and Parquet files, and from frames of pandas, Polars or PyArrow: the values of each column.

A CSV file is UTF-8, has its columns' names in the first line, and commas, semicolons or tabs between fields; where
these are semicolons, a number may have a decimal comma.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rudel.errors import DataError
from rudel.files import expanded

_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True, eq=False)
class Table:
    """A table.

    Args:
        name: what messages call it.
        columns: values by name, (N,) each: numbers, or objects such as texts, and None where one is missing.
    """

    name: str
    columns: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, rows: np.ndarray) -> "Table":
        """Some of the rows, by number or by a mask."""
        return Table(self.name, {name: values[rows] for name, values in self.columns.items()})


def is_table(path: str | Path) -> bool:
    """Whether a file's name says that it holds a table."""
    return Path(path).suffix.lower() in (".csv", ".tsv", *_PARQUET)


def read_table(source: Any) -> Table:
    """Reads a table.

    Args:
        source: the path of a CSV or Parquet file; or a frame, or a dict, with an array (N,) for each name.

    Raises:
        DataError: it cannot be read, is empty, has a column twice, or is a Parquet file without PyArrow installed.
    """
    if isinstance(source, str | Path):
        path = expanded(source)
        if not path.is_file():
            raise DataError(f"There is no file {path}: give a table, CSV or Parquet.")
        table = _parquet(path) if path.suffix.lower() in _PARQUET else _csv(path)
    else:
        table = _frame(source, f"the {type(source).__name__}")
    if not table.columns or not len(table):
        raise DataError(f"{table.name} has no rows: give a table with the names of its columns and at least one row.")
    return table


def _csv(path: Path) -> Table:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8, nor a Parquet file by its name: save it as CSV in UTF-8.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from error
    first = text.lstrip().partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
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
    columns = [np.array(values, object) for values in zip(*rows[1:], strict=True)]
    if delimiter == ";":
        columns = [np.array([_with_point(value) for value in values], object) for values in columns]
    return Table(str(path), dict(zip(names, columns, strict=True)) if columns else {})


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
    """The columns of what has names and gives an array for each."""
    given = list(frame) if isinstance(frame, Mapping) else list(getattr(frame, "column_names", None) or _columns(frame))
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
    values = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    return values if values.dtype.kind in "iuf" else values.astype(object)


def _names(found: list[Any], table: str) -> list[Any]:
    names = [name.strip() if isinstance(name, str) else name for name in found]
    for number, name in enumerate(names, 1):
        if not isinstance(name, str) or not name:
            raise DataError(f"The column {number} of {table} has no name: write the columns' names in the first line.")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{table} has the column `{twice[0]}` twice: rename one.")
    return names


def _with_point(value: str) -> str:
    return value.replace(",", ".") if _DECIMAL_COMMA.fullmatch(value.strip()) else value
