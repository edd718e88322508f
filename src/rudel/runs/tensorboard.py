"""Event files for TensorBoard, written without TensorFlow.

    tensorboard/train/events.out.tfevents...        training metrics, learning rate, requested settings as text
    tensorboard/validation/events.out.tfevents...   validation metrics, under the same names, to be drawn beside them

A file is a TFRecord file whose records are Event messages (tensorflow/core/util/event.proto) in Protocol Buffers' wire
format, of which the few fields that are needed are written here. A training that goes on writes new files with all that
its records know and removes the old ones, so no step is there twice.
"""

import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rudel.data.records.writer import framed
from rudel.runs.run_directory import writing

FOLDER = "tensorboard"
_NO_SCALARS = ("epoch", "step", "seconds", "time", "logs")
_STRING = 7  # DT_STRING in tensorflow/core/framework/types.proto


class Board:
    """Writes the event files of a run.

    Args:
        run: its directory.
        settings: the requested ones, by name.
    """

    def __init__(self, run: Path, settings: Mapping[str, Any]) -> None:
        self._run, self._settings = run, settings
        self._name = ""

    def begin(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Begins new files with these records; removes those of before, but not other programs'."""
        now = time.time()
        self._name = f"events.out.tfevents.{int(now)}.rudel.{time.time_ns() % 10**9}"
        with writing(self._run):
            for old in (self._run / FOLDER).glob("*/events.out.tfevents.*.rudel.*"):
                old.unlink()
            if self._settings:
                self._append("train", [_event(now, 0, _text("settings", _as_table(self._settings)))])
        for record in records:
            self.append(record)

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds a record; see `rudel.runs.run_log`.

        Raises:
            RunError: the disk is full.
        """
        with writing(self._run):
            for split, scalars in _by_split(record).items():
                event = _event(record.get("time", 0.0), record["step"], *(_scalar(n, v) for n, v in scalars.items()))
                self._append(split, [event])

    def _append(self, split: str, events: Sequence[bytes]) -> None:
        path = self._run / FOLDER / split / self._name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        with path.open("ab") as file:
            if new:
                file.write(framed(_wall_time(time.time()) + _bytes(3, b"brain.Event:2")))
            for event in events:
                file.write(framed(event))


def _by_split(record: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Scalars of a record by the folder that they belong to."""
    splits: dict[str, dict[str, float]] = {}
    for name, value in (*record["logs"].items(), *((n, v) for n, v in record.items() if n not in _NO_SCALARS)):
        if isinstance(value, int | float):
            split = "validation" if name.startswith("val_") else "train"
            splits.setdefault(split, {})[name.removeprefix("val_")] = float(value)
    return splits


def _as_table(settings: Mapping[str, Any]) -> str:
    """Settings as a Markdown table, as TensorBoard's text page shows it."""
    rows = [f"| {name} | {str(value).replace('|', '&#124;')} |" for name, value in settings.items()]
    return "\n".join(["| setting | value |", "| --- | --- |", *rows])


def _event(when: float, step: int, *values: bytes) -> bytes:
    summary = b"".join(_bytes(1, value) for value in values)
    return _wall_time(when) + _varint_field(2, step) + _bytes(5, summary)


def _scalar(name: str, value: float) -> bytes:
    return _bytes(1, name.encode()) + _key(2, 5) + struct.pack("<f", value)


def _text(name: str, text: str) -> bytes:
    tensor = _varint_field(1, _STRING) + _bytes(2, b"") + _bytes(8, text.encode(errors="backslashreplace"))
    metadata = _bytes(1, _bytes(1, b"text"))
    return _bytes(1, name.encode()) + _bytes(8, tensor) + _bytes(9, metadata)


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _wall_time(seconds: float) -> bytes:
    return _key(1, 1) + struct.pack("<d", seconds)


def _varint_field(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _key(field, 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    return bytes(_digits(value))


def _digits(value: int) -> Iterator[int]:
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value
