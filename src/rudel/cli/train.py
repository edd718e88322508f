"""`rudel train`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rudel.cli.output import download_display, interrupts_told, print_json
from rudel.errors import OptionError


def train(
    recipe: Annotated[str, typer.Argument(help="A built-in recipe (see `rudel recipes`) or a Python file.")] = "digits",
    data: Annotated[
        str | None, typer.Option(metavar="DIR|URL", help="Where the recipe shall take its data from.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training examples.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps, in the place of epochs.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate of the optimizer.")] = None,
    precision: Annotated[str, typer.Option(help="float32, mixed_bfloat16 or mixed_float16.")] = "float32",
    seed: Annotated[int, typer.Option(help="Seed of weights, dropout and the order of examples.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Sets an option of the recipe; repeatable.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory for the run.  \\[default: runs/RECIPE]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --run, if there is one.")] = False,
    eval_every: Annotated[
        int | None, typer.Option(metavar="STEPS", help="Steps between evaluations.  \\[default: an epoch]")
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(metavar="STEPS", help="Steps between checkpoints.  \\[default: about 15 s]")
    ] = None,
    keep: Annotated[int, typer.Option(help="How many checkpoints to keep.")] = 2,
    monitor: Annotated[
        str | None, typer.Option(metavar="METRIC", help="Keep the best weights, too, by this, such as val_accuracy.")
    ] = None,
    stop_early: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="End when N evaluations have not been better, by --monitor.  \\[by val_loss without]"
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="HOST,...|FILE", help="Hosts to train on, over SSH, or a file with one a line."),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler whose workers are to train.")
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="How steps are spread: single, diloco, async or mesh; auto takes what is forecast to be soonest done."
            "  \\[default: single, or diloco with hosts]"
        ),
    ] = None,
    round_steps: Annotated[
        int | None, typer.Option(help="Steps of each host between two exchanges, for diloco.  \\[default: up to 320]")
    ] = None,
    steps_between: Annotated[
        int | None, typer.Option(help="Steps of the fastest host between two exchanges, for async.  \\[default: 640]")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(help="How many devices, for mesh; virtual ones where there are no accelerators.")
    ] = None,
    mesh: Annotated[
        str | None, typer.Option(metavar="AXIS=SIZE,...", help="Shape of the mesh, such as data=4,model=2.")
    ] = None,
    layout: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX=AXIS,...",
            help="Cuts variables, for mesh: an axis or - for each dimension; repeatable.  \\[chosen by kind of layer]",
        ),
    ] = None,
    parts: Annotated[
        int | None,
        typer.Option(
            help="Compute batches in so many parts, for mesh: the same bits on 1, 2, 4, 8 devices, in more time."
        ),
    ] = None,
    min_hosts: Annotated[
        int | None, typer.Option(help="Begin with so many hosts; a scheduler's are waited for.  \\[default: all]")
    ] = None,
    patience: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Wait for hosts when all are lost.  \\[default: 120]")
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="With --on, show Dask's dashboard at http://127.0.0.1:8787.")
    ] = False,
    ssh_config: Annotated[Path | None, typer.Option(metavar="FILE", help="In the place of ~/.ssh/config.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Train a recipe into a run directory, and write a report."""
    options = dict(key_and_value(text) for text in set_ or [])
    from rudel.backend import keras_here

    keras_here(light=True)
    from rudel.train.from_recipe import train_recipe
    from rudel.train.mesh.hosts.together import is_first
    from rudel.train.strategy import with_options

    with download_display() as progress, interrupts_told():
        trained = train_recipe(
            recipe,
            data=data,
            options=options,
            epochs=epochs,
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            precision=precision,  # type: ignore[arg-type]  # checked by train_recipe
            seed=seed,
            run=run,
            resume=resume,
            eval_every=eval_every,
            checkpoint_every=checkpoint_every,
            keep=keep,
            monitor=monitor,
            stop_early=stop_early,
            progress=progress,
            on=on,
            client=scheduler,
            strategy=with_options(
                strategy,
                {"round_steps": round_steps, "steps_between": steps_between, "patience": patience}
                | {"devices": devices, "axes": mesh, "layouts": layout or None, "parts": parts},
            ),
            dashboard=dashboard,
            ssh_config=ssh_config,
            min_hosts=min_hosts,
        )
    if not is_first():
        return
    if json:
        print_json({"run": str(trained.path), **trained.summary})
        return
    _tell(trained)


def key_and_value(text: str) -> tuple[str, str]:
    """What stands before and after the equals sign of a `--set`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise OptionError(f"--set wants KEY=VALUE, not {text!r}.")
    return key.strip(), value.strip()


def _tell(trained: Any) -> None:
    from rudel.report.rounds import read_rounds
    from rudel.report.words import duration
    from rudel.train.display import described

    summary = trained.summary
    seconds = max(summary["train_seconds"], 1e-9)
    rounds = read_rounds(trained.path / "rounds.jsonl")
    steps, samples = rounds.steps if rounds else summary["steps"], summary["samples"]
    typer.echo(f"trained  {described(summary['metrics'])}")
    if best := summary.get("best"):
        told = f"{best['monitor']} {described({'': best['value']}).strip()} at step {best['step']:,}"
        typer.echo(f"best     {told}" + (", and no better since" if summary["stopped_early"] else ""))
    if summary["strategy"] == "mesh":
        from rudel.train.mesh.mesh_engine import described as described_mesh

        typer.echo(f"mesh     {described_mesh(summary['strategy_options'])}")
        for restart in summary.get("restarts", ()):
            typer.echo(f"lost     {restart['reason']}; went on from step {restart['from_step']:,}")
    typer.echo(f"speed    {steps / seconds:,.0f} steps/s, {samples / seconds:,.0f} samples/s")
    typer.echo(f"time     {steps:,} steps in {duration(seconds)}, compiled in {duration(summary['compile_seconds'])}")
    if summary["backend"] != "jax":
        typer.echo(f"backend  every step by Keras on {summary['backend']}, slower than Rudel's loop on JAX")
    if rounds:
        _tell_hosts(rounds, summary)
    for absent in summary.get("absent", ()):
        typer.echo(f"absent   {absent['host']}: {absent['reason']}")
    _tell_fit(trained.path / "predictions.npz")
    _tell_forecast(trained.path, seconds)
    typer.echo(f"run      {trained.path}")
    typer.echo(f"report   {trained.path / 'report.html'}")
    for line in (*trained.notes, trained.attribution):
        if line:
            typer.echo(f"note     {line}", err=True)


def _tell_forecast(run: Path, seconds: float) -> None:
    from rudel.report.forecast import compared, read_forecast

    forecast = read_forecast(run / "plan.json")
    if forecast:
        typer.echo(f"auto     {compared(forecast, seconds)}")
        typer.echo(f"why      {forecast.why}")


def _tell_fit(predictions: Path) -> None:
    from rudel.report.regression import load
    from rudel.report.regression_fit import judge
    from rudel.report.regression_words import verdict

    regression = load(predictions) if predictions.is_file() else None
    if regression:
        typer.echo(f"fit      {verdict(judge(regression))}")


def _tell_hosts(rounds: Any, summary: dict[str, Any]) -> None:
    from rudel.report.words import percent, plural, size

    computing, moved = rounds.computing, summary["bytes_sent"] + summary["bytes_received"]
    typer.echo(
        f"hosts    {len(rounds.hosts):,}, computing {percent(computing, 0)} of their time, "
        f"waiting {percent(1 - computing, 0)}"
    )
    times = plural(rounds.arrivals, "arrival") if rounds.arrivals else plural(rounds.count, "round")
    typer.echo(f"network  {size(moved)} in {times}")
    lost, joined = summary["workers_lost"], summary["workers_joined"]
    if lost or joined:
        typer.echo(f"lost     {plural(lost, 'time')} a host, {plural(joined, 'time')} one joined")
