"""`rudel tune`."""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from rudel.cli.output import print_json, reporting_interrupts
from rudel.cli.shared_options import JsonOption, RecipeArgument, SshConfigOption, hosts_option
from rudel.cli.train import key_and_value

if TYPE_CHECKING:
    from rudel.tuning.ledger import Ended
    from rudel.tuning.tune import Tuned


def tune(
    recipe: RecipeArgument,
    set_: Annotated[
        list[str],
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=SPACE",
            help="Search space of an option of the recipe, or of lr, batch_size, epochs, steps, precision or seed: "
            "log:1e-4..1e-2, 16..64 or 64,128; repeatable.",
        ),
    ],
    trials: Annotated[int, typer.Option(help="Number of trainings.")] = 20,
    on: Annotated[str | None, hosts_option("Hosts, each with its own trial.  \\[default: here]")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Train on the workers of this Dask scheduler.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="FILE|DIR|URL", help="Data for the recipe, where it takes any.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", "-e", help="Passes over the training examples per trial.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps, instead of epochs.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", "-b", help="Examples per step.")] = None,
    monitor: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="Metric to compare by.  \\[default: val_accuracy, or val_loss]"),
    ] = None,
    prune: Annotated[bool, typer.Option(help="Stop bad trials early, by successive halving.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.")] = 0,
    run: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder for the sweep.  \\[default: runs/RECIPE-tune]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the sweep in that folder.")] = False,
    final: Annotated[
        bool, typer.Option("--final", help="Train again with the best settings, on all hosts together.")
    ] = False,
    checkpoint_every: Annotated[
        int | None, typer.Option(metavar="STEPS", help="Steps between checkpoints.  \\[default: about 15 s]")
    ] = None,
    min_hosts: Annotated[int | None, typer.Option(help="Start with this many hosts.  \\[default: all]")] = None,
    ssh_config: SshConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Tune the options of a recipe: many trainings, on several hosts at once."""
    space = dict(key_and_value(text) for text in set_)
    from rudel.backend import keras_here

    keras_here(light=True)
    from rudel.tuning.tune import tune as search

    with reporting_interrupts():
        tuned = search(
            recipe, space, trials=trials, on=on, client=scheduler, run=run, resume=resume, monitor=monitor, prune=prune,
            seed=seed, data=data, epochs=epochs, steps=steps, batch_size=batch_size, checkpoint_every=checkpoint_every,
            ssh_config=ssh_config, min_hosts=min_hosts, shown=None if json else _show,
        )  # fmt: skip
        if not json:
            _print_best(tuned)
        again = None
        if final and tuned.best:
            from rudel.tuning.final import train_final

            again = train_final(recipe, tuned, on=on, client=scheduler, ssh_config=ssh_config, min_hosts=min_hosts)
    if json:
        print_json(
            vars(tuned)
            | {"path": str(tuned.path), "best": str(tuned.best) if tuned.best else None}
            | {"trials": [vars(trial) for trial in tuned.trials]}
            | ({"final": str(again.path)} if again else {})
        )
    elif again:
        typer.echo(f"final    {again.path}")
    if tuned.best is None:
        typer.echo("No trial finished.", err=True)
        raise typer.Exit(1)


def _print_best(tuned: "Tuned") -> None:
    """Prints what came of a sweep, with the settings as `rudel train` takes them."""
    from rudel.tuning.report import setting_text

    if tuned.best is None:
        return
    typer.echo(f"best     {tuned.monitor} {setting_text(tuned.value)}")
    typer.echo(f"settings {' '.join(_as_option(name, value) for name, value in tuned.settings.items())}")
    typer.echo(f"run      {tuned.best}")
    typer.echo(f"report   {tuned.path / 'report.html'}")


def _as_option(name: str, value: object) -> str:
    """A setting as `rudel train` takes it.

    >>> _as_option("lr", 0.00123456), _as_option("batch_size", 64), _as_option("kind", "a b")
    ('--learning-rate 0.00123456', '--batch-size 64', "--set 'kind=a b'")
    """
    from rudel.tuning.recipe_objective import OF_TRAINING, full_name

    name = full_name(name)
    if name in OF_TRAINING:
        return f"--{name.replace('_', '-')} {value}"
    return f"--set {shlex.quote(f'{name}={value}')}"


def _show(ended: "Ended") -> None:
    """Prints a trial that has ended."""
    from rudel.report.formatting import duration
    from rudel.tuning.report import setting_text

    value = "–" if ended.value is None else setting_text(ended.value)
    settings = "  ".join(f"{name} {setting_text(value)}" for name, value in ended.settings.items())
    what = f"{ended.state}: {ended.error}" if ended.error else ended.state
    moved = f", moved {ended.moved}x" if ended.moved else ""
    typer.echo(f"{ended.number:5}  {value:>8}  {settings}  {duration(ended.seconds)} on {ended.host}{moved}  {what}")
