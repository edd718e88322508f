"""Where collected recordings are kept: WAV files in a folder for each class, or a CSV file for each class.

Each recording is on the disk, in full, before the next one begins, and nothing that was there is changed. A table is
written again with each recording, so that one which is broken off leaves no part of itself.
"""

import csv
import re
import wave
from pathlib import Path

import numpy as np

from rudel.data.collecting.frames import Header
from rudel.errors import DataError, OptionError
from rudel.files import written_atomically

_NAME = re.compile(r"[^\W_][\w .+-]*")


class Store:
    """A class's recordings.

    Args:
        folder: of all classes.
        name: of the class.
        header: what the board sends.
        speaker: who speaks, a part of the names of WAV files.

    Attributes:
        path: the folder or the file of the class.

    Raises:
        DataError: what is there is of another kind, or cannot be read.
    """

    def __init__(self, folder: Path, name: str, header: Header, speaker: str | None) -> None:
        self._name, self._header, self._speaker = name, header, speaker
        self.path = folder / (name if header.kind == "sound" else f"{name}.csv")
        try:
            if header.kind == "sound":
                self._next = 1 + max((_number_of(path) for path in self.path.glob("*.wav")), default=0)
            else:
                self._check_columns()
        except OSError as error:
            raise DataError(f"{self.path} cannot be read ({error.strerror}): give another folder to --out.") from error

    def add(self, recording: np.ndarray) -> str:
        """Keeps a recording, int16 (samples,) or float32 (rows, columns); returns where.

        Raises:
            DataError: it cannot be written.
        """
        try:
            (self.path if self._header.kind == "sound" else self.path.parent).mkdir(parents=True, exist_ok=True)
            return self._add_sound(recording) if self._header.kind == "sound" else self._add_rows(recording)
        except OSError as error:
            raise DataError(f"A recording cannot be written to {self.path} ({error.strerror}).") from error

    def _add_sound(self, samples: np.ndarray) -> str:
        parts = [self._name, *([self._speaker] if self._speaker else []), f"{self._next:04}"]
        path = self.path / f"{'_'.join(parts)}.wav"
        with written_atomically(path) as file, wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(self._header.rate)
            sound.writeframes(samples.astype("<i2").tobytes())
        self._next += 1
        return str(path)

    def _check_columns(self) -> None:
        """Looks at a table that is there.

        Raises:
            DataError: it has other columns.
        """
        if not self.path.exists() or not self.path.stat().st_size:
            return
        with self.path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            columns = tuple(next(csv.reader(file), ()))
        if columns != self._header.columns:
            raise DataError(
                f"{self.path} has the columns {','.join(columns)}, and the board sends "
                f"{','.join(self._header.columns)}: give another folder to --out."
            )

    def _add_rows(self, rows: np.ndarray) -> str:
        before = self.path.read_bytes() if self.path.exists() else b""
        if not before:
            before = ",".join(self._header.columns).encode() + b"\n"
        elif not before.endswith((b"\n\n", b"\n\r\n")):
            before += b"\n" if before.endswith(b"\n") else b"\n\n"
        with written_atomically(self.path) as file:
            file.write(before)
            file.writelines(",".join(f"{value:.3f}" for value in row).encode() + b"\n" for row in rows)
        return str(self.path)


def check_name(name: str, what: str) -> str:
    """A name that can be that of a class, or of a speaker, and of a file.

    Args:
        name: as it was given, without spaces at its ends.
        what: it is, for the message.

    Raises:
        OptionError: it cannot.

    >>> check_name("punch left", "--class")
    'punch left'
    """
    if not _NAME.fullmatch(name) or name.endswith((".", " ")) or (what == "--speaker" and "_" in name):
        raise OptionError(
            f"{what} {name!r} cannot be the name of a file: begin with a letter or a digit, and use letters, digits, "
            "spaces, points and hyphens."
        )
    return name


def _number_of(path: Path) -> int:
    last = path.stem.rpartition("_")[2]
    return int(last) if last.isdecimal() else 0
