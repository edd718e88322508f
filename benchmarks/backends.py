"""Keras on JAX, TensorFlow and PyTorch: the backend's own `fit` in one process, and `rudel.fit` on one or two workers.

    python benchmarks/backends.py --data FOLDER --steps 2048

The job is that of `single.py`. Where Keras is on JAX, workers run Rudel's compiled loop; on TensorFlow and PyTorch,
they call Keras' own training step, one batch after the other, so one worker is to be about as fast as `fit` there.
Ratios are the time per step of the backend's own `fit` over that of the workers.
Workers are processes on this computer, with one thread each. FOLDER is laid out as Quick, Draw!'s bucket. Backends that
are not installed are left out with a note.
"""

import json as json_format
from pathlib import Path
from typing import Annotated

import measure
import typer
from measure import BenchmarkError, Contestant
from rich.console import Console
from show import ratios_table, results_table
from single import CLASSES, HERE, play

BACKENDS = ("jax", "tensorflow", "torch")


def _of(backend: str) -> list[Contestant]:
    needs = (("keras", backend, "distributed"), f"rudel {backend}")
    hidden = tuple(other for other in ("tensorflow", "torch") if other != backend)
    environment = {"KERAS_BACKEND": backend}
    alone = Contestant(f"{backend}, fit", HERE / "keras_fit.py", *needs, hidden, environment=environment)
    return [
        alone,
        *(
            Contestant(
                f"{backend}, {workers} worker{'s' * (workers > 1)}", HERE / "backends_hosts.py", *needs, hidden,
                environment=environment | {"HOSTS": str(workers)},
            )
            for workers in (1, 2)
        ),
    ]  # fmt: skip


def main(
    data: Annotated[Path, typer.Option(help="Folder with drawings in Quick, Draw!'s layout.")],
    classes: Annotated[str, typer.Option(help="Names of classes, separated by commas.")] = CLASSES,
    steps: Annotated[int, typer.Option(min=256, help="Optimizer steps.")] = 2048,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds.")] = 1,
    backends: Annotated[str, typer.Option(help="Which backends.")] = ",".join(BACKENDS),
    json: Annotated[Path | None, typer.Option(help="File for the raw numbers.")] = None,
) -> None:
    """Time trainings on other backends of Keras, and see that they learn the same."""
    console = Console()
    wanted = [contestant for backend in backends.split(",") for contestant in _of(backend)]
    notes = [contestant.absence for contestant in wanted if contestant.absence]
    job = {"data": str(data), "classes": classes.split(","), "net": "mlp", "steps": steps, "batch_size": 32}
    try:
        with console.status("") as status:
            rounds = play([c for c in wanted if not c.absence], job, repeats, notes, status.update)
    except BenchmarkError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from error
    console.print(results_table(rounds))
    ratios = {
        name: measure.paired_ratios(rounds, "step_seconds", f"{name.partition(',')[0]}, fit", name)
        for name in rounds[0]
        if not name.endswith("fit")
    }
    console.print(ratios_table(ratios))
    for note in notes:
        console.print(note, highlight=False)
    if json:
        document = {"benchmark": "backends", "machine": measure.machine(), "job": job, "notes": notes}
        json.write_text(json_format.dumps(document | {"rounds": rounds, "speed": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
