"""The servers that are compared: how each is started, and when it answers."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure

NAME = "quickdraw"
CONTESTANTS = Path(__file__).with_name("contestants")


@dataclass(frozen=True)
class Place:
    """A server.

    Args:
        name: what tables call it.
        command: that starts it on a port.
        environment: variables for it.
        forms: of requests that it takes.
    """

    name: str
    command: Callable[[int], list[str]]
    environment: Mapping[str, str]
    forms: tuple[str, ...] = ("json", "binary")


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rudel_server(run: Path, name: str, *options: str) -> Place:
    """Rudel, by default as it is by default."""
    program = "from rudel.cli.main import run; run()"
    return Place(
        "rudel",
        lambda port: [sys.executable, "-c", program, "serve", f"{name}={run}", "--port", str(port), *options],
        {"JAX_PLATFORMS": "cpu"},
    )


def mlserver(python: Path, weights: Path, name: str, folder: Path) -> list[Place]:
    """MLServer: without and with adaptive batching, and in one process as well as with a worker."""
    return [_mlserver(python, weights, name, folder, workers, batch) for workers in (0, 1) for batch in (0, 64)]


def _mlserver(python: Path, weights: Path, name: str, folder: Path, workers: int, batch: int) -> Place:
    own = folder / f"mlserver-{workers}-{batch}"
    own.mkdir()
    model = {"name": name, "implementation": "serve_mlserver.Runtime", "parameters": {"uri": str(weights)}}
    if batch:
        model |= {"max_batch_size": batch, "max_batch_time": 0.002}
    (own / "model-settings.json").write_text(json.dumps(model))

    def command(port: int) -> list[str]:
        settings = {"debug": False, "host": "127.0.0.1", "http_port": port, "grpc_port": free_port()}
        settings |= {"metrics_endpoint": None, "parallel_workers": workers, "gzip_enabled": False}
        (own / "settings.json").write_text(json.dumps(settings))
        return [str(python.with_name("mlserver")), "start", str(own)]

    title = f"mlserver, {'a worker' if workers else 'one process'}{', batching' if batch else ''}"
    return Place(title, command, {"PYTHONPATH": str(CONTESTANTS), "JAX_PLATFORMS": "cpu"}, ("json",))


def kserve(python: Path, weights: Path, name: str) -> Place:
    """KServe's Python server, in one process."""
    script = str(CONTESTANTS / "serve_kserve.py")
    return Place(
        "kserve",
        lambda port: [str(python), script, str(weights), name, str(port)],
        {"PYTHONPATH": str(CONTESTANTS), "JAX_PLATFORMS": "cpu"},
    )


@contextlib.contextmanager
def serving(place: Place, port: int) -> Iterator[None]:
    """A server, from when it answers until the block ends."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            place.command(port), stdout=log, stderr=log, env=os.environ | place.environment, start_new_session=True
        )
        try:
            _wait(process, f"http://127.0.0.1:{port}/v2/models/{NAME}/ready", place.name, log)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: Any, address: str, name: str, log: Any) -> None:
    end = time.monotonic() + 120
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5):
            return
        if process.poll() is not None or time.monotonic() > end:
            log.seek(0)
            last = log.read().decode(errors="replace").strip().splitlines()[-3:]
            raise measure.BenchmarkError(f"{name} does not answer ({' '.join(last)}).")
        time.sleep(0.1)
