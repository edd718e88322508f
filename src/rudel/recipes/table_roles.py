"""Roles of a table's columns: numbers, categories, the target, or left out."""

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rudel.data.table import Table
from rudel.errors import DataError, OptionError, recipe_option
from rudel.features.table_columns import Column, numbers_of, places_in, texts_of, without_decimals

_LEAST_OF_CATEGORY = 2
_MOST_CLASSES_OF_NUMBERS = 10
_MOSTLY = 0.9
_MOST_QUANTILES, _ROWS_OF_QUANTILE = 16, 100


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
        DataError: there is no such column, it has a single class, or something else than numbers for a regression.
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
        The columns, and a sentence about those that are of no use.

    Raises:
        DataError: a column of numbers has a text in it, or no column is left.
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
        else:
            notes.append(f"The column `{name}` is left out: {made}.")
    if not found:
        raise DataError(f"{table.name} has no column to learn from beside `{target}`. {' '.join(notes)}".rstrip())
    return found, notes


def _column(name: str, values: np.ndarray, table: str, is_category: bool) -> Column | str:
    """The column, or why it is of no use."""
    numbers, wrong = numbers_of(values)
    if wrong is not None and not is_category:
        read = int((~np.isnan(numbers)).sum())
        texts = sum(text != "" for text in texts_of(values)) - read
        if texts < (1 - _MOSTLY) * (texts + read):
            raise DataError(
                f"The column `{name}` of {table} holds numbers, and {str(values[wrong])!r} beside them: correct it, or "
                f"say what it is by {recipe_option('categories', name)} or {recipe_option('ignore', name)}."
            )
    if wrong is not None or is_category:
        return _categories(name, values)
    known = numbers[~np.isnan(numbers)]
    if not len(known) or known.min() == known.max():
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
    kept = tuple(sorted(text for text, count in counts.items() if count >= _LEAST_OF_CATEGORY))
    if len(counts) == 1:
        return "it is the same in all rows"
    if sum(counts[text] for text in kept) < len(values) / 2:
        return "most of its values are there only once, as in names and texts"
    return Column(name, categories=kept, gaps="" in kept)


def nearest(name: str, known: list[str]) -> str:
    """The end of a sentence about a name that is not known."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f": did you mean `{near[0]}`?" if near else f": it has {', '.join(f'`{each}`' for each in known)}."
