"""A run directory that is watched: what is new in it, as one document for the page."""

import json
import time
from pathlib import Path
from typing import Any

from rudel.errors import RunError
from rudel.report.formatting import is_number, metric_name
from rudel.report.headline import key_metric, title
from rudel.report.read import Run
from rudel.report.rounds_file import Rounds
from rudel.watch.following import Following
from rudel.watch.live_curves import curves
from rudel.watch.live_hosts import Hosts, speed
from rudel.watch.lock import is_locked
from rudel.watch.pace import Mark, Pace, Saved, newest_checkpoint, spans, steps_per_epoch, total_steps
from rudel.watch.state import STARTING_SECONDS, Signs, judge

_FILES = (".lock", "config.json", "summary.json", "failure.json")
_UNDER_WAY = ("starting", "running", "quiet")
_CLOSE_SECONDS = 1.0
"""The most time between two looks in which no training of this computer begins and ends unseen."""


class Watched:
    """Looks at a run directory again and again; see `look`.

    Args:
        path: of the run directory, which need not exist yet.

    Raises:
        RunError: there is something else.
    """

    def __init__(self, path: Path) -> None:
        _check(path)
        self.path = path
        self._metrics = Following(path / "metrics.jsonl")
        self._log = Following(path / "rounds.jsonl")
        self._pace = Pace()
        self._existed = self._elsewhere = self._unseen = self._was_locked = False
        self._news_at = self._locked_since = self._begun_at = self._looked_at = 0.0
        self._forget()

    def document(self) -> dict[str, Any]:
        """The document of the run as it is now: values that JSON has, times in seconds since 1970.

        As long as nothing changes, neither does the document.
        """
        locked = is_locked(self.path)  # before the files: a training that ends now is seen to have ended the next time
        changed = self._read()
        config, summary = (_object(self.path / name) for name in ("config.json", "summary.json"))
        self._saved = newest_checkpoint(self.path, self._saved)
        if self._saved and self._saved.mark and self._saved.step not in self._checkpoints:
            self._checkpoints[self._saved.step] = self._saved.mark
            changed = True
        news_at, step = self._news(config, summary)
        saw_change = bool(self._news_at) and news_at > self._news_at
        self._unseen = self._began_unseen() or (self._unseen and not saw_change)
        self._elsewhere = self._elsewhere or (saw_change and not self._was_locked)
        self._elsewhere = self._elsewhere and not (locked or summary is not None)
        if locked and not self._was_locked:
            self._locked_since = time.time()
        self._was_locked, self._news_at = locked, news_at
        signs = Signs(
            exists=self.path.is_dir(),
            existed=self._existed,
            begun=bool(config),
            finished=summary is not None,
            locked=locked,
            news=step > 0,
            silent=time.time() - max(news_at, self._locked_since),
            gap=self._pace.gap,
            elsewhere=self._elsewhere and not (self._unseen and (step or time.time() - news_at > STARTING_SECONDS)),
            failure=_failure(self.path),
        )
        state, sentence = judge(signs)
        self._existed = self._existed or signs.exists
        if state not in _UNDER_WAY and not self._elsewhere:  # else news may just be rare there
            self._pace.forget()
        elif step and news_at > self._locked_since:  # else the time since then may be that of a pause, or of compiling
            self._pace.heard(news_at, step)
        if changed or self._run is None or (self._run.config, self._run.summary) != (config or {}, summary):
            self._renew(config, summary)
        return self._document(state, sentence, news_at, step)

    def _forget(self) -> None:
        self._lines: dict[float, dict[str, Any]] = {}
        self._hosts = Hosts()
        self._damaged = 0
        self._saved: Saved | None = None
        self._checkpoints: dict[int, Mark] = {}
        self._rounds: Rounds | None = None
        self._run: Run | None = None
        self._parts: dict[str, Any] = {}

    def _read(self) -> bool:
        """Takes in what is new in the logs; whether there was anything."""
        restarted, lines = self._metrics.new_lines()
        if restarted:
            self._lines, self._checkpoints = {}, {}
        for line in lines:
            number = line.get("epoch")
            epoch = float(number) if isinstance(number, int | float) else len(self._lines) + 1.0
            self._lines[epoch] = {**line, "epoch": epoch}
        rounds_restarted, rounds = self._log.new_lines()
        if rounds_restarted:
            self._hosts, self._damaged = Hosts(), 0
        for line in rounds:
            try:
                self._hosts.add(line)
            except ValueError:
                self._damaged += 1
        if rounds_restarted or rounds:
            self._rounds = self._hosts.summed()
        return bool(restarted or lines or rounds_restarted or rounds)

    def _news(self, config: dict[str, Any] | None, summary: dict[str, Any] | None) -> tuple[float, int]:
        """When there was last any news, and how many steps were done then."""
        saved = self._saved
        news = [(self._metrics.changed, max((_step(line) for line in self._lines.values()), default=0))]
        news += [(self._log.changed, self._hosts.step)]
        news += [(saved.written, saved.step)] if saved else []
        step = max(step for _, step in news)
        if summary is not None and not self._rounds and is_number(summary.get("steps")):
            step = max(step, int(summary["steps"]))
        moments = [when for when, _ in news] + [_written(self.path / name) for name in _FILES]
        return max(moments), step

    def _began_unseen(self) -> bool:
        """Whether a training has begun since a look so long ago that it may have been here, and may have ended."""
        begun_at, now = _written(self.path / "config.json"), time.monotonic()
        has_begun, is_long_ago = begun_at != self._begun_at, now - self._looked_at > _CLOSE_SECONDS
        self._begun_at, self._looked_at = begun_at, now
        if has_begun:
            self._pace.forget()
        return has_begun and is_long_ago

    def _renew(self, config: dict[str, Any] | None, summary: dict[str, Any] | None) -> None:
        """Makes what depends on the files alone."""
        epochs = tuple(self._lines[epoch] for epoch in sorted(self._lines))
        self._run = Run(self.path, config or {}, epochs, summary, None, self._rounds)
        key = key_metric(self._run)
        self._parts = {
            "title": title(self._run),
            "curves": curves(epochs),
            "speed": self._speed(),
            "rounds": None,
            "live": False,
            "hosts": None,
            "result": key and {"key": key, "name": metric_name(key), "validation": key.startswith("val_")},
        }

    def _document(self, state: str, sentence: str, news_at: float, step: int) -> dict[str, Any]:
        assert self._run is not None
        config, summary, rounds = self._run.config, self._run.summary, self._rounds
        live, last = state in _UNDER_WAY, self._run.epochs[-1] if self._run.epochs else {}
        if rounds and (self._parts["rounds"], self._parts["live"]) != (rounds, live):
            self._parts |= {"rounds": rounds, "live": live, "hosts": self._hosts.document(rounds, live)}
        result = self._parts["result"]
        length = steps_per_epoch(config)
        total = total_steps(config)
        return {
            "run": str(self.path),
            "title": self._parts["title"],
            "state": state,
            "message": sentence,
            "news_at": round(news_at, 3),
            "damaged": self._metrics.damaged + self._log.damaged + self._damaged,
            "step": step,
            "total": total,
            "epoch": min(step, (total or step)) / length if length else last.get("epoch"),
            "epochs": total / length if total and length else None,
            "pace": self._expected() if live else None,
            "seconds": _seconds(self._run),
            "wall_seconds": (summary or {}).get("total_seconds"),
            "speed": self._parts["speed"],
            "batch_size": config.get("batch_size"),
            "learning_rate": last.get("learning_rate"),
            "parameters": (config.get("model") or {}).get("parameters"),
            "strategy": config.get("strategy"),
            "started": config.get("started"),
            "result": result and result | {"value": self._run.metrics.get(result["key"])},
            "curves": self._parts["curves"],
            "hosts": self._parts["hosts"],
            "report": (self.path / "report.html").is_file(),
        }

    def _expected(self) -> float | None:
        """Steps a second by the clock on the wall; before there are enough news, without evaluation and checkpoints."""
        lately = self._parts["speed"]
        return self._pace.steps_per_second or (lately[-1][2] if lately else None)

    def _speed(self) -> list[tuple[float, float, float]]:
        """Steps a second over spans of the training's seconds."""
        if self._rounds:
            return speed(self._rounds)
        marks = {
            _step(line): Mark(float(line["seconds"]), _step(line)) for line in self._lines.values() if _timed(line)
        }
        marks = {0: Mark(0.0, 0)} | self._checkpoints | marks
        return spans([marks[step] for step in sorted(marks)])


def _check(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise RunError(f"`{path}` is not a run directory: give one that `rudel train` makes, such as runs/digits.")
    if not path.is_dir() or (path / "config.json").exists() or (path / ".lock").exists() or not any(path.iterdir()):
        return
    inside = sorted(str(found.parent) for found in path.glob("*/config.json"))
    if inside:
        raise RunError(f"`{path}` holds runs and is not one itself: watch {', '.join(inside[:3])}, or several at once.")
    raise RunError(f"`{path}` is not a run directory, it has no config.json: give one that `rudel train` makes.")


def _object(path: Path) -> dict[str, Any] | None:
    """A JSON object that is written at once or not at all; None if it is not there, or is no such thing."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _failure(path: Path) -> str | None:
    error = (_object(path / "failure.json") or {}).get("error")
    return error if isinstance(error, str) else None


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _step(line: dict[str, Any]) -> int:
    return int(line["step"]) if is_number(line.get("step")) else 0


def _timed(line: dict[str, Any]) -> bool:
    return is_number(line.get("seconds")) and is_number(line.get("step"))


def _seconds(run: Run) -> float | None:
    """Seconds of training so far."""
    if run.rounds:
        return run.rounds.seconds
    seconds = (run.summary or {}).get("train_seconds")
    if is_number(seconds):
        return seconds
    return next((line["seconds"] for line in reversed(run.epochs) if is_number(line.get("seconds"))), None)
