"""The strategy `async` on four nodes of which one has a tenth of the others' cores, in a pretend Wi-Fi (`rudel lab`).

    sudo python benchmarks/asynchronous.py --data FOLDER --python PY --json async.json

Measured are, for every seed: a fast node and the slow one, each alone (the strategy `single`); then `async` and
`diloco` on all four, on the article's job (see `cluster.py`): the MLP, 262,144 drawings. Clocks run from the first
step, when everything is compiled and where it is needed, to the last.

Nodes alone are measured one after the other, and all at the same time, each by itself. In a lab, nodes share a
computer: with three on two cores, each is slower than by itself, though they have nothing to do with each other.

Programs start at a fast node's speed and compile there; the slow node is made slow before anything is measured, and
before the strategies measure how fast the nodes are. To start Python and JAX on a fortieth of a core takes minutes, and
shows nothing. Everybody evaluates at the end only.

| claim | |
| --- | --- |
| samples a second of `async` | at least 95 % of the sum of the nodes' speeds, each measured alone; both ways |
| accuracy of `async` | at most a point below that of `diloco` |
"""

import contextlib
import json as documents
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from cluster_job import BATCH_SIZE, CLASSES, SAMPLES, ClusterJob
from cluster_measure import lines_of, send_programs, waited
from cluster_record import begun, busy_cores, end_on_sigterm, keep, say
from cluster_site import Air, Program, Site, lab_site, start_on_node
from measure import BenchmarkError, Numbers

import rudel
from rudel.errors import RudelError

FAST, SLOW = 0.25, 0.025
"""Cores. All nodes together leave one of the two for what carries their bytes and for the coordinator; at 0.4 they do
not, and what is measured is how nodes of one computer disturb each other.
"""

NODES = 4
ALONE = "alone_after.py"
FAST_ALONE, SLOW_ALONE, ALL_ALONE = "fast alone", "slow alone", "all for themselves"
_LEAST_SHARE, _MOST_LOST = 0.95, 0.01


def main(
    data: Annotated[Path, typer.Option(help="Folder with drawings in Quick, Draw!'s layout.")],
    python: Annotated[str, typer.Option(help="Interpreter with Rudel on the nodes of the lab.")] = sys.executable,
    seeds: Annotated[str, typer.Option(help="A round for each.")] = "0,1,2",
    strategies: Annotated[str, typer.Option(help="What trains on all nodes.")] = "async,diloco",
    classes: Annotated[str, typer.Option(help="Names of classes, separated by commas.")] = CLASSES,
    samples: Annotated[int, typer.Option(help="Examples to learn from.")] = SAMPLES,
    rate: Annotated[float, typer.Option(help="Mbit/s of the network.")] = 100.0,
    latency: Annotated[float, typer.Option(help="Milliseconds one way.")] = 1.5,
    prefix: Annotated[str, typer.Option(help="What names of the lab's nodes begin with.")] = "async",
    subnet: Annotated[str, typer.Option(help="First three numbers of the lab's addresses.")] = "10.96.0",
    runs: Annotated[Path | None, typer.Option(help="Folder to keep the run directories in.")] = None,
    json: Annotated[Path | None, typer.Option(help="File for the numbers.")] = None,
) -> None:
    """Measure nodes of very different speeds, alone and together."""
    end_on_sigterm()
    job = ClusterJob(data.resolve(), [name.strip() for name in classes.split(",")], samples)
    about = {"classes": job.classes, "samples": samples, "cpu": [*[FAST] * (NODES - 1), SLOW], "rate": rate}
    try:
        document = begun(json, "async", about, [int(seed) for seed in seeds.split(",")])
        with (
            lab_site([FAST] * NODES, Air(rate, latency), python, prefix, subnet) as site,
            by_themselves(site, job, python) as programs,
            together(site) as cluster,
        ):
            train(cluster, job, "diloco", 0, 512)
            site.lab.set_cpu(site.lab.hosts[-1], SLOW)
            for seed, found in zip(document["seeds"], document["rounds"], strict=True):
                found["busy_cores_before"] = {"cores": busy_cores()}
                for name, node in ((FAST_ALONE, 0), (SLOW_ALONE, NODES - 1)):
                    found[name] = side_by_side(name, programs[node : node + 1], job.steps("mlp") // 2)
                found[ALL_ALONE] = side_by_side(ALL_ALONE, programs, job.steps("mlp") // 2)
                for strategy in strategies.split(","):
                    kept = runs / f"{strategy}-{seed}" if runs else None
                    found[strategy] = train(cluster, job, strategy, seed, job.steps("mlp"), kept)
                    keep(document, json)
    except (BenchmarkError, RudelError) as error:
        sys.exit(str(error))
    for line in findings(document["rounds"]):
        print(line)


@dataclass(frozen=True)
class Alone:
    """A program on a node that trains there when it is told to.

    Args:
        program: the connection to it.
        share: its cores, as a share of a fast node's.
    """

    program: Program
    share: float


@contextlib.contextmanager
def by_themselves(site: Site, job: ClusterJob, python: str) -> Iterator[list[Alone]]:
    """A program on every node."""
    programs: list[Alone] = []
    try:
        for node in range(NODES):
            send_programs(site, node, ALONE)
            site.send_once(node, "drawings", job.content, lambda: job.files)
            given = {"data": "drawings", "classes": ",".join(job.classes), "seed": 0}
            program = start_on_node(site, node, ALONE, python, python, ALONE, documents.dumps(given))
            programs.append(Alone(program, SLOW / FAST if node == NODES - 1 else 1.0))
        for each in programs:
            each.program.wait_for("ready", 300.0)
        yield programs
    finally:
        for each in programs:
            each.program.end()


def side_by_side(name: str, programs: Sequence[Alone], steps: int) -> Numbers:
    """Trainings of nodes that have nothing to do with each other, at the same time.

    Args:
        name: what it is called.
        programs: of the nodes.
        steps: that a fast one takes; the slow one takes so many fewer that it needs about as long.
    """
    for each in programs:
        each.program.tell(f"go {max(64, round(0.7 * each.share * steps) if each.share < 1 else steps)}")
    answers = [each.program.wait_for("done", 600.0) for each in programs]
    rates = [one["samples"] / one["train_seconds"] for one in answers]
    say(f"{name}: {sum(rates):,.0f} examples/s")
    return {"samples_per_second": sum(rates), "each": rates}


@contextlib.contextmanager
def together(site: Site) -> Iterator[Any]:
    """All nodes as a cluster."""
    with site.hosts_file(NODES) as hosts, rudel.Cluster(str(hosts), ssh_config=site.ssh_config) as cluster:
        yield cluster


def train(cluster: Any, job: ClusterJob, strategy: str, seed: int, steps: int, kept: Path | None = None) -> Numbers:
    """A training on all nodes."""
    options = {"classes": ",".join(job.classes)}
    with tempfile.TemporaryDirectory() as folder:
        run = kept or Path(folder) / "run"
        summary = rudel.train_recipe(
            "quickdraw", data=str(job.data), options=options, steps=steps, seed=seed, run=run, cluster=cluster,
            strategy=strategy, eval_every=10**9, verbose=False,
        ).summary  # fmt: skip
        lines = lines_of(run / "rounds.jsonl")
    hosts: dict[str, int] = {}
    for line in lines:
        for name, host in line.get("hosts", {}).items():
            hosts[name] = hosts.get(name, 0) + host["steps"]
    numbers = {name: summary[name] for name in ("train_seconds", "samples", "bytes_sent", "bytes_received")}
    numbers |= {"samples": BATCH_SIZE * sum(hosts.values()), "steps_of": hosts, "waited": waited(lines)}
    numbers |= {"accuracy": summary["metrics"]["val_accuracy"], "options": summary["strategy_options"]}
    say(
        f"{strategy}, seed {seed}: {numbers['samples'] / numbers['train_seconds']:,.0f} examples/s, accuracy "
        f"{numbers['accuracy']:.4f}, waited {numbers['waited']:.1%}, {numbers['train_seconds']:.2f} s, steps {hosts}"
    )
    return numbers


def findings(rounds: Sequence[Mapping[str, Numbers]]) -> Iterator[str]:
    """What the numbers say of the claims. Speeds are compared within a round, which is close in time."""
    accuracy: dict[str, float] = {}
    whole = [numbers for numbers in rounds if {FAST_ALONE, SLOW_ALONE, ALL_ALONE, "async", "diloco"} <= numbers.keys()]
    for name in ("async", "diloco") if whole else ():
        accuracy[name] = statistics.fmean(numbers[name]["accuracy"] for numbers in whole)
        for what, total in (("one after the other", one_by_one), ("at the same time", at_once)):
            shares = [speed(numbers[name]) / total(numbers) for numbers in whole]
            shown = ", ".join(f"{share:.1%}" for share in shares)
            verdict = f": {yes(statistics.median(shares) >= _LEAST_SHARE)}" if name == "async" else ""
            yield (
                f"{name} reaches {statistics.median(shares):.1%} of the sum of the nodes' speeds, measured {what} "
                f"({shown}){verdict}"
            )
    if len(accuracy) == 2:
        verdict = yes(accuracy["diloco"] - accuracy["async"] <= _MOST_LOST)
        yield f"accuracy {accuracy['async']:.4f} with async, {accuracy['diloco']:.4f} with diloco: {verdict}"


def speed(numbers: Numbers) -> float:
    """Samples a second."""
    return numbers["samples"] / numbers["train_seconds"]


def one_by_one(numbers: Mapping[str, Numbers]) -> float:
    """Samples a second of all nodes, had each a computer of its own."""
    fast, slow = (numbers[name]["samples_per_second"] for name in (FAST_ALONE, SLOW_ALONE))
    return (NODES - 1) * fast + slow


def at_once(numbers: Mapping[str, Numbers]) -> float:
    """Samples a second of all nodes, each by itself, at the same time."""
    return numbers[ALL_ALONE]["samples_per_second"]


def yes(holds: bool) -> str:
    """Whether a claim holds, in a word."""
    return "as claimed" if holds else "NOT as claimed"


if __name__ == "__main__":
    typer.run(main)
