"""What becomes of a training when something happens to a host, or to the computer that drives, in its middle.

    python benchmarks/faults.py --data FOLDER --python PY --json faults.json

Each time, four nodes of a pretend Wi-Fi (see `rudel lab`) train the article's MLP, for longer than the article did, and
when half of the steps are done, one thing happens to the last node, or to the driver:

| fault | what happens | s |
| --- | --- | --- |
| none | nothing; what the others are compared with | 60 |
| worker-killed | `kill -9` of the worker's process | 60 |
| host-crashed | `kill -9` of all that runs on the node; its sshd comes back at once | 60 |
| cut-20s | it is cut off from the network for 20 s; nothing is closed and nobody is told | 75 |
| cut-for-good | the same until the end | 60 |
| slowed | it has a tenth of its processor from then on | 75 |
| late | it is cut off until the middle, and the others begin without it (`--min-hosts 3`) | 75 |
| all-cut | all nodes are cut off, the training waits for 10 s and ends; they are healed, and it is resumed | 110 |
| driver-killed | `kill -9` of `rudel train`, then the same command with `--resume` | 80 |

All times are read from the run's own `rounds.jsonl`, with the clock that begins with the first step:

- standstill: the longest time between two closings of rounds in the 15 s after the fault, beside the usual one (the
  median before it). What goes on, goes on within that time. Later: the longest after these 15 s, as when a host comes
  back.
- noticed, back: when the host was told lost, and when it took part again, after the fault; for the driver, when the
  resumed command took its first step.
- rounds lost: how many rounds the host had begun and not delivered when it was lost, the one that it was in included;
  for the driver, how many closed ones had to be done again.
- accuracy: on the held-out drawings, and the difference to the undisturbed training of the same seed.
"""

import contextlib
import itertools
import json as json_format
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import measure
import typer
from claims import Verdict
from cluster_job import BATCH_SIZE, CLASSES, ClusterJob
from cluster_measure import lines_of, on, rudel_options, start_driver
from cluster_record import begun, busy_cores, end_on_sigterm, keep, measured_names, say, undisturbed, wide_console
from cluster_site import Air, Program, Site, lab_site
from measure import BenchmarkError, Numbers
from rich.console import Console
from rich.table import Table
from show import claims_table

from rudel.errors import RudelError

NODES = 4
CUT_SECONDS = 20.0
SLOWER = 10
PATIENCE = 10.0
WITHIN = {"worker-killed": 1.0, "host-crashed": 2.0, "cut-20s": 5.0, "cut-for-good": 5.0}
AS_ACCURATE = 0.007

_AFTERMATH_SECONDS = 15.0
_LONGEST = 1200.0
_LOOK_SECONDS = 0.02


def main(
    data: Annotated[Path, typer.Option(help="Folder with drawings in Quick, Draw!'s layout.")],
    python: Annotated[str | None, typer.Option(help="Interpreter with Rudel on the nodes.")] = None,
    faults: Annotated[str, typer.Option(help="Which faults.")] = "",
    seeds: Annotated[str, typer.Option(help="A round for each.")] = "0",
    steps: Annotated[int, typer.Option(help="Steps of all nodes together.")] = 131_072,
    classes: Annotated[str, typer.Option(help="Names of classes, separated by commas.")] = CLASSES,
    rate: Annotated[float, typer.Option(help="Mbit/s of the air.")] = 100.0,
    latency: Annotated[float, typer.Option(help="Milliseconds one way.")] = 1.5,
    cpu: Annotated[float, typer.Option(help="Cores of a node.")] = 0.4,
    prefix: Annotated[str, typer.Option(help="What names of the lab's nodes begin with.")] = "faults",
    subnet: Annotated[str, typer.Option(help="First three numbers of the lab's addresses.")] = "10.95.0",
    json: Annotated[Path | None, typer.Option(help="File for the numbers, written after every measurement.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure anew what --json has already.")] = False,
) -> None:
    """Measure how a training on four nodes gets over faults."""
    end_on_sigterm()
    job = ClusterJob(data.resolve(), [name.strip() for name in classes.split(",")], steps * BATCH_SIZE)
    begin = partial(lab_site, [cpu] * NODES, Air(rate, latency), python or sys.executable, prefix, subnet)
    try:
        names = checked([name.strip() for name in faults.split(",") if name.strip()] or list(FAULTS))
        about = {"classes": job.classes, "steps": steps, "rate": rate, "latency": latency, "cpu": cpu}
        document = begun(json, "faults", about, [int(seed) for seed in seeds.split(",")])
        for seed, results in zip(document["seeds"], document["rounds"], strict=True):
            for place, name in enumerate(names):
                if name in results and not again:
                    continue
                say(f"seed {seed}, {place + 1} of {len(names)}: {name}")
                busy = busy_cores()
                try:
                    numbers = undisturbed(partial(measured, begin, job, seed, name))
                except (BenchmarkError, RudelError) as error:
                    document["failures"].append(f"{name} with seed {seed} could not be measured: {error}")
                    say(f"  {document['failures'][-1]}")
                    continue
                results[name] = {"busy_cores_before": busy} | numbers
                say(f"  {json_format.dumps(results[name])}")
                document["claims"] = [asdict(verdict) for verdict in verdicts(document["rounds"])]
                keep(document, json)
    except BenchmarkError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from error
    show(wide_console(), document)
    if document["failures"]:
        raise typer.Exit(1)


def checked(names: Sequence[str]) -> list[str]:
    """The faults asked for; what they are compared with comes first.

    Raises:
        BenchmarkError: there is no such fault.
    """
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise BenchmarkError(f"There is no fault {unknown[0]}: there are {', '.join(FAULTS)}.")
    return list(dict.fromkeys(["none", *names]))


def measured(
    begin: Callable[[], contextlib.AbstractContextManager[Site]], job: ClusterJob, seed: int, name: str
) -> Numbers:
    """Trains in a lab, lets the fault happen in the middle, and reads what came of it."""
    with begin() as site, tempfile.TemporaryDirectory() as folder, site.hosts_file(NODES) as hosts:
        run = Path(folder) / "run"
        words = ["train", "quickdraw", "--data", str(job.data), "--run", str(run)]
        words += [*rudel_options(job, seed, "mlp"), *on(site, hosts)]
        return FAULTS[name](site, words, run, job.steps("mlp") // 2)


def with_nothing(site: Site, words: Sequence[str], run: Path, middle: int) -> Numbers:
    """An undisturbed training."""
    return _disturbed(site, words, run, middle, lambda victim: None)


def with_a_killed_worker(site: Site, words: Sequence[str], run: Path, middle: int) -> Numbers:
    """`kill -9` of the worker's process on a node."""
    return _disturbed(site, words, run, middle, lambda victim: os.kill(worker_of(site, victim), signal.SIGKILL))


def with_a_crashed_host(site: Site, words: Sequence[str], run: Path, middle: int) -> Numbers:
    """`kill -9` of everything on a node."""
    return _disturbed(site, words, run, middle, site.lab.crash)


def with_a_cut(site: Site, words: Sequence[str], run: Path, middle: int) -> Numbers:
    """A node cut off for a while."""
    return _disturbed(site, words, run, middle, site.lab.cut, site.lab.heal)


def with_a_cut_for_good(site: Site, words: Sequence[str], run: Path, middle: int) -> Numbers:
    """A node cut off until the end."""
    return _disturbed(site, words, run, middle, site.lab.cut)


def with_a_killed_driver(site: Site, words: Sequence[str], run: Path, middle: int) -> Numbers:
    """`kill -9` of the driver, then the same command with `--resume`."""
    driver = start_driver(site, words)
    try:
        number = driver.wait_for("driver", 60.0)["pid"]
        _wait_for_step(driver, run, middle)
        os.kill(number, signal.SIGKILL)
        killed = time.perf_counter()
        driver.process.wait(30.0)
    finally:
        driver.end()
    return _resumed(site, words, run, closings(lines_of(run / "rounds.jsonl"))[-1], killed)


def with_a_slowed_host(site: Site, words: Sequence[str], run: Path, middle: int) -> Numbers:
    """A node that has a tenth of its processor from then on."""
    share = site.lab.settings.nodes[-1].cpu / SLOWER
    return _disturbed(site, words, run, middle, lambda victim: site.lab.set_cpu(victim, share))


def with_a_late_host(site: Site, words: Sequence[str], run: Path, middle: int) -> Numbers:
    """A node that cannot be reached when the training begins."""
    site.lab.cut(site.lab.hosts[-1])
    return _disturbed(site, [*words, "--min-hosts", str(NODES - 1)], run, middle, site.lab.heal)


def with_all_cut(site: Site, words: Sequence[str], run: Path, middle: int) -> Numbers:
    """Nobody is left, for longer than the training waits; later everybody is back, and it is resumed."""
    driver = start_driver(site, [*words, "--host-timeout", str(PATIENCE)])
    try:
        _wait_for_step(driver, run, middle)
        for name in site.lab.hosts:
            site.lab.cut(name)
        cut = time.perf_counter()
        code = driver.wait_for("exited", PATIENCE + 60.0, may_fail=True)["code"]
        ended = time.perf_counter()
    finally:
        driver.end()
    if code != 2:
        raise BenchmarkError(f"{driver.name} ended with code {code} without any node, not with 2.")
    before = closings(lines_of(run / "rounds.jsonl"))[-1]
    for name in site.lab.hosts:
        site.lab.heal(name)
    return _resumed(site, words, run, before) | {"noticed_seconds": ended - cut, "reason": driver.last_error}


FAULTS: Mapping[str, Callable[[Site, Sequence[str], Path, int], Numbers]] = {
    "none": with_nothing,
    "worker-killed": with_a_killed_worker,
    "host-crashed": with_a_crashed_host,
    "cut-20s": with_a_cut,
    "cut-for-good": with_a_cut_for_good,
    "slowed": with_a_slowed_host,
    "late": with_a_late_host,
    "all-cut": with_all_cut,
    "driver-killed": with_a_killed_driver,
}


def _resumed(
    site: Site, words: Sequence[str], run: Path, before: Mapping[str, Any], since: float | None = None
) -> Numbers:
    """Goes on with a training that ended after the round `before`; tells how long `since` some moment that took."""
    driver = start_driver(site, [*words, "--resume"])
    try:
        resumed = driver.wait_for("begun", 300.0)
        trained = driver.wait_for("trained", _LONGEST)
        driver.wait_for("exited", 300.0)
    finally:
        driver.end()
    return _told(run, lines_of(run / "rounds.jsonl"), trained) | {
        "at_seconds": before["seconds"],
        "rounds_lost": max(0, before["round"] - resumed["round"]),
        "back_seconds": None if since is None else resumed["at"] - since,
    }


def _disturbed(
    site: Site,
    words: Sequence[str],
    run: Path,
    middle: int,
    disturb: Callable[[str], None],
    mend: Callable[[str], None] | None = None,
) -> Numbers:
    driver, victim = start_driver(site, words), site.lab.hosts[-1]
    try:
        _wait_for_step(driver, run, middle)
        at = time.perf_counter()
        disturb(victim)
        if mend:
            time.sleep(CUT_SECONDS)
            mend(victim)
        trained = driver.wait_for("trained", _LONGEST)
        driver.wait_for("exited", 300.0)
    finally:
        driver.end()
    rounds = lines_of(run / "rounds.jsonl")
    host = f"{site.hosts[-1]}"
    return _told(run, rounds, trained) | after_fault(rounds, host, at - trained["began"])


def worker_of(site: Site, node: str) -> int:
    """The number, seen from this computer, of the worker's process on a node of the lab.

    Raises:
        BenchmarkError: there is none.
    """
    from rudel.lab.quota import groups

    for number in groups().member_file(site.lab.settings.prefix, node).read_text().split():
        words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
        if b"rudel.cluster.worker" in words and not words[0].endswith(b"sh"):
            return int(number)
    raise BenchmarkError(f"No worker runs on {node}.")


def closings(rounds: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The lines of rounds, without those of events."""
    return [line for line in rounds if "round" in line]


def after_fault(rounds: Sequence[Mapping[str, Any]], host: str, at: float) -> Numbers:
    """What `rounds.jsonl` tells of a fault.

    Args:
        rounds: its documents.
        host: which host it happened to.
        at: when, in seconds since the training began.
    """
    moments = [closed["seconds"] for closed in closings(rounds)]
    gaps = [(later, later - earlier) for earlier, later in itertools.pairwise(moments)]
    delivered = [n for n, closed in enumerate(closings(rounds)) if closed["seconds"] <= at and host in closed["hosts"]]
    begun_at = sum(moment <= at for moment in moments)
    last = delivered[-1] if delivered else begun_at  # a host that is late has nothing to lose
    if begun_at < len(moments) and host in closings(rounds)[begun_at]["hosts"]:
        last = begun_at  # it had delivered already, or did so in time
    lost, back = _event(rounds, "lost", host, at), _event(rounds, "joined", host, at)
    return {
        "at_seconds": at,
        "usual_seconds": statistics.median(gap for later, gap in gaps if later <= at),
        "standstill_seconds": max(gap for later, gap in gaps if at < later <= at + _AFTERMATH_SECONDS),
        "later_round_seconds": statistics.median(
            [gap for later, gap in gaps if later > at + _AFTERMATH_SECONDS] or [math.nan]
        ),
        "later_standstill_seconds": max((gap for later, gap in gaps if later > at + _AFTERMATH_SECONDS), default=None),
        "noticed_seconds": None if lost is None else lost["seconds"] - at,
        "reason": None if lost is None else lost["reason"],
        "back_seconds": None if back is None else back["seconds"] - at,
        "rounds_lost": max(1, begun_at - last) if delivered else 0,
        "events": [
            [round(line["seconds"] - at, 3), line["event"], line["host"], line["reason"]]
            for line in rounds
            if "event" in line
        ],
        "round_steps": closings(rounds)[delivered[-1]]["hosts"][host]["steps"] if delivered else None,
    }


def _event(rounds: Sequence[Mapping[str, Any]], event: str, host: str, at: float) -> Mapping[str, Any] | None:
    found = (line for line in rounds if line.get("event") == event and line["host"] == host and line["seconds"] > at)
    return next(found, None)


def _wait_for_step(driver: Program, run: Path, step: int) -> None:
    deadline = time.monotonic() + _LONGEST
    while not any(line.get("step", 0) >= step for line in lines_of(run / "rounds.jsonl")[-4:]):
        if driver.process.poll() is not None:
            raise BenchmarkError(f"{driver.name} ended before its middle ({driver.last_error}).")
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{driver.name} did not come to its middle within {_LONGEST:g} s.")
        time.sleep(_LOOK_SECONDS)


def _told(run: Path, rounds: Sequence[dict[str, Any]], trained: Mapping[str, Any]) -> Numbers:
    summary = json_format.loads((run / "summary.json").read_text())
    return {
        "train_seconds": summary["train_seconds"],
        "steps": summary["samples"] // BATCH_SIZE,
        "accuracy": summary["metrics"]["val_accuracy"],
        "workers_lost": summary["workers_lost"],
        "workers_joined": summary["workers_joined"],
        "air_bytes": trained["air_bytes"],
    }


def verdicts(rounds: measure.Rounds) -> list[Verdict]:
    """A verdict on every claim."""
    found = [_within(rounds, name, seconds) for name, seconds in WITHIN.items()]
    found += [_lost(rounds, name) for name in WITHIN]
    found += [_as_accurate(rounds, name) for name in FAULTS if name != "none"]
    return [*found, *(_nothing_else(rounds, name) for name in ("driver-killed", "all-cut")), _not_held_up(rounds)]


def _within(rounds: measure.Rounds, name: str, seconds: float) -> Verdict:
    longest = measure.values(rounds, name, "standstill_seconds")
    text = f"{name}: goes on within {seconds:g} s"
    return Verdict(text, max(longest), max(longest) <= seconds) if longest else Verdict(text, None, None)


def _lost(rounds: measure.Rounds, name: str) -> Verdict:
    most = measure.values(rounds, name, "rounds_lost")
    text = f"{name}: at most its current round is lost"
    return Verdict(text, max(most), max(most) <= 1) if most else Verdict(text, None, None)


def _not_held_up(rounds: measure.Rounds) -> Verdict:
    """Three nodes and a tenth of one should take 4 / 3.1 of the usual time; what is asked for is less than 4 / 2.9."""
    longest = measure.values(rounds, "slowed", "later_round_seconds")
    usual = measure.values(rounds, "slowed", "usual_seconds")
    text = "slowed: rounds take less than 1.5 times as long, and not ten times"
    if not longest:
        return Verdict(text, None, None)
    factor = max(later / before for later, before in zip(longest, usual, strict=True))
    return Verdict(text, factor, factor < 1.5)


def _nothing_else(rounds: measure.Rounds, name: str) -> Verdict:
    most = measure.values(rounds, name, "rounds_lost")
    text = f"{name}: nothing but the last round is done again"
    return Verdict(text, max(most), max(most) <= 1) if most else Verdict(text, None, None)


def _as_accurate(rounds: measure.Rounds, name: str) -> Verdict:
    text = f"{name}: as accurate as without, within 0.7 points"
    pairs = [(numbers[name], numbers["none"]) for numbers in rounds if name in numbers and "none" in numbers]
    if not pairs:
        return Verdict(text, None, None)
    difference = statistics.fmean(one["accuracy"] - other["accuracy"] for one, other in pairs)
    return Verdict(text, difference, difference >= -AS_ACCURATE)


def show(console: Console, document: Mapping[str, Any]) -> None:
    """Prints the tables."""
    job = document["job"]
    console.print(
        f"{job['steps']:,} steps of batch {BATCH_SIZE}, {NODES} nodes of {job['cpu']:g} core, {job['rate']:g} Mbit/s, "
        f"{document['machine']['cores']} cores of {document['machine']['processor']}",
        highlight=False,
    )
    headings = (
        "at, s",
        "usual, s",
        "standstill, s",
        "later, s",
        "noticed, s",
        "back, s",
        "rounds lost",
        "training, s",
        "accuracy",
    )
    table = Table("fault", *headings, title="medians over the seeds; of standstill and rounds lost the largest")
    for name in measured_names(document):
        table.add_row(name, *_row(document["rounds"], name))
    console.print(table)
    console.print(claims_table(document["claims"]))
    for failure in document["failures"]:
        console.print(failure, highlight=False)


def _row(rounds: measure.Rounds, name: str) -> list[str]:
    def cell(number: str, write: str, choose: Callable[[Sequence[float]], float] = statistics.median) -> str:
        found = measure.values(rounds, name, number)
        return format(choose(found), write) if found else ""

    disturbed = name != "none"
    return [
        cell("at_seconds", ".1f") if disturbed else "",
        cell("usual_seconds", ".2f"),
        cell("standstill_seconds", ".2f", max),
        cell("later_standstill_seconds", ".2f", max),
        cell("noticed_seconds", ".2f"),
        cell("back_seconds", ".2f"),
        cell("rounds_lost", ".0f", max) if disturbed else "",
        cell("train_seconds", ".1f"),
        cell("accuracy", ".4f"),
    ]


if __name__ == "__main__":
    typer.run(main)
