"""Recordings of background noise, to be mixed into what a model learns from."""

from pathlib import Path

import numpy as np

from rudel.data.file_names import SOUND
from rudel.data.sound.recording import decode
from rudel.errors import DataError
from rudel.files import expanded

BACKGROUND = "_background_noise_"
"""The folder beside those of the words that has noise, as in Speech Commands; it is no class."""

_MOST_SAMPLES = 1 << 22


def read_noise(folder: str | Path, rate: int) -> np.ndarray:
    """All recordings of a folder and those below it, but not hidden ones, one after the other.

    Of more than 4 million samples, nine minutes at 8 kHz, the first part of each recording is taken.

    Args:
        folder: with WAV or FLAC files.
        rate: of the result, samples a second.

    Returns:
        int16 (S,).

    Raises:
        DataError: there are none, or one cannot be read.
    """
    path = expanded(folder)
    named = (file for file in path.rglob("*") if file.suffix.lower() in SOUND and file.is_file())
    files = sorted(file for file in named if not any(part.startswith(".") for part in file.relative_to(path).parts))
    if not files:
        raise DataError(f"{folder} has no recordings of background noise: give a folder with WAV or FLAC files.")
    parts = [_read(file, rate) for file in files]
    share = min(1.0, _MOST_SAMPLES / sum(map(len, parts)))
    return np.concatenate([part[: max(1, int(share * len(part)))] for part in parts])


def _read(file: Path, rate: int) -> np.ndarray:
    try:
        return decode(file.read_bytes(), rate, str(file))
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}.") from error
