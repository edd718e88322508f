"""Runs side by side: the settings in which they differ, and their curves in one figure for each metric."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rudel.files import written_atomically
from rudel.report.curves import find_curves, wants_log_scale
from rudel.report.formatting import metric_name, metric_value
from rudel.report.markup import Html, element, join, printable, table
from rudel.report.read import Run
from rudel.report.report_page import document
from rudel.report.svg import INK, MUTED, RULE, as_svg, figure, literal

if TYPE_CHECKING:
    from rudel.report.curves import Curve


_WIDTH, _HEIGHT = 424, 280
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Paul Tol's bright colours, which stay apart for those who do not see all of them, on light and dark pages."""

_NOT_SETTINGS = frozenset(
    {
        "asked",
        "attribution",
        "class_names",
        "identity",
        "model",
        "notes",
        "own_classes",
        "reads_images",
        "started",
        "absent",
        "steps_per_epoch",
        "input_range",
    }
)


def differences(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Settings, versions and model sizes that are not the same in all runs: (name, value of each run)."""
    found = [_settings(run.config) for run in runs]
    names = dict.fromkeys(name for settings in found for name in settings)
    rows = [(name, [_setting_text(settings.get(name)) for settings in found]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def results(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """The last metrics of the runs: (name, value of each run, – where it has none)."""
    names = dict.fromkeys(name for run in runs for name in run.metrics)
    return [(name, [metric_value(name, run.metrics.get(name)) for run in runs]) for name in names]


def write_comparison(runs: Sequence[Run], path: Path) -> None:
    """Writes the page."""
    names = [printable(name) for name in names_of([run.path for run in runs])]
    settings, metrics = differences(runs), results(runs)
    same = element("p", "All settings are the same.")
    header = ["", *names]
    sections = [
        ("Metrics", table("Metrics at the end", header, [[metric_name(n), *v] for n, v in _titled(metrics)])),
        (
            "What differs",
            table("Settings", header, [[n, *v] for n, v in settings], words=range(99)) if settings else same,
        ),
        ("Training curves", _curves(runs, names)),
    ]
    body = [element("h1", " and ".join(names)), *(element("section", element("h2", t), b) for t, b in sections if b)]
    with written_atomically(path) as file:
        file.write(document(" and ".join(names), element("main", join(body))).encode())


def names_of(runs: Sequence[Path]) -> list[str]:
    """Names of run directories: as much of the end of each path as tells them apart."""
    paths = [run.resolve() for run in runs]
    length = next((n for n in range(1, 9) if len({path.parts[-n:] for path in paths}) == len(paths)), 1)
    return ["/".join(path.parts[-length:]) for path in paths]


def _titled(rows: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    return [(f"validation {name}" if name.startswith("val_") else name, values) for name, values in rows]


def _settings(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if not before and name in _NOT_SETTINGS:
            continue
        if isinstance(value, Mapping):
            flat |= _settings(value, f"{before}{name}: " if name != "options" else before)
        else:
            flat[f"{before}{name}"] = value
    if not before and isinstance(config.get("model"), Mapping):
        flat["parameters"] = config["model"].get("parameters")
    return flat


def _setting_text(value: object) -> str:
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _curves(runs: Sequence[Run], names: Sequence[str]) -> Html | None:
    """A figure for each metric: validation where a run has it, else training, a line for each run."""
    found = [{curve.key: curve for curve in find_curves(run.epochs)} for run in runs]
    keys = list(dict.fromkeys(key for curves in found for key in curves))
    plots = []
    for number, key in enumerate(keys):
        lines = [
            (name, curves.get(key), _COLOURS[i % len(_COLOURS)])
            for i, (name, curves) in enumerate(zip(names, found, strict=True))
        ]
        shown = [(name, curve, colour) for name, curve, colour in lines if curve]
        drawing = figure(_WIDTH, _HEIGHT)
        axes = drawing.add_axes((0.14, 0.16, 0.82, 0.72))
        drawn = []
        for _, curve, colour in shown:
            values = curve.validation or curve.train or ()
            drawn += axes.plot(curve.epochs, values, color=colour, marker="o", markersize=3)
        if all(wants_log_scale(curve) for _, curve, _ in shown):
            axes.set_yscale("log")
        axes.set_xlabel("epoch", color=MUTED)
        axes.tick_params(colors=MUTED)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(RULE)
        labels = [literal(name) for name, _, _ in shown]  # Matplotlib leaves a line out whose own label begins with `_`
        axes.legend(drawn, labels, frameon=False, labelcolor=INK)
        kind = "validation " if all(curve.validation for _, curve, _ in shown) else ""
        ends = ", ".join(f"{name} {metric_value(key, _end(curve))}" for name, curve, _ in shown)
        title = f"{kind}{metric_name(key)}"
        plot = as_svg(drawing, f"between{number}", f"Line plot of the {title} of each run; at the end: {ends}.")
        plots.append(element("figure", element("h3", title), plot, element("figcaption", f"At the end: {ends}.")))
    return element("div", join(plots), class_="plots") if plots else None


def _end(curve: "Curve") -> float:
    values = [value for value in curve.validation or curve.train or () if not math.isnan(value)]
    return values[-1] if values else math.nan
