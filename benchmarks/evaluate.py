"""The evaluation: time to accuracy, speed-up and bytes of Rudel's strategies and of others, over hosts, links, models.

    sudo python benchmarks/evaluate.py --data FOLDER --python PY --rival-python PY --json docs/evaluation.json
    python benchmarks/evaluate.py --json docs/evaluation.json --page docs/results.md --plots docs/images

A cell is a strategy or a rival (`single`, `single-ema`, `mesh`, `diloco`, `async`; `mwms`, `parameter-server`, `ddp`,
`post-local-sgd`, `flower`), a model (`mlp`, `cnn`, `large`), a number of hosts and a link speed, as in
`diloco/mlp/4/100`. Each is measured in a simulated Wi-Fi (see `rudel lab`), whose nodes have the same share of a core
however many they are; what trains to the end, or on one host, which all is compared with, is measured once for each of
`--seeds` seeds. The default varies each axis around 4 hosts, 100 and 20 Mbit/s and the MLP; `--all` is the full
product, which takes hours; `--only` takes shell patterns. What time to accuracy means is defined in `evaluate_page.py`,
which writes it into the page.

What `--json` holds is not measured again, unless something else used the computer meanwhile. Every run is kept as soon
as it is measured, so this can be done in pieces: `--minutes` ends after so many. A cell that failed is kept with the
reason, and tried again only with `--again`.
Without `--data` nothing is measured: the page and the plots are made of what there is.
"""

import contextlib
import datetime
import json as documents
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import evaluate_measure as measures
import typer
from cluster_job import CLASSES, ClusterJob
from cluster_record import busy_cores, end_on_sigterm, keep, say, stalls_watched
from cluster_site import Air, lab_site
from evaluate_cells import ALONE, BATCH_SIZE, EXTRAPOLATED, LEARNERS, RIVALS, Cell, by_hosts, chosen
from evaluate_measure import Stage
from evaluate_page import comma_separated, written
from evaluate_plots import draw_all
from evaluate_rivals import rival
from measure import BenchmarkError, Numbers, machine

import rudel
from rudel.errors import RudelError

_MOST_OF_OTHERS = 0.3  # cores


@dataclass(frozen=True)
class Pythons:
    """Interpreters: on the nodes with Rudel, and the one with the rivals, on the nodes and here."""

    nodes: str
    rivals: str


def main(
    json: Annotated[Path, typer.Option(help="File for the numbers, written after every cell.")],
    data: Annotated[Path | None, typer.Option(help="Folder with drawings in Quick, Draw!'s layout.")] = None,
    python: Annotated[str, typer.Option(help="Interpreter with Rudel on the nodes.")] = sys.executable,
    rival_python: Annotated[str, typer.Option(help="Interpreter with the rivals, here and on the nodes.")] = "python3",
    only: Annotated[str, typer.Option(help="Patterns for names of cells, separated by commas.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="The full product of all axes.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Print the names of the cells.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure anew what --json has already.")] = False,
    minutes: Annotated[float, typer.Option(help="Begin no cell after so many.")] = float("inf"),
    longest: Annotated[int, typer.Option(help="Seconds that a run may take.")] = 240,
    seeds: Annotated[int, typer.Option(help="Trainings of each cell that is trained to the end.")] = 5,
    cpu: Annotated[float, typer.Option(help="Cores of a node.")] = 0.2,
    latency: Annotated[float, typer.Option(help="Milliseconds one way.")] = 1.5,
    classes: Annotated[str, typer.Option(help="Names of classes, separated by commas.")] = CLASSES,
    prefix: Annotated[str, typer.Option(help="What names of the lab's nodes begin with.")] = "eval",
    subnet: Annotated[str, typer.Option(help="First three numbers of the lab's addresses.")] = "10.98.0",
    page: Annotated[Path | None, typer.Option(help="Markdown file to write it into, between its two marks.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Folder for the pictures of the page.")] = None,
) -> None:
    """Measure cells, and write them into the page."""
    end_on_sigterm()
    about = {"classes": [name.strip() for name in classes.split(",")], "cpu": cpu, "latency": latency}
    try:
        cells = chosen(only, everything)
        document = opened(json, about)
        if listed:
            for cell in cells:
                print(cell.name, "measured" if cell.name in document["cells"] else "")
            return
        if data:
            if again:
                for cell in cells:
                    document["cells"].pop(cell.name, None)
                    document["failures"].pop(cell.name, None)
            end = time.monotonic() + 60 * minutes
            evaluation = Evaluation(document, json, data.resolve(), Pythons(python, rival_python), longest, seeds, end)
            for hosts, group in by_hosts(cells).items():
                evaluation.measure(hosts, group, prefix, subnet)
    except (BenchmarkError, RudelError) as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from error
    if page:
        try:
            text = written(page.read_text(encoding="utf-8"), document)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"{page}: {error}", param_hint="--page") from error
        page.write_text(text, encoding="utf-8")
        json.with_suffix(".csv").write_text(comma_separated(document), encoding="utf-8")
    if plots:
        draw_all(document, plots)


def opened(path: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """The document so far, or a new one.

    Raises:
        BenchmarkError: what is there is of another job.
    """
    fresh = {
        "benchmark": "evaluate",
        "machine": machine(),
        "job": dict(about),
        "curves": {},
        "cells": {},
        "failures": {},
    }
    if not path.exists():
        return fresh
    found = documents.loads(path.read_text())
    if (found.get("benchmark"), found.get("job")) != ("evaluate", dict(about)):
        raise BenchmarkError(f"{path} is of another job: give another file to --json, or the options that it has.")
    return found


@dataclass
class Evaluation:
    """Cells being measured.

    Args:
        document: for the numbers.
        path: where it is kept.
        data: the drawings.
        pythons: interpreters.
        longest: seconds that a run may take.
        seeds: trainings of each cell that is trained to the end, and on one host.
        end: moment after which none is begun, of `time.monotonic()`.
    """

    document: dict[str, Any]
    path: Path
    data: Path
    pythons: Pythons
    longest: int
    seeds: int
    end: float
    _jobs: dict[str, ClusterJob] = field(default_factory=dict)

    def measure(self, hosts: int, cells: Sequence[Cell], prefix: str, subnet: str) -> None:
        """Measures cells that have the same number of hosts, in as few labs as can be."""
        left = [(cell, seed) for cell in cells for seed in self._missing(cell)]
        for learner in dict.fromkeys(cell.learner for cell, _ in left):
            self._learn(learner)
        while left and time.monotonic() < self.end:
            wide = Air(measures.OPEN_RATE, self.document["job"]["latency"])
            with lab_site([1.0] * hosts, wide, self.pythons.nodes, prefix, subnet) as site:
                stage = Stage(site, self.document["job"]["cpu"])
                busy = busy_cores()
                with contextlib.ExitStack() as cluster:
                    workers: Workers | None = None
                    while left and time.monotonic() < self.end:
                        cell, seed = left.pop(0)
                        if cell.strategy in (*RIVALS, *ALONE):
                            cluster.close()
                            workers = None
                        elif workers is None:
                            stage.widen()
                            workers = Workers(cluster.enter_context(workers_of(stage)))
                        if not self._take(cell, seed, stage, workers, busy):
                            left = [(other, each) for other, each in left if other != cell]
                            break  # who knows what still runs there

    def _missing(self, cell: Cell) -> list[int]:
        """Seeds with which a cell is still to be measured: those without a run, and those of disturbed runs."""
        if cell.name in self.document["failures"]:
            return []
        runs = self.document["cells"].get(cell.name, [])
        whole = {run["seed"] for run in runs if not run["disturbed"]}
        once = cell.strategy in EXTRAPOLATED and cell.strategy not in ALONE  # all ratios are to those alone
        seeds = range(1 if once else self.seeds)
        return [seed for seed in seeds if seed not in whole]

    def _take(self, cell: Cell, seed: int, stage: Stage, workers: "Workers | None", busy: float) -> bool:
        """Measures a cell with a seed and keeps the run; whether that succeeded."""
        began = time.monotonic()
        say(f"{cell.name}, seed {seed}")
        try:
            with stalls_watched() as stalls, at_most(self.longest):
                numbers = self._numbers(cell, seed, stage, workers)
        except (BenchmarkError, RudelError) as error:
            self.document["failures"][cell.name] = str(error)
            keep(self.document, self.path)
            say(f"  {error}")
            return False
        numbers |= {"seed": seed, "stalled_seconds": sum(stalls), "busy_cores_before": busy}
        numbers["day"] = datetime.datetime.now(datetime.UTC).date().isoformat()
        numbers["disturbed"] = bool(stalls) or numbers["cores_of_others"] > _MOST_OF_OTHERS
        others = [run for run in self.document["cells"].get(cell.name, []) if run["seed"] != seed]
        self.document["cells"][cell.name] = [*others, rounded(numbers)]
        keep(self.document, self.path)
        shown = {name: value for name, value in rounded(numbers).items() if isinstance(value, float | int)}
        say(f"  {documents.dumps(shown)} ({time.monotonic() - began:.0f} s in all)")
        return True

    def _numbers(self, cell: Cell, seed: int, stage: Stage, workers: "Workers | None") -> Numbers:
        job = self._jobs[cell.model]
        if cell.strategy in ALONE:
            return measures.alone(stage, cell, job, self.pythons.nodes)
        by_itself = self.document["cells"].get(f"single/{cell.model}/1/100")
        if by_itself is None:
            raise BenchmarkError(f"Measure `single/{cell.model}/1/100` first: what is to be measured depends on it.")
        seconds = by_itself[0]["step_seconds"]
        if cell.strategy in RIVALS:
            return rival(stage, cell, job, seed, self.pythons.rivals, seconds)
        assert workers
        if cell.strategy == "mesh":
            return measures.every_step(stage, cell, job, workers.cluster, seconds)
        if (cell.strategy, cell.model) not in workers.warm:
            measures.warmed_up(stage, cell, job, workers.cluster)
            workers.warm.add((cell.strategy, cell.model))
        return measures.in_rounds(stage, cell, job, seed, workers.cluster)

    def _learn(self, learner: str) -> None:
        """Finds the learning curves of a model on one host, one for each seed, where they are not known."""
        model = learner.removesuffix("-ema")
        net = LEARNERS[learner]
        self._jobs.setdefault(model, ClusterJob(self.data, self.document["job"]["classes"], net.steps * BATCH_SIZE))
        curves = self.document["curves"].setdefault(learner, [])
        for seed in range(len(curves), self.seeds):
            say(f"the learning curve of {learner}, seed {seed}")
            curve = measures.learning_curve(self._jobs[model], learner, seed)
            curves.append([[step, round(accuracy, 4)] for step, accuracy in curve])
            keep(self.document, self.path)


@dataclass
class Workers:
    """Rudel's workers on the nodes, and what they have compiled: (strategy, model)."""

    cluster: Any
    warm: set[tuple[str, str]] = field(default_factory=set)


@contextlib.contextmanager
def workers_of(stage: Stage) -> Iterator[Any]:
    """Rudel's workers on all nodes."""
    site = stage.site
    with site.hosts_file(len(site.hosts)) as hosts, rudel.Cluster(str(hosts), ssh_config=site.ssh_config) as cluster:
        yield cluster


@contextlib.contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Ends the block when it takes longer.

    Raises:
        BenchmarkError: says so.
    """

    def over(*_: object) -> None:
        raise BenchmarkError(f"It took longer than {seconds} s.")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def rounded(value: Any) -> Any:
    """The same with numbers of six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    typer.run(main)
