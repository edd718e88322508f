"""Log-mel spectrograms in whole numbers, the same bits wherever they are computed.

The algorithm, on 16-bit samples, one hop at a time (`>>` rounds towards minus infinity everywhere):

1. The last `window` samples (zeros before the first) times Hann's window: 30 bits.
2. A real FFT of `fft` points as a complex one of half as many. Every stage halves: a, b become a/2 + w b/2 and
   a/2 - w b/2, where a/2 is `a >> 1`, and a product with half a twiddle factor `(b * w) >> 16`. Nothing overflows, and
   what is rounded off is 8 bits or more below the last bit of a sample.
3. Real and imaginary parts are shifted right, all by as many bits `s` as make them fit 16, and give powers.
4. Triangular bands, equally wide in mel, by weights of 8 bits; exact.
5. log2 of each band, plus 2 s: the position of the highest bit, and a table of 64 steps an octave with straight lines
   between them.
6. int8 in steps of an eighth of log2 (0.38 dB): -128 is 5 dB below a sine of one last bit of a sample, and a full-scale
   sine is at 120.

`mel_arithmetic.py` computes this for whole recordings in NumPy, JAX, or what else Keras runs on, in int32 alone; the C
in `c.py`, for boards and WebAssembly, with 64-bit products.
"""

import functools
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rudel.array_types import Int8
from rudel.errors import DataError, OptionError
from rudel.features.mel_arithmetic import spectrogram
from rudel.features.mel_tables import Tables, make_tables, weights

_LEAST_WEIGHT, _MOST_WEIGHT = 64, 2**15
"""With less, no frequency is really in a band; with more, int32 sums could overflow. 256 is a whole frequency."""


@dataclass(frozen=True)
class LogMel:
    """A log-mel spectrogram: int16 samples to int8 (frames, bands), in steps of 0.38 dB; see the module.

    Args:
        rate: samples a second.
        window_ms: how much sound a frame is made of, in milliseconds.
        hop_ms: time from one frame to the next, in milliseconds.
        bands: how many.
        low: where the lowest band begins, Hz.
        high: where the highest band ends, Hz; None for half the rate.

    Raises:
        OptionError: a band would be empty or too wide, or a value makes no sense.

    >>> LogMel(8000).frames(8000)
    50
    """

    rate: int = 8000
    window_ms: float = 32.0
    hop_ms: float = 20.0
    bands: int = 32
    low: float = 80.0
    high: float | None = None

    def __post_init__(self) -> None:
        top = self.rate / 2 if self.high is None else self.high
        if not 1000 <= self.rate <= 48_000:
            raise OptionError(f"`rate` is in samples a second, 1,000 to 48,000, not {self.rate}.")
        if not (0 <= self.low < top <= self.rate / 2 and self.bands >= 2):
            raise OptionError(
                f"{self.bands} bands from {self.low:g} to {top:g} Hz are not possible at {self.rate:,} samples a "
                "second: give two or more, between 0 and half the rate."
            )
        if not (16 <= self.fft <= 2048 and self.hop >= 1):
            raise OptionError(
                f"A window of {self.window:,} and a hop of {self.hop:,} samples are not possible: a window has 9 to "
                "2,048, a hop at least 1."
            )
        each = weights(self.tables).sum(0)
        if each.min() < _LEAST_WEIGHT:
            raise OptionError(
                f"Band {int(np.argmin(each))} of {self.bands} would be empty: give fewer bands, a higher `low`, or a "
                "longer window."
            )
        if each.max() > _MOST_WEIGHT:
            raise OptionError("A band would be too wide: give more bands.")

    @property
    def window(self) -> int:
        """Samples of a frame."""
        return round(self.rate * self.window_ms / 1000)

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return round(self.rate * self.hop_ms / 1000)

    @property
    def fft(self) -> int:
        """Points of the transform: the least power of two that holds a window."""
        return 1 << max(self.window - 1, 1).bit_length()

    @property
    def tables(self) -> Tables:
        """Its constants."""
        return _tables(self)

    @property
    def width(self) -> int:
        """Numbers of a frame."""
        return self.bands

    @property
    def cosines(self) -> np.ndarray | None:
        """None: a frame is the bands themselves."""
        return None

    @property
    def silence(self) -> np.ndarray:
        """A frame of samples that are all 0, int8 (width,)."""
        return self(np.zeros(self.hop, np.int16))[0]

    def frames(self, samples: int) -> int:
        """How many frames so many samples give: one for each whole hop."""
        return samples // self.hop

    def config(self) -> dict[str, Any]:
        """The configuration to make it from again."""
        return asdict(self)

    def __call__(self, samples: np.ndarray) -> Int8[np.ndarray, "*recordings frames width"]:
        """The spectrograms of recordings, each from its beginning.

        Args:
            samples: int16 (..., S).

        Returns:
            int8 (..., S // hop, width).

        Raises:
            DataError: the samples are not int16, or fewer than a hop.
        """
        samples = np.asarray(samples)
        if samples.dtype != np.int16 or not samples.ndim or samples.shape[-1] < self.hop:
            raise DataError(
                f"A spectrogram is made of int16 samples (..., {self.hop} or more), not of {samples.dtype} "
                f"{samples.shape}."
            )
        return spectrogram(np, self, samples.astype(np.int32)).astype(np.int8)

    def stream(self) -> "Stream":
        """The same, hop by hop, as a board computes it."""
        return Stream(self)


class Stream:
    """Sound that comes hop by hop, and a frame of each.

    Args:
        features: of what.

    >>> features = LogMel(8000)
    >>> features.stream().push(np.zeros(160, np.int16)).shape
    (32,)
    """

    def __init__(self, features: LogMel) -> None:
        self._features = features
        self._past = np.zeros(max(0, features.window - features.hop), np.int16)

    def push(self, hop: np.ndarray) -> Int8[np.ndarray, "width"]:
        """The frame that ends with this hop.

        Args:
            hop: int16 (hop,).

        Returns:
            int8 (width,).
        """
        features = self._features
        if np.shape(hop) != (features.hop,):
            raise DataError(f"A hop has {features.hop} samples, not {np.shape(hop)}.")
        heard = np.concatenate([self._past, np.asarray(hop, np.int16)])
        self._past = heard[len(heard) - len(self._past) :]
        # a recording whose only frame is this one: what precedes a window is never looked at
        padded = np.concatenate([np.zeros(-len(heard) % features.hop, np.int16), heard])
        return features(padded)[-1]


@functools.lru_cache(maxsize=64)
def _tables(features: LogMel) -> Tables:
    high = features.rate / 2 if features.high is None else features.high
    return make_tables(features.rate, features.window, features.fft, features.bands, features.low, high)
