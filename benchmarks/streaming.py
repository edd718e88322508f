"""Training on data that is read while it trains: how long it waits, and how much memory it takes.

    python benchmarks/streaming.py --photographs FOLDER [--gigabytes 4] [--json streaming.json]

Two trainings, each in a process of its own, as `rudel train` starts one:

- `images` on photographs that are decoded for every step (`--set streamed=true`), and then on the same in memory. The
  share of the training's time in which it had nothing to compute with is read from the run's own summary.json
  (`wait_seconds` over `train_seconds`); both have to end with the same metrics.
- A small net on 64 x 64 pictures from so many gigabytes of records, written to a temporary folder, once through. The
  resident memory of the process is read a hundred times a second: all of Python, JAX and Keras is in it, and so are
  pages of files that it has mapped. It is flat if its peak in the last quarter of the training is that in the second.

Takes five minutes or so, most of it for the photographs; and as much room on the disk as there are gigabytes.
"""

import contextlib
import json as json_format
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import typer
from claims import Verdict
from measure import BenchmarkError
from rich.console import Console
from show import claims_table

from rudel.data.records.writer import write_examples

SIDE, BATCH_SIZE = 64, 128
MOST_WAITING, MOST_MEMORY, AS_FLAT = 0.05, 600e6, 1.02
_LOOK_SECONDS = 0.01

RECIPE = """
import keras
import rudel

training = {{"steps": {steps}, "batch_size": {batch_size}}}


def data():
    shapes = {{"image": ({side}, {side}, 3), "label": ()}}
    records = rudel.Records({folder!r}, features=shapes)
    return rudel.Dataset(records.map(lambda given: (given["image"], given["label"]), batched=True))


def model(dataset):
    layers = keras.layers
    model = keras.Sequential([
        keras.Input(({side}, {side}, 3), dtype="uint8"), layers.Rescaling(1 / 255), layers.AveragePooling2D(4),
        layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10, activation="softmax"),
    ])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


def main(
    photographs: Annotated[Path | None, typer.Option(help="Folder with a folder of photographs a class.")] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the photographs.")] = 4,
    gigabytes: Annotated[float, typer.Option(help="How much to write and to train from; 0 for none.")] = 4.0,
    json: Annotated[Path | None, typer.Option(help="Where to write all numbers.")] = None,
) -> None:
    """Measures, and prints whether what is claimed holds."""
    numbers: dict[str, Any] = {}
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="rudel-streaming-") as folder:
        if photographs:
            numbers["images"] = waiting(photographs, epochs, Path(folder))
            verdicts += judged_waiting(numbers["images"])
        if gigabytes:
            numbers["records"] = memory(gigabytes, Path(folder))
            verdicts += judged_memory(numbers["records"])
    if json:
        json.write_text(json_format.dumps({**numbers, "claims": [asdict(v) for v in verdicts]}, indent=2) + "\n")
    for name, measured in numbers.items():
        typer.echo(f"{name}: " + ", ".join(f"{key} {value:,.4g}" for key, value in measured.items()))
    Console().print(claims_table([asdict(verdict) for verdict in verdicts]))


def waiting(photographs: Path, epochs: int, folder: Path) -> dict[str, float]:
    """Trains `images` streamed and in memory; what came of both."""
    report = {}
    for streamed in ("true", "false"):
        arguments = ["train", "images", "--data", str(photographs), "--set", f"streamed={streamed}"]
        arguments += ["--epochs", str(epochs), "--run", str(folder / streamed), "--json"]
        report[streamed] = json_format.loads(_finished(_rudel(*arguments)))
    streamed, in_memory = report["true"], report["false"]
    return {
        "waiting": streamed["wait_seconds"] / streamed["train_seconds"],
        "train_seconds": streamed["train_seconds"],
        "in_memory_train_seconds": in_memory["train_seconds"],
        "steps": streamed["steps"],
        "val_accuracy": streamed["metrics"]["val_accuracy"],
        "same_metrics": float(streamed["metrics"] == in_memory["metrics"]),
    }


def judged_waiting(measured: dict[str, float]) -> list[Verdict]:
    """What is claimed of waiting."""
    share, same = measured["waiting"], measured["same_metrics"]
    return [
        Verdict("images, streamed: waits for data in at most 5 % of its time", share, share <= MOST_WAITING),
        Verdict("images, streamed: ends with the same metrics as in memory", same, same == 1),
    ]


def memory(gigabytes: float, folder: Path) -> dict[str, float]:
    """Writes records, trains on them once, and watches the memory of the process."""
    records, script = folder / "records", folder / "from_records.py"
    count = int(gigabytes * 1e9 / (SIDE * SIDE * 3))
    write_examples(records, _examples(count), shards=max(1, round(gigabytes * 4)))
    values = {"steps": count // BATCH_SIZE, "batch_size": BATCH_SIZE, "side": SIDE, "folder": str(records)}
    script.write_text(RECIPE.format(**values))
    began = time.perf_counter()
    process = _rudel("train", str(script), "--run", str(folder / "run"), "--json")
    peak, seen = _watched(process, folder / "run")
    summary = json_format.loads(_finished(process))
    if len(seen) < 4:
        raise BenchmarkError("The training was over before its memory could be read: give more --gigabytes.")
    quarters = [float(max(part)) for part in np.array_split(np.array(seen), 4)]
    return {
        "gigabytes": sum(path.stat().st_size for path in records.iterdir()) / 1e9,
        "steps": summary["steps"],
        "job_seconds": time.perf_counter() - began,
        "train_seconds": summary["train_seconds"],
        "waiting": summary["wait_seconds"] / summary["train_seconds"],
        "peak_bytes": float(peak),
        "last_quarter_over_second": quarters[3] / quarters[1],
    }


def judged_memory(measured: dict[str, float]) -> list[Verdict]:
    """What is claimed of memory."""
    peak, flat = measured["peak_bytes"], measured["last_quarter_over_second"]
    subject = f"{measured['gigabytes']:.3g} GB of records"
    return [
        Verdict(f"{subject}: at most 600 MB of memory", peak, peak <= MOST_MEMORY),
        Verdict(f"{subject}: memory is flat, the last quarter's peak over the second's", flat, flat <= AS_FLAT),
    ]


def _examples(count: int) -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(0)
    for first in range(0, count, 1024):
        pictures = random.integers(0, 256, (min(1024, count - first), SIDE * SIDE * 3), np.uint8)
        for number, picture in enumerate(pictures, first):
            yield {"image": picture.tobytes(), "label": number % 10}


def _rudel(*arguments: str) -> "subprocess.Popen[str]":
    command = [str(Path(sys.executable).with_name("rudel")), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _watched(process: "subprocess.Popen[str]", run: Path) -> tuple[int, list[int]]:
    """Resident bytes of a process: the most, and all that were read from the first step to the last."""
    peak, seen = 0, []
    looked_at = psutil.Process(process.pid)
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.poll() is None:
            resident = looked_at.memory_info().rss
            peak = max(peak, resident)
            if resident and (run / "metrics.jsonl").exists() and not (run / "model.keras").exists():
                seen.append(resident)
            time.sleep(_LOOK_SECONDS)
    return peak, seen


def _finished(process: "subprocess.Popen[str]") -> str:
    out, errors = process.communicate()
    if process.returncode:
        raise BenchmarkError(f"A training failed: {errors.strip().splitlines()[-1] if errors.strip() else 'no reason'}")
    return out


if __name__ == "__main__":
    try:
        typer.run(main)
    except BenchmarkError as error:
        sys.exit(f"Error: {error}")
