"""`rudel.Images`: a data set of photographs, from folders, tables or records."""

import csv
import hashlib
import io
import numbers
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rudel.cache import cache_folder
from rudel.data.dataset import Dataset, Examples, ToEvaluate
from rudel.data.images.image_sets import Photographs, find_photographs
from rudel.data.images.label_table import headings
from rudel.data.images.shard_plan import check_share
from rudel.data.table import Table, read_table
from rudel.errors import DataError, OptionError
from rudel.features.table_columns import texts_of
from rudel.files import written_atomically

_MOST_IN_MEMORY = 2**29
_LEAST_SIDE = 32


def Images(  # noqa: N802  # a data set to whom uses it, as Dataset and Records are
    source: Any,
    side: int = 64,
    *,
    validation: Any = 0.1,
    augment: Callable[[Any, Any], Any] | None = None,
    in_memory: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Reads photographs with their classes.

    They are converted to records in Rudel's cache once (see `rudel data images`), and decoded to uint8 (side, side, 3).

    Args:
        source: a folder with a folder of photographs for each class, or with records; a CSV file of paths and labels;
            a frame of pandas, Polars or PyArrow with such columns; or an address such as `s3://bucket/folder`.
        side: height and width that photographs are scaled to, in pixels, at least 32.
        validation: share to hold out, by the hash of the file's name, or 0 for none; a split of records that is for
            validation is used as it is. Or another source as above, all of whose photographs are for validation.
        augment: changes training photographs at random, `augment(key, x) -> x`; see `rudel.data.augmentation`.
        in_memory: whether to decode all photographs now, or each when a step needs it; None decodes now where they take
            512 MiB or less. The weights are the same, bit for bit.
        progress: called with (photographs done, photographs in all) while records are made.

    Returns:
        A data set with x uint8 (side, side, 3), y int32, and the names of the classes.

    Raises:
        DataError: there is nothing to learn from, or it cannot be read.
        OptionError: `side` or `validation` is out of its range, or another argument is not of its type.
    """
    if not isinstance(side, int | np.integer) or side < _LEAST_SIDE:
        raise OptionError(f"`side` must be at least {_LEAST_SIDE} pixels, not {side!r}: give one whole number.")
    if _is_share(validation):
        check_share(validation)
    if augment is not None and not callable(augment):
        raise OptionError(
            f"`augment` must be a function, such as rudel.data.augmentation.random_flip, or None, not {augment!r}."
        )
    if not isinstance(in_memory, bool | None):
        raise OptionError(f"`in_memory` must be True, False or None, not {in_memory!r}.")
    address, frame = _address(source)
    others = None if _is_share(validation) else _address(validation, " for validation")
    found = find_photographs(address, progress, frame=frame)
    notes = found.notes
    if others:
        train, _ = found.decoded(side, 0)
        given = _of_the_same_classes(*others, side, found, progress)
        held_out, notes = given.examples, (*notes, *given.notes)
    else:
        train, held_out = found.decoded(side, validation)
    if fits_memory(len(train) + len(held_out or ()), side) if in_memory is None else in_memory:
        train, held_out = train.in_memory(), held_out and held_out.in_memory()
    names = found.class_names()
    if isinstance(train, Examples) and (unseen := sorted(set(range(len(names))) - set(train.y.tolist()))):
        more = f", nor of {len(unseen) - 1:,} other{'s' * (len(unseen) > 2)}" if unseen[1:] else ""
        notes = (*notes, f"No training image is of the class `{names[unseen[0]]}`{more}.")
    return Dataset(train, held_out, class_names=names, notes=notes, augment=augment)


def fits_memory(count: int, side: int) -> bool:
    """Whether so many decoded photographs are to be held in memory."""
    return count * side * side * 3 <= _MOST_IN_MEMORY


def _is_share(validation: object) -> bool:
    """Whether it is meant as a share, not as a source."""
    return validation is None or isinstance(validation, numbers.Number)


def _address(source: Any, role: str = "") -> tuple[str, str]:
    """The address of a source, and what messages call the frame that it is, with its role; "" if it is none."""
    if isinstance(source, str | Path):
        return str(source), ""
    table = read_table(source)
    table = replace(table, name=f"{table.name}{role}")
    return str(_table_file(table)), table.name


def _of_the_same_classes(
    source: str, frame: str, side: int, training: Photographs, progress: Callable[[int, int], None] | None
) -> ToEvaluate:
    """All photographs of another source, whose classes are among those of the training."""
    photographs = find_photographs(source, progress, least_classes=1, frame=frame)
    found = photographs.to_evaluate(side, None, training.class_names(), f"{training.source} has")
    if found.left_out:
        raise DataError(
            f"{photographs.source} has images of the class `{next(iter(found.left_out))}`, and {training.source} has "
            "none: add some, or move these elsewhere."
        )
    return found


def _table_file(table: Table) -> Path:
    """A frame as a CSV file in the cache, with absolute paths in the column of paths; missing values are empty."""
    text = io.StringIO()
    writer = csv.writer(text)
    columns = list(table.columns)
    named = headings(columns)
    if not named and len(columns) != 2:
        raise DataError(f"{table.name} has no columns of paths and of labels: call them `path` and `label`.")
    paths, labels = named or (0, 1)
    _check_single(table.columns[columns[labels]], f"column `{columns[labels]}` of {table.name}")
    writer.writerow(columns if named or len(columns) != 2 else ("path", "label"))
    cells = [_cells(values) for values in table.columns.values()]
    cells[paths] = [str(Path(path).resolve()) if Path(path).is_file() else path for path in cells[paths]]
    writer.writerows(zip(*cells, strict=True))
    content = text.getvalue().encode()
    path = cache_folder() / "tables" / f"{hashlib.sha256(content).hexdigest()[:16]}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_atomically(path) as file:
        file.write(content)
    return path


def _check_single(labels: np.ndarray, where: str) -> None:
    """Refuses labels that are several values each, such as lists of classes."""
    for row, label in enumerate(labels, 1):
        if isinstance(label, Collection) and not isinstance(label, str | bytes):
            raise DataError(
                f"The {where} has a {type(label).__name__} in row {row}, and an image has one class here: give one "
                "name or number for each."
            )


def _cells(values: np.ndarray) -> list[str]:
    """Values as texts; texts stay as they are, as a class may be called `none`."""
    return [
        value if isinstance(value, str) else text for value, text in zip(values.tolist(), texts_of(values), strict=True)
    ]
