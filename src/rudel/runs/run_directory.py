"""The directory of one training: what was requested, what happened, what came out.

    config.json        the request, versions, seed
    plan.json          what was forecast, where the strategy was chosen by that
    metrics.jsonl      a line per epoch, or per evaluation
    tensorboard/       the same for TensorBoard
    checkpoints/       see `rudel.runs.checkpoint`
    model.keras        the trained model
    best.keras         the same with the best weights, if a metric was named to tell
    predictions.npz    what the model says of its examples
    augmentation.npz   what is done at random to training images, if anything is
    report.html        the same for a person
    failure.json       why it ended by an error
    log.txt            what happened inside, for those who look for the cause of trouble
    summary.json       written last: a run that has it is finished

The configuration is written first and removed last: a folder that has such files without it is somebody else's.

One training at a time may use a directory: it holds a lock (flock) that the system releases however the process ends.
"""

import contextlib
import fcntl
import itertools
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rudel.errors import DataError, ModelError, OptionError, RudelError, RunError, option
from rudel.files import expanded, write_json, written_atomically
from rudel.runs.kept_log import keeping_log

_LOCK = ".lock"
_CONFIG = "config.json"
_OTHERS = (
    "plan.json",
    "metrics.jsonl",
    "rounds.jsonl",
    "tensorboard",
    "model.keras",
    "best.keras",
    "predictions.npz",
    "augmentation.npz",
    "report.html",
    "failure.json",
    "log.txt",
    "summary.json",
)
"""What a run has beside its configuration and checkpoints."""

_CHECKPOINT = re.compile(r"\..*|(?:step|best)-\d+\.npz")
_TOKEN = "[0-9a-f]" * 16  # see `rudel.files`
_ATTEMPTS, _PAUSE = 10, 0.01
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunDirectory:
    """Paths and documents of a run; see the module for what they hold.

    Args:
        path: the directory; absolute in a training, which may change the working directory.
        lock: file descriptor of the held lock, or -1 when the run is only read.
        given: the path as the user has given it; None for `path`.
    """

    path: Path
    lock: int = -1
    given: Path | None = None

    @property
    def shown(self) -> Path:
        """The path in messages."""
        return self.given or self.path

    @property
    def model(self) -> Path:
        """The path of the trained model."""
        return self.path / "model.keras"

    @property
    def title(self) -> str:
        """The name of the run in messages, or of the model file that it was made of (`rudel.runs.model_as_run`)."""
        file = self.read_config().get("file")
        return f"model {file}" if file else f"run {self.shown}"

    @property
    def best(self) -> Path:
        """The path of the model with the best weights, if a metric was named to find them."""
        return self.path / "best.keras"

    @property
    def predictions(self) -> Path:
        """The path of the predictions."""
        return self.path / "predictions.npz"

    @property
    def log(self) -> Path:
        """The path of the log for diagnosis."""
        return self.path / "log.txt"

    def read_config(self) -> dict[str, Any]:
        """The requested configuration; empty before it is written."""
        return _read_json(self.path / _CONFIG) or {}

    def read_summary(self) -> dict[str, Any] | None:
        """The summary of the results; None while the run is unfinished."""
        return _read_json(self.path / "summary.json")

    def write_config(self, config: dict[str, Any]) -> None:
        """Writes the requested configuration."""
        with writing(self.shown):
            write_json(self.path / _CONFIG, config)

    def write_plan(self, plan: dict[str, Any]) -> None:
        """Writes plan.json."""
        write_json(self.path / "plan.json", finite(plan))

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Marks the run as finished."""
        with writing(self.shown):
            write_json(self.path / "summary.json", finite(summary))

    def mark_unfinished(self) -> None:
        """Takes the summary and the predictions away: the run is trained further."""
        with writing(self.shown):
            for name in ("summary.json", self.predictions.name):
                (self.path / name).unlink(missing_ok=True)

    def write_metrics(self, records: Sequence[dict[str, Any]]) -> None:
        """Replaces the metrics by these records: those of before the checkpoint that a training resumes from."""
        with writing(self.shown), written_atomically(self.path / "metrics.jsonl") as file:
            file.write("".join(json.dumps(finite(record)) + "\n" for record in records).encode())

    def append_metrics(self, record: dict[str, Any]) -> None:
        """Adds the record of an epoch, or of an evaluation."""
        with writing(self.shown), (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(record)) + "\n")

    def keep_rounds(self, count: int) -> None:
        """Removes from rounds.jsonl what came after the first `count` rounds, or all of it."""
        path = self.path / "rounds.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
        done = [number for number, line in enumerate(lines, 1) if f'"round": {count},' in line]
        with writing(self.shown), written_atomically(path) as file:
            file.write("".join(lines[: done[0] if done and count else 0]).encode())

    def append_round(self, record: dict[str, Any]) -> None:
        """Adds a round, or what happened to a host."""
        with writing(self.shown), (self.path / "rounds.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(record)) + "\n")

    def keeping_log(self) -> contextlib.AbstractContextManager[None]:
        """Adds to log.txt what Rudel's modules log while the block lasts; see `rudel.runs.kept_log`."""
        return keeping_log(self.log)

    @contextlib.contextmanager
    def keeping_failure(self) -> Iterator[None]:
        """Keeps why the block ended by an error, for those who watch; what an earlier training kept is removed.

        A training that was refused before its first step leaves nothing, so that the same path can be used again.
        """
        path = self.path / "failure.json"
        path.unlink(missing_ok=True)
        try:
            yield
        except Exception as error:
            if isinstance(error, DataError | ModelError | OptionError) and not self._has_learned():
                self._empty()
                raise
            _log.info("the training ended by an error", exc_info=error)
            message = str(error) if isinstance(error, RudelError) else f"{type(error).__name__}: {error}"
            with contextlib.suppress(OSError):
                write_json(path, {"error": message})
            raise

    def _has_learned(self) -> bool:
        logs = [self.path / name for name in ("metrics.jsonl", "rounds.jsonl")]
        kept = any((self.path / "checkpoints").glob("*")) or self.model.exists()
        return kept or any(path.is_file() and path.stat().st_size for path in logs)

    def _empty(self) -> None:
        with contextlib.suppress(OSError):
            for name in ("checkpoints", "tensorboard"):
                shutil.rmtree(self.path / name, ignore_errors=True)
            for name in ("metrics.jsonl", "rounds.jsonl", self.log.name, _CONFIG):
                (self.path / name).unlink(missing_ok=True)

    def release(self) -> None:
        """Lets another training use the directory; removes it if nothing was kept in it and nobody works in it."""
        if self.lock < 0:
            return
        with contextlib.suppress(OSError):
            if [path.name for path in self.path.iterdir()] == [_LOCK]:
                (self.path / _LOCK).unlink()
                for folder in (self.path, self.path.parent):  # the latter is `runs`, if this was to be the first in it
                    if not Path.cwd().is_relative_to(folder.resolve()):
                        folder.rmdir()
        os.close(self.lock)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Makes one sentence of a full disk, or of a folder that is gone or cannot be written.

    Raises:
        RunError: something below `path` could not be written.
    """
    try:
        yield
    except OSError as error:
        if problem := gone(path, error):
            raise RunError(problem) from error
        reason = error.strerror or str(error)
        raise RunError(
            f"The run {path} could not be written ({reason}): make room, then continue with {option('resume', True)}."
        ) from error


def gone(run: Path, error: OSError) -> str:
    """Says that the directory of a run was removed while it was written; "" where the error has another cause."""
    if not isinstance(error, FileNotFoundError) or run.is_dir():
        return ""
    return f"The run {run} could not be written, because its folder is gone: train again, and leave the folder there."


def path_of(run: str | Path | None) -> Path | None:
    """The directory that a user has named; `~` is their home.

    Raises:
        OptionError: the name is empty.
    """
    if run is None:
        return None
    if not str(run).strip():
        raise OptionError(
            f"The run directory has no name: give one, such as {option('run', 'runs/first')}, or leave it out."
        )
    return expanded(run)


def create(path: Path, resume: bool) -> RunDirectory:
    """Makes or opens the directory of a run to train in, and locks it.

    Raises:
        RunError: it cannot be written, is in use, holds something else, or a run that is not to be resumed.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        _check_own(path)
        absolute, lock = path.absolute(), take_lock(path)
    except OSError as error:
        raise RunError(
            f"The run directory {path} cannot be written ({error.strerror}): give another with {option('run')}."
        ) from error
    try:
        check_free(path, resume)
        remove_leftovers(path)
    except RunError:
        os.close(lock)
        raise
    return RunDirectory(absolute, lock, path)


def take_lock(path: Path) -> int:
    """Takes the lock of a directory; the file descriptor that holds it until it is closed.

    Raises:
        RunError: another training holds it.
        OSError: the directory cannot be written.
    """
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _take(lock)
    except BlockingIOError as error:
        os.close(lock)
        raise RunError(
            f"Another training is using the run directory {path}: wait for it, or give another with {option('run')}."
        ) from error
    return lock


def _take(lock: int) -> None:
    """Takes the lock, also when someone is just looking whether it is taken, which lasts some microseconds.

    Raises:
        BlockingIOError: another training holds it.
    """
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(_PAUSE)
    return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def check_free(path: Path, resume: bool) -> None:
    """Refuses a directory that holds a run which is not to be resumed, or what a run would write over.

    Raises:
        RunError: there is such a run, or something else.
    """
    _check_own(path)
    if (path / _CONFIG).exists() and not resume:
        raise RunError(
            f"{path} already holds a run: add {option('resume', True)} to continue it, or give another directory with "
            f"{option('run')}."
        )


def _check_own(path: Path) -> None:
    """Refuses a directory where something else has the name of a part of a run. Other files do not matter.

    Raises:
        RunError: names it.
    """
    if (path / _CONFIG).exists():
        return
    others = [path / name for name in _OTHERS] + [
        found for found in path.glob("checkpoints/*") if not _CHECKPOINT.fullmatch(found.name)
    ]
    if found := next((other for other in others if other.exists()), None):
        raise RunError(
            f"{path} has `{found.relative_to(path)}` and is not a run, it has no {_CONFIG}: give an empty directory, "
            f"or one that does not exist, with {option('run')}."
        )


def remove_leftovers(path: Path) -> None:
    """Removes what a killed training had half written, beside its final place, from a directory whose lock is held."""
    with writing(path):
        for leftover in (*path.glob(f".*.{_TOKEN}.tmp"), *path.glob(f"checkpoints/.*.{_TOKEN}.tmp")):
            leftover.unlink()
        for leftover in path.glob(".model.????????/"):
            shutil.rmtree(leftover)


def open_run(path: Path) -> RunDirectory:
    """Opens a run to read.

    Raises:
        RunError: there is no run.
    """
    path = expanded(path)
    if not (path / _CONFIG).is_file():
        raise RunError(f"There is no run at {path}: give a directory that `rudel train` has made.")
    return RunDirectory(path)


def open_finished(path: Path) -> RunDirectory:
    """Opens a run that has a trained model.

    Raises:
        RunError: there is no run, or it is unfinished.
    """
    run = open_run(path)
    if not run.model.is_file() or run.read_summary() is None:
        raise RunError(
            f"The run at {path} is not finished: continue it by `rudel resume {path}`, or by repeating its call with "
            f"{option('resume', True)}."
        )
    return run


def create_next(name: str) -> RunDirectory:
    """Makes the first of `runs/name`, `runs/name-2`, `runs/name-3`, ... that is not there yet, and locks it.

    Raises:
        RunError: it cannot be written.
    """
    folder = Path("runs")
    numbered = (folder / (name if number == 1 else f"{name}-{number}") for number in itertools.count(1))
    try:
        folder.mkdir(exist_ok=True)
        path = next(path for path in numbered if _is_new(path))
    except OSError as error:
        raise RunError(
            f"{error.filename} cannot be written ({error.strerror}): give a directory with {option('run')}."
        ) from error
    return create(path, resume=False)


def _is_new(path: Path) -> bool:
    """Makes a directory, unless there is something at its path."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


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
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
        return found
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}): repair that, and try again.") from error
    except ValueError as error:
        raise RunError(
            f"{path} cannot be read ({error}): the run is damaged; train it again into another directory."
        ) from error
