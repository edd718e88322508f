"""Columns of a table as numbers: how their values are read, scaled and looked up, on every way into a model.

A model takes each column as an input of its own: numbers as float32 (N,), in which NaN is a missing one, and categories
as int32 (N,), which count the column's categories from 1; 0 is a category that was not there in training.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rudel.errors import DataError

_NOTEWORTHY_SHARE = 0.1
"""Share of a column's values that is worth a note."""
_MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "none", "<na>", "nat", "?"}


@dataclass(frozen=True)
class Column:
    """A column that a model takes.

    Args:
        name: in the table.
        categories: what it may hold, with "" for a missing one; empty for a column of numbers.
        mean: of its numbers in training.
        deviation: their standard deviation, above 0.
        edges: quantiles of them, ascending; without, the number itself is all that the model sees.
        gaps: whether some were missing in training, so that the model has learned what that means.
    """

    name: str
    categories: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0
    edges: tuple[float, ...] = ()
    gaps: bool = False

    @property
    def key(self) -> str:
        """Name of the model's input: that of the column, without slashes, which Keras does not allow."""
        return self.name.replace("/", "\N{DIVISION SLASH}")

    @property
    def dtype(self) -> str:
        """Of the model's input."""
        return "int32" if self.categories else "float32"

    def config(self) -> dict[str, Any]:
        """Plain data that `column_of` reads."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    def encoded(self, values: Sequence[Any] | np.ndarray, source: str, places: np.ndarray | None = None) -> np.ndarray:
        """Values as the model takes them, (N,).

        A number that is missing is NaN where the model knows gaps, and else the mean.

        Args:
            values: (N,) numbers or texts; None, NaN and words such as "NA" are missing.
            source: what messages call the table.
            places: of the values among the rows of the source, (N,); None where they are all.

        Raises:
            DataError: a text in a column of numbers.
        """
        if self.categories:
            return places_in(self.categories, texts_of(values)) + np.int32(1)
        found, wrong = numbers_of(values)
        if wrong is not None:
            row = wrong if places is None else int(places[wrong])
            raise DataError(
                f"The column `{self.name}` in {source} holds {str(values[wrong])!r} in row {row + 1:,}, and the "
                "model takes numbers there: correct it, or leave it empty."
            )
        found = limited(found).astype(np.float32)
        return found if self.gaps else np.where(np.isnan(found), np.float32(self.mean), found)


def column_of(config: Mapping[str, Any]) -> Column:
    """The column of a `Column.config`."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in config.items()}
    return Column(**values)


def encoded(
    columns: Sequence[Column], table: Mapping[str, Any], source: str, places: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """A table as a model takes it, by the columns' keys; columns that it does not take are left out.

    Args:
        columns: of the model.
        table: values (N,) by the names of the columns.
        source: what messages call the table.
        places: of the values among the rows of the source, (N,); None where they are all.

    Raises:
        DataError: a column is missing, or holds texts in the place of numbers.
    """
    if missing := [column.name for column in columns if column.name not in table]:
        names = ", ".join(f"`{name}`" for name in missing)
        there = ", ".join(f"`{name}`" for name in table)
        raise DataError(f"{source} has no column {names}, which the model takes: it has {there}.")
    return {column.key: column.encoded(table[column.name], source, places) for column in columns}


def unknown_in(columns: Sequence[Column], x: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Where an encoded table has categories that were not there in training: bool (N,) by the names of the columns."""
    return {column.name: x[column.key] == 0 for column in columns if column.categories}


def notes_on_unknown(counts: Mapping[str, int], rows: int) -> list[str]:
    """A sentence about each column of which many values are unknown.

    Args:
        counts: of such values, by the names of the columns.
        rows: of the table.

    >>> notes_on_unknown({"day": 1000, "city": 99}, 1000)
    ['`day`: 1,000 of 1,000 values are unknown to the model.']
    """
    many = {name: count for name, count in counts.items() if count >= _NOTEWORTHY_SHARE * rows}
    return [f"`{name}`: {count:,} of {rows:,} values are unknown to the model." for name, count in many.items()]


def numbers_of(values: Sequence[Any] | np.ndarray) -> tuple[np.ndarray, int | None]:
    """Values as float64 (N,), NaN for missing and infinite ones; and the place of the first that is not a number.

    >>> numbers_of(["1.5", None, "NA", "x"])
    (array([1.5, nan, nan, nan]), 3)
    """
    array, wrong = np.asarray(values), None
    try:
        if array.dtype.kind not in "iuf" and (set(map(type, values)) != {str} or any("_" in text for text in values)):
            raise ValueError
        found = array.astype(np.float64)
    except ValueError:
        read = _each(_number, values)
        wrong = read.index(None) if None in read else None
        found = np.array(read, np.float64)  # None becomes NaN
    found[np.isinf(found)] = np.nan
    return found, wrong


def limited(numbers: np.ndarray) -> np.ndarray:
    """Numbers clipped to half the range of float32, so that no difference between two of them overflows."""
    most = float(np.finfo(np.float32).max) / 2
    return np.clip(numbers, -most, most)


def texts_of(values: Sequence[Any] | np.ndarray) -> list[str]:
    """Values as texts; "" for those that are missing, whole numbers without a decimal point, others as short as can be.

    >>> texts_of([" red", None, 8001.0, "?", True])
    ['red', '', '8001', '', 'True']
    >>> texts_of(np.array([0.1, 2], np.float32))
    ['0.1', '2']
    """
    if isinstance(values, np.ndarray) and values.dtype in (np.float16, np.float32):
        exact = values.astype(np.float64)
        values = np.where(exact == np.trunc(exact), exact, values.astype(str).astype(np.float64))
    return _each(lambda value: "" if is_missing(value) else _text(value), values)


def places_in(names: Sequence[str], texts: Sequence[str]) -> np.ndarray:
    """Places of texts among names, int32 (N,), -1 for none.

    Whole numbers are found whether they end with .0 or not, and booleans however they are capitalised.

    >>> places_in(("8001.0", "red", "true"), ["red", "8001", "8001.0", "8001.5", "True"])
    array([ 1,  0,  0, -1,  2], dtype=int32)
    """
    numbered = dict(zip(names, range(len(names)), strict=True))
    places = {_usual(name): place for name, place in numbered.items()} | numbered
    return np.array([places.get(text, places.get(_usual(text), -1)) for text in texts], np.int32)


def without_decimals(text: str) -> str:
    """The text of a whole number without decimals, of all else as it is."""
    return text.partition(".")[0] if re.fullmatch(r"-?\d+\.0+", text) else text


def is_missing(value: object) -> bool:
    """Whether a value says that there is none."""
    if isinstance(value, float | np.floating):
        return value != value
    return value is None or (str(value).strip().lower() in _MISSING)


def _each(function: Callable[[Any], Any], values: Sequence[Any] | np.ndarray) -> list[Any]:
    """Results of a function for each value; where all are texts, it is called once for equal ones."""
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if set(map(type, listed)) - {str, type(None)}:
        return [function(value) for value in listed]
    known = {value: function(value) for value in dict.fromkeys(listed)}
    return [known[value] for value in listed]


def _usual(text: str) -> str:
    """The text of a whole number without decimals, of a boolean in small letters, of all else as it is."""
    return text.lower() if text.lower() in ("true", "false") else without_decimals(text)


def _number(value: Any) -> float | None:
    """A number, NaN where it is missing; None for what is not a number."""
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, str | bytes) and "_" in str(value):  # 10_000 is a number in Python alone
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan if is_missing(value) else None


def _text(value: object) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return value.decode(errors="replace").strip() if isinstance(value, bytes) else str(value).strip()
