"""Steps a second of the hosts, each and together, and bytes over the network."""

from typing import TYPE_CHECKING

import numpy as np

from rudel.report.curves import spread
from rudel.report.formatting import duration, rate, size
from rudel.report.hosts_timeline import shortened, time_unit
from rudel.report.markup import Html, element, join
from rudel.report.rounds_file import SPANS, HostRecord, Rounds
from rudel.report.svg import MUTED, RULE, TRAIN, VALIDATION, as_svg, figure, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 424, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 84, 10, 42
_LABEL_GAP = 15
_MOST_LAYERS = 12
_MOST_POINTS = 64
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("bytes", 1.0))


def plots(rounds: Rounds) -> Html:
    """Both plots, side by side where there is room."""
    return element("div", join([_speed(rounds), _traffic(rounds)]), class_="plots")


def speeds(rounds: Rounds, hosts: tuple[HostRecord, ...]) -> np.ndarray:
    """Steps a second of each host over spans that are long enough to hold some rounds, float64 (H, S)."""
    fitting = [n for n in (4, 8, 16, 32, _MOST_POINTS) if n <= max(4, rounds.count // 2)]
    spans = fitting[-1]
    steps = np.stack([host.steps_in.reshape(spans, SPANS // spans).sum(axis=1) for host in hosts])
    return steps * spans / max(rounds.seconds, 1e-9)


def _speed(rounds: Rounds) -> Html:
    drawing, axes = _axes(rounds)
    each = speeds(rounds, rounds.hosts)
    together = each.sum(axis=0)
    edges = np.linspace(0, rounds.seconds, each.shape[1] + 1) / time_unit(rounds.seconds)[1]
    layered = 1 < len(rounds.hosts) <= _MOST_LAYERS
    axes.set_ylim(0, 1.08 * together.max())
    below = np.zeros_like(together)
    for number, layer in enumerate(each[::-1] if layered else [together]):
        above, alpha = below + layer, (0.5, 0.3)[number % 2]
        axes.stairs(above, edges, baseline=below, fill=True, color=VALIDATION, alpha=alpha, linewidth=0)
        below = above
    axes.stairs(together, edges, baseline=None, color=VALIDATION, linewidth=2)
    if layered:
        _label_layers(axes, rounds, each)
    known = together[together > 0]
    typical = float(np.median(known)) if len(known) else 0.0
    label = f"Steps a second over time, all hosts together; half of the time above {rate(typical)}."
    layers = "A layer is a host, the upper edge all of them together." if layered else "All hosts together."
    return element(
        "figure",
        element("h3", "Steps a second"),
        as_svg(drawing, "speed", label),
        element("figcaption", f"{layers} Half of the time above {rate(typical)}."),
    )


def _label_layers(axes: "Axes", rounds: Rounds, each: np.ndarray) -> None:
    """Names of the hosts beside their layers' ends, where they do not run into each other."""
    top = np.cumsum(each[::-1, -1])[::-1]
    high = axes.get_ylim()[1]
    space = _HEIGHT - _TOP - _BOTTOM
    for host, upper, thick in zip(rounds.hosts, top, each[:, -1], strict=True):
        if thick / high * space >= 0.8 * _LABEL_GAP:
            place = (upper - thick / 2) / high
            name = literal(shortened(host.name.rpartition("@")[2])[-12:])
            axes.text(1.03, place, name, color=MUTED, fontsize=12, va="center", transform=axes.transAxes)


def _traffic(rounds: Rounds) -> Html:
    drawing, axes = _axes(rounds)
    every = SPANS // _MOST_POINTS
    length = time_unit(rounds.seconds)[1]
    times = np.linspace(0, rounds.seconds, SPANS + 1)[::every] / length
    most = max(rounds.sent[-1], rounds.received[-1], 1.0)
    unit, scale = next((name, value) for name, value in _UNITS if most >= value)
    lines = (("to hosts", TRAIN, rounds.sent), ("from hosts", VALIDATION, rounds.received))
    axes.set_ylim(0, 1.08 * most / scale)
    for _, colour, values in lines:
        axes.plot(times, np.concatenate([[0.0], values[every - 1 :: every]]) / scale, color=colour, linewidth=2)
    places = [axes.transAxes.inverted().transform(axes.transData.transform((0, v[-1] / scale)))[1] for *_, v in lines]
    space = _HEIGHT - _TOP - _BOTTOM
    for (name, colour, _), place in zip(lines, spread([space * p for p in places], _LABEL_GAP), strict=True):
        axes.text(1.03, place / space, name, color=colour, fontsize=12, va="center", transform=axes.transAxes)
    sent, received = size(float(rounds.sent[-1])), size(float(rounds.received[-1]))
    totals = f"{sent} to hosts, {received} from them"
    label = f"Bytes over the network until each moment, in {duration(rounds.seconds)}: {totals}."
    return element(
        "figure",
        element("h3", "Over the network", element("small", f" {unit}, added up")),
        as_svg(drawing, "traffic", label),
        element("figcaption", f"At the end: {totals}."),
    )


def _axes(rounds: Rounds) -> "tuple[Figure, Axes]":
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    drawing = figure(_WIDTH, _HEIGHT)
    axes = drawing.add_axes(
        (_LEFT / _WIDTH, _BOTTOM / _HEIGHT, 1 - (_LEFT + _RIGHT) / _WIDTH, 1 - (_TOP + _BOTTOM) / _HEIGHT)
    )
    unit, length = time_unit(rounds.seconds)
    axes.set_frame_on(False)
    axes.set_xlim(0, max(rounds.seconds, 1e-9) / length)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.grid(axis="y", color=RULE, linewidth=1)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, pad=8, labelsize=12, labelcolor=MUTED)
    axes.set_xlabel(f"{unit} of training", color=MUTED, fontsize=12, labelpad=4)
    return drawing, axes
