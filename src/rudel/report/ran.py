"""What ran: everything needed to run it again."""

import json
from collections.abc import Mapping
from typing import Any

from rudel.report.markup import Html, element, join, scrolling
from rudel.report.read import Run
from rudel.report.words import count, is_number, plural

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
    hosts = summary.get("hosts") or []
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
        ("hosts", ", ".join(map(str, hosts))),
        ("steps taken", count(summary["steps"]) if is_number(summary.get("steps")) else None),
        ("samples seen", count(summary["samples"]) if is_number(summary.get("samples")) else None),
        ("network", _traffic(summary)),
        ("examples", ", ".join(data)),
        ("classes", f"{len(names)}: " + ", ".join(map(str, names)) if names else None),
        ("data from", _written(config.get("attribution"))),
        ("versions", _pairs(config.get("versions") or summary.get("versions"), " ")),
    ]


def _model(model: Mapping[str, Any]) -> Html | None:
    told = str(model.get("text") or "").strip("\n")
    if not told:
        return None
    return join([element("h3", "The model"), scrolling(element("pre", told), "The model, layer by layer")])


def _traffic(summary: Mapping[str, Any]) -> str | None:
    sent, received = (summary.get(key) or 0 for key in ("bytes_sent", "bytes_received"))
    return f"{_bytes(sent)} sent, {_bytes(received)} received" if sent or received else None


def _bytes(amount: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.3g}\u202f{unit}"
        amount /= 1000
    return f"{amount:,.1f}\u202fGB"


def _pairs(values: Any, between: str) -> str | None:
    if not isinstance(values, dict):
        return _written(values)
    return ", ".join(f"{name}{between}{_written(value)}" for name, value in values.items()) or None


def _written(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
