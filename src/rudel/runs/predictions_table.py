"""Predictions as a table: CSV or Parquet."""

import contextlib
import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rudel.data.file_names import printable
from rudel.errors import DataError, OptionError, option
from rudel.files import written_atomically
from rudel.runs.file_model import Prediction, Unreadable

_PARQUET = ".parquet"


def check_can_be_written(path: Path) -> None:
    """Refuses a table of another kind, before anything is computed.

    Raises:
        OptionError: its name has another ending, its folder is missing, or PyArrow is.
    """
    if path.suffix not in (".csv", _PARQUET):
        raise OptionError(f"{option('out', path)} must end in .csv or .parquet.")
    if not path.parent.is_dir():
        raise OptionError(f"{option('out', path)}: there is no folder {path.parent}.")
    if path.suffix == _PARQUET:
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise OptionError(
                f"Writing {path} needs PyArrow: install it by `pip install 'rudel[parquet]'`, or name a .csv file."
            ) from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Makes one sentence of a full disk, or of a folder that cannot be written.

    Raises:
        DataError: the table at `path`, or what becomes it, could not be written.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror or error}): make room, or choose another {option('out')}; the "
            "same command continues after the answers that are kept."
        ) from error


def write_predictions(path: Path, answers: Sequence[Prediction | Unreadable], target: str = "") -> None:
    """Writes predictions, a row each, whole or not at all.

    The columns are `source`; of a classifier `class`, `probability`, and `p_NAME` for each class; of other models
    `target`, or `output_0`, `output_1`, ...; and `error`, where a file could not be read.

    Args:
        path: ends in `.csv` or `.parquet`.
        answers: in the order of the rows.
        target: name of the only output; "" where it has none.

    Raises:
        DataError: it cannot be written.
    """
    target = "" if target in ("source", "error") else target
    rows = [_row(each, target) for each in answers]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with writing(path), written_atomically(path) as file:
        if path.suffix == _PARQUET:
            import pyarrow
            from pyarrow import parquet

            columns = {name: [row.get(name) for row in rows] for name in names}
            parquet.write_table(pyarrow.table(columns), file)
            return
        text = io.StringIO()
        writer = csv.DictWriter(text, names)
        writer.writeheader()
        writer.writerows(rows)
        file.write(text.getvalue().encode())


def _row(answer: Prediction | Unreadable, target: str) -> dict[str, Any]:
    source = {"source": printable(answer.source)}
    if isinstance(answer, Unreadable):
        return source | {"error": printable(answer.reason)}
    if not answer.ranking and target and len(answer.outputs) == 1:
        return source | {target: answer.outputs[0]}
    if not answer.ranking:
        return source | {f"output_{i}": value for i, value in enumerate(answer.outputs)}
    name, probability = answer.ranking[0]
    each = {f"p_{name}": value for name, value in sorted(answer.ranking)}
    return source | {"class": name, "probability": probability} | each
