"""How each contestant of the cluster benchmark is measured.

A measurement is a dictionary of numbers:

- `train_seconds`: from the first step to the last synchronised weights.
- `samples`: examples that all workers together learned from.
- `accuracy`: of the last weights on the held-out drawings, found after the clock has stopped; None where only a part of
  the steps was taken.
- `curve`: [seconds, accuracy] at some moments.
- `air_bytes`: all frames on the air while the clock ran, as the lab counts them; `air_bytes_in_all` for all of the
  command, with logging in, data and programs; None outside of a lab.
- `peak_bytes`: the largest resident memory of a worker's process.
- `extrapolated_from`: steps that were taken, where time and bytes are extrapolated to the whole job; None else.
"""

import contextlib
import json
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cluster_job import ClusterJob
from cluster_site import TIED, Program, Site, start_here, start_on_node
from measure import Numbers

CONTESTANTS = Path(__file__).parent / "contestants"

HIDDEN = (256,)

_RUDEL = "from rudel.cli.main import run; run()"
_PORT = 29_500
_LONGEST = 1800.0  # seconds that a measurement may take


def rudel_alone(site: Site, job: ClusterJob, seed: int, net: str, node: int = 0) -> Numbers:
    """`rudel train` on one node, by itself: the strategy `single`."""
    python = site.python(node)
    send_programs(site, node)
    site.send_once(node, "drawings", job.content, lambda: job.files)
    site.call(node, "rm", "-rf", "run")
    words = ["train", "quickdraw", "--data", "drawings", "--run", "run", *rudel_options(job, seed, net)]
    program = start_on_node(site, node, "rudel", python, python, "-c", _RUDEL, *words)
    try:
        ended = program.wait_for("exited", _LONGEST)
        files = ("run/summary.json", "run/metrics.jsonl")
        summary, metrics = (site.call(node, "cat", name).decode() for name in files)
    finally:
        program.end()
    records = [json.loads(line) for line in metrics.splitlines()]
    curve = [(record["seconds"], record["val_accuracy"]) for record in records]
    return rudel_numbers(json.loads(summary), curve) | {"peak_bytes": ended["peak_bytes"]}


def rudel_spread(site: Site, job: ClusterJob, seed: int, net: str, nodes: int) -> Numbers:
    """`rudel train --on` from this computer, with its defaults."""
    before = site.on_air()
    with tempfile.TemporaryDirectory() as folder, memory_watched(site) as peaks:
        run = Path(folder) / "run"
        words = ["train", "quickdraw", "--data", str(job.data), "--run", str(run)]
        with site.hosts_file(nodes) as hosts:
            trained = drive(site, [*words, *rudel_options(job, seed, net), *on(site, hosts)])
        after = site.on_air()
        summary = json.loads((run / "summary.json").read_text())
        rounds = lines_of(run / "rounds.jsonl")
        records = lines_of(run / "metrics.jsonl")
    memory = [host["memory"] for closed in rounds if "round" in closed for host in closed["hosts"].values()]
    numbers = rudel_numbers(summary, [(when(rounds, r["step"]), r["val_accuracy"]) for r in records])
    return numbers | {
        "rounds": summary["rounds"],
        "payload_bytes": summary["bytes_sent"] + summary["bytes_received"],
        "air_bytes": trained.get("air_bytes"),
        "air_bytes_in_all": None if after is None or before is None else after - before,
        "setup_seconds": summary["setup_seconds"],
        "working_bytes": max(memory, default=None),
        "peak_bytes": max(peaks.values(), default=max(memory, default=None)),
        "waited": waited(rounds),
        "workers_lost": summary["workers_lost"],
    }


def rival(
    site: Site,
    job: ClusterJob,
    seed: int,
    script: str,
    python: str,
    *,
    batch_size: int,
    learning_rate: float = 1e-3,
    period: int = 0,
    part: int | None = None,
    hidden: Sequence[int] = HIDDEN,
) -> Numbers:
    """One of the programs that run on all nodes and talk among themselves.

    Args:
        site: where.
        job: what.
        seed: of weights, dropout and order.
        script: a file in `contestants`.
        python: the rivals' interpreter on the nodes.
        batch_size: examples of a step on one worker.
        learning_rate: of Adam.
        period: steps between two synchronisations; 0 for those that have no rounds.
        part: take only so many steps, and extrapolate.
        hidden: units of the hidden layers.
    """
    workers = len(site.hosts)
    whole = job.samples // (batch_size * workers)
    parts = parts_of(site, job, seed, batch_size, learning_rate, period, min(whole, part or whole), hidden)
    for node in range(workers):
        send_programs(site, node, script)
        send_share(site, job, node, workers)
    site.call(0, "rm", "-f", "snapshots.npz")
    programs: list[Program] = []
    try:
        for node, given in enumerate(parts):
            programs.append(start_on_node(site, node, script, python, python, script, json.dumps(given)))
        report = timed(site, programs, programs)
        for program in programs:
            program.wait_for("saved", 120.0)
        snapshots = site.call(0, "cat", "snapshots.npz")
        exits = [program.wait_for("exited", 120.0) for program in programs]
    finally:
        for program in programs:
            program.end()
    steps = parts[0]["steps"]
    return rival_numbers(job, report, snapshots, exits, whole, steps) | {"samples": steps * batch_size * workers}


def parts_of(
    site: Site,
    job: ClusterJob,
    seed: int,
    batch_size: int,
    learning_rate: float,
    period: int,
    steps: int,
    hidden: Sequence[int] = HIDDEN,
) -> list[dict[str, Any]]:
    """Fields of `contestants/cluster_node.py`'s `Part` for every node."""
    addresses = [f"{site.address(node)}:{_PORT + seed}" for node in range(len(site.hosts))]
    given = {"addresses": addresses, "classes": len(job.classes), "steps": steps, "batch_size": batch_size}
    given |= {"learning_rate": learning_rate, "period": period, "seed": seed}
    given["hidden"] = list(hidden)
    return [{"rank": rank, **given} for rank in range(len(addresses))]


def timed(site: Site, ready: Sequence[Program], counted: Sequence[Program]) -> dict[str, Any]:
    """Waits until all are ready, tells them to begin, and returns what the slowest of those that count tells."""
    for program in ready:
        program.wait_for("ready", 600.0)
    site.begin()
    before = site.on_air()
    for program in ready:
        program.tell("go")
    reports = [program.wait_for("done", _LONGEST) for program in counted]
    after = site.on_air()
    site.end()
    slowest = max(reports, key=lambda one: one["seconds"])
    return slowest | {"air_bytes": None if after is None or before is None else after - before}


def rival_numbers(
    job: ClusterJob, report: dict[str, Any], snapshots: bytes, exits: Sequence[dict[str, Any]], whole: int, steps: int
) -> Numbers:
    """The numbers of a rival that took so many steps of the whole."""
    factor, curve = whole / steps, job.judged(snapshots)
    air = report["air_bytes"]
    return {
        "train_seconds": report["seconds"] * factor,
        "accuracy": curve[-1][1] if steps == whole else None,
        "curve": curve if steps == whole else [],
        "air_bytes": None if air is None else round(air * factor),
        "peak_bytes": max((ended["peak_bytes"] for ended in exits), default=None),
        "extrapolated_from": None if steps == whole else steps,
        "versions": report["versions"],
    }


def rudel_options(job: ClusterJob, seed: int, net: str) -> list[str]:
    """Options of `rudel train` for the job."""
    chosen = ["--set", f"classes={','.join(job.classes)}", "--seed", str(seed), "--steps", str(job.steps(net))]
    return [*chosen, "--json", *(["--set", f"net={net}"] if net != "mlp" else [])]


def on(site: Site, hosts: Path) -> list[str]:
    """Options of `rudel train` for the place."""
    return ["--on", str(hosts), *(["--ssh-config", str(site.ssh_config)] if site.ssh_config else [])]


def start_driver(site: Site, words: Sequence[str]) -> Program:
    """Starts `rudel` on this computer with these arguments; it ends when its standard input does."""
    lab = site.lab.settings.prefix if site.lab else "-"
    scripts = (str(CONTESTANTS / TIED), sys.executable, str(CONTESTANTS / "cluster_driver.py"))
    return start_here("rudel", sys.executable, *scripts, lab, *words)


def drive(site: Site, words: Sequence[str]) -> dict[str, Any]:
    """Runs `rudel` on this computer and returns what it tells of the air."""
    program = start_driver(site, words)
    try:
        trained = program.wait_for("trained", _LONGEST) if site.lab else {}
        program.wait_for("exited", 300.0 if site.lab else _LONGEST)
        return trained
    finally:
        program.end()


def rudel_numbers(summary: dict[str, Any], curve: list[tuple[float, float]]) -> Numbers:
    """What a summary says."""
    seconds, accuracy = summary["train_seconds"], summary["metrics"].get("val_accuracy")
    return {
        "train_seconds": seconds,
        "samples": summary["samples"],
        "accuracy": accuracy,
        "curve": curve,
        "extrapolated_from": None,
        "versions": summary["versions"],
    }


def when(rounds: Sequence[dict[str, Any]], step: int) -> float:
    """The second in which the round closed that went beyond a step."""
    closed = [line for line in rounds if "round" in line]
    return next((line["seconds"] for line in closed if line["step"] >= step), closed[-1]["seconds"])


def waited(rounds: Sequence[dict[str, Any]]) -> float:
    """The share of all replicas' time that went by in waiting."""
    hosts = [host for line in rounds if "round" in line for host in line["hosts"].values()]
    return sum(host["waited"] for host in hosts) / max(1e-9, sum(host["seconds"] for host in hosts))


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The documents in a file of JSON lines; a last one that is half written is left out."""
    found = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def send_programs(site: Site, node: int, *scripts: str) -> None:
    """Puts contestants, and what they share, on a node."""
    names = (TIED, "cluster_node.py", *scripts)
    site.send(node, {name: (CONTESTANTS / name).read_bytes() for name in names})


def send_records(site: Site, job: ClusterJob, node: int, workers: int) -> None:
    """Puts a node's share of the drawings there as records of 784 bytes for the pixels and one for the class."""
    name = f"records-{node}-of-{workers}"
    site.send_once(node, name, job.content, lambda: {"records.bin": job.records(node, workers)})


def send_share(site: Site, job: ClusterJob, node: int, workers: int) -> None:
    """Puts a node's share of the drawings there."""
    name = f"share-{node}-of-{workers}"
    site.send_once(node, name, job.content, lambda: {f"{name}.npz": job.share(node, workers)})


@contextlib.contextmanager
def memory_watched(site: Site) -> Iterator[dict[str, int]]:
    """Yields the largest resident memory of a process on each node of a lab, filled in while the block lasts."""
    peaks: dict[str, int] = {}
    if site.lab is None:
        yield peaks
        return
    over = threading.Event()
    watcher = threading.Thread(target=_watch_memory, args=(site.lab, peaks, over), daemon=True)
    watcher.start()
    try:
        yield peaks
    finally:
        over.set()
        watcher.join()


def _watch_memory(lab: Any, peaks: dict[str, int], over: threading.Event) -> None:
    from rudel.lab.quota import groups

    hierarchy = groups()
    while not over.wait(0.3):
        for name in lab.hosts:
            with contextlib.suppress(OSError, ValueError):
                for number in hierarchy.member_file(lab.settings.prefix, name).read_text().split():
                    status = Path(f"/proc/{number}/status").read_text().splitlines()
                    peak = next((int(line.split()[1]) for line in status if line.startswith("VmHWM:")), 0)
                    peaks[name] = max(peaks.get(name, 0), peak * 1024)
