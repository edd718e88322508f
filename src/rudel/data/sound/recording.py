"""The one way in which the bytes of a recording become samples: in training, evaluation and prediction.

1. It is decoded by libsndfile (`soundfile`): WAV, FLAC, and what else that knows. Channels become their mean.
2. It is resampled by `soxr` at high quality, if its rate is another. 16-bit mono of the right rate stays as it is, to
   the bit.

What follows is `rudel.data.windows.cut_or_padded`.
"""

import io
from collections.abc import Callable
from typing import Any

import numpy as np

from rudel.errors import DataError

_MOST_SAMPLES = 1 << 28
"""Longer recordings are refused, as a small file can hold one that fills all memory; 97 minutes at 48 kHz."""

_MOST_OF_FLOATS = 100.0
"""Floats that go further are no loud recording, but the numbers of 16 or more bits: all of it would be clipped."""

_UNKNOWN = (1 << 63) - 1
"""Frames, by libsndfile, of a FLAC file that was written to a pipe; it cannot read these."""


def decode(
    content: bytes, rate: int, name: str = "The recording", admit: Callable[[int], None] = lambda samples: None
) -> np.ndarray:
    """Decodes a recording.

    Args:
        content: a WAV or FLAC file, or another that libsndfile reads.
        rate: of the result, samples a second.
        name: what to call it in an error.
        admit: called with the number of samples that it takes memory for, before they are read; may refuse them.

    Returns:
        int16 (S,), at least one sample.

    Raises:
        DataError: it is no recording, is damaged or empty, has floats of another scale, or the packages of the extra
            `sound` are not installed.

    >>> import soundfile
    >>> file = io.BytesIO()
    >>> soundfile.write(file, np.array([0, 1, -2], np.int16), 8000, format="WAV", subtype="PCM_16")
    >>> decode(file.getvalue(), 8000).tolist()
    [0, 1, -2]
    """
    soundfile, soxr = packages()
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            if file.frames == _UNKNOWN:
                raise DataError(f"{name} is a FLAC file whose header does not give its length: convert it to WAV.")
            samples_in_all = file.frames * file.channels + file.frames * rate // max(1, file.samplerate)
            if samples_in_all > _MOST_SAMPLES:
                raise DataError(f"{name} is too long: cut it into parts, or leave it out.")
            admit(samples_in_all)
            as_is = (file.samplerate, file.channels, file.subtype) == (rate, 1, "PCM_16")
            # the number of frames, as files of GSM and G.721 are read from their beginning only
            samples = file.read(file.frames, dtype="int16" if as_is else "float32", always_2d=True)
            given = file.samplerate
    except soundfile.SoundFileError as error:
        reason = str(getattr(error, "error_string", error)).rstrip(".")
        raise DataError(f"{name} cannot be decoded ({reason}): give WAV or FLAC.") from error
    if as_is:
        samples = samples[:, 0]
    else:
        mean = samples.mean(axis=1)
        if not np.isfinite(mean).all():
            raise DataError(f"{name} has samples that are NaN or infinite.")
        if (loudest := np.abs(mean).max(initial=0)) > _MOST_OF_FLOATS:
            raise DataError(
                f"{name} has floats up to {loudest:,.0f}, and full scale is 1: write it again with whole numbers, or "
                "with floats from -1 to 1."
            )
        resampled = soxr.resample(mean, given, rate) if given != rate else mean
        samples = np.clip(np.rint(resampled * 2**15), -(2**15), 2**15 - 1).astype(np.int16)
    if not len(samples):
        raise DataError(f"{name} is empty.")
    return samples


def packages() -> tuple[Any, Any]:
    """The modules `soundfile` and `soxr`.

    Raises:
        DataError: they are not installed.
    """
    try:
        import soundfile
        import soxr
    except (ImportError, OSError) as error:  # the latter where libsndfile is not there
        raise DataError(f'Recordings are read by soundfile and soxr ({error}): pip install "rudel[sound]".') from error
    return soundfile, soxr
