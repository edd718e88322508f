"""The log of a run for people and programs: metrics.jsonl, and TensorBoard's event files.

A record is what a training remembers of the end of a span: `epoch`, `step`, `seconds`, `time` (seconds since 1970),
`learning_rate`, and `logs`, the metrics by name. Checkpoints hold all records, and a training that goes on writes the
files again from them: what came after its checkpoint is gone from both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rudel.runs.run_directory import RunDirectory
from rudel.runs.tensorboard import Board

_LEFT_OUT = ("logs", "time")


class Log:
    """The files of a run that grow with every record; without a run, nothing.

    Args:
        run: the run directory, or None.
        settings: the requested ones, by name.
    """

    def __init__(self, run: RunDirectory | None, settings: Mapping[str, Any]) -> None:
        self._run = run
        self._board = Board(run.path, settings) if run else None

    def begin(self, records: Sequence[dict[str, Any]]) -> None:
        """Replaces what is there by these records."""
        if self._run and self._board:
            self._run.write_metrics([flat_record(record) for record in records])
            self._board.begin(records)

    def add(self, record: dict[str, Any]) -> None:
        """Adds a record.

        Raises:
            RunError: the disk is full.
        """
        if self._run and self._board:
            self._run.append_metrics(flat_record(record))
            self._board.append(record)


def flat_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as a line of metrics.jsonl: the logs beside epoch, step and seconds."""
    return {key: value for key, value in record.items() if key not in _LEFT_OUT} | record["logs"]
