"""`rudel runs` and `rudel resume`: what trainings have left, and one that is to continue."""

import os
from pathlib import Path
from typing import Annotated

import typer

from rudel.cli import complete
from rudel.cli.output import download_display, print_json, print_table, reporting_interrupts
from rudel.cli.shared_options import JsonOption
from rudel.files import expanded

app = typer.Typer(invoke_without_command=True, no_args_is_help=False)

_SHOWN = 2
"""Metrics in the table: those of validation where there are any."""


@app.callback()
def list_runs(
    context: typer.Context,
    folder: Annotated[Path, typer.Option("--in", metavar="DIR", help="Folder of the runs.")] = Path("runs"),
    sort: Annotated[
        str, typer.Option(help="Sort by name, recipe, date, strategy, state, time or a metric (best first).")
    ] = "date",
    json: JsonOption = False,
) -> None:
    """List runs, or compare some of them."""
    if context.invoked_subcommand:
        return
    from rudel.report.formatting import duration, metric_value
    from rudel.runs.listing import runs_in, sort_runs

    lines = sort_runs(runs_in(folder), sort)
    if json:
        print_json(
            [
                vars(line) | {"path": str(line.path), "started": line.started.isoformat() if line.started else None}
                for line in lines
            ]
        )
        return
    if not lines:
        typer.echo(f"There are no runs in {folder}.")
        return
    rows = []
    for line in lines:
        names = [name for name in line.metrics if name.startswith("val_")] or list(line.metrics)
        names = ([sort] if sort in line.metrics else []) + [name for name in names if name != sort]
        metrics = ", ".join(f"{name} {metric_value(name, line.metrics[name])}" for name in names[:_SHOWN])
        date = line.started.astimezone().strftime("%Y-%m-%d %H:%M") if line.started else "–"
        state = "" if line.state == "finished" else line.state
        rows.append([line.name, line.recipe, date, line.strategy, metrics, duration(line.seconds), state])
    print_table(["run", "recipe", "date", "strategy", "metrics", "time", ""], rows, right=(5,))


@app.command("compare")
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Two or more run directories.", autocompletion=complete.runs),
    ],
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Page to write.  \\[default: compared.html beside the first]"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare runs: the settings in which they differ, and their curves on one page."""
    from rudel.errors import OptionError, RunError
    from rudel.report.between_runs import differences, names_of, results, write_comparison
    from rudel.report.read import read_run

    if len({os.path.realpath(path) for path in runs}) < 2:
        raise OptionError("Name two runs or more to compare, as in `rudel runs compare runs/digits runs/digits-2`.")
    read = [read_run(expanded(path)) for path in runs]
    page = page or Path(os.path.realpath(read[0].path)).parent / "compared.html"
    try:
        write_comparison(read, page)
    except OSError as error:
        raise RunError(f"{page} cannot be written ({error.strerror}): give another with --page.") from error
    settings, names = differences(read), names_of([run.path for run in read])
    if json:
        print_json(
            {
                "page": str(page),
                "metrics": {name: dict(run.metrics) for name, run in zip(names, read, strict=True)},
                "settings": {name: dict(zip(names, values, strict=True)) for name, values in settings},
            }
        )
        return
    print_table(["", *names], [[name, *values] for name, values in [*results(read), *settings]])
    typer.echo(f"page     {page}")


def resume(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Directory of an unfinished run.", autocompletion=complete.runs)
    ],
    min_hosts: Annotated[
        int | None, typer.Option(help="Continue with this many of its hosts.  \\[default: as it was begun]")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Continue an unfinished run from its newest checkpoint."""
    from rudel.backend import keras_here

    keras_here(light=True)
    from rudel.cli.train import show_note, show_trained
    from rudel.training.resuming import resume_run

    with download_display() as progress, reporting_interrupts():
        trained = resume_run(run, progress, None if json else show_note, min_hosts)
    show_trained(trained, json)
