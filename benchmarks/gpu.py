"""How much of an accelerator training uses, on one and several devices, and how long Keras and JAX by hand take.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --devices 1,4 --precisions bfloat16 --nets mlp,transformer
    python benchmarks/gpu.py --seconds 1                          # a quick look; works on a CPU, too

Each row is a net in a process of its own: on one device with the strategy `single`, on several with `mesh`, whose batch
is as many times as large. Counted are the operations of matrix products and convolutions in the step that Keras takes,
forwards and backwards. Beside them stands what the device does at best: by its maker (`gpu_ceilings.py`), and measured
here, by products of large square matrices. On one device, `mesh`, Keras' own `fit` on JAX and a loop written in JAX
take turns with `rudel.fit`: their seconds over its own, the median of the rounds. Nothing is fetched; all examples are
made up.
"""

import json as json_format
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import measure
import typer
from gpu_ceilings import ceiling_of
from measure import BenchmarkError, Contestant
from rich.console import Console
from rich.table import Column, Table

HERE = Path(__file__).parent / "contestants"
HIDDEN = ("tensorflow", "torch")
NETS, PRECISIONS = ("article", "mlp", "cnn", "mobilenet", "transformer"), ("bfloat16", "float32")
RIVALS = ("mesh", "keras", "jax")


def main(
    devices: Annotated[str | None, typer.Option(help="How many at a time.  \\[1,2,4,... all]")] = None,
    precisions: Annotated[str, typer.Option(help="bfloat16 (mixed), float32, or both.")] = ",".join(PRECISIONS),
    nets: Annotated[str, typer.Option(help="Which nets, separated by commas.")] = ",".join(NETS),
    size: Annotated[str, typer.Option(help="large, for accelerators; small, for CPUs; or auto.")] = "auto",
    seconds: Annotated[float, typer.Option(help="About how long to measure each.")] = 10.0,
    json: Annotated[Path | None, typer.Option(help="File for the raw numbers.")] = None,
) -> None:
    """Measure the training steps of five nets."""
    console = Console()
    try:
        wanted = _some(nets, NETS, "net"), _some(precisions, PRECISIONS, "precision")
        _some(size, ("auto", "large", "small"), "size")
        with console.status("which devices there are, and what they can do") as status:
            about = measure_devices(wanted[1], size, seconds)
            same = {"size": about["size"], "seconds": seconds}
            jobs = [
                {"net": net, "precision": precision, "devices": count, "contestants": _contestants(count)} | same
                for net in wanted[0]
                for precision in wanted[1]
                for count in _counts(devices, about)
            ]
            rows = []
            for job in jobs:
                status.update(f"{job['net']}, {job['precision']}, devices: {job['devices']}")
                rows.append(job | measure.run(Contestant(job["net"], HERE / "gpu_step.py", hidden=HIDDEN), job, {}))
    except BenchmarkError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from error
    document = summary(about, rows)
    show(console, document)
    if json:
        json.write_text(json_format.dumps(document, indent=2) + "\n")


def measure_devices(precisions: Sequence[str], size: str, seconds: float) -> measure.Numbers:
    """Which devices there are, and how fast one multiplies matrices."""
    job = {"size": size, "precisions": list(precisions), "seconds": seconds / 5}
    return measure.run(Contestant("matmul", HERE / "gpu_matmul.py", hidden=HIDDEN), job, {})


def summary(about: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything as JSON values; TFLOP/s are those of each device."""
    ceiling = ceiling_of(about["kind"])
    lines = []
    for row in rows:
        first, *rivals = row["contestants"]
        step_seconds = statistics.median(each[first] for each in row["rounds"])
        reached = row["flops"] / step_seconds / row["devices"] / 1e12
        by_maker = ceiling.tflops.get(row["precision"]) if ceiling else None
        lines.append(
            {
                **row,
                "step_seconds": step_seconds,
                "ratios": {
                    name: statistics.median(each[name] / each[first] for each in row["rounds"]) for name in rivals
                },
                "tflops": reached,
                "of_maker": reached / by_maker if by_maker else None,
                "of_matmul": reached / about["matmul"][row["precision"]],
            }
        )
    return {
        "benchmark": "gpu",
        "machine": measure.machine(),
        "device": dict(about),
        "ceiling": None if ceiling is None else {"tflops": dict(ceiling.tflops), "source": ceiling.source},
        "rows": lines,
    }


def show(console: Console, document: Mapping[str, Any]) -> None:
    """Prints what there is, and the table."""
    about, ceiling = document["device"], document["ceiling"]
    console.print(f"{about['devices']} x {about['kind']} ({about['platform']}), JAX {about['jax']}", highlight=False)
    for precision, reached in about["matmul"].items():
        known = ceiling["tflops"].get(precision) if ceiling else None
        maker = f"{known:g} by its maker" if known else "what its maker says is not known here"
        console.print(f"{precision} at best: {_tflops(reached)} TFLOP/s measured, {maker}", highlight=False)
    if ceiling:
        console.print(f"maker's figures: {ceiling['source']}", highlight=False)
    names = [Column(name, no_wrap=True) for name in ("net", "precision")]
    table = Table(*names, "devices", "batch", "ms a step", "TFLOP/s", "of maker's", "of measured", *RIVALS)
    for row in document["rows"]:
        shares = ["" if row[key] is None else f"{row[key]:.0%}" for key in ("of_maker", "of_matmul")]
        time = f"{1e3 * row['step_seconds']:,.3f}"
        ratios = [f"{row['ratios'][name]:.2f}" if name in row["ratios"] else "" for name in RIVALS]
        table.add_row(
            row["net"],
            row["precision"],
            str(row["devices"]),
            f"{row['batch']:,}",
            time,
            _tflops(row["tflops"]),
            *shares,
            *ratios,
        )
    console.print(table)
    console.print("TFLOP/s are those of each device; the last columns are seconds of a step over those of `rudel.fit`.")
    if about["platform"] == "cpu" and any(row["devices"] > 1 for row in document["rows"]):
        console.print("Several devices of one processor share its cores: they show that it works, not how fast it is.")


def _contestants(devices: int) -> list[str]:
    """Who takes a net's steps; the first is the one that counts."""
    return ["rudel", *RIVALS] if devices == 1 else ["mesh"]


def _counts(devices: str | None, about: Mapping[str, Any]) -> list[int]:
    """How many devices to measure on, one number after the other."""
    there = about["devices"]
    if devices is None:
        return [2**i for i in range(there.bit_length()) if 2**i < there] + [there]
    if not all(part.strip().isdigit() and int(part) > 0 for part in devices.split(",")):
        raise BenchmarkError(f"--devices wants numbers separated by commas, not {devices}.")
    counts = [int(part) for part in devices.split(",")]
    if max(counts) > there and about["platform"] != "cpu":
        raise BenchmarkError(f"There are {there} devices ({about['kind']}), not {max(counts)}.")
    return counts


def _some(text: str, known: Sequence[str], what: str) -> list[str]:
    chosen = [part.strip() for part in text.split(",")]
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise BenchmarkError(f"There is no {what} {unknown[0]}: there are {', '.join(known)}.")
    return chosen


def _tflops(value: float) -> str:
    return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


if __name__ == "__main__":
    typer.run(main)
