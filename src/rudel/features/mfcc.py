"""Mel-frequency cepstral coefficients in whole numbers: a cosine transform of each frame of a `LogMel`.

Coefficient k of the bands b_0 to b_(N-1) is the sum of b_n cos(pi k (n + 1/2) / N), times (1 + 11 sin(pi k / 22)) / N.
The factor in parentheses is the HTK Book's lifter, by which all coefficients of speech vary about as much, and fit
int8; coefficient 0 is the mean of the bands. The products' int16 factors have 14 fraction bits, sums are exact, and are
rounded and limited to int8 at the end.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rudel.array_types import Int16
from rudel.errors import OptionError
from rudel.features.log_mel import LogMel
from rudel.features.mel_arithmetic import COSINE_BITS

_LIFTER, _MOST = 22, 20


@dataclass(frozen=True)
class MFCC(LogMel):
    """MFCCs: int16 samples to int8 (frames, coefficients); see the module, and `LogMel` for its other arguments.

    Args:
        coefficients: how many, the first of which says how loud a frame is; at most 20, and no more than bands.

    Raises:
        OptionError: there cannot be so many, or as for `LogMel`.

    >>> MFCC(8000, bands=20)(np.zeros(8000, np.int16)).shape
    (50, 10)
    """

    coefficients: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        most = min(self.bands, _MOST)
        if not 2 <= self.coefficients <= most:
            raise OptionError(f"{self.bands} bands have 2 to {most} coefficients, not {self.coefficients}.")

    @property
    def width(self) -> int:
        """Numbers of a frame."""
        return self.coefficients

    @property
    def cosines(self) -> Int16[np.ndarray, "bands coefficients"]:
        """The cosine transform of the bands, int16 (bands, coefficients)."""
        return _cosines(self.bands, self.coefficients)


def features_of(config: dict[str, Any]) -> LogMel:
    """The features that have a configuration; see `LogMel.config`."""
    return MFCC(**config) if "coefficients" in config else LogMel(**config)


@functools.lru_cache(maxsize=64)
def _cosines(bands: int, coefficients: int) -> Int16[np.ndarray, "bands coefficients"]:
    number, place = np.arange(coefficients), np.arange(bands)[:, None] + 0.5
    lifter = 1 + _LIFTER / 2 * np.sin(math.pi * number / _LIFTER)
    values = np.cos(math.pi * number * place / bands) * lifter / bands
    return np.rint(values * 2**COSINE_BITS).astype(np.int16)
