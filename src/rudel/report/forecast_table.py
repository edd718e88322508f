"""A table of forecasts beside measurements, where `auto` chose how to train."""

from typing import Any

from rudel.report.formatting import count, duration, is_number, percent, size
from rudel.report.markup import Html, element, join, table
from rudel.report.plan_file import Forecast, compared
from rudel.report.read import Run


def forecast(run: Run) -> Html | None:
    """The sentence that says how right the forecast was, what was forecast of others, and what happened."""
    found = run.forecast
    if found is None:
        return None
    rows = [_row(each, "chosen" if each == found.chosen else "") for each in found.all]
    foot = _happened(run)
    text = [element("p", f"{compared(found, run.summary['train_seconds'])}.")] if run.summary and foot else []
    header = ["strategy", "", "hosts", "time", "computing", "merging", "waiting", "sent"]
    body = table("Forecast of every strategy", header, rows, foot, words=(0, 1))
    return join([element("p", found.why), *text, body])


def _row(forecast: Forecast, mark: str) -> list[str]:
    shares = (forecast.computing, forecast.exchanging, forecast.waiting)
    return [
        forecast.strategy,
        mark,
        count(forecast.hosts),
        duration(forecast.seconds),
        *(percent(share, 0) for share in shares),
        size(forecast.sent),
    ]


def _happened(run: Run) -> list[list[str]]:
    """Measurements in the columns of the table."""
    summary = run.summary
    if summary is None or not is_number(summary.get("train_seconds")):
        return []
    computing, merging = (run.rounds.computing, run.rounds.merging) if run.rounds else (None, None)
    steps = computing if computing is None or merging is None else computing - merging
    sent: list[Any] = [summary.get(name) for name in ("bytes_sent", "bytes_received")]
    return [
        [
            "",
            "what happened",
            count(len(run.hosts)),
            duration(summary["train_seconds"]),
            percent(steps, 0),
            "" if merging is None else percent(merging, 0),
            percent(None if computing is None else 1 - computing, 0),
            size(sum(sent)) if all(is_number(number) for number in sent) else "",
        ]
    ]
