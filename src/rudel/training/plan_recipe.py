"""The plan of a recipe, as `rudel plan` prints it: on real hosts, or on hosts that are only described."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rudel.backend import keras_here
from rudel.cluster.host_options import check_used
from rudel.planning.forecast import Work
from rudel.planning.measure_hosts import Measured, Nowhere, Rehearsal, rehearsal_of
from rudel.planning.planning import Planned, plan
from rudel.planning.scenario import Scenario, parse
from rudel.session.training_options import TrainingOptions
from rudel.training.places import place
from rudel.training.prepared import Prepared, RecipeRequest, prepare
from rudel.training.whole_run import Request, check, job_of

if TYPE_CHECKING:
    from distributed import Client

    from rudel.cluster.running_cluster import Hosts, RunningCluster


@dataclass(frozen=True)
class Outlook:
    """The hosts, and the forecasts for them.

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


def plan_recipe(
    request: RecipeRequest,
    *,
    on: "Hosts | None" = None,
    cluster: "RunningCluster | None" = None,
    client: "Client | str | None" = None,
    scenario: str | None = None,
    ssh_config: str | Path | None = None,
) -> Outlook:
    """Measures hosts, or this computer, and forecasts the training of a recipe.

    Args:
        request: the recipe, and how it is to be trained.
        on, cluster, client, ssh_config: hosts to measure; see `rudel.train_recipe`.
        scenario: hosts that are only thought of; see `rudel.planning.scenario.parse`.

    Raises:
        RudelError: hosts that cannot be used, a recipe or a scenario that cannot be read.
    """
    check_used(on, client, ssh_config=ssh_config)
    thought_of = None if scenario is None else parse(scenario)
    made = prepare(request)
    began = time.perf_counter()
    if thought_of is not None:
        rehearsal = _rehearsal(made, Nowhere(thought_of.hosts))
        here = rehearsal.here()
        planned = plan(rehearsal.work, thought_of.speeds(here, request.seed), thought_of.links, rehearsal.desk())
        return Outlook(rehearsal.work, None, thought_of, planned, time.perf_counter() - began)
    with place(on, cluster, client, "diloco", ssh_config) as (where, _):
        rehearsal = _rehearsal(made, where)
        measured, planned = rehearsal.measure_and_plan()
    return Outlook(rehearsal.work, measured, None, planned, time.perf_counter() - began)


def _rehearsal(made: Prepared, where: "RunningCluster | Nowhere") -> Rehearsal:
    request = Request(
        made.model, made.dataset, made.schedule, TrainingOptions(**made.plan, seed=made.schedule.seed), about=made.about
    )
    check(keras_here(), request)
    return rehearsal_of(job_of(request, {}), where)
