"""The strategy `mesh` on four nodes of a pretend Wi-Fi (see `rudel lab`), and MultiWorkerMirroredStrategy on them.

    python benchmarks/mesh_hosts.py --data FOLDER --python PY --rival-python PY --json mesh_hosts.json

Both sum the gradients of every step over the network: the article's MLP 784-256-13 with dropout 0.2 and Adam, 8
examples of every batch of 32 on each node. The rival is tf_keras under MultiWorkerMirroredStrategy.

| measured | what it is | s |
| --- | --- | --- |
| rudel-mesh | `rudel train --on ... --strategy mesh` | 60 |
| tf-mwms | tf_keras under MultiWorkerMirroredStrategy, the article's way: a part of the steps | 60 |
| tf-config | `rudel train --strategy mesh` in four processes of this computer, which TF_CONFIG brings together | 40 |
| undisturbed | `rudel train --on ...`, with batches of 36, which divide over three nodes, too | 60 |
| host-crashed | the same; when a third of it is done, all that runs on the last node is killed | 90 |

Noticed: from the crash until the training says that a host was lost. On again: from then until the first step on the
others. Accuracy is on the held-out drawings.
"""

import contextlib
import json as json_format
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import cluster_measure as measures
import measure
import typer
from claims import Verdict
from cluster_job import CLASSES, ClusterJob
from cluster_record import begun, busy_cores, end_on_sigterm, keep, measured_names, say, undisturbed, wide_console
from cluster_site import TIED, Air, Program, Site, lab_site, start_here
from measure import BenchmarkError, Numbers
from rich.console import Console
from rich.table import Table
from show import claims_table

from rudel.errors import RudelError

NODES, BATCH_SIZE, BATCH_OF_THREE = 4, 32, 36
WITHIN_SECONDS = 20.0
AS_ACCURATE = 0.005
SAME_LOSS = 1e-3

_RUDEL = "from rudel.cli.main import run; run()"
_LONGEST = 1200.0


def main(
    data: Annotated[Path, typer.Option(help="Folder with drawings in Quick, Draw!'s layout.")],
    python: Annotated[str | None, typer.Option(help="Interpreter with Rudel on the nodes.")] = None,
    rival_python: Annotated[str, typer.Option(help="Interpreter with tf_keras on the nodes.")] = "python3",
    only: Annotated[str, typer.Option(help="What to measure.  [default: everything]")] = "",
    steps: Annotated[int, typer.Option(help="Steps of rudel-mesh and tf-config.")] = 200,
    rival_steps: Annotated[int, typer.Option(help="Steps of tf-mwms.")] = 40,
    crash_steps: Annotated[int, typer.Option(help="Steps of undisturbed and host-crashed.")] = 400,
    seed: Annotated[int, typer.Option(help="Of weights, dropout and order.")] = 0,
    rate: Annotated[float, typer.Option(help="Mbit/s of the air.")] = 300.0,
    latency: Annotated[float, typer.Option(help="Milliseconds one way.")] = 1.5,
    cpu: Annotated[float, typer.Option(help="Cores of a node.")] = 0.4,
    prefix: Annotated[str, typer.Option(help="What names of the lab's nodes begin with.")] = "mesh",
    subnet: Annotated[str, typer.Option(help="First three numbers of the lab's addresses.")] = "10.97.0",
    json: Annotated[Path | None, typer.Option(help="File for the numbers, written after every measurement.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure anew what --json has already.")] = False,
) -> None:
    """Measure the mesh on four nodes."""
    end_on_sigterm()
    job = ClusterJob(data.resolve(), [name.strip() for name in CLASSES.split(",")], rival_steps * BATCH_SIZE)
    begin = partial(lab_site, [cpu] * NODES, Air(rate, latency), python or sys.executable, prefix, subnet)
    measured: Mapping[str, Callable[[], Numbers]] = {
        "rudel-mesh": lambda: in_lab(begin, partial(rudel_mesh, job=job, steps=steps, seed=seed)),
        "tf-mwms": lambda: in_lab(begin, partial(mirrored, job=job, python=rival_python, seed=seed)),
        "tf-config": lambda: by_tf_config(job, steps, seed),
        "undisturbed": lambda: in_lab(begin, partial(with_nothing, job=job, steps=crash_steps, seed=seed)),
        "host-crashed": lambda: in_lab(begin, partial(with_a_crash, job=job, steps=crash_steps, seed=seed)),
    }
    names = [name.strip() for name in only.split(",") if name.strip()] or list(measured)
    if unknown := [name for name in names if name not in measured]:
        raise typer.BadParameter(f"There is no {unknown[0]}: there are {', '.join(measured)}.")
    about = {"steps": [steps, rival_steps, crash_steps], "rate": rate, "latency": latency, "cpu": cpu}
    document = begun(json, "mesh_hosts", about, [seed])
    results = document["rounds"][0]
    for place, name in enumerate(names, start=1):
        if name in results and not again:
            continue
        say(f"{place} of {len(names)}: {name}")
        busy = busy_cores()
        try:
            results[name] = {"busy_cores_before": busy} | undisturbed(measured[name])
        except (BenchmarkError, RudelError) as error:
            document["failures"].append(f"{name} could not be measured: {error}")
            say(f"  {document['failures'][-1]}")
            continue
        say(f"  {json_format.dumps(results[name])}")
        document["claims"] = [asdict(verdict) for verdict in verdicts(document["rounds"])]
        keep(document, json)
    show(wide_console(), document)
    if document["failures"]:
        raise typer.Exit(1)


def in_lab(
    begin: Callable[[], contextlib.AbstractContextManager[Site]], measured: Callable[[Site], Numbers]
) -> Numbers:
    """Measures in a lab made for it."""
    with begin() as site:
        return measured(site)


def rudel_mesh(site: Site, job: ClusterJob, steps: int, seed: int) -> Numbers:
    """The mesh, undisturbed, in the article's batches."""
    return _trained(site, job, steps, seed, BATCH_SIZE, lambda run: None)


def with_nothing(site: Site, job: ClusterJob, steps: int, seed: int) -> Numbers:
    """The mesh, undisturbed, in batches that divide over three nodes, too."""
    return _trained(site, job, steps, seed, BATCH_OF_THREE, lambda run: None)


def with_a_crash(site: Site, job: ClusterJob, steps: int, seed: int) -> Numbers:
    """`kill -9` of everything on the last node when a third of the steps is kept."""
    crashed: list[float] = []

    def crash(run: Path) -> None:
        if not crashed and _kept_step(run) >= steps // 3:
            crashed.append(time.time())
            site.lab.crash(site.lab.hosts[-1])

    numbers = _trained(site, job, steps, seed, BATCH_OF_THREE, crash)
    if not crashed or not numbers["restarts"]:
        raise BenchmarkError("The training ended before the node crashed, or did not notice it.")
    restart = numbers["restarts"][0]
    return numbers | {
        "noticed_seconds": restart["time"] - crashed[0],
        "on_again_seconds": restart["seconds"],
        "steps_lost": restart["step"] - restart["from_step"],
    }


def mirrored(site: Site, job: ClusterJob, python: str, seed: int) -> Numbers:
    """The rival; its `train_seconds` are of `job.samples`."""
    each = BATCH_SIZE // NODES
    numbers = measures.rival(site, job, seed, "cluster_tensorflow.py", python, batch_size=each)
    return numbers | {"step_seconds": numbers["train_seconds"] * BATCH_SIZE / job.samples}


def by_tf_config(job: ClusterJob, steps: int, seed: int) -> Numbers:
    """Four processes of this computer; the first one keeps the run."""
    workers = [f"127.0.0.1:{port}" for port in _free_ports(NODES)]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        programs: list[Program] = []
        try:
            for index in range(NODES):
                config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
                environment = {**os.environ, "TF_CONFIG": json_format.dumps(config)}
                words = [*_words(job, run, steps, seed, BATCH_SIZE), "--strategy", "mesh"]
                tied = (sys.executable, str(measures.CONTESTANTS / TIED), sys.executable, "-c", _RUDEL)
                programs.append(start_here(f"process {index}", *tied, *words, environment=environment))
            for program in programs:
                program.wait_for("exited", _LONGEST)
        finally:
            for program in programs:
                program.end()
        return _numbers(run)


def _trained(
    site: Site, job: ClusterJob, steps: int, seed: int, batch_size: int, look: Callable[[Path], None]
) -> Numbers:
    """Trains on all nodes, and looks at the run all the while."""
    with tempfile.TemporaryDirectory() as folder, site.hosts_file(NODES) as hosts:
        run = Path(folder) / "run"
        words = [*_words(job, run, steps, seed, batch_size), *measures.on(site, hosts), "--strategy", "mesh"]
        tied = (sys.executable, str(measures.CONTESTANTS / TIED), sys.executable, "-c", _RUDEL)
        program = start_here("rudel", *tied, *words)
        try:
            while program.process.poll() is None:
                look(run)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.process.wait(0.1)
            program.wait_for("exited", _LONGEST)
        finally:
            program.end()
        return _numbers(run)


def _words(job: ClusterJob, run: Path, steps: int, seed: int, batch_size: int) -> list[str]:
    chosen = ["--set", f"classes={','.join(job.classes)}", "--batch-size", str(batch_size), "--seed", str(seed)]
    return ["train", "quickdraw", "--data", str(job.data), "--run", str(run), "--steps", str(steps), *chosen]


def _numbers(run: Path) -> Numbers:
    summary = json_format.loads((run / "summary.json").read_text())
    return {
        "train_seconds": summary["train_seconds"],
        "step_seconds": summary["train_seconds"] / summary["steps"],
        "setup_seconds": summary["setup_seconds"],
        "compile_seconds": summary["compile_seconds"],
        "accuracy": summary["metrics"]["val_accuracy"],
        "loss": summary["metrics"]["val_loss"],
        "hosts": summary["hosts"],
        "restarts": summary.get("restarts", []),
    }


def _kept_step(run: Path) -> int:
    kept = sorted((run / "checkpoints").glob("step-*.npz"))
    return int(kept[-1].stem.removeprefix("step-")) if kept else -1


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def verdicts(rounds: measure.Rounds) -> list[Verdict]:
    """A verdict on every claim."""

    def number(name: str, key: str) -> float | None:
        return next(iter(measure.values(rounds, name, key)), None)

    def judged(text: str, found: float | None, holds: Callable[[float], bool]) -> Verdict:
        return Verdict(text, found, None if found is None else holds(found))

    def difference(one: str, other: str, key: str) -> float | None:
        a, b = number(one, key), number(other, key)
        return None if a is None or b is None else a - b

    rival, own = number("tf-mwms", "step_seconds"), number("rudel-mesh", "step_seconds")
    return [
        judged(
            "a step is faster than MultiWorkerMirroredStrategy's",
            rival / own if rival and own else None,
            lambda r: r > 1,
        ),
        judged(
            "on again within 20 s of noticing",
            number("host-crashed", "on_again_seconds"),
            lambda s: s <= WITHIN_SECONDS,
        ),
        judged(
            "as accurate as an undisturbed training, within 0.5 points",
            difference("host-crashed", "undisturbed", "accuracy"),
            lambda d: abs(d) <= AS_ACCURATE,
        ),
        judged(
            "TF_CONFIG and --on have the same loss, within 0.001",
            difference("tf-config", "rudel-mesh", "loss"),
            lambda d: abs(d) <= SAME_LOSS,
        ),
    ]


def show(console: Console, document: Mapping[str, Any]) -> None:
    """Prints the tables."""
    columns: Sequence[tuple[str, str, str]] = (
        ("time per step, ms", "step_ms", ".1f"),
        ("setup, s", "setup_seconds", ".1f"),
        ("compile, s", "compile_seconds", ".1f"),
        ("accuracy", "accuracy", ".4f"),
        ("noticed, s", "noticed_seconds", ".1f"),
        ("on again, s", "on_again_seconds", ".1f"),
        ("steps lost", "steps_lost", ".0f"),
    )
    table = Table("", *(heading for heading, _, _ in columns))
    for name in measured_names(document):
        found = document["rounds"][0][name]
        found = found | {"step_ms": found["step_seconds"] * 1e3}
        values = (found.get(key) for _, key, _ in columns)
        table.add_row(
            name, *("" if n is None else format(n, form) for n, (_, _, form) in zip(values, columns, strict=True))
        )
    console.print(table)
    if document["claims"]:
        console.print(claims_table(document["claims"]))
    for failure in document["failures"]:
        console.print(failure, highlight=False)


if __name__ == "__main__":
    typer.run(main)
