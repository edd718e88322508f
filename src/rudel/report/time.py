"""Time of the run, by what it was spent on."""

from collections.abc import Mapping
from typing import Any

from rudel.report.formatting import duration, is_number, percent
from rudel.report.markup import Html, element, join, table
from rudel.report.read import Run

_PARTS = (
    ("setup_seconds", "set-up", "starting up and placing the data"),
    ("compile_seconds", "compiling", "tracing the model and compiling it"),
    ("train_seconds", "training", "the training steps themselves"),
    ("wait_seconds", "waiting", "for data that was still being read"),
    ("evaluate_seconds", "evaluating", "measuring on the validation data"),
    ("checkpoint_seconds", "checkpoints", "writing them to disk"),
)


def time_spent(run: Run) -> Html | None:
    """One bar for the whole run, and its parts in a table."""
    parts = [(name, _what(run, name, what), seconds) for name, what, seconds in parts_of(run.summary or {})]
    if not parts:
        return None
    total = sum(seconds for _, _, seconds in parts)
    starts = [sum(seconds for _, _, seconds in parts[:i]) for i in range(len(parts))]
    bar = element(
        "svg",
        join(
            element(
                "rect",
                x=f"{1000 * start / total:.2f}",
                width=f"{1000 * seconds / total:.2f}",
                height=30,
                class_=_class(name),
            )
            for start, (name, _, seconds) in zip(starts, parts, strict=True)
        ),
        viewBox="0 0 1000 30",
        preserveAspectRatio="none",
        role="img",
        aria_label="The time: " + ", ".join(f"{name} {percent(seconds / total)}" for name, _, seconds in parts) + ".",
        class_="time",
    )
    rows = [
        [
            join([element("span", class_=f"key {_class(name)}", aria_hidden="true"), name]),
            what,
            duration(s),
            percent(s / total),
        ]
        for name, what, s in parts
    ]
    foot = [["in all", "", duration(total), ""]]
    header = ["part", "what", "time", "share"]
    return join([bar, table("Parts of the run's time", header, rows, foot, words=(0, 1), class_="parts")])


def parts_of(summary: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """The parts that took time, as (name, explanation, seconds); what is left of the total is the last one."""
    seconds = {key: float(summary[key]) for key, _, _ in _PARTS if is_number(summary.get(key))}
    if "train_seconds" in seconds:
        seconds["train_seconds"] -= seconds.get("wait_seconds", 0.0)
    parts = [(name, what, seconds[key]) for key, name, what in _PARTS if seconds.get(key, 0.0) > 0]
    if not parts or not is_number(summary.get("total_seconds")):
        return parts
    rest = summary["total_seconds"] - sum(seconds for _, _, seconds in parts)
    return [*parts, ("the rest", "all else", rest)] if rest >= 0.005 else parts


def _what(run: Run, part: str, what: str) -> str:
    if part == "training" and run.rounds:
        computing = run.rounds.computing
        return f"rounds: computing {percent(computing, 0)}, waiting {percent(1 - computing, 0)}"
    return what


def _class(name: str) -> str:
    return "part-" + name.split()[-1]
