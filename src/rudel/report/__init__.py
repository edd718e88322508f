"""The report of a run: one self-contained page of plots and tables, made from the run directory alone.

Guarantee: the page loads nothing from anywhere, needs no scripts, and every text in it that came from a run is escaped.
Limit: it shows what the run directory holds. A part whose numbers are missing is left out.

A section is a function from a `read.Run` to a fragment of HTML, or None where it has nothing to show;
`report_page.SECTIONS` lists them in the order of the page.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rudel.report.predictions import Predictions, load, save, select_examples, summarise
    from rudel.report.report_page import write_report

__all__ = ["Predictions", "load", "save", "select_examples", "summarise", "write_report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rudel.report' has no attribute {name!r}")
    from rudel.report import predictions, report_page

    return getattr(report_page if name == "write_report" else predictions, name)
