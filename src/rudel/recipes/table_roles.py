"""Roles of a table's columns: numbers, categories, the target, or left out."""

import difflib
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rudel.data.table import Table
from rudel.errors import DataError, OptionError, recipe_option
from rudel.features.table_columns import (
    Column,
    is_missing,
    limited,
    numbers_of,
    places_in,
    texts_of,
    without_decimals,
)

_LEAST_OF_CATEGORY = 2
_LEAST_SPREAD, _MOST_SPREAD = 1e-18, 1e17
"""Standard deviations of a target within which its squared errors are float32's, with room for large batches."""
_LEAST_STEPS = 10
"""Steps of float32 in the standard deviation of numbers that it tells apart."""
_MOST_CLASSES_OF_NUMBERS = 10
_MOSTLY = 0.9
_MOST_QUANTILES, _ROWS_OF_QUANTILE = 16, 100
_GROUPED = re.compile(
    r"[+-]?(\d{1,3}([.,'\u2019 \u00a0\u202f])\d{3}(\2\d{3})*((?!\2)[.,]\d+)?|\d+,\d+)"
    r"|[+-]?[$\u20ac\u00a3\u00a5]\s?[+-]?[\d.,'\u2019]*\d|[+-]?\d[\d.,'\u2019]*\s?[%\u2030$\u20ac\u00a3\u00a5]"
)
"""Numbers with thousands separators, with a decimal comma, or with the sign of a currency or of per cent."""
_MAYBE_GROUPED = re.compile(r"[+-]?(\d{1,3}|[1-9]\d{0,2}\.\d{3})")
_DATE = re.compile(r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{2,4})([ ,T].*)?")


@dataclass(frozen=True, eq=False)
class Target:
    """The column to be predicted.

    Args:
        class_names: of a classification; empty for numbers.
        values: int32 (N,) classes, -1 for one without a name; or float32 (N, 1) numbers.
        known: bool (N,), false where a row has none.
        missing: what is there in its place.
    """

    class_names: tuple[str, ...]
    values: np.ndarray
    known: np.ndarray
    missing: tuple[str, ...] = ()

    @property
    def usable(self) -> np.ndarray:
        """Rows with a number, or a class that has a name, bool (N,)."""
        return self.known & (self.values.reshape(-1) >= 0) if self.class_names else self.known


def find_target(
    table: Table,
    name: str,
    task: Literal["auto", "classification", "regression"],
    class_names: Sequence[str] | None = None,
) -> Target:
    """The column to predict.

    Args:
        table: that has it.
        name: of the column.
        task: `auto` takes texts, and whole numbers of at most ten kinds, for classes.
        class_names: of a model that is there already, empty where it predicts numbers; None to find them.

    Raises:
        DataError: there is no such column, it has a single class, texts of which most occur once or that stand beside
            many numbers, numbers in another notation, or for a regression something else than numbers that float32
            tells apart and whose squares are of its range.
    """
    if name not in table.columns:
        raise DataError(f"{table.name} has no column `{name}` to predict{nearest(name, list(table.columns))}")
    values = table.columns[name]
    numbers, wrong = numbers_of(values)
    known = ~np.isnan(numbers) if wrong is None else np.array(texts_of(values), object) != ""
    if not known.any():
        raise DataError(f"The column `{name}` of {table.name}, which is to be predicted, is empty in every row.")
    missing = tuple(sorted({str(value if value is not None else "").strip() for value in values[~known]}))
    if class_names is None:
        if wrong is not None and task != "classification":
            advice = f"or say that its texts are classes by {recipe_option('task', 'classification')}"
            _refuse_grouped(name, values, numbers, table.name, advice)
            if task == "auto" and _kinds_are_numbers(values, numbers):
                raise _mixed(name, values[wrong], table.name, advice)
            texts = Counter(texts_of(values[known]))
            if task == "auto" and _are_mostly_single(texts, _frequent(texts)):
                raise DataError(
                    f"The column `{name}` of {table.name} has {len(texts):,} different texts in {texts.total():,} "
                    f"rows, and most of them only once: name another column to predict, {advice}."
                )
        if task == "auto":
            kinds = np.unique(numbers[known]) if wrong is None else ()
            few = len(kinds) <= _MOST_CLASSES_OF_NUMBERS and all(float(kind).is_integer() for kind in kinds)
            task = "classification" if wrong is not None or few else "regression"
        class_names = _classes(values[known], wrong is None) if task == "classification" else ()
        if len(class_names) == 1:
            raise DataError(
                f"The column `{name}` of {table.name} is `{class_names[0]}` in every row: nothing to learn."
            )
    if class_names:
        target = Target(tuple(class_names), places_in(class_names, texts_of(values)), known, missing)
        if not target.usable.any():
            raise DataError(f"{table.name} has no row with a class that the model knows: {', '.join(class_names)}.")
        return target
    if wrong is not None:
        raise DataError(
            f"The column `{name}` of {table.name} holds {str(values[wrong])!r} in row {wrong + 1:,}: a regression "
            "predicts numbers."
        )
    beyond = np.abs(numbers) > np.finfo(np.float32).max
    if beyond.any():
        row = int(beyond.argmax())
        raise DataError(
            f"The column `{name}` of {table.name} holds {str(values[row])!r} in row {row + 1:,}, and a regression "
            "predicts numbers of float32: correct it, or leave it empty."
        )
    spread = float(numbers[known].std())
    if np.ptp(numbers[known]) and not _LEAST_SPREAD <= spread <= _MOST_SPREAD:
        raise DataError(
            f"The column `{name}` of {table.name} has a standard deviation of {spread:.1e}, and a regression computes "
            f"squares in float32: give it in another unit, for one from {_LEAST_SPREAD:g} to {_MOST_SPREAD:g}."
        )
    largest = float(np.abs(numbers[known]).max())
    if np.ptp(numbers[known]) and spread < _LEAST_STEPS * _step(largest):
        raise DataError(
            f"The column `{name}` of {table.name} has numbers up to {largest:.3g} with a standard deviation of "
            f"{spread:.1e}, and float32 has steps of {_step(largest):.1e} there: subtract a constant from all."
        )
    return Target((), numbers.astype(np.float32)[:, None], known, missing)


def _classes(values: np.ndarray, numeric: bool) -> tuple[str, ...]:
    texts = texts_of(values)
    return tuple(sorted(set(map(without_decimals, texts) if numeric else texts), key=float if numeric else None))


def find_columns(
    table: Table, target: str, categories: Sequence[str] = (), ignore: Sequence[str] = ()
) -> tuple[list[Column], list[str]]:
    """The columns to learn from, as the rows of a table show them.

    Args:
        table: the rows to learn from.
        target: the column to predict.
        categories: columns whose numbers are names of categories.
        ignore: columns to leave out.

    Returns:
        The columns, and a sentence about each that is of no use or may not be what it seems.

    Raises:
        DataError: a column of numbers has a text in it or is in another notation, or no column is left.
        OptionError: `categories` or `ignore` name a column that is not there.
    """
    for option, names in (("categories", categories), ("ignore", ignore)):
        for name in names:
            if name not in table.columns:
                raise OptionError(
                    f"`{option}` names `{name}`, and {table.name} has no such column"
                    f"{nearest(name, list(table.columns))}"
                )
    found: list[Column] = []
    notes = []
    for name, values in table.columns.items():
        if name == target or name in ignore:
            continue
        made = _column(name, values, table.name, name in categories)
        if isinstance(made, Column):
            found.append(made)
            notes += _doubts(made, table)
        else:
            notes.append(f"The column `{name}` is left out: {made}.")
    if not found:
        raise DataError(f"{table.name} has no column to learn from beside `{target}`. {' '.join(notes)}".rstrip())
    return found, notes


def _column(name: str, values: np.ndarray, table: str, is_category: bool) -> Column | str:
    """The column, or why it is of no use."""
    numbers, wrong = numbers_of(values)
    if wrong is not None and not is_category:
        advice = f"or say what it is by {recipe_option('categories', (name,))} or {recipe_option('ignore', (name,))}"
        _refuse_grouped(name, values, numbers, table, advice)
        read = int((~np.isnan(numbers)).sum())
        texts = sum(text != "" for text in texts_of(values)) - read
        if texts < (1 - _MOSTLY) * (texts + read) or _kinds_are_numbers(values, numbers):
            raise _mixed(name, values[wrong], table, advice)
    if wrong is not None or is_category:
        return _categories(name, values)
    known = limited(numbers[~np.isnan(numbers)])
    if not len(known) or (known.min() == known.max() and len(known) == len(numbers)):
        return "it is the same in all rows"
    quantiles = min(_MOST_QUANTILES, len(known) // _ROWS_OF_QUANTILE)
    edges = np.unique(np.quantile(known, np.linspace(0, 1, quantiles + 1)).astype(np.float32))
    return Column(
        name,
        mean=float(np.float32(known.mean())),
        deviation=float(np.float32(known.std())) or 1.0,
        edges=tuple(map(float, edges)) if len(edges) > 2 else (),
        gaps=len(known) < len(numbers),
    )


def _categories(name: str, values: np.ndarray) -> Column | str:
    counts = Counter(texts_of(values))
    kept = _frequent(counts)
    if len(counts) == 1:
        return "it is the same in all rows"
    if _are_mostly_single(counts, kept):
        return "most of its values are there only once, as in names and texts"
    return Column(name, categories=kept, gaps="" in kept)


def _kinds_are_numbers(values: np.ndarray, numbers: np.ndarray) -> bool:
    """Whether nearly all different values are numbers, as where a word says that one is missing."""
    unread = np.isnan(numbers)
    words = set(texts_of(values[unread])) - {""}
    return len(words) < (1 - _MOSTLY) * (len(words) + len(np.unique(numbers[~unread])))


def _mixed(name: str, text: object, table: str, advice: str) -> DataError:
    return DataError(
        f"The column `{name}` of {table} holds numbers, and {str(text)!r} beside them: correct it, {advice}."
    )


def _step(number: float) -> float:
    """The distance between a number and the next that is float32."""
    return float(np.spacing(np.float32(abs(number))))


def _frequent(counts: Counter[str]) -> tuple[str, ...]:
    """The texts that occur more than once, sorted."""
    return tuple(sorted(text for text, count in counts.items() if count >= _LEAST_OF_CATEGORY))


def _are_mostly_single(counts: Counter[str], frequent: Collection[str]) -> bool:
    """Whether most values are texts that occur once."""
    return sum(counts[text] for text in frequent) < counts.total() / 2


def _refuse_grouped(name: str, values: np.ndarray, numbers: np.ndarray, table: str, advice: str) -> None:
    """Refuses a column of numbers that are not all written as `float` reads them.

    Args:
        name: of the column.
        values: (N,) of it.
        numbers: float64 (N,) of it, NaN for what is not read.
        table: what messages call the table.
        advice: the end of the message.

    Raises:
        DataError: nearly all that is not read has thousands separators, a decimal comma or a unit.
    """
    texts = np.array(texts_of(values), object)
    unread = [text for text in texts[np.isnan(numbers)] if text]
    grouped = [text for text in unread if _GROUPED.fullmatch(text)]
    if grouped and len(unread) - len(grouped) <= (1 - _MOSTLY) * (texts != "").sum():
        raise DataError(
            f"The column `{name}` of {table} holds numbers such as {grouped[0]!r}: write them without thousands "
            f"separators or units, and with a decimal point, {advice}."
        )


def _doubts(column: Column, table: Table) -> list[str]:
    """Notes on a column that may not be what it seems: dates, points that may separate thousands, close numbers."""
    if column.categories:
        named = [text for text in column.categories if text]
        if not named or sum(_DATE.fullmatch(text) is not None for text in named) < _MOSTLY * len(named):
            return []
        return [
            f"The column `{column.name}` looks like dates, and is taken as {len(named):,} categories: other dates will "
            "be unknown to the model."
        ]
    values = table.columns[column.name]
    is_close = column.deviation < _LEAST_STEPS * _step(column.mean)
    if is_close and np.nanmin(numbers := numbers_of(values)[0]) < np.nanmax(numbers):
        return [
            f"The column `{column.name}` has a standard deviation of {column.deviation:.1e}, and float32 has steps of "
            f"{_step(column.mean):.1e} at its mean: subtract a constant from all."
        ]
    if column.name in table.decimal_commas:
        return []
    texts = {value for value in values.tolist() if not is_missing(value)} if values.dtype == object else set()
    if not all(isinstance(text, str) and _MAYBE_GROUPED.fullmatch(text.strip()) for text in texts):
        return []
    pointed = min((text.strip() for text in texts if "." in text), default="")
    if not pointed or all("." in text for text in texts):
        return []
    return [
        f"The column `{column.name}` holds {pointed!r}, which is read as {float(pointed):g}: if its point separates "
        "thousands, leave it out."
    ]


def nearest(name: str, known: list[str]) -> str:
    """The end of a sentence about a name that is not known."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f": did you mean `{near[0]}`?" if near else f": it has {', '.join(f'`{each}`' for each in known)}."
