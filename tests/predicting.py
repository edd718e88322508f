"""Predictions of a run, all of them or an error."""

from collections.abc import Sequence
from pathlib import Path

from rudel.errors import DataError
from rudel.runs.file_model import Prediction, Unreadable, file_model


def predict_files(run: str | Path, files: Sequence[str | Path]) -> list[Prediction]:
    """What `rudel predict` computes for files.

    Raises:
        DataError: the first file that cannot be read.
    """
    found: list[Prediction] = []
    for answer in file_model(run).answers([(str(file), Path(file)) for file in files]):
        if isinstance(answer, Unreadable):
            raise DataError(answer.reason)
        found.append(answer)
    return found
