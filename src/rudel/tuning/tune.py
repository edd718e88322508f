"""`rudel.tune`: from a recipe or a function, and a space of settings, to the best of them."""

import contextlib
import hashlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rudel.cluster.host_options import check_used, hosts_argument
from rudel.errors import OptionError, option
from rudel.files import expanded
from rudel.loop.schedule import SEEDS, check_seed, check_whole_number
from rudel.runs.run_directory import path_of
from rudel.tuning.ledger import Ended, Ledger
from rudel.tuning.space import Choice, Range, as_space, suggest
from rudel.tuning.study import OPTUNA_WARNS_ONLY, import_optuna, open_study
from rudel.tuning.trial import Trial

if TYPE_CHECKING:
    import optuna
    from distributed import Client

    from rudel.cluster.running_cluster import Hosts, RunningCluster


HERE = "this computer"


@dataclass(frozen=True)
class Tuned:
    """The results of a sweep.

    Args:
        path: its folder.
        monitor: by what trials were compared.
        settings: of the best trial, those that varied; empty where none finished.
        value: of the best trial; None where none finished.
        best: the directory of the best trial's run; None where none finished.
        trials: all that have ended, in the order in which they did.
    """

    path: Path
    monitor: str
    settings: dict[str, Any]
    value: float | None
    best: Path | None
    trials: tuple[Ended, ...]


def tune(
    objective: str | Callable[[Trial], float],
    space: Mapping[str, Any],
    *,
    trials: int = 20,
    on: "Hosts | None" = None,
    cluster: "RunningCluster | None" = None,
    client: "Client | str | None" = None,
    run: str | Path | None = None,
    resume: bool = False,
    monitor: str | None = None,
    direction: Literal["minimize", "maximize"] | None = None,
    prune: bool = True,
    sampler: "optuna.samplers.BaseSampler | None" = None,
    pruner: "optuna.pruners.BasePruner | None" = None,
    seed: int = 0,
    data: str | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    checkpoint_every: int | None = None,
    ssh_config: str | Path | None = None,
    min_hosts: int | None = None,
    shown: Callable[[Ended], None] | None = None,
) -> Tuned:
    """Searches for the best settings by whole trainings side by side, one a host at a time.

    Args:
        objective: a recipe, by its name or the path of its file; or a function that is called with a
            `rudel.tuning.trial.Trial` and returns what is minimised or maximised. The function travels to the hosts
            with what it refers to.
        space: by name, a text such as "log:1e-4..1e-2", "16..64" or "64,128"; a list of values; or one value that is
            the same in all trials. Of a recipe, its options, and `lr`, `batch_size`, `epochs`, `steps`, `precision` and
            `seed`.
        trials: how many, those of before included where a sweep is resumed.
        on: hosts, as `rudel.fit` takes them; None for this computer.
        cluster: a running `rudel.Cluster`.
        client: a Dask client, or the address of a scheduler.
        run: the folder of the sweep; by default `runs/RECIPE-tune`, or `runs/tune` for a function.
        resume: continue the sweep in that folder, with trials that were running from their checkpoints.
        monitor: the metric of a recipe; by default the validation accuracy, or else the validation loss.
        direction: what is better: of a function, "minimize" by default; of a metric, what its name says.
        prune: end trials early that do worse than others did after as many epochs, by successive halving.
        sampler: an Optuna sampler; by default its TPE.
        pruner: an Optuna pruner, in the place of successive halving.
        seed: of the sampler.
        data: where a recipe shall take its data from; see `rudel.train_recipe`.
        epochs: of each trial of a recipe.
        steps: of each trial, in the place of epochs.
        batch_size: examples a step.
        checkpoint_every: steps between checkpoints of a recipe; by default one about every 15 seconds. They travel to
            this computer, at no more than a twentieth of a host's time.
        ssh_config: in the place of `~/.ssh/config`.
        min_hosts: how many hosts must be there to begin.
        shown: called with each trial that has ended.

    Returns:
        The best settings and all trials. A Ctrl-C keeps what is done, for `resume`.

    Raises:
        OptionError: a setting, or something else, makes no sense, or Optuna is not installed.
        RunError: the folder holds something else.
        ClusterError, HostError: hosts cannot be used, or all are lost.
        RudelError: the trials fail, one after the other.

    Examples:
        best = rudel.tune("digits", {"lr": "log:1e-4..1e-2", "filters": [8, 16, 32]}, trials=20, on="raspi1,raspi2")
        print(best.settings, best.value, best.best)
    """
    optuna = import_optuna()
    check_whole_number("trials", trials)
    check_seed(seed)
    if not isinstance(space, Mapping):
        raise OptionError(f"`space` is a dict of settings and the values they may have, not {space!r:.100}.")
    if direction not in ("minimize", "maximize", None):
        raise OptionError(f"`direction=` can be minimize or maximize, not {direction!r:.100}.")
    if checkpoint_every is not None:
        check_whole_number("checkpoint_every", checkpoint_every)
    hosts_argument(on=on, cluster=cluster, client=client)
    check_used(on, client, ssh_config=ssh_config, min_hosts=min_hosts, dashboard=False)
    from rudel.shipping.user_code import dumped
    from rudel.tuning.report import write_report
    from rudel.tuning.sweep import SECONDS, Job, Sweep

    is_recipe = isinstance(objective, str)
    whole = _whole_tuples(objective, space) if is_recipe else {}
    varied, fixed = as_space({key: value for key, value in space.items() if key not in whole})
    fixed |= whole
    if is_recipe:
        varied = _typed(objective, varied)
    name = f"{Path(objective).stem}-tune" if is_recipe else "tune"
    ledger = Ledger(path_of(run) or Path("runs") / name)
    if resume and run is None and not ledger.path.is_dir():
        raise OptionError(f"Which sweep is to be resumed? Name its folder with {option('run')}.")
    if is_recipe:
        code, metric = _of_recipe(
            objective, varied, fixed, monitor, data=data, epochs=epochs, steps=steps, batch_size=batch_size,
            checkpoint_every=checkpoint_every,
        )  # fmt: skip
        direction = direction or _direction_of(metric)
    else:
        _check_function(objective)
        code, metric = objective, monitor or getattr(objective, "__name__", "value")
        direction = direction or "minimize"
    settings = {
        "objective": objective if is_recipe else metric, "monitor": metric, "direction": direction,
        "space": {key: repr(value) for key, value in varied.items()}, "fixed": fixed, "data": data, "epochs": epochs,
        "steps": steps, "batch_size": batch_size, "trials": trials, "data (fingerprint)": _fingerprint(data),
    }  # fmt: skip
    with ledger.begin(settings, resume), OPTUNA_WARNS_ONLY:
        done = ledger.ended()
        seed = (seed + len(done)) % SEEDS  # a sweep that is continued does not begin its random choices again
        study, running = open_study(
            ledger.journal, done, direction, sampler or optuna.samplers.TPESampler(seed=seed),
            pruner or (optuna.pruners.SuccessiveHalvingPruner() if prune else optuna.pruners.NopPruner()),
        )  # fmt: skip

        def ask() -> tuple[Any, dict[str, Any]]:
            trial = study.ask()
            return trial, fixed | suggest(trial, varied)

        best = min if direction == "minimize" else max
        waiting = [
            Job(
                trial,
                fixed | suggest(trial, varied),
                before=frozen.user_attrs.get(SECONDS, 0.0),
                value=best(filter(math.isfinite, frozen.intermediate_values.values()), default=None),
                step=max(frozen.intermediate_values, default=-1),
            )
            for trial, frozen in running
        ]
        sweep = Sweep(study, ask, trials, dumped(code), ledger, waiting, shown or (lambda ended: None))
        try:
            with _computers(on, cluster, client, ssh_config, min_hosts) as (background, computers):
                future = background.start(sweep.run(computers))
                try:
                    future.result()
                except BaseException:
                    future.cancel()
                    raise
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(
                f"Interrupted after {len(ledger.ended())} of {trials} trials: continue with "
                f"{option('run', ledger.path)} {option('resume', True)}."
            ) from interrupt
        finally:
            if ledger.ended():
                write_report(study, ledger.ended(), metric, ledger.path)
        return _tuned(ledger, metric, direction)


class _Here:
    """This computer as the only one, without a network between."""

    def __init__(self) -> None:
        from rudel.tuning.trial_service import TrialService

        self.service = TrialService()

    async def members(self) -> Mapping[str, str]:
        return {HERE: ""}

    async def call(self, address: str, operation: str, *, timeout: float | None = None, **message: object) -> Any:
        return await getattr(self.service, operation)(**message)

    def forget(self, address: str) -> None:
        """There is no connection."""


@contextlib.contextmanager
def _computers(
    on: "Hosts | None",
    cluster: "RunningCluster | None",
    client: "Client | str | None",
    ssh_config: str | Path | None,
    min_hosts: int | None,
) -> Iterator[tuple[Any, Any]]:
    """Where trials run: an event loop, and the computers as its coroutines call them."""
    if on is cluster is client is None:
        from rudel.cluster.background import Background

        with Background("rudel-tune") as background:
            here = _Here()
            try:
                yield background, here
            finally:
                background.run(here.service.close())
        return
    from rudel.cluster.fleet import installed
    from rudel.cluster.guest import Guest
    from rudel.training.places import place
    from rudel.tuning.trial_service import OPERATIONS, TrialService

    guest = Guest(TrialService, OPERATIONS, "a sweep")
    with place(on, cluster, client, None, ssh_config, min_hosts) as (where, _), installed(where, guest) as fleet:
        yield where.background, fleet


def _whole_tuples(recipe: str, space: Mapping[str, Any]) -> dict[str, Any]:
    """The settings whose texts are single values, as the options that they are of are lists themselves."""
    from rudel.recipes.load import find_recipe

    options = find_recipe(recipe).options
    return {
        name: options[name].read(value)
        for name, value in space.items()
        if isinstance(value, str) and name in options and options[name].kind is tuple
    }


def _typed(recipe: str, varied: Mapping[str, Range | Choice]) -> dict[str, Range | Choice]:
    """The space with texts to choose among read by the types of their settings, so that the ledger has numbers."""
    from rudel.recipes.load import find_recipe
    from rudel.tuning.recipe_objective import typed

    found = find_recipe(recipe)
    return {
        name: Choice(tuple(typed(found, name, each) for each in setting.values))
        if isinstance(setting, Choice)
        else setting
        for name, setting in varied.items()
    }


def _of_recipe(
    recipe: str,
    varied: Mapping[str, Any],
    fixed: Mapping[str, Any],
    monitor: str | None,
    checkpoint_every: int | None,
    **arguments: Any,
) -> tuple[Any, str]:
    from rudel.training.prepared import RecipeRequest
    from rudel.tuning.recipe_objective import recipe_objective, with_settings

    values = {name: s.values if isinstance(s, Choice) else (s.low, s.high) for name, s in varied.items()}
    return recipe_objective(with_settings(RecipeRequest(recipe, **arguments), fixed), values, monitor, checkpoint_every)


def _fingerprint(data: str | None) -> str | None:
    """A checksum of a data file."""
    if data is None or not expanded(data).is_file():
        return None
    with expanded(data).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _direction_of(monitor: str) -> Literal["minimize", "maximize"]:
    from rudel.report.formatting import better

    sign = better(monitor)
    if not sign:
        raise OptionError(
            f"Whether higher or lower `{monitor}` is better is not clear from its name: give `direction`, or another "
            "metric."
        )
    return "maximize" if sign > 0 else "minimize"


def _check_function(objective: object) -> None:
    if not callable(objective):
        raise OptionError(f"`objective` is a recipe or a function of a trial, not {objective!r}.")
    with contextlib.suppress(ValueError):
        try:
            inspect.signature(objective).bind(None)
        except TypeError as error:
            raise OptionError("`objective` is called with one argument, a trial: let it take one.") from error


def _tuned(ledger: Ledger, monitor: str, direction: str) -> Tuned:
    ended = ledger.ended()
    finished = [trial for trial in ended if trial.state == "finished" and trial.value is not None]
    sign = -1 if direction == "minimize" else 1
    best = max(finished, key=lambda trial: sign * (trial.value or 0.0), default=None)
    folder = ledger.path / "best"
    return Tuned(
        ledger.path,
        monitor,
        best.settings if best else {},
        best.value if best else None,
        folder if best and folder.is_dir() else None,
        tuple(ended),
    )
