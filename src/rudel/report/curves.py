"""Curves of the loss and of each metric over the epochs, in training and in validation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rudel.report.formatting import better, epoch_number, is_number, is_share, metric_name, metric_value, number
from rudel.report.markup import Html, element, join, table
from rudel.report.read import NOT_METRICS, Run
from rudel.report.svg import INK, MUTED, RULE, TRAIN, VALIDATION, as_svg, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 424, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 72, 10, 42
_LABEL_GAP = 15
_LEFT_OUT, _FEWEST_LEFT_OUT = 0.1, 2
_MOST_ROWS = 60
_MOST_TICKS = 6


@dataclass(frozen=True)
class Curve:
    """One metric over the epochs; NaN where it was not measured or not finite.

    Args:
        key: the metric's name in Keras, without `val_`.
        epochs: the epochs, (E,).
        train: values in training, (E,), or None.
        validation: values in validation, (E,), or None.
    """

    key: str
    epochs: tuple[float, ...]
    train: tuple[float, ...] | None
    validation: tuple[float, ...] | None

    @property
    def lines(self) -> tuple[tuple[str, str, tuple[float, ...]], ...]:
        """Name, colour token and values of each line that there is."""
        if self.key == "learning_rate":
            return (("", INK, self.train or ()),)
        both = (("training", TRAIN, self.train), ("validation", VALIDATION, self.validation))
        return tuple((name, colour, values) for name, colour, values in both if values is not None)


def curves(run: Run) -> Html | None:
    """A plot of the loss and of each metric, and their numbers in a table."""
    found = find_curves(run.epochs)
    if not found:
        return None
    note = (
        "A training value is the mean over an epoch, while the model still changes; "
        "a validation value is taken at the end of the epoch."
    )
    both = any(curve.train and curve.validation for curve in found)
    return join(
        [
            element("div", join(_plot(curve, f"curve{i}") for i, curve in enumerate(found)), class_="plots"),
            element("p", note, class_="note") if both else None,
            _later(run.epochs) if run.regression else None,
            _numbers(run.epochs, found),
        ]
    )


def _later(epochs: Sequence[Mapping[str, Any]]) -> Html | None:
    """The same without the first tenth of the epochs, beside whose large values all later ones look alike."""
    left_out = int(_LEFT_OUT * len(epochs))
    if left_out < _FEWEST_LEFT_OUT:
        return None
    found = [curve for curve in find_curves(epochs[left_out:]) if curve.key != "learning_rate"]
    what = f"without the first {left_out} epochs"
    return element("div", join(_plot(curve, f"later{i}", what) for i, curve in enumerate(found)), class_="plots")


def find_curves(epochs: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """The curves that have at least one finite value: the loss, the metrics as they came, a changing learning rate."""
    keys = dict.fromkeys(
        key.removeprefix("val_")
        for line in epochs
        for key, value in line.items()
        if key not in NOT_METRICS and is_number(value)
    )
    order = sorted(keys, key=lambda key: key != "loss")
    if len({line["learning_rate"] for line in epochs if is_number(line.get("learning_rate"))}) > 1:
        order.append("learning_rate")
    when = tuple(float(line["epoch"]) for line in epochs)
    return [Curve(key, when, _values(epochs, key), _values(epochs, f"val_{key}")) for key in order]


def wants_log_scale(curve: Curve) -> bool:
    """Whether a loss or a learning rate is all positive and spans more than two decades."""
    known = [value for _, _, values in curve.lines for value in values if not math.isnan(value)]
    ours = "loss" in curve.key or curve.key == "learning_rate"
    return ours and min(known) > 0 and max(known) / min(known) > 100


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Positions moved apart as little as needed for two labels to be `gap` apart.

    >>> spread([10.0, 12.0], 15)
    [3.5, 18.5]
    """
    if len(positions) < 2 or abs(positions[0] - positions[1]) >= gap:
        return list(positions)
    middle = sum(positions) / 2
    sign = 1 if positions[0] <= positions[1] else -1
    return [middle - sign * gap / 2, middle + sign * gap / 2]


def epoch_ticks(first: float, last: float) -> list[float]:
    """Epochs to write below a plot: round ones, and the first and the last if they are whole.

    Round ones keep their distance from the first and the last.

    >>> epoch_ticks(1, 14), epoch_ticks(1, 4), epoch_ticks(3, 3)
    ([1, 5, 10, 14], [1, 2, 3, 4], [3])
    >>> epoch_ticks(0.205622, 6.57992)
    [2, 4, 6]
    """
    if not last > first:
        return [first]
    whole = first == int(first) and last == int(last)
    steps = ((digit, power) for power in range(0 if whole else -12, 16) for digit in (1, 2, 5))
    digit, power = next((d, p) for d, p in steps if (last - first) / (d * 10.0**p) < _MOST_TICKS)
    step = digit * 10.0**power
    counts = range(math.ceil(first / step), math.floor(last / step) + 1)
    rounds = [number * digit * 10**power if power >= 0 else number * digit / 10**-power for number in counts]
    if whole:
        rounds = [first, *(tick for tick in rounds if min(tick - first, last - tick) > 0.6 * step), last]
    return [int(tick) if tick == int(tick) else tick for tick in rounds]


def _values(epochs: Sequence[Mapping[str, Any]], key: str) -> tuple[float, ...] | None:
    values = tuple(float(line[key]) if is_number(line.get(key)) else math.nan for line in epochs)
    return None if all(math.isnan(value) for value in values) else values


def _plot(curve: Curve, name_on_page: str, which: str | None = None) -> Html:
    drawing = figure(_WIDTH, _HEIGHT)
    axes = drawing.add_axes(
        (_LEFT / _WIDTH, _BOTTOM / _HEIGHT, 1 - (_LEFT + _RIGHT) / _WIDTH, 1 - (_TOP + _BOTTOM) / _HEIGHT)
    )
    log = wants_log_scale(curve)
    for _, colour, values in curve.lines:
        (line,) = axes.plot(curve.epochs, values, color=colour, linewidth=2, clip_on=False)
        line.set(marker="o", markersize=5, markevery=_lonely(values))
    _set_scales(axes, curve.epochs, log, is_share(curve.key))
    _label_ends(axes, curve)
    name = metric_name(curve.key)
    heading = name[:1].upper() + name[1:]
    what = ", ".join(part for part in (which, "logarithmic scale" if log else None) if part)
    return element(
        "figure",
        element("h3", heading, element("small", f" {what}") if what else None),
        as_svg(drawing, name_on_page, _in_words(curve)),
        element("figcaption", _caption(curve)),
    )


def _lonely(values: Sequence[float]) -> list[int]:
    """The points that no line joins to another: dots show where they are."""
    gaps = [True, *map(math.isnan, values), True]
    return [i for i in range(len(values)) if not gaps[i + 1] and gaps[i] and gaps[i + 2]]


def _set_scales(axes: "Axes", epochs: Sequence[float], log: bool, share: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.set_frame_on(False)
    first, last = epochs[0], epochs[-1]
    axes.set_xlim(*((first, last) if last > first else (first - 1, first)))
    ticks = epoch_ticks(first, last)
    axes.set_xticks(ticks, [f"{tick:.10g}" for tick in ticks] if len(ticks) > 1 else [epoch_number(first)])
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=6))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(100 * value) + " %" if share else _tick(value)))
    axes.grid(axis="y", color=RULE, linewidth=1)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, pad=8, labelsize=12, labelcolor=MUTED)
    axes.set_xlabel("epoch", color=MUTED, fontsize=12, labelpad=4)


def _tick(value: float) -> str:
    return f"{value:.6g}".replace("-", "−")


def _label_ends(axes: "Axes", curve: Curve) -> None:
    ends = []
    for name, colour, values in curve.lines:
        at = max(i for i, value in enumerate(values) if not math.isnan(value))
        x, y = axes.transData.transform((curve.epochs[at], values[at]))
        ends.append((name, colour, x, y))
    heights = spread([y for *_, y in ends], _LABEL_GAP)
    for (name, colour, x, _), y in zip(ends, heights, strict=True):
        x, y = axes.transAxes.inverted().transform((x + 9, y))
        axes.text(x, y, name, color=colour, fontsize=12, va="center", transform=axes.transAxes)


def _caption(curve: Curve) -> str:
    if curve.key == "learning_rate":
        values = [value for value in curve.train or () if not math.isnan(value)]
        return f"From {number(values[0])} to {number(values[-1])}."
    ends = ", ".join(f"{name} {metric_value(curve.key, _last(values))}" for name, _, values in curve.lines)
    best = _best(curve)
    return f"At the end: {ends}.{best}"


def _best(curve: Curve) -> str:
    sign = better(curve.key)
    values = curve.validation
    if sign == 0 or values is None or len(values) < 2:
        return ""
    at = max((i for i, value in enumerate(values) if not math.isnan(value)), key=lambda i: sign * values[i])
    return f" Best in validation: {metric_value(curve.key, values[at])}, epoch {epoch_number(curve.epochs[at])}."


def _last(values: Sequence[float]) -> float:
    return next(value for value in reversed(values) if not math.isnan(value))


def _in_words(curve: Curve) -> str:
    span = f"{epoch_number(curve.epochs[0])} to {epoch_number(curve.epochs[-1])}"
    ranges = []
    for name, _, values in curve.lines:
        known = [value for value in values if not math.isnan(value)]
        ranges.append(
            f"{name} from {metric_value(curve.key, known[0])} to {metric_value(curve.key, known[-1])}".strip()
        )
    return f"Line plot of the {metric_name(curve.key)}, epochs {span}: {'; '.join(ranges)}."


def _numbers(epochs: Sequence[Mapping[str, Any]], found: Sequence[Curve]) -> Html:
    keys = [
        key for curve in found for key in (curve.key, f"val_{curve.key}") if any(is_number(e.get(key)) for e in epochs)
    ]
    every = math.ceil(len(epochs) / _MOST_ROWS)
    shown = [epoch for i, epoch in enumerate(epochs, start=1) if i % every == 0 or i in (1, len(epochs))]
    rows = [[epoch_number(epoch["epoch"]), *(metric_value(key, epoch.get(key)) for key in keys)] for epoch in shown]
    header = ["epoch", *(("validation " if key.startswith("val_") else "") + metric_name(key) for key in keys)]
    caption = "Metrics after each epoch" if every == 1 else f"Metrics after every {every} epochs"
    return element("details", element("summary", "The numbers"), table(caption, header, rows, words=()))
