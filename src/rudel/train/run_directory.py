"""The directory of one training: what was asked, what happened, what came out.

    config.json        what was asked for, versions, seed
    metrics.jsonl      a line per epoch
    checkpoints/       see `rudel.train.checkpoint`
    model.keras        the trained model
    predictions.npz    what the model says of the validation examples (classifiers)
    report.html        the same for a person
    summary.json       written last: a run that has it is finished

One training at a time may use a directory: it holds a lock (flock) that the system releases however the process ends.
"""

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudel.errors import RunError
from rudel.files import write_json, written_atomically


@dataclass(frozen=True)
class RunDirectory:
    """Paths and documents of a run; see the module for what they hold.

    Args:
        path: the directory.
        lock: file descriptor of the held lock, or -1 when the run is only read.
    """

    path: Path
    lock: int = -1

    @property
    def model(self) -> Path:
        """Where the trained model is."""
        return self.path / "model.keras"

    @property
    def predictions(self) -> Path:
        """Where the predictions on the validation examples are."""
        return self.path / "predictions.npz"

    def read_config(self) -> dict[str, Any]:
        """What was asked for; empty before it is written."""
        return _read_json(self.path / "config.json") or {}

    def read_summary(self) -> dict[str, Any] | None:
        """What came out; None while the run is unfinished."""
        return _read_json(self.path / "summary.json")

    def write_config(self, config: dict[str, Any]) -> None:
        """Writes what was asked for."""
        write_json(self.path / "config.json", config)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Marks the run as finished."""
        write_json(self.path / "summary.json", finite(summary))

    def mark_unfinished(self) -> None:
        """Takes the summary away: the run is trained further."""
        (self.path / "summary.json").unlink(missing_ok=True)

    def write_metrics(self, records: Sequence[dict[str, Any]]) -> None:
        """Replaces the metrics by these records: those of before the checkpoint that a training resumes from."""
        with written_atomically(self.path / "metrics.jsonl") as file:
            file.write("".join(json.dumps(finite(record)) + "\n" for record in records).encode())

    def append_metrics(self, record: dict[str, Any]) -> None:
        """Adds the record of an epoch."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(record)) + "\n")

    def release(self) -> None:
        """Lets another training use the directory."""
        if self.lock >= 0:
            os.close(self.lock)


def create(path: Path, resume: bool) -> RunDirectory:
    """Makes or opens the directory of a run to train in, and locks it.

    Raises:
        RunError: it cannot be written, is in use, or already holds a run that is not to be resumed.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise RunError(
            f"The run directory {path} cannot be written ({error.strerror}): give another with --run."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise RunError(
            f"Another training is using the run directory {path}: wait for it, or give another with --run."
        ) from error
    if (path / "config.json").exists() and not resume:
        os.close(lock)
        raise RunError(
            f"{path} already holds a run: add --resume to go on with it, or give another directory with --run."
        )
    return RunDirectory(path, lock)


def open_run(path: Path) -> RunDirectory:
    """Opens a run to read.

    Raises:
        RunError: there is no run.
    """
    if not (path / "config.json").is_file():
        raise RunError(f"There is no run at {path}: give a directory that `rudel train` has made.")
    return RunDirectory(path)


def open_finished(path: Path) -> RunDirectory:
    """Opens a run that has a trained model.

    Raises:
        RunError: there is no run, or it is unfinished.
    """
    run = open_run(path)
    if not run.model.is_file():
        raise RunError(f"The run at {path} is not finished: go on with it by `rudel train ... --run {path} --resume`.")
    return run


def next_free(name: str, parent: Path = Path("runs")) -> Path:
    """The first of `runs/name`, `runs/name-2`, `runs/name-3`, ... that is not there yet."""
    number = 1
    while (path := parent / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return path


def finite(value: Any) -> Any:
    """Replaces what JSON has no word for (NaN, infinities) by None, and NumPy numbers by Python's."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunError(
            f"{path} cannot be read ({error}): the run is damaged; train it anew into another directory."
        ) from error
