"""How a rival's cell of the evaluation is measured; see `evaluate_measure.py` for the numbers."""

import dataclasses
import json
from collections.abc import Callable

import cluster_flower
import cluster_measure as measures
from cluster_job import ClusterJob
from cluster_site import Site, start_here, start_on_node
from evaluate_cells import BATCH_SIZE, EXTRAPOLATED, MODELS, Cell
from evaluate_measure import Stage, numbers_of, timed_steps
from measure import Numbers

_PS_PORT = 29_800
_LOCAL_STEPS = 64  # between two averages of PostLocalSGD: the best of 32, 64, 128 and 256


def rival(stage: Stage, cell: Cell, job: ClusterJob, seed: int, python: str, alone_seconds: float) -> Numbers:
    """A rival, see `contestants`; clocks and air as those of Rudel."""
    stage.widen()

    def begin() -> None:
        stage.narrow(cell.rate)
        stage.start()

    def end() -> None:
        stage.stop()
        stage.widen()

    site = dataclasses.replace(stage.site, begin=begin, end=end)
    found = _RIVALS[cell.strategy](site, cell, job, seed, python, alone_seconds)
    numbers = numbers_of(found["step_seconds"], found["samples"] / BATCH_SIZE, stage.counted)
    numbers["versions"] = found["versions"]
    if cell.strategy not in EXTRAPOLATED:
        numbers |= {"accuracy": found["accuracy"], "curve": found["curve"]}
    return numbers


def _all_reduce(script: str) -> Callable[..., Numbers]:
    def measured(site: Site, cell: Cell, job: ClusterJob, seed: int, python: str, alone_seconds: float) -> Numbers:
        net, each = MODELS[cell.model], BATCH_SIZE // cell.hosts
        steps = timed_steps(cell, net, 2 * (cell.hosts - 1) * net.weights * 4, alone_seconds)
        found = measures.rival(
            site, job, seed, script, python, batch_size=each, part=steps, hidden=net.hidden,
            learning_rate=net.learning_rate,
        )  # fmt: skip
        return found | {"step_seconds": found["train_seconds"] * BATCH_SIZE / job.samples}

    return measured


def _parameter_server(site: Site, cell: Cell, job: ClusterJob, seed: int, python: str, alone_seconds: float) -> Numbers:
    net = MODELS[cell.model]
    steps = timed_steps(cell, net, 2 * net.weights * 4, alone_seconds)
    parts = measures.parts_of(site, job, seed, BATCH_SIZE, net.learning_rate, 0, steps, net.hidden)
    desktop = site.desktop()
    cluster = {"worker": parts[0]["addresses"], "ps": [f"{desktop}:{_PS_PORT}"], "chief": [f"{desktop}:{_PS_PORT + 1}"]}
    programs = []
    scripts = str(measures.CONTESTANTS)
    try:
        for number in range(cell.hosts):
            measures.send_programs(site, number, "cluster_tf_server.py")
            measures.send_records(site, job, number, cell.hosts)
            given = json.dumps({"cluster": cluster, "job": "worker", "index": number})
            words = (python, python, "cluster_tf_server.py", given)
            programs.append(start_on_node(site, number, "TensorFlow's server", *words))
        given = json.dumps({"cluster": cluster, "job": "ps", "index": 0})
        tied = (python, f"{scripts}/{measures.TIED}", python)
        programs.append(start_here("TensorFlow's parameter server", *tied, f"{scripts}/cluster_tf_server.py", given))
        for program in programs:
            program.wait_for("ready", 300.0)
        given = json.dumps({"cluster": cluster, "part": parts[0]})
        words = (*tied, f"{scripts}/cluster_parameter_server.py", given)
        programs.append(start_here("TensorFlow's coordinator", *words))
        report = measures.timed(site, programs[-1:], programs[-1:])
    finally:
        for program in reversed(programs):
            program.end()
    return {"samples": steps * BATCH_SIZE, "step_seconds": report["seconds"] / steps, "versions": report["versions"]}


def _post_local_sgd(site: Site, cell: Cell, job: ClusterJob, seed: int, python: str, alone_seconds: float) -> Numbers:
    net = MODELS[cell.model]
    found = measures.rival(
        site, job, seed, "cluster_torch.py", python, batch_size=BATCH_SIZE, period=_LOCAL_STEPS, hidden=net.hidden,
        learning_rate=0.8 * cell.hosts**0.5 * net.learning_rate,
    )  # fmt: skip
    return found | {"step_seconds": found["train_seconds"] * BATCH_SIZE / found["samples"]}


def _flower(site: Site, cell: Cell, job: ClusterJob, seed: int, python: str, alone_seconds: float) -> Numbers:
    found = cluster_flower.by_start_client(site, job, seed, python, python)
    return found | {"step_seconds": found["train_seconds"] * BATCH_SIZE / found["samples"]}


_RIVALS: dict[str, Callable[..., Numbers]] = {
    "mwms": _all_reduce("cluster_tensorflow.py"),
    "ddp": _all_reduce("cluster_torch.py"),
    "parameter-server": _parameter_server,
    "post-local-sgd": _post_local_sgd,
    "flower": _flower,
}
