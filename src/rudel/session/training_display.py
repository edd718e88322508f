"""Progress of a training on the terminal: a live line for the running epoch, and a line for every finished one.

Of several hosts there are more lines, from `replicas_display.py`; where standard error is not a terminal, there are
only notes and events of theirs.
"""

import contextlib
import importlib
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rudel.loop.schedule import Schedule
from rudel.report.formatting import duration, number, size
from rudel.report.read import NOT_METRICS
from rudel.session.replicas_display import HostLines
from rudel.terminal import is_terminal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


_REFRESHES = 6
"""Times a second that the lines are redrawn; a redraw costs about 2 ms of one core."""


class Display:
    """Shows nothing; the base of every display."""

    live = False
    """Whether anything that `advance` is called with between the ends of epochs is shown."""

    def start(self, schedule: Schedule, step: int, seconds: float) -> None:
        """Training begins, with this many steps already done in this many seconds of training."""

    def note(self, text: str) -> None:
        """Something to know of the training, a sentence."""

    def sending(self, done: int, total: int) -> None:
        """Before the first step, so many of so many bytes have arrived at the hosts."""

    def advance(self, step: int, logs: dict[str, float], seconds: float) -> None:
        """A block has ended after `step` steps and `seconds` of training, with the metrics of the epoch so far."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch has ended, with a line of metrics.jsonl."""

    def hosts(self, names: Sequence[str], counted: str = "rounds") -> None:
        """The first round begins on these hosts; what is counted is rounds or arrivals."""

    def round(self, closed: Any) -> None:
        """A round of several hosts has ended, a `RoundClosed`."""

    def host(self, changed: Any) -> None:
        """A host was lost or has joined, a `HostChanged`."""

    def stop(self) -> None:
        """Training has ended, well or not."""


class Lines(Display):
    """A line on standard error for each note, and for each event of a host."""

    def __init__(self) -> None:
        self._hosts, self._seconds_before = HostLines(), 0.0

    def start(self, schedule: Schedule, step: int, seconds: float) -> None:
        """Events are timed from the beginning of the run."""
        self._seconds_before = seconds

    def note(self, text: str) -> None:
        """Prints the sentence."""
        with contextlib.suppress(OSError, ValueError):  # its disk is full, nobody reads it, or it was closed
            print(text, file=sys.stderr, flush=True)

    def hosts(self, names: Sequence[str], counted: str = "rounds") -> None:
        """Takes in the hosts."""
        self._hosts.begin(names, counted)

    def round(self, closed: Any) -> None:
        """Takes in what hosts did, and notes which of them contribute next to nothing."""
        for sentence in self._hosts.round(closed):
            self.note(sentence)

    def host(self, changed: Any) -> None:
        """Prints what happened to a host."""
        text = self._hosts.change(changed)
        self.note(f"{duration(self._seconds_before + changed.seconds)}  {text}")

    def stop(self) -> None:
        """Notes which hosts never answered."""
        for sentence in self._hosts.end():
            self.note(sentence)


class RichDisplay(Lines):
    """A progress bar with speeds, metrics and the time left, and the hosts below it, drawn by Rich.

    In a notebook, IPython draws it, above the lines of the epochs and as often as there are steps to show: Rich alone
    wants ipywidgets there, which few have, and draws nothing without.

    Args:
        console: where; None for standard error.
    """

    live = True

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

        super().__init__()
        self._console = console = console or Console(stderr=True)
        hosts = self._hosts

        class Board(Progress):
            """The bar, and the hosts below it."""

            def get_renderables(self) -> "Iterable[RenderableType]":
                yield self.make_tasks_table(self.tasks)
                if lines := hosts.text(console.width):
                    yield lines

        self._wide = console.width >= 130
        columns = (
            SpinnerColumn(),
            TextColumn("epoch {task.fields[epoch]}", style="bold"),
            BarColumn(bar_width=24 if self._wide else 8),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
            TextColumn("{task.fields[speed]}", style="cyan"),
            TextColumn("{task.fields[metrics]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        )
        self._progress = Board(
            *columns, console=console, transient=True, refresh_per_second=_REFRESHES, disable=console.is_jupyter
        )
        self._in_notebook: Any = None
        self._drawn = 0.0

    def start(self, schedule: Schedule, step: int, seconds: float) -> None:
        """Draws the bar."""
        super().start(schedule, step, seconds)
        self._schedule, self._began = schedule, (seconds, step)
        self._task = self._progress.add_task(
            "", total=schedule.total_steps, completed=step, epoch=self._epoch_of(step), speed="starting", metrics=""
        )
        self._progress.start()
        if self._console.is_jupyter:
            self._in_notebook = importlib.import_module("IPython.display").display(self._progress, display_id=True)

    def note(self, text: str) -> None:
        """Prints the sentence above the bar."""
        self._console.print(text, highlight=False, markup=False)

    def sending(self, done: int, total: int) -> None:
        """Says how much has arrived, in the place of the metrics that are not there yet."""
        self._progress.update(self._task, metrics=f"{size(done)} of {size(total)} at the hosts")
        self._draw_in_notebook()

    def advance(self, step: int, logs: dict[str, float], seconds: float) -> None:
        """Moves the bar."""
        began, first = self._began
        speed = (step - first) / max(seconds - began, 1e-9)
        self._progress.update(
            self._task,
            completed=step,
            epoch=self._epoch_of(max(step - 1, 0)),
            speed=f"{speed:,.0f} steps/s · {speed * self._schedule.sizes[0]:,.0f} examples/s" if self._wide else "",
            metrics=described(dict(sorted(logs.items(), key=lambda entry: entry[0] != "loss"))),
        )
        self._draw_in_notebook()

    def epoch(self, record: dict[str, Any]) -> None:
        """Prints the line of an epoch above the bar."""
        total = len(str(self._schedule.epochs))
        metrics = described({name: value for name, value in record.items() if name not in NOT_METRICS})
        self._console.print(f"epoch {record['epoch']:>{total}g}  {metrics}", highlight=False)

    def stop(self) -> None:
        """Takes the bar away; the lines of the epochs stay."""
        super().stop()
        self._progress.stop()
        if self._in_notebook:
            self._in_notebook.update({"text/plain": ""}, raw=True)
            self._in_notebook = None

    def _draw_in_notebook(self) -> None:
        if self._in_notebook and time.monotonic() - self._drawn >= 1 / _REFRESHES:
            self._in_notebook.update(self._progress)
            self._drawn = time.monotonic()

    def _epoch_of(self, step: int) -> str:
        return f"{step // self._schedule.steps_per_epoch + 1}/{self._schedule.epochs}"


def choose_display(verbose: bool | Literal["auto"], on_hosts: bool = False) -> Display:
    """A live display on a terminal or in a notebook, else none; True and False decide it otherwise.

    Args:
        verbose: see `rudel.fit`.
        on_hosts: whether hosts may be lost meanwhile: then what is not a terminal gets lines.
    """
    if verbose == "auto" and not is_terminal(sys.stderr) and "ipykernel" not in sys.modules:
        return Lines() if on_hosts and sys.stderr else Display()
    return RichDisplay() if verbose else Display()


def described(metrics: dict[str, Any]) -> str:
    """Metrics in one line.

    >>> described({"loss": 0.51234, "accuracy": 0.98761, "mae": 12345.6})
    'loss 0.5123  accuracy 0.9876  mae 12,346'
    >>> described({"r2": -0.01562, "val_r2": -0.00048741})
    'r2 -0.0156  val_r2 -0.0004874'
    """
    return "  ".join(
        f"{name} {value:.4f}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{name} {number(value)}".replace("−", "-")
        for name, value in metrics.items()
        if isinstance(value, float)
    )
