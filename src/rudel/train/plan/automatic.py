"""The strategy `auto`: hosts are measured, every strategy is forecast on every number of them, and the best is taken.

What was forecast stays in the run directory as `plan.json`; the report compares it with what happened. A training that
is resumed goes on as it was begun. One host is taken alone by `diloco`, whose only replica has nobody to agree with.

Limits: who trains is decided once, before the first step. On other backends than JAX, nothing can be rehearsed.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rudel.backend import backend_name
from rudel.cluster.part import Part
from rudel.errors import ClusterError
from rudel.train.diloco.options import Diloco
from rudel.train.display import choose_display
from rudel.train.runs import Request, job_of
from rudel.train.schedule import plan_schedule
from rudel.train.strategy import named

if TYPE_CHECKING:
    from rudel.train.plan.planning import Planned

FILE = "plan.json"
"""Where a run directory keeps what was forecast."""

_SOLE_SECONDS = 5.0
"""A single host tells about so often how far it is."""


def decided(request: Request, strategy: Any) -> Request:
    """The request with strategy and hosts chosen, where `auto` was asked for and there are hosts.

    Args:
        request: what is to be trained.
        strategy: as the user gave it.

    Raises:
        ClusterError, ModelError: what every training on these hosts would raise.
    """
    if strategy != "auto" or request.cluster is None or backend_name() != "jax":
        return request
    from rudel.train.plan.measure import rehearsal_of

    display = choose_display(request.verbose)
    if (before := _before(request)) is not None:
        return _resumed(request, before)
    schedule = plan_schedule(
        len(request.dataset.train), request.batch_size, request.epochs, request.steps, request.seed, request.shuffle
    )
    rehearsal, began = rehearsal_of(job_of(request, schedule, {}), request.cluster), time.perf_counter()
    try:
        measured, planned = rehearsal.look()
    except ClusterError as error:
        display.note(f"auto: diloco on all hosts, as they could not be measured ({error})")
        return request
    finally:
        rehearsal.close()
    best = planned.best
    step = next(host.speed.step for host in measured.hosts if host.speed.name == best.hosts[0])
    display.note(f"auto: {told(planned)}")
    document = {
        "strategy": best.strategy,
        "hosts": list(best.hosts),
        "forecast": asdict(best),
        "why": planned.why,
        "forecasts": [asdict(forecast) for forecast in planned.forecasts],
        "measured": asdict(measured),
        "seconds": round(time.perf_counter() - began, 3),
    }
    options = _options(best.strategy, step, schedule.total_steps)
    return replace(request, strategy=options, cluster=_part(request.cluster, best.hosts), forecast=document)


def told(planned: "Planned") -> str:
    """What was chosen, and why, in a line.

    >>> from rudel.train.plan.forecast import Forecast
    >>> from rudel.train.plan.planning import Planned
    >>> forecast = Forecast("diloco", ("a", "b"), 10.0, 1, 0, 0, 0, 1)
    >>> told(Planned((forecast,), forecast, "2 hosts are 1.9 times as fast."))
    'diloco on 2 hosts, about 10 s. 2 hosts are 1.9 times as fast.'
    """
    best = planned.best
    hosts = "1 host" if len(best.hosts) == 1 else f"{len(best.hosts):,} hosts"
    return f"{best.strategy} on {hosts}, about {best.seconds:.3g} s. {planned.why}"


def _options(strategy: str, step: float, total_steps: int) -> Any:
    """Options of what was chosen. Exchanges of a single host serve nobody, so they are few."""
    if strategy == "single":
        return Diloco(round_steps=max(1, min(total_steps, round(_SOLE_SECONDS / step))))
    return named(strategy, hosts=True)


def _part(cluster: Any, hosts: tuple[str, ...]) -> Any:
    return cluster if len(hosts) == cluster.count else Part(cluster, hosts)


def _before(request: Request) -> dict[str, Any] | None:
    """What was decided when the run that is resumed began."""
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


def _resumed(request: Request, before: dict[str, Any]) -> Request:
    """The same strategy, on those of the same hosts that are there."""
    forecast = before.get("forecast")
    if forecast is None:
        strategy = before["strategy"]
        return replace(request, strategy=named("diloco" if strategy == "single" else strategy, hosts=True))
    speeds: Callable[[str], float] = {h["speed"]["name"]: h["speed"]["step"] for h in before["measured"]["hosts"]}.get  # type: ignore[assignment]
    hosts = tuple(before["hosts"])
    options = _options(before["strategy"], speeds(hosts[0]) or 1.0, 2**31)
    return replace(request, strategy=options, cluster=_part(request.cluster, hosts), forecast=before)
