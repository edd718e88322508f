"""`rudel data inspect`: what a folder of records has, and whether it is sound."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rudel.cli.output import download_display, print_json, print_table, reporting_interrupts
from rudel.cli.shared_options import JsonOption

if TYPE_CHECKING:
    from rudel.data.images.inspect import Inspection

_SHOWN = 30


def inspect(
    path: Annotated[str, typer.Argument(metavar="DIR|FILE|URL", help="TFRecord files.")],
    sheet: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw a contact sheet, a row per class.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Count records by split and class, and verify every checksum."""
    from rudel.data.images.inspect import inspect as inspect_records
    from rudel.data.images.sheet import write_sheet

    with reporting_interrupts(), download_display("reading") as progress:
        found = inspect_records(path, progress)
    if sheet is not None:
        write_sheet(sheet, found.first, found.classes)
    if json:
        print_json(_as_document(found))
    else:
        _print_result(found, sheet)
    for damage in found.damage:
        typer.echo(f"{damage.file} is damaged at byte {damage.offset:,}.", err=True)
    for problem in found.problems:
        typer.echo(problem, err=True)
    if found.damage or found.problems:
        raise typer.Exit(2)


def _as_document(found: "Inspection") -> dict[str, Any]:
    return {
        "path": found.address,
        "records": found.records,
        "splits": {
            split.name: {
                "files": split.files,
                "bytes": split.bytes,
                "records": split.records,
                "classes": dict(split.classes),
            }
            for split in found.splits
        },
        "classes": list(found.classes),
        "features": list(found.features),
        "sizes": None if found.sizes is None else {name: list(values) for name, values in found.sizes.items()},
        "damage": [{"file": one.file, "offset": one.offset} for one in found.damage],
        "problems": list(found.problems),
    }


def _print_result(found: "Inspection", sheet: Path | None) -> None:
    from rudel.report.formatting import plural, size

    splits = found.splits
    rows = [[name, *(f"{split.classes[name]:,}" for split in splits)] for name in found.classes[:_SHOWN]]
    if len(found.classes) > _SHOWN:
        rest = found.classes[_SHOWN:]
        counts = (f"{sum(split.classes[name] for name in rest):,}" for split in splits)
        rows.append([f"{len(rest):,} more", *counts])
    rows += [
        ["all", *(f"{split.records:,}" for split in splits)],
        ["files", *(f"{split.files:,}" for split in splits)],
        ["size", *(size(split.bytes) for split in splits)],
    ]
    headings = ["class" if found.classes else "", *(split.name for split in splits)]
    print_table(headings, rows, right=tuple(range(1, len(headings))))
    for name, (least, middle, largest) in (found.sizes or {}).items():
        typer.echo(f"{name:<10}{least:,} to {largest:,} pixels, mostly about {middle:,}")
    typer.echo(f"features  {', '.join(found.features) or 'none'}")
    if not found.damage:
        typer.echo(f"checksums of all {plural(found.records, 'record')} are right")
    if sheet is not None:
        typer.echo(f"sheet     {sheet}")
