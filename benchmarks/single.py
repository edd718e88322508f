"""One computer: Rudel against Keras on TensorFlow, Keras on JAX, PyTorch, and NumPy's bare matrix products.

    python benchmarks/single.py --data FOLDER             the article's job: MLP, 8,192 steps of batch 32, 13 classes
    python benchmarks/single.py --data FOLDER --net cnn   the recipe's CNN for 300 steps: time per step only

FOLDER is laid out as Quick, Draw!'s bucket, or holds `<class>.npy` files itself. Every contestant is a fresh process
that sees no other contestant's packages; they take turns, on the same cores, with the same held-out drawings and as
many steps.

What is measured, by process:

- time per step: the steps alone. Evaluation never counts. Rudel counts from its first step; the others after a warm-up
  of 64 steps, in which they trace and compile. See the contestants' own docstrings for how.
- compile: what comes before steps run at full pace. For Rudel all between the call of `fit` and the first step
  (checks, moving the data, tracing, compiling); for the others the warm-up, less what its steps would take later.
- job: from the start of the process to its end.
- peak: the largest resident memory of the process.

`rudel, first run` starts with an empty cache of compiled programs, and `rudel` right after it with what that has left.
Ratios are computed within each round and then summed up.
"""

import json as json_format
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import measure
import typer
from claims import ARTICLE_STEPS, CNN, FIRST, MLP, RUDEL, judged
from measure import BenchmarkError, Contestant
from rich.console import Console
from show import claims_table, ratios_table, results_table

HERE = Path(__file__).parent / "contestants"
CLASSES = "airplane,alarm clock,apple,banana,bicycle,bird,book,cat,dog,fish,flower,house,rainbow"
STEPS = {"mlp": ARTICLE_STEPS, "cnn": 300}
CPU_ONLY = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}

_OPTIONAL_IN_KERAS = ("sklearn", "matplotlib")


def _rudel(name: str) -> Contestant:
    return Contestant(name, HERE / "rudel_fit.py", ("rudel",), "rudel", ("tensorflow", "torch"))


def _keras(name: str, backend: str, steps_per_execution: int = 1) -> Contestant:
    other = "jax" if backend == "tensorflow" else "tensorflow"
    return Contestant(
        name,
        HERE / "keras_fit.py",
        ("keras", backend),
        f"keras {backend}",
        (other, "torch", *_OPTIONAL_IN_KERAS),
        {"steps_per_execution": steps_per_execution},
        {"KERAS_BACKEND": backend},
    )


CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        _rudel(FIRST),
        _rudel(RUDEL),
        _keras("keras-tensorflow", "tensorflow"),
        _keras("keras-jax", "jax"),
        _keras("keras-tensorflow-32", "tensorflow", 32),
        _keras("keras-jax-32", "jax", 32),
        Contestant(
            "pytorch",
            HERE / "pytorch_loop.py",
            ("torch",),
            "torch",
            ("tensorflow", "jax", *_OPTIONAL_IN_KERAS),
            environment={"KERAS_BACKEND": "torch"},
        ),
        Contestant(
            "numpy-floor",
            HERE / "numpy_floor.py",
            ("numpy", "threadpoolctl"),
            "numpy threadpoolctl",
            ("tensorflow", "torch", "jax"),
        ),
    )
}
"""In the order of a round. Those with -32 are Keras with steps_per_execution=32."""

USUAL = {
    "mlp": (RUDEL, "keras-tensorflow", "keras-jax", "pytorch", "numpy-floor"),
    "cnn": (RUDEL, "keras-tensorflow", "keras-jax", "pytorch"),
}


def main(
    data: Annotated[Path, typer.Option(help="Folder with drawings in Quick, Draw!'s layout.")],
    net: Annotated[Literal["mlp", "cnn"], typer.Option(help="The article's MLP, or the recipe's CNN.")] = "mlp",
    classes: Annotated[str, typer.Option(help="Names of classes, separated by commas.")] = CLASSES,
    steps: Annotated[int | None, typer.Option(min=4, help="Optimizer steps.  [default: mlp 8192, cnn 300]")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds.")] = 5,
    contestants: Annotated[
        str | None, typer.Option(help=f"Who takes part, of {', '.join(CONTESTANTS)}; `{RUDEL}` brings its first run.")
    ] = None,
    cores: Annotated[str | None, typer.Option(help="Cores to keep everybody on, such as 0,1.")] = None,
    json: Annotated[Path | None, typer.Option(help="File for the raw numbers.")] = None,
) -> None:
    """Time Rudel and its rivals at the article's job, on one computer's CPU."""
    console = Console()
    try:
        if cores is not None:
            measure.pin(_numbers(cores))
        chosen, notes = present(contestants.split(",") if contestants else USUAL[net])
        job = {
            "data": str(data),
            "classes": [name.strip() for name in classes.split(",")],
            "net": net,
            "steps": steps or STEPS[net],
            "batch_size": 32,
        }
        with console.status("") as status:
            rounds = play(chosen, job, repeats, notes, status.update)
    except BenchmarkError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from error
    document = summary(rounds, job, notes)
    show(console, rounds, document)
    if json:
        json.write_text(json_format.dumps(document, indent=2) + "\n")


def present(names: Sequence[str]) -> tuple[list[Contestant], list[str]]:
    """The contestants that can take part, in the order of a round, and a sentence for each that cannot."""
    unknown = [name for name in names if name not in CONTESTANTS]
    if unknown:
        raise BenchmarkError(f"There is no contestant {unknown[0]}: there are {', '.join(CONTESTANTS)}.")
    wanted = {*names, FIRST} if RUDEL in names else set(names)
    asked = [contestant for name, contestant in CONTESTANTS.items() if name in wanted]
    absences = {contestant.name: contestant.absence for contestant in asked}
    return [c for c in asked if not absences[c.name]], [sentence for sentence in absences.values() if sentence]


def play(
    contestants: Sequence[Contestant], job: Mapping[str, Any], repeats: int, notes: list[str], tell: Any
) -> list[dict[str, measure.Numbers]]:
    """Lets all contestants take turns; adds to the notes who had to be left out."""
    playing, rounds = list(contestants), []
    for number in range(repeats):
        results: dict[str, measure.Numbers] = {}
        with tempfile.TemporaryDirectory() as cache:
            for contestant in list(playing):
                tell(f"round {number + 1} of {repeats}: {contestant.name}")
                numbers = measure.run(contestant, {**job, "seed": number}, {**CPU_ONLY, "RUDEL_CACHE": cache})
                if reason := numbers.get("left_out"):
                    notes.append(f"{contestant.name} is left out, because {reason}.")
                    playing.remove(contestant)
                else:
                    results[contestant.name] = numbers
        rounds.append(results)
    return rounds


def summary(rounds: measure.Rounds, job: Mapping[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    """Everything as JSON values."""
    names = list(rounds[0])
    rivals = [name for name in names if name not in (RUDEL, FIRST)] if RUDEL in names else []
    claims = CNN if job["net"] == "cnn" else MLP
    return {
        "benchmark": "single",
        "machine": measure.machine(),
        "job": {name: value for name, value in job.items() if name != "data"},
        "notes": list(notes),
        "rounds": [dict(results) for results in rounds],
        "step_seconds_over_rudel": {
            name: measure.paired_ratios(rounds, "step_seconds", name, RUDEL) for name in rivals
        },
        "claims": [asdict(verdict) for verdict in judged(claims, rounds, job["steps"])],
    }


def show(console: Console, rounds: measure.Rounds, document: Mapping[str, Any]) -> None:
    """Prints the tables."""
    job, machine = document["job"], document["machine"]
    console.print(
        f"{job['net'].upper()}, {job['steps']:,} steps of batch {job['batch_size']}, {len(job['classes'])} classes, "
        f"{len(rounds)} rounds; {machine['cores']} cores of {machine['processor']}",
        highlight=False,
    )
    console.print(results_table(rounds))
    if ratios := document["step_seconds_over_rudel"]:
        console.print(ratios_table(ratios))
    if document["claims"]:
        console.print(claims_table(document["claims"]))
    for note in document["notes"]:
        console.print(note, highlight=False)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise BenchmarkError(f"--cores wants numbers separated by commas, not {text}.") from error


if __name__ == "__main__":
    typer.run(main)
