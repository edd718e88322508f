"""How a cell of the evaluation is measured.

Nodes have the whole computer while programs start and compile, and a wide air while data travels; they are made slow
before anything counts. What exchanges gradients in every step is timed for some steps. The others train to the end.

A measurement is a dictionary of numbers:

- `step_seconds`: for 32 examples, whoever computes them.
- `steps`: how many of these were timed.
- `air_bytes_a_step`: all frames on the air while the clock ran, for each of them; None where there is no air.
- `accuracy`: of the last weights, and `curve`, [seconds, accuracy], where a whole training was measured.
- `cores_busy`: of this computer, by all processes, in the mean, while the clock ran; `cores_of_others`: by those that
  are not of the evaluation. `evaluate.py` adds `disturbed`: whether these had too much, or the computer stood still.
"""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cluster_measure as measures
from cluster_job import ClusterJob
from cluster_site import Site, start_on_node
from evaluate_cells import BATCH_SIZE, LEARNERS, MODELS, Cell, Net
from measure import BenchmarkError, Numbers

import rudel

OPEN_RATE = 1000.0
ALONE = "alone_after.py"

_SECONDS, _FEWEST, _MOST = 8.0, 3, 64  # time for steps that are timed, and how many
_NEVER = 10**9


@dataclass
class Stage:
    """The nodes of a lab, and how fast they and the air are at the moment.

    Args:
        site: the lab.
        quota: cores of a node while it counts.
        counted: of the last time that the clock ran: `air_bytes`, `cores_busy`, `cores_of_others`.
    """

    site: Site
    quota: float
    rate: float = OPEN_RATE
    counted: dict[str, Any] = field(default_factory=dict)

    def set_cpu(self, share: float) -> None:
        """Gives every node so many cores."""
        for name in self.site.lab.hosts:
            self.site.lab.set_cpu(name, share)

    def set_rate(self, rate: float) -> None:
        """Sets the air, in Mbit/s."""
        if rate != self.rate:
            self.site.lab.set_rate(rate)
            self.rate = rate

    def widen(self) -> None:
        """Lets everything be fast; with more than a core at its start, a node would have threads for several."""
        self.set_cpu(1.0)
        self.set_rate(OPEN_RATE)

    def narrow(self, rate: float) -> None:
        """Makes nodes and air what they are to be."""
        self.set_cpu(self.quota)
        self.set_rate(rate)

    def start(self) -> None:
        """Begins to count."""
        self._from = time.perf_counter(), self.site.on_air() or 0, processor_seconds()

    def stop(self) -> None:
        """Ends counting."""
        began, air, (own, everybody) = self._from
        seconds, (later_own, later_everybody) = time.perf_counter() - began, processor_seconds()
        self.counted = {
            "air_bytes": (self.site.on_air() or 0) - air,
            "cores_busy": (later_everybody - everybody) / seconds,
            "cores_of_others": max(0.0, (later_everybody - everybody) - (later_own - own)) / seconds,
        }


def processor_seconds() -> tuple[float, float]:
    """Of this process and of all that came of it (the lab, its nodes, what runs on them), and of all processes."""
    parents, spent = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            parents[number], spent[number] = int(words[1]), sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
    own = {os.getpid()}
    while more := {number for number, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(spent.get(number, 0.0) for number in own), sum(spent.values())


# -- accuracy ----------------------------------------------------------------------------------------------------------


def learning_curve(job: ClusterJob, learner: str, seed: int) -> list[tuple[int, float]]:
    """(step, accuracy) of a training on this computer: that of all who exchange gradients in every step."""
    import keras

    net = LEARNERS[learner]
    callbacks = [keras.callbacks.SwapEMAWeights()] if learner.endswith("-ema") else []
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        _trained(job, net, run, None, "single", net.steps, net.eval_every, seed, callbacks)
        return [(record["step"], record["val_accuracy"]) for record in measures.lines_of(run / "metrics.jsonl")]


def numbers_of(step_seconds: float, steps: float, counted: dict[str, Any]) -> Numbers:
    """What every measurement has."""
    return {
        "step_seconds": step_seconds,
        "steps": steps,
        "air_bytes_a_step": counted["air_bytes"] / steps,
        "cores_busy": counted["cores_busy"],
        "cores_of_others": counted["cores_of_others"],
    }


def timed_steps(cell: Cell, net: Net, a_step: float, alone_seconds: float) -> int:
    """How many steps to time of what sends so many bytes in each."""
    seconds = a_step * 8 / (cell.rate * 1e6) + alone_seconds / cell.hosts
    return max(_FEWEST, min(_MOST, int(_SECONDS / seconds)))


# -- Rudel -------------------------------------------------------------------------------------------------------------


def alone(stage: Stage, cell: Cell, job: ClusterJob, python: str) -> Numbers:
    """A node by itself."""
    net, site = LEARNERS[cell.learner], stage.site
    stage.widen()
    measures.send_programs(site, 0, ALONE)
    site.send_once(0, "drawings", job.content, lambda: job.files)
    given = {"data": "drawings", "classes": ",".join(job.classes), "seed": 0, "recipe": net.recipe}
    given["options"] = dict(net.options)
    if Path(net.recipe).is_file():
        site.send(0, {Path(net.recipe).name: Path(net.recipe).read_bytes()})
        given["recipe"] = Path(net.recipe).name
    program = start_on_node(site, 0, ALONE, python, python, ALONE, json.dumps(given))
    try:
        program.wait_for("ready", 300.0)
        stage.narrow(cell.rate)
        stage.start()
        program.tell(f"go {net.alone_steps}")
        answer = program.wait_for("done", 600.0)
        stage.stop()
    finally:
        program.end()
    steps = answer["samples"] / BATCH_SIZE
    return numbers_of(answer["train_seconds"] / steps, steps, stage.counted | {"air_bytes": 0})


def in_rounds(stage: Stage, cell: Cell, job: ClusterJob, seed: int, cluster: Any) -> Numbers:
    """`diloco` or `async`: a whole training, as slow as it is from the first moment of which anything depends."""
    net = MODELS[cell.model]
    with tempfile.TemporaryDirectory() as folder, rounds_counted(stage, cell.rate):
        stage.set_cpu(stage.quota)
        run = Path(folder) / "run"
        summary = _trained(job, net, run, cluster, cell.strategy, net.steps, net.eval_every, seed)
        rounds = measures.lines_of(run / "rounds.jsonl")
        records = measures.lines_of(run / "metrics.jsonl")
    steps = summary["samples"] / BATCH_SIZE
    return numbers_of(summary["train_seconds"] / steps, steps, stage.counted) | {
        "accuracy": records[-1]["val_accuracy"],
        "curve": [(measures.when(rounds, record["step"]), record["val_accuracy"]) for record in records],
        "options": summary["strategy_options"],
        "workers_lost": summary["workers_lost"],
    }


def warmed_up(stage: Stage, cell: Cell, job: ClusterJob, cluster: Any) -> None:
    """Lets the workers fetch examples, and compile what is kept for the next training."""
    stage.widen()
    with tempfile.TemporaryDirectory() as folder:
        steps = 16 * cell.hosts
        _trained(job, MODELS[cell.model], Path(folder) / "run", cluster, cell.strategy, steps, _NEVER)


def every_step(stage: Stage, cell: Cell, job: ClusterJob, cluster: Any, alone_seconds: float) -> Numbers:
    """`mesh`: some steps; the first of them, for which nodes may still be fast, is not timed."""
    net = MODELS[cell.model]
    stage.widen()
    ring = 2 * (cell.hosts - 1) * net.weights * 4
    steps = 1 + timed_steps(cell, net, ring, alone_seconds)
    with tempfile.TemporaryDirectory() as folder, steps_counted(stage, cell.rate, steps) as moments:
        _trained(job, net, Path(folder) / "run", cluster, "mesh", steps, _NEVER)
    (first, began, air), (last, ended, later_air) = moments[0], moments[-1]
    if last == first:
        raise BenchmarkError("The training told of one moment only.")
    counted = stage.counted | {"air_bytes": later_air - air}
    return numbers_of((ended - began) / (last - first), last - first, counted)


@contextlib.contextmanager
def rounds_counted(stage: Stage, rate: float) -> Iterator[None]:
    """Narrows the air while links are measured and while the rounds run, and counts these."""
    from rudel.replicas.coordinator import Coordinator

    agree, train = Coordinator._agree, Coordinator.run

    async def agreed(coordinator: Any, members: Any) -> None:
        stage.set_rate(rate)
        await agree(coordinator, members)
        stage.set_rate(OPEN_RATE)

    async def counted(coordinator: Any) -> None:
        stage.set_rate(rate)
        stage.start()
        try:
            await train(coordinator)
        finally:
            stage.stop()
            stage.widen()

    with _in_place_of(Coordinator, _agree=agreed, run=counted):
        yield


@contextlib.contextmanager
def steps_counted(stage: Stage, rate: float, steps: int) -> Iterator[list[tuple[int, float, int]]]:
    """Narrows nodes and air when all is compiled, until the last step; yields (step, seconds, bytes on the air)."""
    from rudel.mesh.hosts.hosts_engine import HostsEngine
    from rudel.mesh.hosts.member_messages import Advanced, Begun

    take, moments = HostsEngine._take, []

    def looked_at(engine: Any, attempt: Any, heard: Any) -> None:
        message = heard.message
        if isinstance(message, Begun):
            stage.narrow(rate)
            stage.start()
        elif isinstance(message, Advanced):
            moments.append((message.step, message.seconds, stage.site.on_air() or 0))
            if message.step >= steps:
                stage.stop()
                stage.widen()
        take(engine, attempt, heard)

    with _in_place_of(HostsEngine, _take=looked_at):
        yield moments


@contextlib.contextmanager
def _in_place_of(owner: Any, **methods: Callable[..., Any]) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in methods}
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(owner, name, method)


def _trained(
    job: ClusterJob,
    net: Net,
    run: Path,
    cluster: Any,
    strategy: str,
    steps: int,
    eval_every: int,
    seed: int = 0,
    callbacks: Sequence[Any] = (),
) -> dict[str, Any]:
    """A training from this process; no checkpoints, which would travel while the clock runs."""
    options = {"classes": ",".join(job.classes), **net.options}
    return rudel.train_recipe(
        net.recipe, data=str(job.data), options=options, steps=steps, batch_size=BATCH_SIZE, seed=seed, run=run,
        eval_every=eval_every, checkpoint_every=_NEVER, callbacks=callbacks, cluster=cluster, strategy=strategy,
        verbose=False,
    ).summary  # fmt: skip
