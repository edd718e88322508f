"""`Store`: where a session keeps its records, checkpoints and best weights."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rudel.errors import option
from rudel.runs import checkpoint as checkpoints
from rudel.runs.checkpoint import Checkpoint
from rudel.runs.run_directory import RunDirectory
from rudel.runs.run_log import Log
from rudel.session import best_weights as best


class Store(Protocol):
    """Keeps the records and checkpoints of a training.

    Attributes:
        keeps: whether checkpoints and best weights are kept at all.
    """

    keeps: bool

    def begin(self, records: Sequence[dict[str, Any]]) -> None:
        """Replaces all records by these."""
        ...

    def add(self, record: dict[str, Any]) -> None:
        """Adds a record; see `rudel.runs.run_log`.

        Raises:
            RunError: the disk is full.
        """
        ...

    def save(self, checkpoint: Checkpoint, best_step: int | None) -> None:
        """Keeps a checkpoint.

        Args:
            checkpoint: the newest.
            best_step: of the best weights so far; all others may be removed.

        Raises:
            CheckpointError: it cannot be written.
        """
        ...

    def save_best(self, weights: Checkpoint, before: Iterable[int | None]) -> None:
        """Keeps the best weights, and those of the steps `before`, which a resumed training would know as the best.

        Raises:
            CheckpointError: they cannot be written.
        """
        ...

    def after_interrupt(self) -> str:
        """The way to continue an interrupted training, as the end of a sentence."""
        ...

    def after_failure(self, step: int) -> str:
        """Says in a sentence what is left of a training that has failed; its last checkpoint is of this step, or 0."""
        ...


class RunStore:
    """Keeps everything in a run directory; without one, nothing.

    Args:
        run: the run directory, or None.
        settings: the requested ones, by name, for people to read.
        keep: how many checkpoints to keep.
    """

    def __init__(self, run: RunDirectory | None, settings: Mapping[str, Any], keep: int) -> None:
        self._run, self._log, self._keep = run, Log(run, settings), keep
        self.keeps = run is not None

    def begin(self, records: Sequence[dict[str, Any]]) -> None:
        """See `Store`."""
        self._log.begin(records)

    def add(self, record: dict[str, Any]) -> None:
        """See `Store`."""
        self._log.add(record)

    def save(self, checkpoint: Checkpoint, best_step: int | None) -> None:
        """See `Store`."""
        if self._run:
            checkpoints.save(self._run.path, checkpoint, self._keep)
            if best_step is not None:
                best.prune(self._run.path, [best_step])

    def save_best(self, weights: Checkpoint, before: Iterable[int | None]) -> None:
        """See `Store`."""
        if self._run:
            best.save(self._run.path, weights, before)

    def after_interrupt(self) -> str:
        """See `Store`."""
        if not self._run:
            return ""
        again = f"with {option('run', self._run.shown)} {option('resume', True)}"
        if not self._run.read_config().get("asked"):  # not a recipe's, or with objects that no file holds
            return f"; continue {again}"
        return f"; continue by `rudel resume {shlex.quote(str(self._run.shown))}`, or {again}"

    def after_failure(self, step: int) -> str:
        """See `Store`."""
        return f" The run {self._run.shown} keeps its checkpoint of step {step:,}." if self._run and step else ""
