"""`rudel evaluate`, `rudel predict` and `rudel report`: what is done with a run."""

from pathlib import Path
from typing import Annotated

import typer

from rudel.cli import complete
from rudel.cli.output import download_display, interrupts_told, print_json

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", autocompletion=complete.runs)]
ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="A run directory, or a model file (.keras, .h5).", autocompletion=complete.runs),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        "--classes", metavar="A,B,...|FILE.json", help="For a model file: names of its classes.  \\[default: numbers]"
    ),
]
CodeOption = Annotated[
    Path | None, typer.Option("--code", metavar="FILE.py", help="For a model file: its own layers and functions.")
]
UnsafeOption = Annotated[
    bool, typer.Option("--unsafe", help="For a model file: execute code in it, such as lambdas. Only if you trust it.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def evaluate(
    run: ModelArgument,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DIR|URL",
            help="Arrays x, y and optionally names; or data for the recipe, such as a folder of "
            "photographs.  \\[default: the validation data of the run]",
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which split of the records in --data to use.  \\[default: all]")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Use the best weights, not the last.")] = False,
    classes: ClassesOption = None,
    code: CodeOption = None,
    unsafe: UnsafeOption = False,
    json: JsonOption = False,
) -> None:
    """Evaluate a run on its validation data, or on your own."""
    from rudel.backend import keras_on_jax

    keras_on_jax(light=True)
    from rudel.runs.model_as_run import as_run
    from rudel.runs.use_run import evaluate_run
    from rudel.session.training_display import described

    with download_display() as progress, interrupts_told(), as_run(run, classes, code, unsafe) as directory:
        result = evaluate_run(directory, data, best=best, split=split, progress=progress)
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
    run: ModelArgument,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Images, sound, tables, or .npy arrays.")],
    top: Annotated[int, typer.Option(min=1, help="Number of classes to print for each.")] = 3,
    classes: ClassesOption = None,
    code: CodeOption = None,
    unsafe: UnsafeOption = False,
    json: JsonOption = False,
) -> None:
    """Run inference on images, sound or arrays."""
    from rudel.backend import keras_on_jax

    keras_on_jax(light=True)
    from rudel.runs.model_as_run import as_run
    from rudel.runs.use_run import predict_files

    with as_run(run, classes, code, unsafe) as directory:
        predictions = predict_files(directory, files)
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
    """Regenerate the report of a run, finished or not."""
    from rudel.report import write_report

    typer.echo(write_report(run))
