"""What tests of the live page share: a training to watch, and the page served."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from processes import LONG

from rudel.listening import listener
from rudel.runs import run_directory
from rudel.watch.app import make_app
from rudel.watch.board import Board

CONFIG = {
    "recipe": "digits", "strategy": "single", "epochs": 4, "steps": None, "batch_size": 32, "data": {"train": 320},
    "model": {"parameters": 1234}, "started": "2026-11-20T13:01:02+00:00",
}  # fmt: skip


def epoch(number: float, **more: Any) -> dict[str, Any]:
    """A line of metrics.jsonl: ten steps and half a second an epoch."""
    line = {"epoch": number, "step": int(10 * number), "seconds": 0.5 * number, "learning_rate": 0.001}
    line |= {
        "loss": 1 / number,
        "accuracy": 1 - 0.4 / number,
        "val_loss": 1.1 / number,
        "val_accuracy": 1 - 0.5 / number,
    }
    return line | more


def closed_round(number: int, hosts: tuple[str, ...] = ("pi@raspi1", "pi@raspi2"), **more: Any) -> dict[str, Any]:
    """A line of rounds.jsonl: each host takes five steps in half a second, a fifth of which it waits."""
    figures = {
        "steps": 5, "seconds": 0.5, "waited": 0.1, "merged_at": 1, "memory": 3e8, "cpu": 0.4, "sent": 1000 * number,
        "received": 2000 * number,
    }  # fmt: skip
    line = {
        "round": number,
        "step": 5 * len(hosts) * number,
        "seconds": 0.5 * number,
        "sent": 1000 * len(hosts) * number,
    }
    return line | {"received": 2000 * len(hosts) * number, "hosts": dict.fromkeys(hosts, figures)} | more


class Training:
    """A run directory in the hands of a training, which writes it with what a real one writes it with."""

    def __init__(self, path: Path, resume: bool = False) -> None:
        self.path = path
        self._run = run_directory.create(path, resume)

    def begin(self, **changes: Any) -> "Training":
        self._run.write_config(CONFIG | changes)
        self._run.write_metrics([])
        return self

    def go_on_from(self, epochs: int) -> "Training":
        """As after a resumption from a checkpoint of that epoch."""
        self._run.write_config(self._run.read_config())
        self._run.mark_unfinished()
        self._run.write_metrics([epoch(number) for number in range(1, epochs + 1)])
        return self

    def epochs(self, *numbers: float) -> "Training":
        return self.metrics(*(epoch(number) for number in numbers))

    def metrics(self, *lines: dict[str, Any]) -> "Training":
        for line in lines:
            self._run.append_metrics(line)
        return self

    def rounds(self, *lines: dict[str, Any]) -> "Training":
        for line in lines:
            self._run.append_round(line)
        return self

    def end(self) -> None:
        """Finishes the run."""
        summary = {"steps": 40, "train_seconds": 2.0, "total_seconds": 9.0, "metrics": {"val_accuracy": 0.875}}
        self._run.write_summary(summary)
        (self.path / "report.html").write_text("<!DOCTYPE html><title>the report</title><p>All of it.</p>")
        self._run.release()

    def stop(self) -> None:
        """Ends as a process does that is killed."""
        self._run.release()


class Served:
    """The page of some runs, served in this process at an address of its own."""

    def __init__(self, *runs: Path, allowed: tuple[str, ...] = (), port: int = 0) -> None:
        self._listener = listener("127.0.0.1", port, 128)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        app = make_app(Board(runs), allowed, lambda: self._server.should_exit)
        config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=3)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})
        self._thread.start()

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content of an answer."""
        names = {name.replace("_", "-").title(): value for name, value in headers.items()}
        host = names.pop("Host", f"127.0.0.1:{self.port}")
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close", *(f"{k}: {v}" for k, v in names.items())]
        with socket.create_connection(("127.0.0.1", self.port), timeout=LONG) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        status, *rest = head.decode().splitlines()
        return int(status.split()[1]), {n.lower(): v for n, _, v in (line.partition(": ") for line in rest)}, body

    def runs(self) -> list[dict[str, Any]]:
        return json.loads(self.get("/runs")[2])["runs"]

    @contextlib.contextmanager
    def events(self) -> Iterator[Iterator[dict[str, Any]]]:
        """The events, one after the other, as they come."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LONG) as connection:
            connection.sendall(f"GET /events HTTP/1.0\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())
            lines = connection.makefile("rb")
            yield (json.loads(line[6:]) for line in lines if line.startswith(b"data: {"))

    def end(self) -> None:
        """Ends the server."""
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._listener.close()
