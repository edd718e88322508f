"""`rudel`, `dask` and `python` as programs that begin with everything imported."""

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from warm.client import counted

HERE = Path(__file__).parent

JAX = (
    "rudel.backend:keras_on_jax", "rudel.cli.application", "rudel.export.exporting", "rudel.report.report_page",
    "rudel.recipes.digits", "rudel.training.fit", "rudel.training.from_recipe", "rudel.training.plan_recipe",
    "rudel.runs.loading", "rudel.runs.evaluate_run", "rudel.tuning.tune", "rudel.tuning.sweep", "rudel.play.player",
    "rudel.replicas.diloco.round_leader", "rudel.replicas.replica",
    "rudel.mesh.hosts.join", "rudel.mesh.hosts.job_parcel", "rudel.mesh.hosts.relay", "rudel.mesh.mesh_engine",
    "distributed.cli.dask_worker", "multiprocessing.spawn",
    "jax.experimental.multihost_utils", "jaxlib.mlir.dialects.builtin", "sklearn.datasets", "optuna",
    "matplotlib.figure", "matplotlib.backends.backend_svg", "PIL.ImageFont", "PIL.ImageOps", "PIL.JpegImagePlugin",
    "rich.progress", "typer._adapters", "typer._coercion",
)  # fmt: skip
TENSORFLOW = ("rudel.export.process:import_tensorflow", "rudel.backend:keras_here", "rudel.export.converter.litert")


@contextlib.contextmanager
def started_zygotes(zygotes: Mapping[tuple[str, ...], Mapping[str, str]]) -> Iterator[list[dict[str, Any]]]:
    """Starts zygotes, which import nothing before their first command; yields where they are.

    Args:
        zygotes: by what they import: the environment of their commands. A command with any other starts as always.
    """
    with contextlib.ExitStack() as stack:
        sockets = stack.enter_context(tempfile.TemporaryDirectory())  # their paths must be short
        places = []
        for number, (modules, environment) in enumerate(zygotes.items()):
            path = f"{sockets}/{number}"
            places.append({"socket": path, "environment": counted(dict(environment))})
            stack.enter_context(_zygote(path, modules, environment))
        yield places


def put_programs(folder: Path, places: Sequence[Mapping[str, Any]]) -> None:
    """Makes `rudel`, `dask` and `python` in a folder that begin with what these zygotes have imported."""
    scripts = {name: str(Path(sys.executable).with_name(name)) for name in ("rudel", "dask")}
    programs = {"python": sys.executable, **scripts}
    (folder / "places.json").write_text(json.dumps({"programs": programs, "zygotes": places}))
    shutil.copy(HERE / "client.py", folder)
    for name in programs:
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {folder}/client.py {name} "$@"\n')
        (folder / name).chmod(0o755)


@contextlib.contextmanager
def warm_programs(folder: Path, zygotes: Mapping[tuple[str, ...], Mapping[str, str]]) -> Iterator[None]:
    """Both: starts zygotes, and makes programs in a folder that use them."""
    with started_zygotes(zygotes) as places:
        put_programs(folder, places)
        yield


@contextlib.contextmanager
def _zygote(path: str, modules: Sequence[str], environment: Mapping[str, str]) -> Iterator[None]:
    command = [sys.executable, HERE / "zygote.py", path, *modules]
    with subprocess.Popen(command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as zygote:
        assert zygote.stdout is not None
        zygote.stdout.readline()
        yield


class Forked:
    """A process that a zygote has forked, used like a subprocess.Popen; any signal reaches it, SIGSTOP too."""

    def __init__(
        self,
        path: str,
        code: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: int,
        own: str = sys.executable,
    ) -> None:
        request = {"arguments": ["-c", code, *arguments], "folder": str(Path.cwd()), "environment": dict(environment)}
        text = json.dumps(request | {"ignored": [], "own": own}).encode()
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(path)
        nothing = os.open(os.devnull, os.O_RDONLY)
        socket.send_fds(self._connection, [b"%d\n" % len(text)], [nothing, log, log])
        os.close(nothing)
        self._connection.sendall(text)
        self._answers = self._connection.makefile("r")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """Its exit status, or None while it runs."""
        ended = self._answers.closed or select.select([self._connection], [], [], 0)[0]
        return self.wait() if ended else None

    def send_signal(self, number: int) -> None:
        """Sends it a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Its exit status, when it has ended."""
        if not self._answers.closed:
            self._code = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self._code


@contextlib.contextmanager
def forking(modules: Sequence[str], environment: Mapping[str, str]) -> Iterator[Callable[..., Forked]]:
    """Yields what starts programs `(code, arguments, environment, log, own)` with these modules imported.

    `own` is the interpreter by which they start others.
    """
    with tempfile.TemporaryDirectory() as folder, _zygote(f"{folder}/zygote", modules, environment):
        yield lambda *how: Forked(f"{folder}/zygote", *how)
