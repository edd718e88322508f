"""`rudel.Images`: a data set of photographs, from folders, tables or records."""

import csv
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rudel.cache import cache_folder
from rudel.data.dataset import Dataset
from rudel.data.images.image_sets import find_photographs
from rudel.data.images.label_table import headings
from rudel.data.table import read_table
from rudel.errors import OptionError
from rudel.features.table_columns import texts_of
from rudel.files import written_atomically

_MOST_IN_MEMORY = 2**29
_LEAST_SIDE = 32


def Images(  # noqa: N802  # a data set to whom uses it, as Dataset and Records are
    source: Any,
    side: int = 64,
    *,
    validation: float = 0.1,
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
            validation is used as it is.
        augment: changes training photographs at random, `augment(key, x) -> x`; see `rudel.data.augmentation`.
        in_memory: whether to decode all photographs now, or each when a step needs it; None decodes now where they take
            512 MiB or less. The weights are the same, bit for bit.
        progress: called with (photographs done, photographs in all) while records are made.

    Returns:
        A data set with x uint8 (side, side, 3), y int32, and the names of the classes.

    Raises:
        DataError: there is nothing to learn from, or it cannot be read.
        OptionError: `side` or `validation` is out of its range.
    """
    if side < _LEAST_SIDE:
        raise OptionError(f"`side` must be at least {_LEAST_SIDE} pixels, not {side}.")
    address = str(source) if isinstance(source, str | Path) else str(_table_file(source))
    found = find_photographs(address, progress)
    train, held_out = found.decoded(side, validation)
    if fits_memory(len(train) + len(held_out or ()), side) if in_memory is None else in_memory:
        train, held_out = train.in_memory(), held_out and held_out.in_memory()
    return Dataset(train, held_out, class_names=found.class_names(), notes=found.notes, augment=augment)


def fits_memory(count: int, side: int) -> bool:
    """Whether so many decoded photographs are to be held in memory."""
    return count * side * side * 3 <= _MOST_IN_MEMORY


def _table_file(frame: Any) -> Path:
    """A frame as a CSV file in the cache, with absolute paths in the column of paths; missing values are empty."""
    table = read_table(frame)
    text = io.StringIO()
    writer = csv.writer(text)
    columns = list(table.columns)
    named = headings(columns)
    paths = named[0] if named else 0
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


def _cells(values: np.ndarray) -> list[str]:
    """Values as texts; texts stay as they are, as a class may be called `none`."""
    return [
        value if isinstance(value, str) else text for value, text in zip(values.tolist(), texts_of(values), strict=True)
    ]
