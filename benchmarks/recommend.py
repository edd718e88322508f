"""The recipe `recommend` with its tables whole on one device, and cut by rows over several.

    python benchmarks/recommend.py
    python benchmarks/recommend.py --users 400000 --items 40000 --steps 200       # tables of 100 MB

Each is a process of its own. Both learn the same; a device of the second holds a part of each table, and of what the
optimizer keeps for it. On a computer without accelerators, the devices are virtual, and times say nothing.
"""

import json as json_format
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import measure
import typer
from measure import BenchmarkError, Contestant
from rich.console import Console
from rich.table import Table

SCRIPT = Path(__file__).parent / "contestants" / "recommend_run.py"
LARGEST_DIFFERENCE = 0.01


def main(
    devices: Annotated[int, typer.Option(min=2, help="How many to cut the tables over.")] = 4,
    users: Annotated[int, typer.Option(help="Rows of the users' table.")] = 20_000,
    items: Annotated[int, typer.Option(help="Rows of the items' table.")] = 10_000,
    dims: Annotated[int, typer.Option(help="Columns of the tables.")] = 64,
    steps: Annotated[int | None, typer.Option(help="Steps, in the place of the recipe's three epochs.")] = None,
    seed: Annotated[int, typer.Option(help="Of the training.")] = 0,
    json: Annotated[Path | None, typer.Option(help="File for the raw numbers.")] = None,
) -> None:
    """Train the recommender twice."""
    console = Console()
    options = {"users": users, "items": items, "dims": dims}
    results = {}
    try:
        with console.status("") as status, tempfile.TemporaryDirectory() as folder:
            for count in (1, devices):
                status.update(f"devices: {count}")
                job = {"devices": count, "options": options, "steps": steps, "seed": seed, "run": f"{folder}/{count}"}
                contestant = Contestant(str(count), SCRIPT, hidden=("tensorflow", "torch"))
                results[count] = measure.run(contestant, job, {})
    except BenchmarkError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from error
    document = summary(results, options)
    show(console, document)
    if json:
        json.write_text(json_format.dumps(document, indent=2) + "\n")


def summary(results: Mapping[int, measure.Numbers], options: Mapping[str, int]) -> dict[str, Any]:
    """Everything as JSON values."""
    whole, cut = results.values()
    (_, devices) = results
    return {
        "benchmark": "recommend",
        "machine": measure.machine(),
        "options": dict(options),
        "results": {str(count): numbers for count, numbers in results.items()},
        "share": cut["largest_table_bytes"] / whole["largest_table_bytes"],
        "recall_difference": cut["recall"] - whole["recall"],
        "claims": {
            f"a device of {devices} holds a {devices}th of the largest table": (
                cut["largest_table_bytes"] * devices == whole["largest_table_bytes"]
                and cut["devices_that_hold_some"] == devices
            ),
            f"the same recall within {LARGEST_DIFFERENCE}": abs(cut["recall"] - whole["recall"]) <= LARGEST_DIFFERENCE,
        },
    }


def show(console: Console, document: Mapping[str, Any]) -> None:
    """Prints the table and what holds."""
    table = Table("devices", "of the largest table, MB", "loss", "recall at 10", "steps", "ms a step")
    for count, numbers in document["results"].items():
        times = f"{1e3 * numbers['train_seconds'] / numbers['steps']:,.1f}"
        megabytes = f"{numbers['largest_table_bytes'] / 1e6:,.2f}"
        what = f"{numbers['loss']:.5f}", f"{numbers['recall']:.4f}", f"{numbers['steps']:,}"
        table.add_row(count, megabytes, *what, times)
    console.print(table)
    for claim, holds in document["claims"].items():
        console.print(f"{claim}: {'holds' if holds else 'does not hold'}", highlight=False)
    for note in next(iter(document["results"].values()))["notes"]:
        console.print(note, highlight=False)


if __name__ == "__main__":
    typer.run(main)
