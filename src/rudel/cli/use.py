"""`rudel evaluate`, `rudel predict` and `rudel report`: what is done with a run."""

from pathlib import Path
from typing import Annotated

import typer

from rudel.cli.output import download_display, interrupts_told, print_json

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def evaluate(
    run: RunArgument,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.npz|DIR|URL",
            help="Arrays x, y and optionally names; or where the recipe shall take its data from, such as a folder of "
            "photographs.  \\[default: the validation data of the run]",
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which of the records in --data to take.  \\[default: all]")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Take the best weights, not the last.")] = False,
    json: JsonOption = False,
) -> None:
    """Evaluate a run on its validation data, or on data of yours."""
    from rudel.backend import keras_on_jax

    keras_on_jax(light=True)
    from rudel.train.display import described
    from rudel.train.use import evaluate_run

    with download_display() as progress, interrupts_told():
        result = evaluate_run(run, data, best=best, split=split, progress=progress)
    if json:
        print_json(
            {
                "run": str(run),
                "metrics": result.metrics,
                "examples": result.examples,
                "left_out": result.left_out,
                "notes": list(result.notes),
            }
        )
        return
    typer.echo(f"{described(result.metrics)}  on {result.examples:,} examples")
    if result.left_out:
        classes = ", ".join(f"{count:,} of {name}" for name, count in result.left_out.items())
        typer.echo(f"left out, because the model does not know their classes: {classes}")
    for note in result.notes:
        typer.echo(f"note: {note}", err=True)


def predict(
    run: RunArgument,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Pictures, and .npy arrays.")],
    top: Annotated[int, typer.Option(min=1, help="How many classes to name for each.")] = 3,
    json: JsonOption = False,
) -> None:
    """Ask a run what is in pictures and arrays."""
    from rudel.backend import keras_on_jax

    keras_on_jax(light=True)
    from rudel.train.use import predict_files

    predictions = predict_files(run, files)
    if json:
        print_json(
            [
                {
                    "source": p.source,
                    "outputs": p.outputs,
                    "classes": [{"name": n, "probability": v} for n, v in p.ranking],
                }
                for p in predictions
            ]
        )
        return
    for p in predictions:
        guesses = [f"{name} {value:.1%}" for name, value in p.ranking[:top]] or [f"{value:.6g}" for value in p.outputs]
        typer.echo(f"{p.source}: {', '.join(guesses)}")


def report(run: RunArgument) -> None:
    """Write the report of a run anew; also of one that is unfinished."""
    from rudel.report import write_report

    typer.echo(write_report(run))
