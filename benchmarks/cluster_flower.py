"""Flower on the nodes, in the two ways that it offers; see the contestants' own docstrings.

The server is on the desktop, the clients are on the nodes, and nothing is encrypted. 8 rounds of 256 steps a client,
batches of 32, Adam with a rate of 2e-3.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cluster_job import BATCH_SIZE, ClusterJob
from cluster_measure import CONTESTANTS, memory_watched, parts_of, rival_numbers, send_programs, send_share, timed
from cluster_site import TIED, Program, Site, start_here, start_on_node
from measure import BenchmarkError, Numbers

LOCAL_STEPS = 256

_PORT, _LINK_PORT = 29_600, 29_700
_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
_SHARED = ("cluster_node.py", "cluster_numpy_net.py")
_LONGEST = 1800.0

_APP = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "drawings"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "benchmark"

[tool.flwr.app.components]
serverapp = "cluster_flower_app:server"
clientapp = "cluster_flower_app:client"

[tool.flwr.app.config]
folder = {folder}
"""

_CONNECTION = """\
[superlink]
default = "here"

[superlink.here]
address = "{address}"
insecure = true
"""


def by_start_client(site: Site, job: ClusterJob, seed: int, python: str, here: str) -> Numbers:
    """`start_server` on the desktop and `start_client` on the nodes.

    Args:
        site: where.
        job: what.
        seed: of weights, dropout and order.
        python: the interpreter with Flower on the nodes.
        here: the same on this computer.
    """
    script = "cluster_flower_client.py"
    server = f"{site.desktop()}:{_PORT + seed}"
    with tempfile.TemporaryDirectory() as folder:
        for name in (TIED, "cluster_flower_server.py", *_SHARED):
            shutil.copy(CONTESTANTS / name, folder)

        def started(parts: Sequence[dict[str, Any]]) -> list[Program]:
            given = json.dumps(parts[0] | {"server": server})
            words = (here, TIED, here, "cluster_flower_server.py", given)
            programs = [start_here("Flower's server", *words, environment=os.environ | _QUIET, folder=folder)]
            for node, part in enumerate(parts):
                words = _environment(python, script, json.dumps(part | {"server": server}))
                programs.append(start_on_node(site, node, "Flower's client", python, *words))
            return programs

        return _measured(site, job, seed, started, Path(folder), (script, "cluster_numpy_net.py"))


def _measured(
    site: Site,
    job: ClusterJob,
    seed: int,
    started: Callable[[Sequence[dict[str, Any]]], list[Program]],
    folder: Path,
    scripts: Sequence[str],
) -> Numbers:
    parts = _prepared(site, job, seed, scripts)
    steps = parts[0]["steps"]
    programs = started(parts)
    try:
        report = timed(site, programs[:1], programs[:1])
        programs[0].wait_for("saved", 60.0)
        exits = [program.wait_for("exited", 60.0) for program in programs[1:]]
    finally:
        for program in programs:
            program.end()
    snapshots = (folder / "snapshots.npz").read_bytes()
    samples = steps * BATCH_SIZE * len(parts)
    return rival_numbers(job, report, snapshots, exits, steps, steps) | {"samples": samples}


def by_supernodes(site: Site, job: ClusterJob, seed: int, python: str, here: str) -> Numbers:
    """A SuperLink on the desktop, a SuperNode on every node, and `flwr run`; arguments as of `by_start_client`."""
    parts = _prepared(site, job, seed, ("cluster_flower_app.py", "cluster_numpy_net.py"))
    link = f"{site.desktop()}:{_LINK_PORT + seed}"
    with tempfile.TemporaryDirectory() as folder, memory_watched(site) as peaks:
        app, talk = Path(folder) / "app", Path(folder) / "talk"
        _write_app(app, talk, link, parts[0])
        environment = os.environ | _QUIET | {"FLWR_HOME": str(Path(folder) / "home")}
        environment["PATH"] = f"{Path(here).parent}:{environment['PATH']}"
        programs: list[Program] = []
        try:
            words = ("flower-superlink", "--insecure", "--host", link.split(":")[0], "--port", link.split(":")[1])
            words = (here, str(CONTESTANTS / TIED), *words, "--disable-runtime-dependency-installation")
            programs.append(start_here("Flower's SuperLink", *words, environment=environment))
            for node, part in enumerate(parts):
                programs.append(_supernode(site, node, part, link, python))
            _submit(app, environment)
            numbers = _followed(site, job, programs, parts, talk)
            return numbers | {"peak_bytes": max(peaks.values(), default=None)}
        finally:
            for program in programs:
                program.end()


def _prepared(site: Site, job: ClusterJob, seed: int, scripts: Sequence[str]) -> list[dict[str, Any]]:
    workers = len(site.hosts)
    steps = max(1, job.samples // (BATCH_SIZE * workers) // LOCAL_STEPS) * LOCAL_STEPS
    for node in range(workers):
        send_programs(site, node, *scripts)
        send_share(site, job, node, workers)
    return parts_of(site, job, seed, BATCH_SIZE, 2e-3, LOCAL_STEPS, steps)


def _write_app(app: Path, talk: Path, link: str, part: dict[str, Any]) -> None:
    app.mkdir()
    talk.mkdir()
    home = app.with_name("home")
    home.mkdir()
    (home / "config.toml").write_text(_CONNECTION.format(address=link))
    (app / "pyproject.toml").write_text(_APP.format(folder=json.dumps(str(talk))))
    for name in ("cluster_flower_app.py", *_SHARED):
        shutil.copy(CONTESTANTS / name, app)
    (talk / "part.json").write_text(json.dumps(part))


def _supernode(site: Site, node: int, part: dict[str, Any], link: str, python: str) -> Program:
    home = site.call(node, "pwd").decode().strip()
    config = f'rank={part["rank"]} folder="{home}"'
    words = ("flower-supernode", "--insecure", "--superlink", link, "--node-config", config)
    return start_on_node(site, node, "Flower's SuperNode", python, *_environment(python, *words, program=True))


def _submit(app: Path, environment: dict[str, str]) -> None:
    """Hands the app to the SuperLink, as soon as that answers."""
    deadline = time.monotonic() + 60.0
    while True:
        words = ["flwr", "run", str(app), "here"]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode == 0:
            return
        if time.monotonic() > deadline:
            output = " ".join(word for word in (done.stdout + done.stderr).split() if word.isascii())
            raise BenchmarkError(f"`flwr run` ended with code {done.returncode} ({output[-300:]}).")
        time.sleep(1.0)


def _followed(
    site: Site, job: ClusterJob, programs: Sequence[Program], parts: Sequence[dict[str, Any]], talk: Path
) -> Numbers:
    _wait_for(talk / "ready", programs, 300.0)
    before = site.on_air()
    (talk / "go").touch()
    _wait_for(talk / "done", programs, _LONGEST)
    after = site.on_air()
    report = json.loads((talk / "done").read_text())
    report["air_bytes"] = None if after is None or before is None else after - before
    steps = parts[0]["steps"]
    snapshots = (talk / "snapshots.npz").read_bytes()
    numbers = rival_numbers(job, report, snapshots, [], steps, steps)
    return numbers | {"samples": steps * BATCH_SIZE * len(parts)}


def _wait_for(path: Path, programs: Sequence[Program], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        for program in programs:
            if program.process.poll() is not None:
                raise BenchmarkError(f"{program.name} has ended ({program.last_error}).")
        if time.monotonic() > deadline:
            raise BenchmarkError(f"Flower did nothing for {seconds:g} s ({programs[0].last_error}).")
        time.sleep(0.05)


def _environment(python: str, *words: str, program: bool = False) -> list[str]:
    """A command on a node, with the benchmark's folder on Python's path and the programs beside Python on the other."""
    folder = str(Path(python).parent)
    settings = [f"{name}={value}" for name, value in _QUIET.items()]
    settings += ["PYTHONPATH=.", f"PATH={folder}:/usr/bin:/bin"]
    return ["env", *settings, *([] if program else [python]), *words]
