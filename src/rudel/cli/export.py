"""`rudel export`: a run in another form."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rudel.cli import complete
from rudel.cli.output import print_json, print_table, reporting_interrupts
from rudel.cli.shared_options import ClassesOption, CodeOption, JsonOption, ModelArgument, UnsafeOption
from rudel.export.forms import FORMS
from rudel.terminal import is_terminal

if TYPE_CHECKING:
    from rudel.export.exporting import Exported


def export(
    run: ModelArgument,
    to: Annotated[
        str,
        typer.Option(
            metavar="FORM",
            autocompletion=complete.forms,
            help=f"{', '.join(name for name, form in FORMS.items() if not form.maker)}; "
            f"from int8: {', '.join(name for name, form in FORMS.items() if form.maker)}.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="PATH", help="The file or folder to write.  \\[default: named after the run]"
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "--calibrate",
            metavar="FILE.npz|DIR|URL",
            help="Examples to calibrate and compare on: arrays x and y, or a folder of files; or data for the recipe.  "
            "\\[default: the data of the run]",
        ),
    ] = None,
    calibration: Annotated[
        int | None,
        typer.Option(
            "--calibration", "-n", help="Number of training examples for the ranges of int8.  \\[default: 500]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of examples.")] = 0,
    classes: ClassesOption = None,
    code: CodeOption = None,
    unsafe: UnsafeOption = False,
    json: JsonOption = False,
) -> None:
    """Export a trained model, verify it, report size and accuracy."""
    from rudel.backend import keras_on_jax

    keras_on_jax(light=True)
    from rudel.export.exporting import export_run
    from rudel.runs.model_as_run import as_run

    with reporting_interrupts(), _status() as tell, as_run(run, classes, code, unsafe) as directory:
        made = export_run(directory, to, out, data, calibration, seed, tell)
    if json:
        print_json(dataclasses.asdict(made) | {"path": str(made.path)})
        return
    _print(made)


def _print(made: "Exported") -> None:
    from rudel.report.formatting import metric_name, metric_value, number, percent, size

    names = list(made.model_metrics)
    rows = [
        ["model.keras", size(made.model_bytes), *(metric_value(n, made.model_metrics[n]) for n in names), "", ""],
        [
            str(made.path),
            size(made.bytes),
            *(metric_value(name, made.metrics[name]) for name in names),
            number(made.largest_difference, 3),
            percent(made.agreement),
        ],
    ]
    headings = ["", "size", *map(metric_name, names), "largest difference", "same class"]
    if made.agreement is None:
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    print_table(headings, rows, right=tuple(range(1, len(headings))), wide=True)
    which = {"given": "examples given", "made-up": "made-up inputs"}.get(
        made.compared_on, f"{made.compared_on} examples"
    )
    typer.echo(f"compared on {made.examples:,} {which}", err=True)
    if made.from_files:
        near = made.from_files
        agreement = f"largest difference {number(near.largest_difference, 3)}, same class {percent(near.agreement)}"
        typer.echo(
            f"{near.files} JPEG and PNG files, as the signature serving_default takes them: {agreement}", err=True
        )
    for note in made.notes:
        typer.echo(note, err=True)


@contextlib.contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """Yields a function that shows on a terminal what is being done, and nothing elsewhere."""
    if not is_terminal(sys.stderr):
        yield lambda doing: None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield lambda doing: status.update(f"{doing} ...")
