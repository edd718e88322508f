"""Tables and the plot of the cluster benchmark."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import measure
from cluster_claims import FOUR, seconds_to
from rich.table import Table

TARGET = 0.78

_NOT_DRAWN = ("cnn", "slow-node", "uneven")

_Write = Callable[[float], str]


def results_table(rounds: measure.Rounds, names: Sequence[str]) -> Table:
    """A row for every contestant: medians over the seeds, with the least and the largest time."""
    headings = ("time, s", "over rudel-4", "accuracy", f"to {TARGET:.2f}, s", "air, MB", "peak, MB")
    table = Table("contestant", *headings, title="median over the seeds; ~ extrapolated from a part of the steps")
    for heading in table.columns[1:]:
        heading.justify = "right"
    for name in names:
        found = [numbers[name] for numbers in rounds if name in numbers]
        if found:
            table.add_row(name, *_row(rounds, name, found))
    return table


def plot(rounds: measure.Rounds, names: Sequence[str], path: Path) -> None:
    """Draws accuracy over time, and time and bytes of the whole job, into an SVG or PNG file."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "rudel", "axes.spines.top": False, "axes.spines.right": False, "font.size": 9}
    from matplotlib import pyplot

    shown = [name for name in names if not any(part in name for part in _NOT_DRAWN)]
    colours = _colours(shown)
    figure, (learning, time, air) = pyplot.subplots(1, 3, figsize=(12, 0.3 * len(shown) + 2.2), width_ratios=(5, 3, 3))
    for name in shown:
        curves = [numbers[name]["curve"] for numbers in rounds if name in numbers and numbers[name]["curve"]]
        for place, curve in enumerate(curves):
            label = name if place == 0 else None
            learning.plot(*zip(*curve, strict=True), ".-", color=colours[name], label=label, alpha=0.8, linewidth=1)
    learning.set(xlabel="seconds", ylabel="held-out drawings recognised", xscale="log", ylim=(0.6, None))
    learning.legend(frameon=False, fontsize=8)
    _bars(time, rounds, shown, colours, "train_seconds", "seconds for the job", 1.0)
    _bars(
        air,
        rounds,
        [n for n in shown if measure.values(rounds, n, "air_bytes")],
        colours,
        "air_bytes",
        "MB on the air",
        1e6,
    )
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
    pyplot.close(figure)


def _colours(names: Sequence[str]) -> dict[str, Any]:
    """Blues for Rudel, the dark ones for many nodes, and one colour for each rival."""
    from matplotlib import colormaps

    own = [name for name in names if name.startswith("rudel")]
    blues = {name: colormaps["Blues"](0.4 + 0.6 * place / len(own)) for place, name in enumerate(sorted(own))}
    others = [name for name in names if name not in own]
    return blues | {name: f"C{1 + place % 9}" for place, name in enumerate(others)}


def _bars(
    axes: Any, rounds: measure.Rounds, names: Sequence[str], colours: Any, number: str, text: str, unit: float
) -> None:
    medians = [measure.spread(measure.values(rounds, name, number)).median / unit for name in names]
    places = range(len(names), 0, -1)
    axes.barh(places, medians, color=[colours[name] for name in names], height=0.7)
    for place, median, name in zip(places, medians, names, strict=True):
        mark = "~" if any(numbers[name]["extrapolated_from"] for numbers in rounds if name in numbers) else ""
        axes.text(median * 1.1, place, f"{mark}{median:,.3g}" if median < 1000 else f"{mark}{median:,.0f}", va="center")
    axes.set(xscale="log", xlabel=text, yticks=list(places), yticklabels=names)
    axes.margins(x=0.3)


def _row(rounds: measure.Rounds, name: str, found: Sequence[Mapping[str, Any]]) -> list[str]:
    mark = "~" if any(numbers["extrapolated_from"] for numbers in found) else ""
    reference = FOUR if any(FOUR in numbers for numbers in rounds) else FOUR.partition("@")[0]
    ratios = measure.paired_ratios(rounds, "train_seconds", name, reference)
    reached = [moment for numbers in found if (moment := seconds_to(numbers["curve"], TARGET)) is not None]
    return [
        mark + _told(measure.values(rounds, name, "train_seconds"), lambda seconds: f"{seconds:,.2f}", True),
        mark + _told(ratios, lambda ratio: f"{ratio:,.2f}"),
        _told(measure.values(rounds, name, "accuracy"), lambda share: f"{share:.4f}"),
        _told(reached, lambda seconds: f"{seconds:,.2f}"),
        mark + _told(measure.values(rounds, name, "air_bytes"), lambda size: f"{size / 1e6:,.2f}"),
        _told(measure.values(rounds, name, "peak_bytes"), lambda size: f"{size / 1e6:,.0f}"),
    ]


def _told(found: Sequence[float], write: _Write, spread_too: bool = False) -> str:
    if not found:
        return ""
    spread = measure.spread(found)
    beside = f" ({write(spread.least)} to {write(spread.largest)})" if spread_too and len(found) > 1 else ""
    return write(spread.median) + beside
