"""`rudel evaluate`, `rudel predict` and `rudel report`: what is done with a run."""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rudel.cli.output import count_display, download_display, print_json, reporting_interrupts
from rudel.cli.shared_options import (
    ClassesOption,
    CodeOption,
    JsonOption,
    ModelArgument,
    RunArgument,
    SshConfigOption,
    UnsafeOption,
    hosts_option,
)
from rudel.errors import DataError, OptionError
from rudel.terminal import is_terminal

if TYPE_CHECKING:
    from rudel.runs.file_model import Prediction, Unreadable


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
    from rudel.runs.evaluate_run import evaluate_run
    from rudel.runs.model_as_run import as_run
    from rudel.session.training_display import described

    with download_display() as progress, reporting_interrupts(), as_run(run, classes, code, unsafe) as directory:
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
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|DIR", help="Images, sound, tables, .npy arrays, or folders of them."),
    ],
    top: Annotated[int, typer.Option(min=1, help="Number of classes to print for each.")] = 3,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write a .csv or .parquet table; continues an interrupted prediction."
        ),
    ] = None,
    on: Annotated[str | None, hosts_option("Hosts to compute on.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Dask scheduler whose workers compute.")
    ] = None,
    min_hosts: Annotated[int | None, typer.Option(help="Start with this many hosts.  \\[default: all]")] = None,
    ssh_config: SshConfigOption = None,
    classes: ClassesOption = None,
    code: CodeOption = None,
    unsafe: UnsafeOption = False,
    json: JsonOption = False,
) -> None:
    """Run inference on images, sound or arrays."""
    from rudel.cluster.host_options import check_used

    check_used(on, scheduler, ssh_config=ssh_config, min_hosts=min_hosts)
    if out is None and (on or scheduler):
        raise OptionError(
            "Predictions on hosts are kept in a table: name it with --out FILE.csv or --out FILE.parquet."
        )
    if out is not None and json:
        raise OptionError("--out and --json exclude each other: leave one of them out.")
    from rudel.backend import keras_on_jax

    keras_on_jax(light=True)
    from rudel.features.table_columns import notes_on_unknown
    from rudel.runs.file_model import Unreadable
    from rudel.runs.model_as_run import as_run
    from rudel.runs.predict_many import predict_many

    printing = out is None and not json and is_terminal(sys.stdout)  # a bar would share the lines of the answers
    documents: list[dict[str, Any]] = []
    reasons: list[str] = []
    count = 0
    unknown: Counter[str] = Counter()
    with (
        reporting_interrupts(),
        as_run(run, classes, code, unsafe) as directory,
        _calls(on, scheduler, ssh_config, min_hosts) as calls,
        contextlib.nullcontext(lambda done, total: None) if printing else count_display("predicting") as progress,
    ):
        for answer in predict_many(directory, files, out, calls, progress):
            count += 1
            if json:
                documents.append(_document(answer))
            if isinstance(answer, Unreadable):
                reasons.append(answer.reason)
                continue
            unknown.update(answer.unknown)
            if out is None and not json:
                typer.echo(_line(answer, top))
    if json:
        print_json(documents)
    if out is not None:
        typer.echo(out)
    for note in notes_on_unknown(unknown, count - len(reasons)):
        typer.echo(f"note: {note}", err=True)
    if len(reasons) == count == 1:
        raise DataError(reasons[0])
    if reasons:
        typer.echo("\n".join(reasons), err=True)
        others = "; the others are predicted" if len(reasons) < count else ""
        raise DataError(f"{len(reasons):,} of {count:,} inputs could not be read{others}.")


@contextlib.contextmanager
def _calls(on: str | None, scheduler: str | None, ssh_config: Path | None, min_hosts: int | None) -> Iterator[Any]:
    """Yields what calls functions on hosts; None without hosts."""
    if on is None and scheduler is None:
        yield None
        return
    from rudel.cluster.calls import Calls, clients_of

    with clients_of(on, scheduler, ssh_config, min_hosts) as client:
        yield Calls(client, "run inference", "continues after the batches that are done")


def _document(answer: "Prediction | Unreadable") -> dict[str, Any]:
    from rudel.runs.file_model import Unreadable

    if isinstance(answer, Unreadable):
        return {"source": answer.source, "error": answer.reason}
    ranking = [{"name": name, "probability": value} for name, value in answer.ranking]
    return {"source": answer.source, "outputs": answer.outputs, "classes": ranking}


def _line(answer: "Prediction", top: int) -> str:
    guesses = [f"{name} {value:.1%}" for name, value in answer.ranking[:top]]
    return f"{answer.source}: {', '.join(guesses or [f'{value:.6g}' for value in answer.outputs])}"


def report(run: RunArgument) -> None:
    """Regenerate the report of a run, finished or not."""
    from rudel.report import write_report

    typer.echo(write_report(run))
