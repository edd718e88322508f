"""How fast records are read: Rudel against tf.data, and against the decoder alone.

    python benchmarks/records.py --photographs FOLDER [--cores 0,1] [--gigabytes 4] [--json records.json]

FOLDER holds JPEG photographs of 100x100 pixels in a folder for each class; others in it are left out. Records are
written into a temporary folder (`--work` says where), read once to warm up, and then in shuffled batches:

- records of 784 bytes and a label, by Rudel and by tf.data (batched parse, shuffle buffer, AUTOTUNE, prefetch);
- photographs, decoded, flipped and cropped: by Rudel, by tf.data, and by Rudel's decoder alone over the same bytes in
  memory, in as many threads as Rudel uses; in as many processes, too, to see what threads cost;
- `--gigabytes` of records of 50,000 bytes once from end to end in random order, for the memory that this takes.

Every contestant is a process of its own; ratios are of neighbours in time.
"""

import json as json_format
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import measure
import numpy as np
import typer
from claims import Claim, judged
from measure import BenchmarkError, Contestant
from PIL import Image
from rich.console import Console
from rich.table import Table
from show import claims_table

from rudel.data.records.writer import write_examples

HERE = Path(__file__).parent / "contestants"
SIDE = 100
LARGE = 50_000

_OWN = ("tensorflow", "torch")
_TENSORFLOW: dict[str, Any] = {"packages": ("tensorflow",), "install": "tensorflow"}

CONTESTANTS = (
    Contestant("rudel, bytes", HERE / "records_rudel.py", hidden=_OWN, settings={"task": "bytes"}),
    Contestant("tf.data, bytes", HERE / "records_tensorflow.py", settings={"task": "bytes"}, **_TENSORFLOW),
    Contestant("rudel, photographs", HERE / "records_rudel.py", hidden=_OWN, settings={"task": "photographs"}),
    Contestant("decoder, threads", HERE / "records_photographs.py", hidden=_OWN, settings={"kind": "threads"}),
    Contestant("decoder, processes", HERE / "records_photographs.py", hidden=_OWN, settings={"kind": "processes"}),
    Contestant("tf.data, photographs", HERE / "records_tensorflow.py", settings={"task": "photographs"}, **_TENSORFLOW),
)
MEMORY = Contestant("rudel, memory", HERE / "records_rudel.py", hidden=_OWN, settings={"task": "memory"})

CLAIMS = (
    Claim("784-byte records: at least 1.3 times tf.data", "seconds", "tf.data, bytes", "rudel, bytes", 1.3),
    Claim("photographs: 90 % of the decoder's limit", "seconds", "decoder, threads", "rudel, photographs", 0.9),
    Claim("at most 600 MB for gigabytes of records", "peak_bytes", MEMORY.name, largest=600e6),
)


def main(
    photographs: Annotated[Path, typer.Option(help="Folder with a folder of JPEGs for each class.")],
    records: Annotated[int, typer.Option(min=1000, help="Records of 784 bytes.")] = 200_000,
    gigabytes: Annotated[float, typer.Option(min=0, help="Size of the records for the memory; 0 for none.")] = 4,
    batch_size: Annotated[int, typer.Option(min=1, help="Records a batch.")] = 128,
    seconds: Annotated[float, typer.Option(min=0.1, help="To measure each contestant for.")] = 3,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds.")] = 3,
    contestants: Annotated[str | None, typer.Option(help="Who takes part, separated by semicolons.")] = None,
    cores: Annotated[str | None, typer.Option(help="Cores to keep everybody on, such as 0,1.")] = None,
    work: Annotated[Path | None, typer.Option(help="Folder to write records into.")] = None,
    json: Annotated[Path | None, typer.Option(help="File for the raw numbers.")] = None,
) -> None:
    """Time the reading of records."""
    console = Console()
    try:
        if cores is not None:
            measure.pin([int(core) for core in cores.split(",")])
        chosen = _present(console, contestants)
        with tempfile.TemporaryDirectory(dir=work) as folder, console.status("writing records") as status:
            folders = _written(Path(folder), photographs, records)
            rounds = []
            for number in range(repeats):
                numbers = {}
                for contestant in chosen:
                    status.update(f"round {number + 1} of {repeats}: {contestant.name}")
                    job = {"batch_size": batch_size, "seconds": seconds, "folder": folders["bytes" in contestant.name]}
                    numbers[contestant.name] = measure.run(contestant, job, {})
                rounds.append(numbers)
            if gigabytes:
                status.update(f"{gigabytes:g} GB")
                write_examples(large := Path(folder) / "large", _large(int(gigabytes * 1e9 / LARGE)), shards=8)
                job = {"batch_size": batch_size, "folder": str(large)}
                rounds[-1][MEMORY.name] = measure.run(MEMORY, job, {})
    except BenchmarkError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from error
    verdicts = [asdict(verdict) for verdict in judged(CLAIMS, rounds, steps=0)]
    _show(console, rounds, verdicts)
    if json:
        document = {"machine": measure.machine(), "rounds": rounds, "claims": verdicts}
        json.write_text(json_format.dumps(document, indent=2) + "\n")


def _present(console: Console, names: str | None) -> list[Contestant]:
    wanted = names.split(";") if names else [contestant.name for contestant in CONTESTANTS]
    known = {contestant.name: contestant for contestant in CONTESTANTS}
    if unknown := [name for name in wanted if name not in known]:
        raise BenchmarkError(f"There is no contestant {unknown[0]}: there are {'; '.join(known)}.")
    absences = {name: known[name].absence for name in wanted}
    for sentence in filter(None, absences.values()):
        console.print(sentence)
    return [known[name] for name in wanted if not absences[name]]


def _written(folder: Path, photographs: Path, records: int) -> dict[bool, str]:
    """The folders with records of photographs (False) and of bytes (True)."""
    rng = np.random.default_rng(0)
    small = ({"image": rng.bytes(784), "label": i % 13} for i in range(records))
    write_examples(folder / "bytes", small, shards=4)
    found = list(_photographs(photographs))
    if not found:
        raise BenchmarkError(f"{photographs} has no JPEG photographs of {SIDE}x{SIDE} pixels in folders of classes.")
    order = rng.permutation(len(found))
    write_examples(folder / "photographs", (found[i] for i in order), shards=4)
    return {False: str(folder / "photographs"), True: str(folder / "bytes")}


def _photographs(folder: Path) -> Iterator[dict[str, Any]]:
    classes = sorted(child for child in folder.iterdir() if child.is_dir())
    for label, one in enumerate(classes):
        for path in sorted(one.iterdir()):
            if path.suffix.lower() in (".jpg", ".jpeg") and Image.open(path).size == (SIDE, SIDE):
                yield {"image/encoded": path.read_bytes(), "image/class/label": label}


def _large(count: int) -> Iterator[dict[str, Any]]:
    content = np.random.default_rng(0).bytes(LARGE + 1000)
    return ({"image": content[i % 1000 : i % 1000 + LARGE], "label": i} for i in range(count))


def _show(console: Console, rounds: measure.Rounds, verdicts: list[dict[str, Any]]) -> None:
    table = Table("contestant", "records/s", "least", "largest", "peak, MB", title="median of the rounds")
    for name in dict.fromkeys(name for numbers in rounds for name in numbers):
        speed = measure.spread([1 / seconds for seconds in measure.values(rounds, name, "seconds")])
        peaks = [f"{value / 1e6:,.0f}" for value in measure.values(rounds, name, "peak_bytes")]
        table.add_row(name, *(f"{value:,.0f}" for value in (speed.median, speed.least, speed.largest)), *peaks)
    console.print(table)
    console.print(claims_table(verdicts))


if __name__ == "__main__":
    typer.run(main)
