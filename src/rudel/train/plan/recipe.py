"""What `rudel plan` looks at: a recipe, on hosts that there are or on some that are only thought of."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rudel.backend import keras_on_jax
from rudel.train import state as model_state
from rudel.train.diloco.options import Diloco
from rudel.train.display import choose_display
from rudel.train.places import place
from rudel.train.plan.forecast import Work
from rudel.train.plan.measure import Measured, Nowhere, Rehearsal
from rudel.train.plan.planning import Planned, plan
from rudel.train.plan.scenario import Scenario, parse
from rudel.train.prepared import Asked, Prepared, prepare
from rudel.train.runs import Request, job_of


@dataclass(frozen=True)
class Outlook:
    """What there is, and what can be done with it.

    Args:
        work: what is to be trained.
        measured: hosts that there are; None where they are only thought of.
        scenario: those that are; None where there are some.
        planned: all strategies, and the best.
        seconds: that looking took, the recipe's data and model apart.
    """

    work: Work
    measured: Measured | None
    scenario: Scenario | None
    planned: Planned
    seconds: float


def look(
    asked: Asked,
    *,
    on: Any = None,
    cluster: Any = None,
    client: Any = None,
    scenario: str | None = None,
    ssh_config: str | Path | None = None,
) -> Outlook:
    """Measures hosts, or this computer, and forecasts the training of a recipe.

    Args:
        asked: the recipe, and how it is to be trained.
        on, cluster, client, ssh_config: hosts to measure; see `rudel.train_recipe`.
        scenario: hosts that are only thought of; see `rudel.train.plan.scenario.parse`.

    Raises:
        RudelError: hosts that cannot be used, a recipe or a scenario that cannot be read.
    """
    thought_of = None if scenario is None else parse(scenario)
    made = prepare(asked)
    began = time.perf_counter()
    if thought_of is not None:
        rehearsal = _rehearsal(made, Nowhere(thought_of.hosts), asked.seed)
        work, here = _work(made), rehearsal.here()
        planned = plan(work, thought_of.speeds(here, asked.seed), thought_of.links)
        return Outlook(work, None, thought_of, planned, time.perf_counter() - began)
    with place(on, cluster, client, "diloco", ssh_config) as (where, _):
        measured = _rehearsal(made, where, asked.seed).measure()
    work = _work(made)
    planned = plan(work, [host.speed for host in measured.hosts], measured.links)
    return Outlook(work, measured, None, planned, time.perf_counter() - began)


def _rehearsal(made: Prepared, where: Any, seed: int) -> Rehearsal:
    request = Request(made.model, made.dataset, **made.plan, seed=seed, about=made.about)
    job = replace(job_of(request, made.schedule, {}), validation=None)
    display, began = choose_display(False), time.perf_counter()
    return Rehearsal(keras_on_jax(), job, None, None, display, began, cluster=where, options=Diloco())


def _work(made: Prepared) -> Work:
    state = model_state.read(made.model)
    weights = sum(value.nbytes for value in state.trainable)
    whole = weights + sum(value.nbytes for value in (*state.non_trainable, *state.optimizer))
    return Work(made.schedule.total_steps, made.schedule.batch_size, weights, whole)
