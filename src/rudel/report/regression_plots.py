"""Sections of a model that predicts numbers: its data, and its predictions against the truth."""

from typing import TYPE_CHECKING

import numpy as np

from rudel.report.formatting import count, is_number, number
from rudel.report.markup import Html, element, join, table
from rudel.report.read import Run
from rudel.report.regression_data import Answers, Regression
from rudel.report.regression_fit import judge
from rudel.report.regression_words import HOW, signs, verdict
from rudel.report.svg import INK, MUTED, RULE, TEST, TRAIN, VALIDATION, as_svg, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 424, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 14, 10, 42
_MOST_DOTS = 400
_NAMES = {"train": "training", "validation": "validation", "test": "test"}
_COLOURS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}


def data(run: Run) -> Html | None:
    """The targets of each part: over the input where it is a single number, and in a table."""
    regression = run.regression
    if regression is None:
        return None
    rows = [
        [_NAMES[part], count(_examples(run, part, regression[part])), *_spread(regression[part].truth)]
        for part in regression
    ]
    header = ["part", "examples", "mean", "standard deviation", "least", "greatest"]
    return join([_data_plot(regression), table("The targets", header, rows)])


def fit(run: Run) -> Html | None:
    """Whether the model fits, how large its errors are, and its predictions against the truth."""
    regression = run.regression
    if regression is None:
        return None
    judged = judge(regression)
    rows = [
        [_NAMES[part], count(_examples(run, part, regression[part])), *_errors(regression[part])] for part in regression
    ]
    header = ["part", "examples", "root mean squared error", "mean absolute error", "R²"]
    over_x = _is_curve(regression)
    note = (
        "Dots are the examples, the line is what the model predicts."
        if over_x
        else "A dot is a prediction; those on the line are right."
    )
    return join(
        [
            element("p", element("strong", verdict(judged)), " ", signs(judged)),
            element("p", note + _of_all(run, regression), class_="note"),
            element("div", join(_answers_plot(regression, part, over_x) for part in regression), class_="plots"),
            table("Errors", header, rows),
            element("details", element("summary", "How this is judged"), element("p", HOW)),
        ]
    )


def _is_curve(regression: Regression) -> bool:
    return all(part.x is not None and part.truth.shape[1] == 1 for part in regression.values())


def _examples(run: Run, part: str, answers: Answers) -> int:
    known = (run.config.get("data") or {}).get(part)
    return int(known) if is_number(known) and known else len(answers)


def _of_all(run: Run, regression: Regression) -> str:
    sampled = [part for part in regression if len(regression[part]) < _examples(run, part, regression[part])]
    if not sampled:
        return ""
    parts = " and ".join(f"{count(len(regression[part]))} {_NAMES[part]} examples" for part in sampled)
    return f" All numbers here are of {parts}, chosen at random."


def _spread(truth: np.ndarray) -> list[str]:
    return [number(float(value)) for value in (truth.mean(), truth.std(), truth.min(), truth.max())]


def _errors(answers: Answers) -> list[str]:
    error = float(answers.squared.mean())
    spread = float(answers.truth.astype(np.float64).var(axis=0).mean())
    absolute = float(np.abs(answers.residuals).mean())
    return [number(error**0.5), number(absolute), number(1 - error / spread) if spread else "–"]


def _data_plot(regression: Regression) -> Html | None:
    if not _is_curve(regression):
        return None
    axes = _axes(2 * _WIDTH)
    for part, answers in regression.items():
        shown = _dots(len(answers))
        assert answers.x is not None
        _draw_dots(axes, answers.x[shown], answers.truth[shown, 0], _COLOURS[part])
    _finish(axes, "input", "target")
    counts = ", ".join(f"{count(len(answers))} for {_NAMES[part]}" for part, answers in regression.items())
    label = f"The examples as dots, targets over inputs: {counts}."
    names = {"train": "for training", "validation": "for validation", "test": "for the test"}
    keys = (
        element("span", element("span", class_=f"key dot-{part}", aria_hidden="true"), names[part])
        for part in regression
    )
    return element("figure", element("p", join(keys), class_="keys"), _as_svg(axes, "data", label))


def _answers_plot(regression: Regression, part: str, over_x: bool) -> Html:
    answers = regression[part]
    axes = _axes(_WIDTH)
    if over_x:
        _draw_curve(axes, answers, _COLOURS[part])
        _finish(axes, "input", "target")
        what = "the targets as dots over the inputs, and the predictions as a line"
    else:
        _draw_against(axes, answers, _COLOURS[part])
        _finish(axes, "right value", "prediction")
        what = "predictions over right values"
    name = _NAMES[part]
    error = number(float(answers.squared.mean()) ** 0.5, 3)
    label = f"{name.capitalize()}: {what}; the root mean squared error is {error}."
    return element("figure", element("h3", name.capitalize()), _as_svg(axes, f"fit-{part}", label))


def _draw_curve(axes: "Axes", answers: Answers, colour: str) -> None:
    assert answers.x is not None
    shown = _dots(len(answers))
    _draw_dots(axes, answers.x[shown], answers.truth[shown, 0], MUTED)
    order = np.argsort(answers.x, kind="stable")
    axes.plot(answers.x[order], answers.predicted[order, 0], color=colour, linewidth=2.5)


def _draw_against(axes: "Axes", answers: Answers, colour: str) -> None:
    truth, predicted = answers.truth.reshape(-1), answers.predicted.reshape(-1)
    ends = [min(truth.min(), predicted.min()), max(truth.max(), predicted.max())]
    axes.plot(ends, ends, color=INK, linewidth=1)
    shown = _dots(len(truth))
    _draw_dots(axes, truth[shown], predicted[shown], colour)


def _dots(examples: int) -> np.ndarray:
    """The examples that get a dot: so few that a page stays small."""
    if examples <= _MOST_DOTS:
        return np.arange(examples)
    return np.random.default_rng(0).choice(examples, _MOST_DOTS, replace=False)


def _draw_dots(axes: "Axes", x: np.ndarray, y: np.ndarray, colour: str) -> None:
    axes.plot(x, y, linestyle="", marker="o", markersize=3.5, markeredgewidth=0, color=colour, alpha=0.6)


def _axes(width: float) -> "Axes":
    drawing = figure(width, _HEIGHT)
    place = _LEFT / width, _BOTTOM / _HEIGHT, 1 - (_LEFT + _RIGHT) / width, 1 - (_TOP + _BOTTOM) / _HEIGHT
    axes = drawing.add_axes(place)
    axes.set_frame_on(False)
    return axes


def _finish(axes: "Axes", below: str, beside: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}".replace("-", "−")))
    axes.grid(color=RULE, linewidth=1)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, pad=8, labelsize=12, labelcolor=MUTED)
    axes.set_xlabel(below, color=MUTED, fontsize=12, labelpad=4)
    axes.set_ylabel(beside, color=MUTED, fontsize=12, labelpad=4)


def _as_svg(axes: "Axes", name: str, label: str) -> Html:
    drawing = axes.get_figure(root=True)
    assert drawing is not None
    return as_svg(drawing, name, label)
