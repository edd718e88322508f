"""The tables of `LogMel`: computed in double precision, and rounded to the nearest whole numbers, halves to even ones.

The C for boards and pages gets its tables from here.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from rudel.array_types import Float, Int16, Int32, UInt8, UInt16

LOG_BITS = 12
"""Fraction bits of logarithms in the table, and until they become int8."""

LOG_STEPS = 64
"""Parts of an octave in the table of logarithms; between them it is linear."""

WEIGHT = 256
"""The sum of the weights of a frequency in its two bands."""


@dataclass(frozen=True, eq=False)
class Tables:
    """Constants of one `LogMel`.

    Args:
        window: int16 (window,), Hann's with 15 fraction bits.
        twiddles: int16 (fft / 2, 2), cosine and sine of 2 pi k / fft with 15 fraction bits; 1 is 32,767.
        reversed: int16 (fft / 2,), where each pair of samples goes before the transform: its number, bits reversed.
        edges: int16 (bands + 2,), the first frequency of each rising side; a band falls where the next one rises.
        rises: uint8 (edges[-1],), weight of a frequency in the band that rises there, of `WEIGHT`.
        logarithms: uint16 (LOG_STEPS + 1,), log2(1 + i / LOG_STEPS) with `LOG_BITS` fraction bits.
    """

    window: Int16[np.ndarray, "window"]
    twiddles: Int16[np.ndarray, "half 2"]
    reversed: Int16[np.ndarray, "half"]
    edges: Int16[np.ndarray, "edges"]
    rises: UInt8[np.ndarray, "frequencies"]
    logarithms: UInt16[np.ndarray, "steps"]


def make_tables(rate: int, window: int, fft: int, bands: int, low: float, high: float) -> Tables:
    """Tables for a rate in Hz, a window of `window` samples in a transform of `fft`, and bands from low to high Hz."""
    half = fft // 2
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    angles = 2 * np.pi * np.arange(half) / fft
    turns = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    bits = half.bit_length() - 1
    swapped = [int(f"{number:0{bits}b}"[::-1], 2) for number in range(half)]
    places = np.linspace(_mel(low), _mel(high), bands + 2)
    mels = np.array([_mel(rate * k / fft) for k in range(half + 1)])
    edges = np.searchsorted(mels, places - 1e-9)
    rises = np.zeros(edges[-1], np.uint8)
    for band, (first, last) in enumerate(itertools.pairwise(edges)):
        share = (mels[first:last] - places[band]) / (places[band + 1] - places[band])
        rises[first:last] = np.clip(np.rint(WEIGHT * share), 0, WEIGHT - 1)
    return Tables(
        window=_q15(hann),
        twiddles=_q15(turns),
        reversed=np.array(swapped, np.int16),
        edges=edges.astype(np.int16),
        rises=rises,
        logarithms=np.rint(np.log2(1 + np.arange(LOG_STEPS + 1) / LOG_STEPS) * 2**LOG_BITS).astype(np.uint16),
    )


def weights(tables: Tables) -> Int32[np.ndarray, "frequencies bands"]:
    """How much of each frequency is in each band, int32 (frequencies, bands), of `WEIGHT`."""
    edges = tables.edges
    made = np.zeros((edges[-1], len(edges)), np.int32)
    for band, (first, last) in enumerate(itertools.pairwise(edges)):
        made[first:last, band + 1] = tables.rises[first:last]
        made[first:last, band] = WEIGHT - made[first:last, band + 1]
    return made[:, 1:-1]


def _mel(hertz: float) -> float:
    """The pitch that people hear, as in the HTK Book."""
    return 2595 * math.log10(1 + hertz / 700)


def _q15(values: Float[np.ndarray, "*shape"]) -> Int16[np.ndarray, "*shape"]:
    return np.minimum(np.rint(values * 2**15), 2**15 - 1).astype(np.int16)
