"""The page: the sections that have something to show, one after the other, in one file."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from rudel.errors import RunError
from rudel.files import expanded, written_atomically
from rudel.report.augmentation import augmentation
from rudel.report.classes import class_table
from rudel.report.confusion import confusion
from rudel.report.curves import curves
from rudel.report.forecast_table import forecast
from rudel.report.gallery import gallery
from rudel.report.headline import headline, title
from rudel.report.hosts import hosts
from rudel.report.markup import Html, element, join
from rudel.report.ran import what_ran
from rudel.report.read import Run, read_run
from rudel.report.regression_plots import data, fit
from rudel.report.time import time_spent

SECTIONS: tuple[tuple[str, str, Callable[[Run], Html | None]], ...] = (
    ("data", "Data", data),
    ("augmentation", "Augmentation", augmentation),
    ("learning", "Training curves", curves),
    ("fit", "Predictions", fit),
    ("mistakes", "Confusion matrix", confusion),
    ("pictures", "Most confident predictions", gallery),
    ("classes", "Per-class accuracy", class_table),
    ("hosts", "Hosts", hosts),
    ("forecast", "Forecast", forecast),
    ("time", "Time", time_spent),
    ("ran", "Configuration", what_ran),
)
"""Anchor, title and function of each section, in the order of the page."""

POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
"""The security policy of a page: what is in it, and nothing else."""


def write_report(run: str | Path) -> Path:
    """Writes `report.html` into a run directory, in place of an older one.

    Args:
        run: the run directory; the run may be unfinished.

    Returns:
        The path of the page.

    Raises:
        RunError: the directory is missing or damaged, or cannot be written.
    """
    run = expanded(run)
    path = run / "report.html"
    page = render(read_run(run))
    try:
        with written_atomically(path) as file:
            file.write(page.encode())
    except OSError as error:
        raise RunError(f"The report could not be written to `{path}`: {error.strerror}.") from error
    return path


def render(run: Run) -> str:
    """The whole page; equal runs give equal pages."""
    made = [(anchor, name, make(run)) for anchor, name, make in SECTIONS]
    shown = [(anchor, name, body) for anchor, name, body in made if body]
    contents = element(
        "nav", join((element("a", name, href=f"#{a}") for a, name, _ in shown), " "), aria_label="Contents"
    )
    sections = join(element("section", element("h2", name), body, id=anchor) for anchor, name, body in shown)
    body = element("main", headline(run), contents if len(shown) > 1 else None, sections)
    return document(f"{title(run)} – training report", body)


def document(name: str, main: Html, foot: str = "Made by Rudel from the run directory.") -> str:
    """A page with everything in it, from its title, its `<main>` and the sentence at its end."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", name),
        element("link", rel="icon", href="data:,"),
        element("style", Html((files("rudel.report") / "page.css").read_text(encoding="utf-8"))),
    )
    body = element("body", main, element("footer", element("p", foot)))
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en") + "\n"
