"""`rudel plan`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rudel.cli.output import download_display, print_json, print_table, reporting_interrupts
from rudel.cli.shared_options import RecipeArgument, SshConfigOption, hosts_option
from rudel.cli.train import Precision, key_and_value
from rudel.errors import OptionError

if TYPE_CHECKING:
    from rudel.planning.forecast import Forecast


def plan(
    recipe: RecipeArgument = "digits",
    on: Annotated[str | None, hosts_option("Measure these hosts over SSH; or a file with one host per line.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Measure the workers of this Dask scheduler.")
    ] = None,
    simulate: Annotated[
        str | None,
        typer.Option(
            metavar="SCENARIO",
            help="Simulate hosts: hosts=4,rate=20,latency=2 (Mbit/s, ms one way), also speed=, loss=.",
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="FILE|DIR|URL", help="As for `rudel train`.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", "-e", help="As for `rudel train`.")] = None,
    steps: Annotated[int | None, typer.Option(help="As for `rudel train`.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", "-b", help="As for `rudel train`.")] = None,
    precision: Annotated[Precision, typer.Option(metavar="POLICY", help="As for `rudel train`.")] = "float32",
    seed: Annotated[int, typer.Option(min=0, help="Seed, also of the simulated hosts.")] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="Set an option of the recipe; repeatable."),
    ] = None,
    ssh_config: SshConfigOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the forecast as JSON.")] = False,
) -> None:
    """Estimate training time and the best strategy."""
    places = [name for name, value in (("--on", on), ("--scheduler", scheduler), ("--simulate", simulate)) if value]
    if len(places) != 1:
        found = f"not {' and '.join(places)}" if places else "such as --on raspi1,raspi2"
        raise OptionError(f"Give one of --on, --scheduler and --simulate, {found}.")
    options = dict(key_and_value(text) for text in set_ or [])
    from rudel.backend import keras_on_jax

    keras_on_jax(light=True)
    from rudel.report.hosts_words import few_steps_note
    from rudel.training.plan_recipe import plan_recipe
    from rudel.training.prepared import RecipeRequest

    with download_display() as progress, reporting_interrupts():
        request = RecipeRequest(recipe, data, options, epochs, steps, batch_size, None, precision, seed, progress)
        outlook = plan_recipe(request, on=on, client=scheduler, scenario=simulate, ssh_config=ssh_config)
    if json:
        print_json(asdict(outlook))
        return
    if outlook.measured:
        _tell_hosts(outlook.measured.hosts, outlook.measured.together)
    _tell_forecasts(outlook.planned.forecasts, outlook.planned.best)
    typer.echo()
    typer.echo(outlook.planned.why)
    best = outlook.planned.best
    if few := few_steps_note(best.strategy, len(best.hosts), outlook.work.steps // len(best.hosts)):
        typer.echo(few)


def _tell_hosts(hosts: Sequence[Any], together: float) -> None:
    rows = [
        [
            host.speed.name,
            f"{host.cores} x {host.machine}",
            f"{1e3 * host.speed.step:.3g} ms",
            f"{host.speed.memory / 1e9:.1f} GB",
            f"{1e3 * host.round_trip:.1f} ms",
            f"{8e-6 * host.rate:.3g} Mbit/s",
        ]
        for host in hosts
    ]
    print_table(["Host", "cores", "a step", "free memory", "round trip", "link"], rows, right=(2, 3, 4, 5), wide=True)
    typer.echo(f"All links at the same time: {8e-6 * together:.3g} Mbit/s.")
    typer.echo()


def _tell_forecasts(forecasts: Sequence[Any], best: "Forecast") -> None:
    from rudel.report.formatting import duration, size

    one = forecasts[0].seconds if len(forecasts[0].hosts) == 1 else None
    rows = [
        [
            forecast.strategy,
            str(len(forecast.hosts)),
            duration(forecast.seconds),
            f"{one / forecast.seconds:.2f}" if one else "",
            f"{forecast.computing:.0%}",
            f"{forecast.exchanging:.0%}",
            f"{forecast.waiting:.0%}",
            f"{forecast.sending:.0%}",
            size(forecast.sent) if forecast.sent else "",
            size(forecast.memory),
            "*" if forecast is best else "files" if forecast.needs_files else "",
        ]
        for forecast in forecasts
    ]
    headings = ["Strategy", "hosts", "time", "times", "steps", "merge", "wait", "send", "sent", "memory"]
    print_table([*headings, ""], rows, right=tuple(range(1, 10)), wide=True)
    if any(forecast.needs_files for forecast in forecasts):
        typer.echo()
        typer.echo("files: every host reads the data itself, so its files have to be at the same place there.")
