"""The strategy `auto`: hosts are measured, every strategy is forecast on every number of them, and the best is taken.

What was forecast stays in the run directory as `plan.json`; the report compares it with what happened. A training that
is resumed goes on as it was begun. One host is taken alone by `diloco`, whose only replica has nobody to agree with.

Limits: who trains is decided once, before the first step. On other backends than JAX, nothing can be rehearsed.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rudel.backend import backend_name, keras_here
from rudel.cluster.subset import ClusterSubset
from rudel.errors import ClusterError, option
from rudel.replicas.diloco.diloco_options import Diloco
from rudel.report.formatting import duration
from rudel.runs.run_directory import check_free
from rudel.session.training_display import choose_display
from rudel.training.strategies import Auto, as_auto, named
from rudel.training.whole_run import Request, check, job_of

if TYPE_CHECKING:
    from rudel.planning.planning import Planned
    from rudel.training.strategies import Auto, Strategy

FILE = "plan.json"
"""The file of the forecasts in a run directory."""


def decided(request: Request, strategy: "Strategy | Auto | str | None") -> Request:
    """The request with strategy and hosts chosen, where the strategy is `auto` and there are hosts.

    Args:
        request: what is to be trained.
        strategy: as the user gave it.

    Raises:
        RudelError: what every training of this on these hosts would raise, before anything is measured.
    """
    auto = as_auto(strategy)
    if auto is None or request.cluster is None:
        return request
    if backend_name() != "jax":
        _note(request, f"diloco on all hosts, as nothing can be forecast on {backend_name()}")
        return request
    if request.run is not None:
        check_free(request.run, request.resume)
    check(keras_here(), request)
    if (before := _before(request)) is not None:
        return _resumed(request, before, auto)
    from rudel.planning.forecast import sole_steps
    from rudel.planning.measure_hosts import rehearsal_of

    rehearsal, began = rehearsal_of(job_of(request, {}), request.cluster), time.perf_counter()
    try:
        measured, planned = rehearsal.measure_and_plan()
    except ClusterError as error:
        why = f"as they could not be measured ({error})"
        _note(request, f"diloco on all hosts, {why}")
        return replace(request, forecast={"strategy": "diloco", "why": f"It was taken on all hosts, {why}"})
    best, options = planned.best, {}
    _note(request, summary_line(planned))
    if best.strategy == "single":
        host = next(host for host in measured.speeds if host.name in best.hosts)
        steps = sole_steps(rehearsal.work, measured.quiet * host.step, measured.links.to([host]).slowest)
        options = {"round_steps": steps}
    if best.strategy == "mesh" and auto.patience is not None:
        _note(request, f"{option('patience')} has no effect on mesh, only on diloco and async")
    document = {
        "strategy": best.strategy,
        "options": options,
        "steps": request.schedule.total_steps,
        "batch_size": request.schedule.batch_size,
        "hosts": list(best.hosts),
        "forecast": asdict(best),
        "why": planned.why,
        "forecasts": [asdict(forecast) for forecast in planned.forecasts],
        "measured": asdict(measured),
        "seconds": round(time.perf_counter() - began, 3),
    }
    there = [*(host.speed.name for host in measured.hosts), *measured.left_out]
    return _as_planned(request, document, auto, there)


def summary_line(planned: "Planned") -> str:
    """The choice and its reason, in a line.

    >>> from rudel.planning.forecast import Forecast
    >>> from rudel.planning.planning import Planned
    >>> forecast = Forecast("diloco", ("a", "b"), 10.0, 1, 0, 0, 0, 1)
    >>> summary_line(Planned((forecast,), forecast, "2 hosts are 1.9x faster."))
    'diloco on 2 hosts, about 10.0\u202fs. 2 hosts are 1.9x faster.'
    """
    best = planned.best
    hosts = "1 host" if len(best.hosts) == 1 else f"{len(best.hosts):,} hosts"
    return f"{best.strategy} on {hosts}, about {duration(best.seconds)}. {planned.why}"


def _as_planned(request: Request, plan: dict[str, Any], auto: Auto, there: Iterable[str]) -> Request:
    """The request with the strategy and the hosts of a plan, of those that are there."""
    strategy, hosts = plan["strategy"], plan["hosts"]
    options = Diloco(**plan.get("options", {})) if strategy == "single" else named(strategy, hosts=True)
    cluster = request.cluster
    if cluster is not None and set(hosts) != set(there):
        cluster = ClusterSubset(cluster, hosts)
    return replace(request, strategy=auto.given_to(options), cluster=cluster, forecast=plan)


def _before(request: Request) -> dict[str, Any] | None:
    """The decision at the beginning of the run that is resumed."""
    if not request.resume or request.run is None:
        return None
    for name in (FILE, "config.json"):
        try:
            document = json.loads((request.run / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(document, dict) and document.get("strategy"):
            return document
    return None


def _note(request: Request, text: str) -> None:
    """Says what was chosen; also where standard error is not a terminal."""
    choose_display(request.verbose, on_hosts=True).note(f"auto: {text}")


def _resumed(request: Request, before: dict[str, Any], auto: Auto) -> Request:
    """The same strategy, on those of the same hosts that are there."""
    strategy = "diloco" if before["strategy"] == "single" else before["strategy"]
    everybody = replace(request, strategy=auto.given_to(named(strategy, hosts=True)))
    if not before.get("forecast"):
        return everybody
    assert request.cluster is not None
    there = request.cluster.background.start(request.cluster.fleet.members()).result()
    if any(name in there for name in before["hosts"]):
        return _as_planned(request, before, auto, there)
    gone = ", ".join(before["hosts"])
    _note(request, f"{strategy} on all hosts, as none of those that were chosen is available ({gone})")
    return replace(everybody, forecast=before)
