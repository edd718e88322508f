"""How much faster a sweep is on four hosts than on one, and what a lost host costs it.

    python benchmarks/tune.py --json tune.json

Nodes of a pretend Wi-Fi (see `rudel lab`) work on 16 equal trials, each a fixed amount of arithmetic in NumPy with a
report and a checkpoint after every tenth of it: first one node, then four, then four of which one is cut off from the
network for good when half of the trials have ended, which may take as long as three nodes need. Times are from the call
of `rudel.tune` to its end, with the connections, the workers' start and that of the processes of trials in them, and
without setting the nodes up.
"""

import json as json_format
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import rudel
from rudel.lab import Lab
from rudel.tuning.ledger import Ended
from rudel.tuning.trial import Trial

TRIALS, NODES, REPORTS = 16, 4, 10
WANTED = 3.8
RATE = 100.0  # Mbit/s, of the air


def equal(trial: Trial) -> float:
    """The same work in each trial, from the newest checkpoint on."""
    folder = trial.folder / "checkpoints"
    folder.mkdir(exist_ok=True)
    matrix = np.full((64, 64), 0.01)
    done = max((int(path.stem) for path in folder.glob("*.npz")), default=0)
    for step in range(done + 1, REPORTS + 1):
        for _ in range(trial.settings["rounds"] // REPORTS):
            matrix = np.tanh(matrix @ matrix + 0.01)
        np.savez(folder / f"{step:04}.npz", matrix=matrix)
        trial.report(trial.settings["x"], step)
    return trial.settings["x"]


def set_up(lab: Lab) -> None:
    """Sets the nodes up as hosts are."""
    command = [Path(sys.executable).with_name("rudel"), "hosts", "setup", ",".join(lab.hosts), "--offline", "--minimal"]
    subprocess.run([*command, "--ssh-config", lab.ssh_config], check=True, stdout=subprocess.DEVNULL)


def measured(lab: Lab, nodes: int, rounds: int, folder: Path, cut: bool) -> dict[str, Any]:
    """Seconds of a sweep on so many nodes, and what became of its trials."""
    ended: list[Ended] = []

    def shown(trial: Ended) -> None:
        ended.append(trial)
        if cut and len(ended) == TRIALS // 2:
            lab.cut(lab.hosts[nodes - 1])

    began = time.perf_counter()
    space = {"x": "0.0..1.0", "rounds": rounds}
    rudel.tune(
        equal,
        space,
        trials=TRIALS,
        on=lab.hosts[:nodes],
        run=folder,
        prune=False,
        ssh_config=lab.ssh_config,
        shown=shown,
    )
    return {
        "nodes": nodes,
        "cut": cut,
        "seconds": round(time.perf_counter() - began, 2),
        "finished": sum(trial.state == "finished" for trial in ended),
        "moved": sum(trial.moved for trial in ended),
        "trial_seconds": [trial.seconds for trial in ended],
    }


def main(
    rounds: Annotated[int, typer.Option(help="Matrix products of a trial.")] = 1_500_000,
    cpu: Annotated[float, typer.Option(help="Cores of a node.")] = 0.4,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the figures go.")] = None,
) -> None:
    """Measure sweeps in the lab."""
    with tempfile.TemporaryDirectory() as name:
        state = Path(name) / "lab"
        with Lab(nodes=NODES, cpu=2.0, rate=1000, prefix="tune", subnet="10.96.0", state=state) as lab:
            set_up(lab)
            for host in lab.hosts:
                lab.set_cpu(host, cpu)
            lab.set_rate(RATE)
            runs = []
            for nodes, cut in ((NODES, False), (NODES, True), (1, False)):
                runs.append(measured(lab, nodes, rounds, Path(name) / f"sweep-{nodes}-{cut}", cut))
                if cut:
                    lab.heal(lab.hosts[nodes - 1])
                typer.echo(json_format.dumps(runs[-1]))
    four, lost, one = runs
    ratio = one["seconds"] / four["seconds"]
    typer.echo(f"four nodes against one: {ratio:.2f}x (wanted {WANTED}x)")
    three = one["seconds"] * -(-TRIALS // (NODES - 1)) / TRIALS
    typer.echo(
        f"with one cut off at half: {lost['seconds']:.1f} s, {lost['finished']} of {TRIALS} trials finished (wanted "
        f"all, in no more than the {three:.1f} s of three nodes)"
    )
    if json:
        json.write_text(
            json_format.dumps({"cpu": cpu, "rounds": rounds, "runs": runs, "ratio": ratio}, indent=2) + "\n"
        )


if __name__ == "__main__":
    typer.run(main)
