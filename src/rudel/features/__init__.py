"""Features of sound in whole numbers: the same bits in training, on a server, in a browser, and on a board.

>>> import numpy as np
>>> LogMel(rate=8000)(np.zeros(8000, np.int16)).shape
(50, 32)
>>> MFCC(rate=8000, coefficients=13)(np.zeros(8000, np.int16)).shape
(50, 13)
"""

from typing import TYPE_CHECKING, Any

from rudel.features.log_mel import LogMel, Stream
from rudel.features.mfcc import MFCC

if TYPE_CHECKING:
    from rudel.features.layer import Features

__all__ = ["MFCC", "Features", "LogMel", "Stream"]


def __getattr__(name: str) -> Any:
    if name != "Features":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rudel.features.layer import Features

    return Features
