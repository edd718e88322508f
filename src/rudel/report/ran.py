"""A record of the run: everything needed to repeat it."""

import json
from collections.abc import Mapping
from typing import Any

from rudel.report.formatting import count, is_number, plural, size
from rudel.report.markup import Html, element, join, scrolling
from rudel.report.read import Run

_PARTS = {"train": "for training", "validation": "for validation", "test": "for testing"}


def what_ran(run: Run) -> Html | None:
    """The options, data, hosts and versions of the run, and the model layer by layer."""
    facts = [(name, value) for name, value in _facts(run) if value]
    described = element(
        "dl", join(element("div", element("dt", n), element("dd", v)) for n, v in facts), class_="facts"
    )
    return join([described if facts else None, _model(run.config.get("model") or {})]) or None


def _facts(run: Run) -> list[tuple[str, str | None]]:
    config, summary = run.config, run.summary or {}
    names = config.get("class_names") or []
    data = [f"{count(n)} {_PARTS.get(part, part)}" for part, n in (config.get("data") or {}).items() if is_number(n)]
    length = [plural(config[key], key[:-1]) for key in ("epochs", "steps") if isinstance(config.get(key), int)]
    return [
        ("recipe", _written(config.get("recipe"))),
        ("options", _pairs(config.get("options"), " = ")),
        ("asked for", ", ".join(length)),
        ("batch size", _written(config.get("batch_size"))),
        ("precision", _written(config.get("precision"))),
        ("seed", _written(config.get("seed"))),
        ("strategy", _written(summary.get("strategy"))),
        ("steps by", _backend(summary.get("backend"))),
        ("hosts", ", ".join(run.hosts)),
        ("strategy's options", _pairs(summary.get("strategy_options"), " = ")),
        ("steps taken", _steps(run)),
        ("samples seen", count(summary["samples"]) if is_number(summary.get("samples")) else None),
        ("rounds", count(summary["rounds"]) if is_number(summary.get("rounds")) else None),
        ("arrivals", count(summary["arrivals"]) if is_number(summary.get("arrivals")) else None),
        ("network", _traffic(summary)),
        ("hosts lost", _lost(summary)),
        ("examples", ", ".join(data)),
        ("classes", f"{len(names)}: " + ", ".join(map(str, names)) if names else None),
        ("data from", _written(config.get("attribution"))),
        ("versions", _pairs(config.get("versions") or summary.get("versions"), " ")),
    ]


def _model(model: Mapping[str, Any]) -> Html | None:
    text = str(model.get("text") or "").strip("\n")
    if not text:
        return None
    return join([element("h3", "The model"), scrolling(element("pre", text), "The model, layer by layer")])


def _steps(run: Run) -> str | None:
    steps = (run.summary or {}).get("steps")
    if not is_number(steps):
        return None
    return f"{count(run.rounds.steps)} in all, {count(steps)} a host" if run.rounds else count(steps)


def _backend(name: object) -> str | None:
    return None if name in (None, "jax") else f"Keras on {name}, slower than Rudel's loop on JAX"


def _lost(summary: Mapping[str, Any]) -> str | None:
    lost, joined = (summary.get(key) or 0 for key in ("workers_lost", "workers_joined"))
    return f"{count(lost)}, and {count(joined)} joined" if lost or joined else None


def _traffic(summary: Mapping[str, Any]) -> str | None:
    sent, received = (summary.get(key) or 0 for key in ("bytes_sent", "bytes_received"))
    return f"{size(sent)} sent, {size(received)} received" if sent or received else None


def _pairs(values: object, between: str) -> str | None:
    if not isinstance(values, dict):
        return _written(values)
    return ", ".join(f"{name}{between}{_written(value) or 'none'}" for name, value in values.items()) or None


def _written(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
