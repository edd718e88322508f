"""The pictures of the evaluation, as SVG files in colours that can be seen on light and on dark pages."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluate_cells import ALONE, CENTRE_HOSTS, CENTRE_RATES, EXTRAPOLATED, HOSTS, MODELS, RATES, RIVALS
from evaluate_numbers import Numbers
from evaluate_page import SEVERAL, TITLES

_INK = "#7a7f87"
_LOOKS: Mapping[str, tuple[str, str]] = {
    "single": ("#8a8f98", "x"),
    "single-ema": ("#565b63", "+"),
    "mesh": ("#3f8fd2", "s"),
    "diloco": ("#2f9e63", "o"),
    "async": ("#c9822b", "^"),
    "mwms": ("#b565c9", "D"),
    "parameter-server": ("#d05a5a", "v"),
    "ddp": ("#8d79d6", "P"),
    "post-local-sgd": ("#4fb3a5", "X"),
    "flower": ("#b3a22c", "*"),
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rudel",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _INK,
    "grid.alpha": 0.25,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
}


def draw_all(document: Mapping[str, Any], folder: Path) -> None:
    """Draws all pictures into a folder."""
    import matplotlib as mpl

    numbers = Numbers(document)
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        for name, draw in (("links", _links), ("hosts", _hosts), ("tools", _tools), ("models", _models)):
            figure = draw(numbers)
            nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(folder / f"evaluation-{name}.svg", transparent=True, metadata=nothing)


def _figure(width: float, height: float, panels: int = 1, **more: Any) -> tuple[Any, Sequence[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False, **more)[0]
    return figure, axes


def _plain(axis: Any, places: Sequence[int] | None = None) -> None:
    """Labels of a logarithmic axis as people write them."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"))
    axis.set_minor_formatter(NullFormatter())
    if places:
        axis.set_ticks(places)
        axis.set_ticks([], minor=True)


def _links(numbers: Numbers) -> Any:
    figure, (axes,) = _figure(8, 4.2)
    for baseline in ALONE:
        alone = numbers.alone("mlp", baseline)
        if alone and alone["target_seconds"]:
            title, colour = TITLES[baseline].replace("`", ""), _LOOKS[baseline][0]
            axes.axhline(alone["target_seconds"], color=colour, linestyle="--", linewidth=1.5, label=title)
    for strategy in (*SEVERAL, *RIVALS):
        points = _points(numbers, strategy, "mlp")
        if points:
            _line(axes, strategy, points)
    axes.set(
        xscale="log", yscale="log", xlabel="Mbit/s, shared by all", ylabel=f"seconds to {MODELS['mlp'].target:.2f}"
    )
    axes.set_title("Four hosts, the MLP: lower is better", loc="left", fontsize=10)
    _plain(axes.xaxis, RATES)
    _plain(axes.yaxis)
    axes.grid(True)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _points(numbers: Numbers, strategy: str, model: str) -> list[tuple[int, float]]:
    found = ((rate, numbers.of(strategy, model, CENTRE_HOSTS, rate)) for rate in RATES)
    return [(rate, cell["target_seconds"]) for rate, cell in found if cell and cell["target_seconds"]]


def _line(axes: Any, strategy: str, points: Sequence[tuple[float, float]]) -> None:
    colour, marker = _LOOKS[strategy]
    style = ":" if strategy in EXTRAPOLATED else "-"
    title = TITLES[strategy].replace("`", "") + (" (~)" if strategy in EXTRAPOLATED else "")
    axes.plot(*zip(*points, strict=True), style, marker=marker, color=colour, label=title, linewidth=1.8)


def _hosts(numbers: Numbers) -> Any:
    figure, panels = _figure(8, 3.8, len(CENTRE_RATES), sharey=True)
    for axes, rate in zip(panels, CENTRE_RATES, strict=True):
        axes.plot(HOSTS, HOSTS, color=_INK, linestyle="--", linewidth=1, label="linear speed-up")
        axes.axhline(1, color=_INK, linewidth=0.8)
        for strategy in SEVERAL:
            ups = [(hosts, numbers.speed_up(strategy, "mlp", hosts, rate)) for hosts in HOSTS[1:]]
            points = [(hosts, up) for hosts, up in ups if up is not None]
            if points:
                _line(axes, strategy, points)
        axes.set(xscale="log", yscale="log", xlabel="hosts")
        axes.set_title(f"{rate} Mbit/s, the MLP", loc="left", fontsize=10)
        _plain(axes.xaxis, HOSTS)
        _plain(axes.yaxis)
        axes.grid(True)
    panels[0].set_ylabel("speed-up over one host")
    panels[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _tools(numbers: Numbers) -> Any:
    rows = [
        (strategy, rate, found)
        for rate in reversed(CENTRE_RATES)
        for strategy in reversed((*SEVERAL, *RIVALS))
        if (found := numbers.of(strategy, "mlp", CENTRE_HOSTS, rate)) and found["target_seconds"]
    ]
    rows += [(baseline, 0, alone) for baseline in reversed(ALONE) if (alone := numbers.alone("mlp", baseline))]
    figure, panels = _figure(9, 0.3 * len(rows) + 1, 2, sharey=True)
    texts = (("target_seconds", 1.0, "seconds to the target"), ("target_bytes", 1e6, "MB sent until the target"))
    for axes, (name, unit, heading) in zip(panels, texts, strict=True):
        for place, (strategy, _, found) in enumerate(rows):
            if value := (found[name] or 0) / unit:
                _bar(axes, place, value, strategy)
        axes.set(xscale="log", xlabel=heading)
        axes.margins(x=0.25)
        _plain(axes.xaxis)
    labels = [TITLES[s].replace("`", "") + (f", {rate} Mbit/s" if rate else "") for s, rate, _ in rows]
    panels[0].set_yticks(range(len(rows)), labels)
    return figure


def _bar(axes: Any, place: int, value: float, strategy: str) -> None:
    axes.barh(place, value, color=_LOOKS[strategy][0], height=0.7)
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    axes.text(value * 1.08, place, ("~" if strategy in EXTRAPOLATED else "") + text, va="center", fontsize=9)


def _models(numbers: Numbers) -> Any:
    figure, panels = _figure(9, 3, len(MODELS))
    for axes, (model, net) in zip(panels, MODELS.items(), strict=True):
        rows = list(_ups(numbers, model))
        for place, (strategy, _, up) in enumerate(rows):
            _bar(axes, place, up, strategy)
        axes.axvline(1, color=_INK, linewidth=0.8)
        axes.set_yticks(range(len(rows)), [f"{strategy}, {rate}" for strategy, rate, _ in rows])
        axes.set(xscale="log", xlabel="speed-up over one host")
        axes.margins(x=0.3)
        axes.set_title(f"{net.title}, {net.weights * 4 / 1e6:.2g} MB", loc="left", fontsize=10)
        _plain(axes.xaxis)
    return figure


def _ups(numbers: Numbers, model: str) -> Iterator[tuple[str, int, float]]:
    for rate in reversed(CENTRE_RATES):
        for strategy in reversed(SEVERAL):
            up = numbers.speed_up(strategy, model, CENTRE_HOSTS, rate)
            if up is not None:
                yield strategy, rate, up
