"""`rudel train`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from rudel.cli import complete
from rudel.cli.output import download_display, print_json, reporting_interrupts
from rudel.cli.shared_options import RecipeArgument, hosts_option, ssh_config_option
from rudel.errors import OptionError, RudelError

if TYPE_CHECKING:
    from rudel.report.rounds_file import Rounds
    from rudel.training.from_recipe import TrainedRun

_TRAINING, _CHECKPOINTS, _HOSTS, _MESH = "Training", "Checkpoints", "Hosts", "Mesh"
_FORMER_OPTIONS = {"patience": "host-timeout", "stop-early": "early-stopping", "keep": "keep-checkpoints"}

Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]


def current_option(name: str) -> str:
    """The name of an option that may be given by the one it had in version 0.1.

    >>> current_option("keep")
    'keep-checkpoints'
    """
    return _FORMER_OPTIONS.get(name, name)


class TrainCommand(TyperCommand):
    """`rudel train`, whose help has the options of the recipe that is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keeps the arguments for the help, which is printed before they are processed."""
        ctx.meta[__name__] = list(args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Prints the help of the command, then the options of the recipe."""
        super().format_help(ctx, formatter)
        given, _, _ = self.make_parser(ctx).parse_args(ctx.meta.get(__name__, []))
        if isinstance(recipe := given.get("recipe"), str):
            from rudel.cli.recipes import print_recipe

            print_recipe(recipe)


def train(
    recipe: RecipeArgument = "digits",
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DIR|URL", help="Data for the recipe, where it takes any.", rich_help_panel=_TRAINING
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            "-e",
            help="Passes over the training examples.  \\[default: the recipe's]",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Optimizer steps, instead of epochs.", rich_help_panel=_TRAINING)
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size", "-b", help="Examples per step.  \\[default: the recipe's]", rich_help_panel=_TRAINING
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Learning rate of the optimizer.  \\[default: the recipe's]", rich_help_panel=_TRAINING),
    ] = None,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN|FILE",
            help="Begin with the weights of a run or a .keras file that fit by name and shape.",
            autocompletion=complete.runs,
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    precision: Annotated[
        Precision,
        typer.Option(
            metavar="POLICY",
            help="Dtype policy of the model: float32, mixed_bfloat16 or mixed_float16.",
            rich_help_panel=_TRAINING,
        ),
    ] = "float32",
    seed: Annotated[
        int, typer.Option(help="Seed of weights, dropout and the order of examples.", rich_help_panel=_TRAINING)
    ] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="Set an option of the recipe; repeatable. `rudel train RECIPE --help` lists them.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    eval_every: Annotated[
        int | None,
        typer.Option(
            metavar="STEPS", help="Steps between evaluations.  \\[default: an epoch]", rich_help_panel=_TRAINING
        ),
    ] = None,
    early_stopping: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Stop after N evaluations without improvement of --monitor.  \\[default: never; val_loss "
            "without --monitor]",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Run directory.  \\[default: runs/RECIPE]", rich_help_panel=_CHECKPOINTS),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the run in --run, if there is one.", rich_help_panel=_CHECKPOINTS),
    ] = False,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            metavar="STEPS",
            help="Steps between checkpoints.  \\[default: about 15 s]",
            rich_help_panel=_CHECKPOINTS,
        ),
    ] = None,
    keep_checkpoints: Annotated[
        int, typer.Option(help="Number of checkpoints to keep.", rich_help_panel=_CHECKPOINTS)
    ] = 2,
    monitor: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="Also keep the best weights by this metric, such as val_accuracy.",
            rich_help_panel=_CHECKPOINTS,
        ),
    ] = None,
    callback: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FACTORY",
            help="Add a Keras callback, such as a tracker's, which this function returns; repeatable.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    on: Annotated[
        str | None, hosts_option("Train on these hosts over SSH; or a file with one host per line.", _HOSTS)
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Train on the workers of this Dask scheduler.", rich_help_panel=_HOSTS),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="STRATEGY",
            help="How to distribute the steps: single, diloco, async or mesh; or auto, the one with the shortest "
            "forecast.  \\[default: single, or diloco with hosts]",
            autocompletion=complete.strategies,
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    sync_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="STEPS",
            help="Local steps between synchronisations, for diloco and async (of the fastest host).  "
            "\\[default: chosen by the measured speeds, up to 320 for diloco and 640 for async]",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    min_hosts: Annotated[
        int | None,
        typer.Option(
            help="Start with this many hosts; wait for those of a scheduler.  \\[default: all]",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    host_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long to wait for a host when all are lost.  \\[default: 120]",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    dashboard: Annotated[
        bool,
        typer.Option(
            "--dashboard",
            help="With --on, serve Dask's dashboard at http://127.0.0.1:8787.",
            rich_help_panel=_HOSTS,
        ),
    ] = False,
    ssh_config: Annotated[Path | None, ssh_config_option(_HOSTS)] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            help="Number of devices for mesh; virtual ones where there are no accelerators.  \\[default: all]",
            rich_help_panel=_MESH,
        ),
    ] = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            metavar="AXIS=SIZE,...",
            help="Shape of the mesh, such as data=4,model=2.  \\[default: all devices along data]",
            rich_help_panel=_MESH,
        ),
    ] = None,
    layout: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX=AXIS,...",
            help="Shard variables: an axis or - for each dimension; repeatable.  \\[default: by kind of layer]",
            rich_help_panel=_MESH,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the run directory, and errors.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    round_steps: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
    steps_between: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
) -> None:
    """Train a recipe (digits if none is given) and write a report."""
    options = dict(key_and_value(text) for text in set_ or [])
    from rudel.backend import keras_here

    keras_here(light=True)
    from rudel.cli.callback_option import made_callbacks
    from rudel.training.from_recipe import train_recipe
    from rudel.training.strategies import with_options

    with download_display() as progress, reporting_interrupts():
        trained = train_recipe(
            recipe,
            data=data,
            options=options,
            epochs=epochs,
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            start_from=start_from,
            precision=precision,
            seed=seed,
            run=run,
            resume=resume,
            eval_every=eval_every,
            checkpoint_every=checkpoint_every,
            keep=keep_checkpoints,
            monitor=monitor,
            stop_early=early_stopping,
            callbacks=made_callbacks(callback or ()),
            progress=progress,
            notify=None if json or quiet else show_note,
            on=on,
            client=scheduler,
            strategy=with_options(
                strategy,
                {"sync_every": sync_every, "round_steps": round_steps, "steps_between": steps_between}
                | {"host_timeout": host_timeout, "devices": devices, "mesh": mesh, "layout": layout or None},
            ),
            dashboard=dashboard,
            ssh_config=ssh_config,
            min_hosts=min_hosts,
            verbose=False if quiet else "auto",
        )
    show_trained(trained, json, quiet)


def show_trained(trained: "TrainedRun", json: bool, quiet: bool = False) -> None:
    """Prints what came of a training; of several processes that train together, the first one does."""
    from rudel.mesh.hosts.lifecycle import is_first

    if not is_first():
        return
    if json:
        print_json({"run": str(trained.path), **trained.summary})
        return
    if quiet:
        typer.echo(trained.path)
        return
    _print_result(trained)
    typer.echo(f"next     {'; '.join(_next_commands(trained))}")


def show_note(sentence: str) -> None:
    """Prints something that the user should know."""
    typer.echo(f"note     {sentence}", err=True)


def _next_commands(trained: "TrainedRun") -> list[str]:
    """Commands that take the run further."""
    from rudel.features.table_layer import columns_of

    run = shlex.quote(str(trained.path))
    play = [f"rudel play {run}"] if _has_page(trained) else []
    form = "litert" if columns_of(trained.model) else "litert-int8"
    return [f"rudel evaluate {run}", f"rudel serve {run}", *play, f"rudel export {run} --to {form}"]


def _has_page(trained: "TrainedRun") -> bool:
    """Whether `rudel play` has a page for the model."""
    from rudel.play.opening import page_of
    from rudel.runs.run_directory import open_finished

    try:
        page_of(open_finished(trained.path), trained.model)
    except RudelError:
        return False
    return True


def key_and_value(text: str) -> tuple[str, str]:
    """Splits the value of a `--set` at its equals sign."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise OptionError(f"--set needs KEY=VALUE, not {text!r}.")
    return key.strip(), value.strip()


def _print_result(trained: "TrainedRun") -> None:
    from rudel.report.formatting import duration
    from rudel.report.hosts_words import few_steps_note
    from rudel.report.rounds_file import read_rounds
    from rudel.session.training_display import described

    summary = trained.summary
    seconds = max(summary["train_seconds"], 1e-9)
    rounds = read_rounds(trained.path / "rounds.jsonl")
    steps, samples = rounds.steps if rounds else summary["steps"], summary["samples"]
    typer.echo(f"trained  {described(summary['metrics'])}")
    if best := summary.get("best"):
        result = f"{best['monitor']} {described({'': best['value']}).strip()} at step {best['step']:,}"
        typer.echo(f"best     {result}" + (", and no better since" if summary["stopped_early"] else ""))
    if summary["strategy"] == "mesh":
        from rudel.mesh.mesh_engine import described as described_mesh

        typer.echo(f"mesh     {described_mesh(summary['strategy_options'])}")
        for restart in summary.get("restarts", ()):
            typer.echo(f"lost     {restart['reason']}; went on from step {restart['from_step']:,}")
    typer.echo(f"speed    {steps / seconds:,.0f} steps/s, {samples / seconds:,.0f} examples/s")
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
    if rounds and (few := few_steps_note(summary["strategy"], len(rounds.trained), summary["steps"])):
        show_note(few)
    if trained.attribution:
        show_note(trained.attribution)


def _tell_forecast(run: Path, seconds: float) -> None:
    from rudel.report.plan_file import compared, read_forecast

    forecast = read_forecast(run / "plan.json")
    if forecast:
        typer.echo(f"auto     {compared(forecast, seconds)}")
        typer.echo(f"why      {forecast.why}")


def _tell_fit(predictions: Path) -> None:
    from rudel.report.regression_data import load
    from rudel.report.regression_fit import judge
    from rudel.report.regression_words import verdict

    regression = load(predictions) if predictions.is_file() else None
    if regression:
        typer.echo(f"fit      {verdict(judge(regression))}")


def _tell_hosts(rounds: "Rounds", summary: dict[str, Any]) -> None:
    from rudel.report.formatting import percent, plural, size

    computing, moved = rounds.computing, summary["bytes_sent"] + summary["bytes_received"]
    typer.echo(
        f"hosts    {len(rounds.trained):,}, computing {percent(computing, 0)} of their time, "
        f"waiting {percent(1 - computing, 0)}"
    )
    times = plural(rounds.arrivals, "arrival") if rounds.arrivals else plural(rounds.count, "round")
    typer.echo(f"network  {size(moved)} in {times}")
    lost, joined = summary["workers_lost"], summary["workers_joined"]
    if lost or joined:
        typer.echo(f"lost     {plural(lost, 'time')} a host, {plural(joined, 'time')} one joined")
