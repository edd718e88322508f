"""`python -m rudel.tuning.trial_process`: the trials of one computer, one after the other.

It reads frames from standard input, the objective first and then a trial each, and writes what happens to standard
output. It ends when standard input does, which is when whoever started it is gone, in whatever way. Messages are
msgpack, each after its length; whatever an objective prints goes to standard error.
"""

import io
import os
import pickle
import platform
import queue
import struct
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgpack

from rudel.garbage_collection import collect_seldom

_LENGTH = struct.Struct("<Q")

_SHARE = 20
"""Sending a checkpoint may take one of so many seconds."""


def pack(message: dict[str, Any]) -> bytes:
    """A frame."""
    content: Any = msgpack.packb(message)
    return _LENGTH.pack(len(content)) + content


def length_of(header: bytes) -> int:
    """Bytes of the message behind this header of a frame."""
    return _LENGTH.unpack(header)[0]


HEADER = _LENGTH.size


class Channel:
    """Frames from and to whoever started this process."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink
        self._frames: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message."""
        self._sink.write(pack(message))
        self._sink.flush()

    def receive(self) -> dict[str, Any]:
        """Waits for the next message."""
        return self._frames.get()

    def _read(self) -> None:
        while len(header := self._source.read(HEADER)) == HEADER:
            self._frames.put(msgpack.unpackb(self._source.read(length_of(header))))
        os._exit(0)


class Checkpoints:
    """Sends the checkpoints in a folder to where they outlive this computer, at a small share of the time."""

    def __init__(self, folder: Path, channel: Channel) -> None:
        self._folder, self._channel = folder, channel
        self._sent: set[str] = set()
        self._not_before = 0.0

    def send(self) -> None:
        """Sends the newest one, with the best weights, if it is due and new."""
        newest = max((p for p in self._folder.glob("*.npz") if not p.name.startswith("best")), default=None)
        if newest is None or newest.name in self._sent or time.monotonic() < self._not_before:
            return
        began = time.monotonic()
        files = {path.name: path.read_bytes() for path in (newest, *self._folder.glob("best-*.npz"))}
        self._channel.send({"kind": "checkpoint", "files": files})
        self._channel.receive()
        self._sent.add(newest.name)
        self._not_before = time.monotonic() + _SHARE * (time.monotonic() - began)


def main() -> None:
    """Reads the objective, then works on trials until nobody is there."""
    collect_seldom()
    channel = Channel(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    content = channel.receive()["objective"]
    objectives: list[Callable[..., Any]] = []
    while True:
        trial = channel.receive()
        try:
            if not objectives:
                objectives.append(pickle.loads(content))
            _work(objectives[0], trial, channel)
        except Exception as error:
            import traceback

            from rudel.errors import RudelError

            message = str(error) if isinstance(error, RudelError) else f"{type(error).__name__}: {error}"
            if isinstance(error, ModuleNotFoundError):
                message = (
                    f"{platform.node()} has no package `{error.name}`: install it, or run `rudel hosts setup` without "
                    "--minimal."
                )
            channel.send({"kind": "failed", "text": message, "traceback": traceback.format_exc()})


def _work(objective: Callable[..., Any], order: dict[str, Any], channel: Channel) -> None:
    from rudel.tuning.trial import Pruned, Trial

    with tempfile.TemporaryDirectory(prefix="rudel-trial-") as name:
        folder = Path(name)
        checkpoints = folder / "checkpoints"
        for file, content in order["files"].items():
            checkpoints.mkdir(exist_ok=True)
            (checkpoints / Path(file).name).write_bytes(content)
        sender = Checkpoints(checkpoints, channel)

        def on_report(step: int, value: float) -> bool:
            sender.send()
            channel.send({"kind": "report", "step": step, "value": value})
            return channel.receive()["go_on"]

        try:
            value = objective(Trial(order["number"], order["settings"], folder, on_report))
        except Pruned:
            channel.send({"kind": "pruned"})
            return
        channel.send({"kind": "finished", "value": float(value)})
        if channel.receive()["keep"]:
            channel.send({"kind": "run", "content": _packed(folder)})


def _packed(folder: Path) -> bytes:
    """A trial's folder, without checkpoints, as a zip archive, which Pythons before 3.11.4 unpack safely, too."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as archive:
        for path in sorted(folder.rglob("*")):
            inner = path.relative_to(folder)
            if inner.parts[0] != "checkpoints" and path.is_file() and path.name != ".lock":
                archive.write(path, str(inner))
    return held.getvalue()


if __name__ == "__main__":
    main()
