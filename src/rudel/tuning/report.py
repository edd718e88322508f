"""The page of a sweep: its trials, and Optuna's plots of what matters among the settings."""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudel.files import written_atomically
from rudel.report.formatting import duration, metric_name, metric_value, plural
from rudel.report.markup import Html, element, join, table
from rudel.report.report_page import document
from rudel.report.svg import as_svg
from rudel.runs.run_directory import writing
from rudel.tuning.ledger import Ended

if TYPE_CHECKING:
    import optuna
    from matplotlib.figure import Figure


def write_report(study: "optuna.Study", trials: Sequence[Ended], monitor: str, folder: Path) -> Path:
    """Writes `report.html`.

    Args:
        study: Optuna's.
        trials: those that have ended.
        monitor: by what they were compared.
        folder: of the sweep.

    Raises:
        RunError: it cannot be written.
    """
    finished = sum(trial.state == "finished" for trial in trials)
    plots = _plots(study) if finished > 1 else []
    sections = [element("section", element("h2", title), plot) for title, plot in plots]
    body = [
        element("h1", f"Sweep {folder.name}"),
        element("p", f"{plural(len(trials), 'trial')}, compared by {metric_name(monitor)}."),
        *sections,
        element("section", element("h2", "The trials"), _table(study, trials, monitor)),
    ]
    path = folder / "report.html"
    with writing(folder), written_atomically(path) as file:
        file.write(document(f"{folder.name} – sweep", element("main", join(body))).encode())
    return path


def _plots(study: "optuna.Study") -> list[tuple[str, Html]]:
    """Optuna's plots, those that it can draw of these trials."""
    import matplotlib as mpl

    with warnings.catch_warnings(), mpl.rc_context():  # Optuna chooses a style for all plots of the process
        warnings.simplefilter("ignore")  # Optuna calls these plots experimental
        from optuna.visualization import matplotlib as drawn

        wanted: list[tuple[str, str, Callable[[Any], Any]]] = [
            ("history", "History", drawn.plot_optimization_history),
            ("importance", "Importance of the settings", drawn.plot_param_importances),
            ("parallel", "All settings together", drawn.plot_parallel_coordinate),
        ]
        made = []
        for name, title, plot in wanted:
            # too few trials, all of them alike, or values too far apart for an axis
            with contextlib.suppress(ValueError, RuntimeError, ArithmeticError, ImportError):
                drawing = plot(study).figure
                try:
                    drawing.set_size_inches(9, 5)
                    svg = as_svg(drawing, name, f"{title} of the sweep, drawn by Optuna.")
                finally:
                    _close(drawing)
                made.append((title, element("figure", svg)))
    return made


def _close(drawing: "Figure") -> None:
    import matplotlib.pyplot as plt

    plt.close(drawing)


def _table(study: "optuna.Study", trials: Sequence[Ended], monitor: str) -> Html:
    sign = -1 if study.direction.name == "MINIMIZE" else 1
    order = sorted(trials, key=lambda t: (t.state != "finished", t.value is None, -sign * (t.value or 0.0)))
    names = list(dict.fromkeys(name for trial in trials for name in trial.settings))
    header = ["trial", metric_name(monitor), *names, "host", "time", "state"]
    rows = [
        [
            str(trial.number), metric_value(monitor, trial.value),
            *(setting_text(trial.settings.get(name)) for name in names),
            trial.host, duration(trial.seconds), trial.state,
        ]
        for trial in order
    ]  # fmt: skip
    return table("Trials, the best first", header, rows, words=(0, len(header) - 1, len(header) - 3))


def setting_text(value: object) -> str:
    """A setting as people read it.

    >>> setting_text(0.0012345678), setting_text(64), setting_text("relu")
    ('0.001235', '64', 'relu')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)
