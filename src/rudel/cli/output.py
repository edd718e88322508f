"""How commands print: results on standard output, everything else on standard error."""

import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from rudel.cli.interrupts import TERMINATED, ending, terminated
from rudel.terminal import is_terminal


def open_closed_streams() -> None:
    """Replaces standard streams that the shell has closed (`2>&-`) by `/dev/null`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def replace_unknown_characters() -> None:
    """Lets terminals and files of another encoding than UTF-8 have a `?` for what they cannot show, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        is_utf8 = codecs.lookup(stream.encoding).name == "utf-8"
        if stream.errors == "strict" or (stream.errors == "surrogateescape" and not is_utf8):
            stream.reconfigure(errors="replace")


def print_json(document: object) -> None:
    """Prints one JSON document on standard output; NaN becomes null."""
    from rudel.runs.run_directory import finite

    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    typer.echo(json.dumps(finite(document), indent=2, ensure_ascii=not is_unicode))


def print_table(headings: list[str], rows: list[list[str]], right: tuple[int, ...] = (), wide: bool = False) -> None:
    """Prints a table; the columns in `right` are aligned to the right.

    Cells are folded to the width of the terminal; with `wide`, each row stays on one line, however narrow that is.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        justify = "right" if number in right else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=wide)
    for row in rows:
        table.add_row(*row)
    width = sum(max(map(len, cells)) + 2 for cells in zip(headings, *rows, strict=True)) if wide else None
    Console(highlight=False, markup=False, width=width).print(table)


@contextlib.contextmanager
def reporting_interrupts() -> Iterator[None]:
    """Makes one line and exit code 130 of a Ctrl-C, and 143 of SIGTERM."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        typer.echo(str(interrupt) or ending(terminated()), err=True)
        raise typer.Exit(TERMINATED if terminated() else 130) from interrupt


@contextlib.contextmanager
def count_display(doing: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a callback `progress(done, total)` in items that draws a bar on a terminal, and nothing elsewhere."""
    if not is_terminal(sys.stderr):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def download_display(doing: str = "fetching") -> Iterator[Callable[[int, int], None]]:
    """Yields a callback `progress(done, total)` in bytes that draws a bar on a terminal, and nothing elsewhere."""
    if not is_terminal(sys.stderr):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(doing), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=None)

    def show(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        bar.start() if done < total else bar.stop()

    try:
        yield show
    finally:
        bar.stop()
