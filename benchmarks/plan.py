"""What `rudel plan` says beside what then happens, on 1, 2 and 4 nodes of a pretend Wi-Fi (see `rudel lab`).

    sudo python benchmarks/plan.py --data FOLDER --python PY --json plan.json
    sudo python benchmarks/plan.py --data FOLDER --python PY --json plan.json --only mlp@20/plan,mlp@20/diloco-4

A place is a net at a number of Mbit/s: `mlp@20`, `mlp@100`, `cnn@20`, `cnn@100`. The MLP takes 8,192 steps of batch 32,
the convolutional net 480. In every place:

| measured | what it is |
| --- | --- |
| plan | `rudel plan` of four nodes: what it predicts of every strategy, on every number of them |
| single-1 | `rudel plan` of one node, and then `rudel train` on it, by itself |
| diloco-N, async-N | `rudel plan` of N nodes, and then a training on them by that strategy |
| mesh-N | the same, with few steps, since each of them takes so long; the prediction is for as many |
| auto-N | a training on N nodes by the strategy `auto`, which may take fewer |

A training is compared with what was predicted right before it: computers whose cores are shared with others, as those
of a cloud are, are 20 % faster in one minute than in another.

N nodes of `diloco` are simulated, too, as `--simulate` does it: all of them as fast as the median node, on a network of
which only the rate and the latency are known.

Time is `train_seconds`: from the first step to the last, without set-up and evaluation. Everything in a place that is
measured by one call is measured in one lab. What --json holds already is not measured again.
"""

import json as json_format
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import cluster_measure as measures
import typer
from claims import Verdict
from cluster_job import BATCH_SIZE, CLASSES, ClusterJob
from cluster_record import begun, busy_cores, end_on_sigterm, keep, say, undisturbed, wide_console
from cluster_site import Air, Site, lab_site
from measure import BenchmarkError, Numbers
from rich.console import Console
from rich.table import Table
from show import claims_table

import rudel
from rudel.errors import RudelError

PLACES = ("mlp@20", "mlp@100", "cnn@20", "cnn@100")
MEASURED = (
    *("plan", "single-1", "diloco-2", "diloco-4", "async-2", "async-4"),
    *("mesh-2", "mesh-4", "auto-2", "auto-4"),
)
STEPS, CNN_STEPS, MESH_STEPS = 8192, 480, 48
NODES, CPU, NEVER = 4, 0.25, 10**9

WITHIN, MEDIAN_WITHIN, AUTO_WITHIN = 0.2, 0.1, 1.1


def main(
    data: Annotated[Path, typer.Option(help="Folder with drawings in Quick, Draw!'s layout.")],
    python: Annotated[str | None, typer.Option(help="Interpreter with Rudel on the nodes.")] = None,
    only: Annotated[str, typer.Option(help="What to measure, as PLACE/NAME,...  [default: all]")] = "",
    latency: Annotated[float, typer.Option(help="Milliseconds one way.")] = 1.5,
    cpu: Annotated[float, typer.Option(help="Cores of a node.")] = CPU,
    seed: Annotated[int, typer.Option(help="Of weights, dropout and order.")] = 0,
    prefix: Annotated[str, typer.Option(help="What names of the lab's nodes begin with.")] = "plan",
    subnet: Annotated[str, typer.Option(help="First three numbers of the lab's addresses.")] = "10.98.0",
    json: Annotated[Path | None, typer.Option(help="File for the numbers, written after every measurement.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure anew what --json has already.")] = False,
) -> None:
    """Compare forecasts with trainings."""
    end_on_sigterm()
    job = ClusterJob(data.resolve(), CLASSES.split(","), STEPS * BATCH_SIZE, CNN_STEPS * BATCH_SIZE)
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    wanted = wanted or [f"{place}/{name}" for place in PLACES for name in MEASURED]
    try:
        document = begun(json, "plan", {"latency": latency, "cpu": cpu}, [seed])
        results = document["rounds"][0]
        for place in dict.fromkeys(name.partition("/")[0] for name in wanted):
            names = [n for n in wanted if n.partition("/")[0] == place and (again or n not in results)]
            if not names:
                continue
            net, _, rate = place.partition("@")
            nodes = max(NODES, *(_nodes(name) for name in names))
            busy = busy_cores()
            with lab_site([cpu] * nodes, Air(float(rate), latency), python or sys.executable, prefix, subnet) as site:
                for name in names:
                    measure = partial(measured, site, job, net, name.partition("/")[2], seed)
                    _take(measure, name, busy, results, document["failures"])
                    keep(document, json)
    except (BenchmarkError, RudelError) as error:
        sys.exit(str(error))
    document["claims"] = [asdict(verdict) for verdict in verdicts(document)]
    keep(document, json)
    show(wide_console(), document)
    if document["failures"]:
        raise typer.Exit(1)


def measured(site: Site, job: ClusterJob, net: str, name: str, seed: int) -> Numbers:
    """One measurement.

    Raises:
        BenchmarkError: there is no such one.
    """
    what, count = name.partition("-")[0], _nodes(name)
    if what == "plan":
        return planned(site, job, net, seed, NODES)
    if what == "single":
        return {"plan": planned(site, job, net, seed, 1)} | measures.rudel_alone(site, job, seed, net)
    if what in ("diloco", "async", "mesh", "auto"):
        return trained(site, job, net, what, count, seed)
    raise BenchmarkError(f"There is nothing called {name}: there are {', '.join(MEASURED)}, mesh-N and the like.")


def planned(site: Site, job: ClusterJob, net: str, seed: int, count: int) -> Numbers:
    """What `rudel plan` predicts of so many nodes, by strategy and number of hosts."""
    with _cluster(site, count) as cluster:
        return _looked(cluster, job, net, seed)


def _looked(cluster: Any, job: ClusterJob, net: str, seed: int) -> Numbers:
    from rudel.training.plan_recipe import plan_recipe
    from rudel.training.prepared import RecipeRequest

    request = RecipeRequest("quickdraw", str(job.data), _options(job, net), steps=job.steps(net), seed=seed)
    outlook = plan_recipe(request, cluster=cluster)
    assert outlook.measured
    forecasts = {f"{f.strategy}-{len(f.hosts)}": f.seconds for f in outlook.planned.forecasts}
    return {
        "predicted": forecasts,
        "best": f"{outlook.planned.best.strategy}-{len(outlook.planned.best.hosts)}",
        "why": outlook.planned.why,
        "look_seconds": outlook.seconds,
        "steps": outlook.work.steps,
        "work": asdict(outlook.work),
        "measured": asdict(outlook.measured),
    }


def trained(site: Site, job: ClusterJob, net: str, strategy: str, count: int, seed: int) -> Numbers:
    """A training on so many nodes."""
    steps, saved = (MESH_STEPS, NEVER) if strategy == "mesh" else (job.steps(net), None)
    with tempfile.TemporaryDirectory() as folder, _cluster(site, count) as cluster:
        run = Path(folder) / "run"
        found = {} if strategy == "auto" else {"plan": _looked(cluster, job, net, seed)}
        summary = rudel.train_recipe(
            "quickdraw", data=str(job.data), options=_options(job, net), steps=steps, seed=seed, run=run,
            cluster=cluster, strategy=strategy, eval_every=NEVER, checkpoint_every=saved,
            verbose=False,
        ).summary  # fmt: skip
        rounds = measures.lines_of(run / "rounds.jsonl")
        plan = run / "plan.json"
        forecast = json_format.loads(plan.read_text()) if plan.is_file() else None
    return found | {
        "train_seconds": summary["train_seconds"],
        "steps": steps,
        "accuracy": summary["metrics"]["val_accuracy"],
        "strategy": summary["strategy"],
        "hosts": len(summary["hosts"]),
        "options": summary.get("strategy_options"),
        "rounds": summary.get("rounds"),
        "setup_seconds": summary["setup_seconds"],
        "sent": summary.get("bytes_sent", 0) + summary.get("bytes_received", 0),
        "log": rounds,
        "forecast": forecast,
    }


def _cluster(site: Site, count: int) -> Any:
    return rudel.Cluster(list(site.hosts[:count]), ssh_config=site.ssh_config)


def _options(job: ClusterJob, net: str) -> dict[str, str]:
    return {"classes": ",".join(job.classes), "net": net}


def _nodes(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdigit() else 1


def _take(measure: Any, name: str, busy: float, results: dict[str, Numbers], failures: list[str]) -> None:
    say(name)
    began = time.perf_counter()
    try:
        found = undisturbed(measure)
    except (BenchmarkError, RudelError) as error:
        failures.append(f"{name} could not be measured: {error}")
        say(f"  {failures[-1]}")
        return
    results[name] = {"busy_cores_before": busy, "job_seconds": time.perf_counter() - began} | found
    say(f"  {found.get('train_seconds', found.get('predicted'))} ({time.perf_counter() - began:.0f} s in all)")


def cells(results: Mapping[str, Numbers]) -> Iterator[tuple[str, float, float]]:
    """Name, predicted and measured seconds of every training that was both predicted and measured."""
    for name, numbers in results.items():
        what = name.partition("/")[2]
        if what.startswith("auto"):
            yield name, numbers["forecast"]["forecast"]["seconds"], numbers["train_seconds"]
        elif plan := numbers.get("plan"):
            share = numbers["steps"] / plan["steps"] if what.startswith("mesh") else 1.0
            yield name, plan["predicted"][what] * share, numbers["train_seconds"]


def simulated(document: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Name, simulated and measured seconds of every training by `diloco`."""
    from rudel.planning.forecast import Speed, Work
    from rudel.planning.planning import in_rounds
    from rudel.planning.scenario import Scenario

    results = document["rounds"][0]
    for name, numbers in results.items():
        place, _, what = name.partition("/")
        if not what.startswith("diloco-"):
            continue
        plan = numbers["plan"]
        speeds = [Speed(**{**host["speed"], "tried": None}) for host in plan["measured"]["hosts"]]
        median = sorted(speeds, key=lambda speed: speed.step)[len(speeds) // 2]
        scenario = Scenario(_nodes(what), float(place.partition("@")[2]), document["job"]["latency"])
        hosts = scenario.speeds(replace(median, message=statistics.fmean(speed.message for speed in speeds)))
        yield name, in_rounds(Work(**plan["work"]), hosts, scenario.links).seconds, numbers["train_seconds"]


def judged(results: Mapping[str, Numbers]) -> list[tuple[str, float, float]]:
    """The 12 cells: one node by itself; two and four by `diloco`."""
    return [cell for cell in cells(results) if cell[0].partition("/")[2] in ("single-1", "diloco-2", "diloco-4")]


def choices(results: Mapping[str, Numbers]) -> Iterator[tuple[str, str, float]]:
    """Cell, what `auto` took, and its seconds over those of the best strategy that was measured there."""
    for name, numbers in results.items():
        place, _, what = name.partition("/")
        if not what.startswith("auto-"):
            continue
        count = _nodes(what)
        others = [
            other["train_seconds"]
            for key, other in results.items()
            if key.partition("/")[0] == place
            and "train_seconds" in other
            and _nodes(key) <= count
            and not key.partition("/")[2].startswith(("auto", "mesh"))
        ]
        if others:
            yield name, f"{numbers['strategy']}-{numbers['hosts']}", numbers["train_seconds"] / min(others)


def verdicts(document: Mapping[str, Any]) -> list[Verdict]:
    """A verdict on every claim."""
    results = document["rounds"][0]
    apart = [abs(seconds / measured - 1) for _, seconds, measured in simulated(document)]
    off = [abs(predicted / seconds - 1) for _, predicted, seconds in judged(results)]
    worse = [ratio for _, _, ratio in choices(results)]
    plans = [numbers.get("plan") or numbers for numbers in results.values()]
    looks = [plan["look_seconds"] for plan in plans if "look_seconds" in plan]

    def verdict(text: str, found: Sequence[float], number: Any, most: float) -> Verdict:
        value = number(found) if found else None
        return Verdict(text, value, None if value is None else value <= most)

    return [
        verdict(f"forecasts of {len(off)} cells are off by at most 20 %: the largest", off, max, WITHIN),
        verdict("off by at most 10 %: the median", off, statistics.median, MEDIAN_WITHIN),
        verdict(f"`auto` takes at most 1.1 times the best of {len(worse)} cells: the most", worse, max, AUTO_WITHIN),
        verdict(f"simulations of {len(apart)} trainings are off by at most 15 %: the largest", apart, max, 0.15),
        verdict("looking at four hosts takes at most 15 s", looks, max, 15.0),
    ]


def show(console: Console, document: Mapping[str, Any]) -> None:
    """Prints the tables."""
    results = document["rounds"][0]
    table = Table("", "predicted, s", "measured, s", "off by", title="forecasts")
    for name, predicted, seconds in cells(results):
        table.add_row(name, f"{predicted:.2f}", f"{seconds:.2f}", f"{predicted / seconds - 1:+.0%}")
    console.print(table)
    table = Table("", "simulated, s", "measured, s", "off by", title="simulations")
    for name, predicted, seconds in simulated(document):
        table.add_row(name, f"{predicted:.2f}", f"{seconds:.2f}", f"{predicted / seconds - 1:+.0%}")
    console.print(table)
    table = Table("", "took", "over the best", title="auto")
    for name, took, ratio in choices(results):
        table.add_row(name, took, f"{ratio:.2f}")
    console.print(table)
    if document["claims"]:
        console.print(claims_table(document["claims"]))
    for failure in document["failures"]:
        console.print(failure, highlight=False)


if __name__ == "__main__":
    typer.run(main)
