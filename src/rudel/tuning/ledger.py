"""The records of a sweep in its folder, from which it can be continued, for people and programs.

tune.json          the request
study.log          Optuna's journal: every trial with its settings and values
trials.jsonl       a line per trial that has ended
trials/NUMBER/     checkpoints of trials that run, or were running when the sweep was interrupted
best/              the best trial, an ordinary run directory (or what the objective left in its folder)
report.html        the same for a person
"""

import contextlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rudel.errors import OptionError, RunError, option
from rudel.files import flush, remove_torn_line, replace_folder, restore_folder, write_json, written_together
from rudel.runs.run_directory import finite, remove_leftovers, take_lock, writing


@dataclass(frozen=True)
class Ended:
    """A trial that has ended.

    Args:
        number: from 0.
        state: finished; pruned, as others did better; or failed.
        value: the best by the metric; None where it failed.
        settings: that varied.
        host: where it ended.
        seconds: from its beginning to its end, on all hosts that worked on it; where the sweep was interrupted, without
            the time from the last checkpoint to when it was resumed.
        moved: how often it continued elsewhere, since a host was lost.
        error: why it failed.
    """

    number: int
    state: Literal["finished", "pruned", "failed"]
    value: float | None
    settings: dict[str, Any]
    host: str
    seconds: float
    moved: int = 0
    error: str = ""


class Ledger:
    """See the module.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def journal(self) -> Path:
        """The path of Optuna's journal."""
        return self.path / "study.log"

    @contextlib.contextmanager
    def begin(self, settings: Mapping[str, Any], resume: bool) -> Iterator[None]:
        """Makes the folder, or opens it again; it is this process's alone while the block lasts.

        Raises:
            RunError: it holds a sweep that is not to be resumed, or something else, cannot be written, or is in use.
            OptionError: the sweep in it is another one.
        """
        now = json.loads(json.dumps(finite(settings)))
        try:
            self._check_own()
            self.path.mkdir(parents=True, exist_ok=True)
            lock = take_lock(self.path)
        except OSError as error:
            raise RunError(
                f"The folder {self.path} cannot be written ({error.strerror}): give another with {option('run')}."
            ) from error
        try:
            remove_leftovers(self.path)
            with writing(self.path):
                self._restore_best()
            before = self._before(resume)
            for name in now:
                if name in before and name != "trials" and before[name] != now[name]:
                    raise OptionError(
                        f"The sweep {self.path} was begun with {name} {before[name]!r}, and this is {now[name]!r}: "
                        f"resume it as it was begun, or give another folder with {option('run')}."
                    )
            with writing(self.path):
                write_json(self._settings, now)
            yield
        finally:
            os.close(lock)

    def ended(self) -> list[Ended]:
        """The trials that have ended, in the order in which they did; a line that was cut short is removed."""
        path = self.path / "trials.jsonl"
        with writing(self.path):
            remove_torn_line(path)
        with self._reading(path):
            lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []
            return [Ended(**json.loads(line)) for line in lines]

    def add(self, trial: Ended) -> None:
        """Keeps that a trial has ended, and drops its checkpoints."""
        with writing(self.path), (self.path / "trials.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(asdict(trial)), ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())  # Optuna's journal, which has it next, outlives a power cut, too
        shutil.rmtree(self._folder(trial.number), ignore_errors=True)

    def checkpoints(self, number: int) -> dict[str, bytes]:
        """The newest checkpoint of a trial, and its best weights; empty where there is none."""
        return {path.name: path.read_bytes() for path in self._folder(number).glob("*.npz")}

    def keep_checkpoints(self, number: int, files: Mapping[str, bytes]) -> None:
        """Keeps these in the place of older ones; the best weights get there first, of which the checkpoint speaks."""
        folder = self._folder(number)
        names = sorted(files)
        with writing(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            with written_together([folder / Path(name).name for name in names]) as places:
                for name, file in zip(names, places, strict=True):
                    file.write(files[name])
        for path in folder.glob("*.npz"):
            if path.name not in files:
                path.unlink()

    def keep_best(self, archive: bytes) -> None:
        """Replaces the best trial by what is in this archive; either is whole, whenever the process is killed."""
        with writing(self.path):
            self._restore_best()
            new = self.path / ".best.tmp"
            new.mkdir()
            with zipfile.ZipFile(io.BytesIO(archive)) as packed:  # whose names cannot lead out of the folder
                packed.extractall(new)
            flush(new)
            replace_folder(new, self.path / "best", self.path / ".best.old")

    def _restore_best(self) -> None:
        """Puts the best trial back that a killed sweep had moved away, and removes what else was left of that."""
        restore_folder(self.path / "best", self.path / ".best.old")
        for leftover in (".best.tmp", ".best.old"):
            shutil.rmtree(self.path / leftover, ignore_errors=True)

    def _folder(self, number: int) -> Path:
        return self.path / "trials" / str(number)

    def _before(self, resume: bool) -> dict[str, Any]:
        """The settings of the sweep in the folder; empty where there is none, or nothing has come of it."""
        if not self._settings.is_file():
            return {}
        if not (self.path / "trials.jsonl").exists() and not (self.path / "trials").exists():
            with writing(self.path):
                self.journal.unlink(missing_ok=True)
            return {}
        if not resume:
            raise RunError(
                f"{self.path} already holds a sweep: add {option('resume', True)} to continue it, or give another "
                f"folder with {option('run')}."
            )
        with self._reading(self._settings):
            return dict(json.loads(self._settings.read_text(encoding="utf-8")))

    def _check_own(self) -> None:
        """Refuses a folder of something else; what a sweep that was killed at its start had half written is none.

        Raises:
            RunError: it is one.
            OSError: it cannot be read.
        """
        inside = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        own = (".lock", f".{self._settings.name}.")
        if self._settings.name not in inside and not all(name.startswith(own) for name in inside):
            raise RunError(
                f"{self.path} holds something that is not a sweep: give another folder with {option('run')}."
            )

    @contextlib.contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        """Makes one sentence of a record that is damaged, or may not be read.

        Raises:
            RunError: names it.
        """
        try:
            yield
        except OSError as error:
            raise RunError(f"{path} cannot be read ({error.strerror}): repair that, and try again.") from error
        except (ValueError, TypeError) as error:
            raise RunError(
                f"{path} cannot be read ({error}): the sweep is damaged; begin another with {option('run')}."
            ) from error

    @property
    def _settings(self) -> Path:
        return self.path / "tune.json"
