"""Several computers: Rudel on one node and on more, and its rivals on four, in a pretend Wi-Fi (see `rudel lab`).

    python benchmarks/cluster.py --data FOLDER --python PY --rival-python PY --json cluster.json
    python benchmarks/cluster.py --data FOLDER --hosts HOSTSFILE --rival-python PY --json own.json    on your own

Every contestant does the article's job: the MLP 784-256-n with dropout 0.2 and Adam learns 262,144 drawings, and the
same drawings are held out for all. Initial weights are drawn as Keras does it. Rivals that average weights every 256
steps have twice the article's learning rate, which is better for them by a point (Rudel does that by itself). The clock
runs from the first step, when all programs and data are where they are needed and everything is compiled, to the last
synchronised weights; how accurate these are is found afterwards. Bytes are those of the frames on the air, counted by
the lab while the clock runs. A round has one seed; rivals and the CNN take part in the first.

| contestant | what it is | s |
| --- | --- | --- |
| rudel-node | `rudel train` on one node: the strategy `single` | 20 |
| rudel-1, rudel-2, rudel-4 | `rudel train --on` that many nodes, as it is when nothing is set | 15 |
| rudel-node-cnn, rudel-4-cnn | the same with `--set net=cnn` | 500, 200 |
| rudel-slow-node, rudel-uneven | one node at 0.2 core; two at 0.4 and two at 0.2 together | 30, 20 |
| torch-postlocalsgd | PyTorch, local SGD with an average every 256 steps | 30 |
| torch-ddp | PyTorch's DistributedDataParallel: a part of the steps, extrapolated | 45 |
| tf-mwms | tf_keras under MultiWorkerMirroredStrategy, the article's way: a part of the steps, extrapolated | 60 |
| flower | Flower, FedAvg by SuperLink and SuperNodes, 8 rounds of 256 steps | 100 |
| flower-legacy | the same by `start_server` and `start_client`, which Flower has deprecated | 25 |

`NAME@RATE` is a contestant at that many Mbit/s. On your own computers there is one network, so names have no rate,
nobody counts frames, and no claim is judged. What --json holds already is not measured again.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import cluster_flower
import cluster_measure as measures
import typer
from cluster_claims import share_of_speeds, verdicts
from cluster_job import CLASSES, CNN_SAMPLES, SAMPLES, ClusterJob
from cluster_record import begun, busy_cores, end_on_sigterm, keep, measured_names, say, undisturbed, wide_console
from cluster_show import plot as draw
from cluster_show import results_table
from cluster_site import Air, Site, lab_site, own_site
from measure import BenchmarkError, Numbers
from rich.console import Console
from show import claims_table

from rudel.errors import RudelError

EVEN, UNEVEN, SLOW = (0.4, 0.4, 0.4, 0.4), (0.4, 0.4, 0.2, 0.2), (0.2,)
LOCAL_STEPS = 256


@dataclass(frozen=True)
class Pythons:
    """Interpreters.

    Args:
        nodes: on the nodes, with Rudel; None for the one that `rudel hosts setup` makes.
        rivals: on the nodes, with the rivals.
        desktop: on this computer, with Flower.
    """

    nodes: str | None
    rivals: str
    desktop: str


@dataclass(frozen=True)
class Entry:
    """A contestant.

    Args:
        measure: (site, job, seed, pythons) -> numbers.
        cpu: cores of the nodes in its lab.
        every_seed: False for those that take part in the first round only.
    """

    measure: Callable[[Site, ClusterJob, int, Pythons], Numbers]
    cpu: Sequence[float] = EVEN
    every_seed: bool = True


def _alone(net: str = "mlp") -> Callable[..., Numbers]:
    return lambda site, job, seed, _: measures.rudel_alone(site, job, seed, net)


def _spread(nodes: int, net: str = "mlp") -> Callable[..., Numbers]:
    return lambda site, job, seed, _: measures.rudel_spread(site, job, seed, net, nodes)


def _rival(script: str, **settings: Any) -> Entry:
    def measured(site: Site, job: ClusterJob, seed: int, pythons: Pythons) -> Numbers:
        return measures.rival(site, job, seed, script, pythons.rivals, **settings)

    return Entry(measured, every_seed=False)


def _flower(way: Callable[..., Numbers]) -> Entry:
    def measured(site: Site, job: ClusterJob, seed: int, pythons: Pythons) -> Numbers:
        return way(site, job, seed, pythons.rivals, pythons.desktop)

    return Entry(measured, every_seed=False)


ENTRIES: Mapping[str, Entry] = {
    "rudel-node": Entry(_alone()),
    "rudel-1": Entry(_spread(1)),
    "rudel-2": Entry(_spread(2)),
    "rudel-4": Entry(_spread(4)),
    "rudel-node-cnn": Entry(_alone("cnn"), every_seed=False),
    "rudel-4-cnn": Entry(_spread(4, "cnn"), every_seed=False),
    "rudel-slow-node": Entry(_alone(), SLOW),
    "rudel-uneven": Entry(_spread(4), UNEVEN),
    "torch-postlocalsgd": _rival("cluster_torch.py", batch_size=32, period=LOCAL_STEPS, learning_rate=2e-3),
    "torch-ddp": _rival("cluster_torch.py", batch_size=8, part=60),
    "tf-mwms": _rival("cluster_tensorflow.py", batch_size=8, part=40),
    "flower": _flower(cluster_flower.by_supernodes),
    "flower-legacy": _flower(cluster_flower.by_start_client),
}

DEFAULT = (
    "rudel-node,rudel-4@100,rudel-4@20,rudel-2@100,rudel-1@100,rudel-slow-node,rudel-uneven@100,torch-postlocalsgd@100,"
    "flower-legacy@100,flower@100,tf-mwms@100,torch-ddp@100,rudel-node-cnn,rudel-4-cnn@20"
)


def main(
    data: Annotated[Path, typer.Option(help="Folder with drawings in Quick, Draw!'s layout.")],
    hosts: Annotated[str | None, typer.Option(help="Hosts file of your own computers, in the place of a lab.")] = None,
    ssh_config: Annotated[Path | None, typer.Option(help="In the place of ~/.ssh/config, with --hosts.")] = None,
    python: Annotated[str | None, typer.Option(help="Interpreter with Rudel on the nodes of the lab.")] = None,
    rival_python: Annotated[str, typer.Option(help="Interpreter with the rivals, on the nodes.")] = "python3",
    desktop_python: Annotated[str | None, typer.Option(help="The same here.  [default: --rival-python]")] = None,
    contestants: Annotated[str, typer.Option(help=f"Who takes part, of {', '.join(ENTRIES)}.")] = DEFAULT,
    seeds: Annotated[str, typer.Option(help="A round for each.")] = "0,1,2",
    classes: Annotated[str, typer.Option(help="Names of classes, separated by commas.")] = CLASSES,
    samples: Annotated[int, typer.Option(help="Examples to learn from.")] = SAMPLES,
    cnn_samples: Annotated[int, typer.Option(help="The same for the CNN.")] = CNN_SAMPLES,
    latency: Annotated[float, typer.Option(help="Milliseconds one way, in the lab.")] = 1.5,
    prefix: Annotated[str, typer.Option(help="What names of the lab's nodes begin with.")] = "bench",
    subnet: Annotated[str, typer.Option(help="First three numbers of the lab's addresses.")] = "10.94.0",
    json: Annotated[Path | None, typer.Option(help="File for the numbers, written after every measurement.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure anew what --json has already.")] = False,
    plot: Annotated[Path | None, typer.Option(help="SVG or PNG file for the plot.")] = None,
) -> None:
    """Time Rudel and its rivals on several computers."""
    end_on_sigterm()
    job = ClusterJob(data.resolve(), [name.strip() for name in classes.split(",")], samples, cnn_samples)
    pythons = Pythons(python, rival_python, desktop_python or rival_python)
    try:
        names = checked([name.strip() for name in contestants.split(",")], hosts is not None)
        about = {"classes": job.classes, "samples": samples, "cnn_samples": cnn_samples}
        document = begun(json, "cluster", about, [int(seed) for seed in seeds.split(",")])
        for seed in document["seeds"]:
            for number, name in enumerate(names, start=1):
                entry, rate = ENTRIES[name.partition("@")[0]], float(name.partition("@")[2] or 100)
                results = document["rounds"][document["seeds"].index(seed)]
                if (name in results and not again) or (not entry.every_seed and seed != document["seeds"][0]):
                    continue
                say(f"seed {seed}, {number} of {len(names)}: {name}")
                place = partial(lab_site, entry.cpu, Air(rate, latency), python or sys.executable, prefix, subnet)
                begin = partial(own, hosts, ssh_config) if hosts else place
                take(entry, begin, job, seed, pythons, name, results, document["failures"])
                document["claims"] = [asdict(verdict) for verdict in verdicts(document["rounds"], samples)]
                keep(document, json)
    except BenchmarkError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from error
    show(wide_console(), document)
    if plot:
        draw(document["rounds"], measured_names(document), plot)
    if document["failures"]:
        raise typer.Exit(1)


def checked(names: Sequence[str], own_computers: bool) -> list[str]:
    """The contestants asked for, by the names that their numbers are to have.

    Raises:
        BenchmarkError: there is no such contestant.
    """
    found = []
    for name in names:
        bare, at, rate = name.partition("@")
        if bare not in ENTRIES or (at and not rate.replace(".", "", 1).isdigit()):
            raise BenchmarkError(f"There is no contestant {name}: there are {', '.join(ENTRIES)}, each with @RATE.")
        found.append(bare if own_computers else name)
    return list(dict.fromkeys(found))


def take(
    entry: Entry,
    begin: Callable[[], contextlib.AbstractContextManager[Site]],
    job: ClusterJob,
    seed: int,
    pythons: Pythons,
    name: str,
    results: dict[str, Numbers],
    failures: list[str],
) -> None:
    """Takes a measurement into the results, or why there is none into the failures."""
    began, busy = time.perf_counter(), busy_cores()

    def measured() -> Numbers:
        with begin() as site:
            return entry.measure(site, job, seed, pythons)

    try:
        results[name] = undisturbed(measured)
    except (BenchmarkError, RudelError) as error:
        failures.append(f"{name} with seed {seed} could not be measured: {error}")
        say(f"  {failures[-1]}")
        return
    numbers = results[name]
    results[name] = {"job_seconds": time.perf_counter() - began, "busy_cores_before": busy} | numbers
    accuracy = "" if numbers["accuracy"] is None else f", accuracy {numbers['accuracy']:.4f}"
    air = "" if numbers.get("air_bytes") is None else f", {numbers['air_bytes'] / 1e6:,.2f} MB on the air"
    say(f"  {numbers['train_seconds']:,.2f} s{accuracy}{air} ({time.perf_counter() - began:.0f} s in all)")


def show(console: Console, document: Mapping[str, Any]) -> None:
    """Prints the tables."""
    job, machine = document["job"], document["machine"]
    console.print(
        f"{job['samples']:,} drawings of {len(job['classes'])} classes ({job['cnn_samples']:,} with the CNN), seeds "
        f"{', '.join(map(str, document['seeds']))}; {machine['cores']} cores of {machine['processor']}",
        highlight=False,
    )
    console.print(results_table(document["rounds"], measured_names(document)))
    if any(claim["median"] is not None for claim in document["claims"]):
        console.print(claims_table(document["claims"]))
    for place, results in enumerate(document["rounds"]):
        if (share := share_of_speeds(results)) is not None:
            console.print(f"seed {document['seeds'][place]}: uneven nodes reach {share:.0%} of the sum of their speeds")
    for failure in document["failures"]:
        console.print(failure, highlight=False)


@contextlib.contextmanager
def own(hosts: str, ssh_config: Path | None) -> Iterator[Site]:
    """Computers that there are."""
    yield own_site(hosts, ssh_config)


if __name__ == "__main__":
    typer.run(main)
