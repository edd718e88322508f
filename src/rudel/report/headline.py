"""The top of the page: what was trained, how well it works, and how long it took."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Any

from rudel.report.formatting import (
    count,
    duration,
    epoch_number,
    is_number,
    metric_name,
    metric_value,
    plural,
    rate,
    size,
)
from rudel.report.markup import Html, element, join
from rudel.report.read import Run


def headline(run: Run) -> Html:
    """The run's name, its key result, and a row of numbers."""
    return element(
        "header",
        element("p", "Training report", class_="kicker"),
        element("h1", title(run)),
        element("p", _when(run), class_="when"),
        _unfinished(run),
        element("div", _result(run), _numbers(run), class_="headline"),
    )


def title(run: Run) -> str:
    """The title of a run: the recipe's name, or its file's without the ending."""
    recipe = str(run.config.get("recipe") or (run.summary or {}).get("recipe") or run.path.resolve().name)
    return PurePath(recipe).stem if recipe.endswith(".py") else recipe


def key_metric(run: Run) -> str | None:
    """The metric that says best how well the model works: if there is one, on validation data and not the loss."""
    known = [key for key, value in run.metrics.items() if is_number(value)]
    known.sort(key=lambda key: (not key.startswith("val_"), metric_name(key) == "loss"))
    return known[0] if known else None


def _result(run: Run) -> Html | None:
    key = key_metric(run)
    if key is None:
        return None
    part = "validation" if key.startswith("val_") else "training"
    return element(
        "p",
        element("strong", metric_value(key, run.metrics[key])),
        element("span", f"{part} {metric_name(key)}"),
        class_="result",
    )


def _numbers(run: Run) -> Html | None:
    summary = run.summary or {}
    seconds = summary.get("train_seconds")
    epochs = run.epochs[-1]["epoch"] if run.epochs else 0
    shown = [
        ("in all", duration(summary["total_seconds"]) if is_number(summary.get("total_seconds")) else None),
        ("training", duration(seconds if run.summary else _seconds_so_far(run))),
        ("epoch" if epochs == 1 else "epochs", epoch_number(epochs) if epochs else None),
        ("steps/s", _per_second(run.rounds.steps if run.rounds else summary.get("steps"), seconds)),
        ("examples/s", _per_second(summary.get("samples"), seconds)),
        ("rounds", count(run.rounds.count) if run.rounds and not run.rounds.arrivals else None),
        ("arrivals", count(run.rounds.arrivals) if run.rounds and run.rounds.arrivals else None),
        ("over the network", size(_traffic(summary)) if run.rounds else None),
        ("parameters", count((run.config.get("model") or {}).get("parameters"))),
    ]
    known = [
        element("div", element("dt", name), element("dd", value)) for name, value in shown if value not in (None, "–")
    ]
    return element("dl", join(known), class_="numbers") if known else None


def _traffic(summary: Mapping[str, Any]) -> float | None:
    sizes = [summary[key] for key in ("bytes_sent", "bytes_received") if is_number(summary.get(key))]
    return sum(sizes) if sizes else None


def _seconds_so_far(run: Run) -> float | None:
    if run.rounds:
        return run.rounds.seconds
    seconds = [epoch["seconds"] for epoch in run.epochs if is_number(epoch.get("seconds"))]
    return seconds[-1] if seconds else None


def _per_second(amount: object, seconds: object) -> str | None:
    if isinstance(amount, int | float) and isinstance(seconds, int | float) and seconds > 0:
        return rate(amount / seconds)
    return None


def _when(run: Run) -> str:
    summary = run.summary or {}
    parts = [
        _date(run.config.get("started")),
        f"strategy {summary['strategy']}" if summary.get("strategy") else None,
        plural(len(run.hosts), "host") if len(run.hosts) > 1 else None,
        f"seed {run.config['seed']}" if run.config.get("seed") is not None else None,
    ]
    return " · ".join(part for part in parts if part)


def _date(started: object) -> str | None:
    try:
        moment = datetime.fromisoformat(str(started))
    except ValueError:
        return None
    zone = moment.strftime("%Z") if moment.tzinfo else ""
    return f"{moment.day} {moment:%B %Y, %H:%M} {zone}".strip()


def _unfinished(run: Run) -> Html | None:
    if run.summary is not None:
        return None
    epochs = run.config.get("epochs")
    done = f"after epoch {epoch_number(run.epochs[-1]['epoch'])}" if run.epochs else "before the end of its first epoch"
    of = f" of {epochs}" if epochs and run.epochs else ""
    return element(
        "p",
        element("strong", "This run has not finished."),
        f" It stopped, or is still training, {done}{of}. Below are its results so far.",
        class_="unfinished",
        role="note",
    )
