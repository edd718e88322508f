"""Photographs to record shards: Rudel against TensorFlow's own reader and writer.

    python benchmarks/images.py --data FOLDER --cores 0,1

FOLDER has a folder of JPEG photographs for each class. Both sides read every file, decode it to find out whether it is
whole and how large it is, and write the same features into a shard for training and one for validation. Each is a
process of its own that converts once to warm up, and then a few times; they take turns, on the same cores.
`tensorflow, ratio 8` decodes at an eighth of the size, as Rudel does where a picture passes as it is.

What Rudel does beside that: it turns photographs upright that an EXIF tag turns (which decodes, turns and encodes them
in full), flushes the shards to the disk, and writes what they have and were made of.
"""

import json as json_format
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import measure
import typer
from claims import Claim, judged
from measure import BenchmarkError, Contestant
from rich.console import Console
from rich.table import Table
from show import claims_table

HERE = Path(__file__).parent / "contestants"
CPU_ONLY = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
RUDEL, TENSORFLOW, SMALLER = "rudel", "tensorflow", "tensorflow, ratio 8"

CONTESTANTS = (
    Contestant(RUDEL, HERE / "images_rudel.py", ("rudel",), "rudel", ("tensorflow", "torch")),
    *(
        Contestant(
            name, HERE / "images_tensorflow.py", ("tensorflow",), "tensorflow", ("torch", "jax"), {"ratio": ratio}
        )
        for name, ratio in ((TENSORFLOW, 1), (SMALLER, 8))
    ),
)

CLAIMS = (
    Claim("at least 1.5 times as many pictures a second as TensorFlow", "seconds", TENSORFLOW, RUDEL, 1.5),
    Claim("at least 1.5 times as many as TensorFlow that decodes smaller", "seconds", SMALLER, RUDEL, 1.5),
)


def main(
    data: Annotated[Path, typer.Option(help="Folder with a folder of photographs for each class.")],
    repeats: Annotated[int, typer.Option(min=1, help="Rounds.")] = 5,
    conversions: Annotated[int, typer.Option(min=1, help="Conversions of a process, after the first.")] = 3,
    contestants: Annotated[str | None, typer.Option(help="Who takes part, separated by semicolons.")] = None,
    cores: Annotated[str | None, typer.Option(help="Cores to keep everybody on, such as 0,1.")] = None,
    json: Annotated[Path | None, typer.Option(help="File for the raw numbers.")] = None,
) -> None:
    """Convert photographs with Rudel and with TensorFlow."""
    console = Console()
    try:
        if cores is not None:
            measure.pin([int(number) for number in cores.split(",")])
        wanted = CONTESTANTS if contestants is None else [c for c in CONTESTANTS if c.name in contestants.split(";")]
        present = [contestant for contestant in wanted if not contestant.absence]
        notes = [contestant.absence for contestant in wanted if contestant.absence]
        if not present:
            raise BenchmarkError(f"Nobody takes part: there are {'; '.join(c.name for c in CONTESTANTS)}.")
        with console.status("") as status:
            rounds = [
                play(present, data, conversions, lambda name, number=number: status.update(f"{number + 1}: {name}"))
                for number in range(repeats)
            ]
    except BenchmarkError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from error
    document = summary(rounds, notes)
    show(console, rounds, document)
    if json:
        json.write_text(json_format.dumps(document, indent=2) + "\n")


def play(contestants: Sequence[Contestant], data: Path, conversions: int, tell: Any) -> dict[str, measure.Numbers]:
    """One round: each contestant once."""
    results = {}
    for contestant in contestants:
        tell(contestant.name)
        with tempfile.TemporaryDirectory() as out:
            job = {"data": str(data.absolute()), "out": out, "conversions": conversions}
            results[contestant.name] = measure.run(contestant, job, CPU_ONLY)
    counts = {numbers["records"] for numbers in results.values()}
    if len(counts) > 1:
        raise BenchmarkError(f"The contestants wrote different numbers of records: {sorted(counts)}.")
    return results


def summary(rounds: measure.Rounds, notes: Sequence[str]) -> dict[str, Any]:
    """Everything as JSON values."""
    rivals = [name for name in rounds[0] if name != RUDEL]
    return {
        "benchmark": "images",
        "machine": measure.machine(),
        "notes": list(notes),
        "rounds": [dict(results) for results in rounds],
        "seconds_over_rudel": {name: measure.paired_ratios(rounds, "seconds", name, RUDEL) for name in rivals},
        "claims": [asdict(verdict) for verdict in judged(CLAIMS, rounds, 0)],
    }


def show(console: Console, rounds: measure.Rounds, document: Mapping[str, Any]) -> None:
    """Prints the tables."""
    records, machine = next(iter(rounds[0].values()))["records"], document["machine"]
    console.print(f"{records:,} photographs, {len(rounds)} rounds; {machine['cores']} cores of {machine['processor']}")
    table = Table(
        "contestant", "pictures/s", "the first time, pictures/s", "seconds over Rudel's", "CPU seconds", title="medians"
    )
    for name in rounds[0]:
        ratios = document["seconds_over_rudel"].get(name)
        ratio = f"{measure.spread(ratios).median:.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""
        speeds = [
            f"{records / measure.spread(measure.values(rounds, name, key)).median:,.0f}"
            for key in ("seconds", "first_seconds")
        ]
        cpu = measure.spread(measure.values(rounds, name, "cpu_seconds")).median
        table.add_row(name, *speeds, ratio, f"{cpu:.2f}")
    console.print(table)
    console.print(claims_table(document["claims"]))
    for note in document["notes"]:
        console.print(note, highlight=False)


if __name__ == "__main__":
    typer.run(main)
