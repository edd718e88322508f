"""The checksums of TFRecord files: CRC-32C, masked.

The mask is TensorFlow's (`tensorflow/core/lib/hash/crc32c.h`): turned right by 15 bits, plus a constant, so that the
checksum of data that contain checksums stays a good one.
"""

import functools
from collections.abc import Sequence

import google_crc32c
import numpy as np

_MASK = 0xA282EAD8


def masked(content: bytes) -> int:
    """The masked CRC-32C of bytes.

    >>> hex(masked(b"123456789"))  # its CRC-32C is 0xe3069283
    '0xc78ab0e5'
    """
    crc = google_crc32c.value(content)
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF


def masked_of_each(contents: Sequence[bytes]) -> np.ndarray:
    """The masked CRC-32C of each of some bytes, uint32 (n,)."""
    return _mask(np.fromiter(map(google_crc32c.value, contents), np.uint32, len(contents)))


def masked_of_lengths(lengths: np.ndarray) -> np.ndarray:
    """The masked CRC-32C of lengths as a header holds them, 8 bytes with the lowest first.

    A CRC is linear: that of 8 bytes is the exclusive or of one value for each byte at its place.

    Args:
        lengths: (n,) whole numbers.

    Returns:
        uint32 (n,).
    """
    octets = np.ascontiguousarray(lengths, "<u8").view(np.uint8).reshape(-1, 8)
    table, zeros = _table_of_places()
    crc = np.full(len(octets), zeros, np.uint32)
    for place in range(8):
        crc ^= table[place][octets[:, place]]
    return _mask(crc)


def _mask(crc: np.ndarray) -> np.ndarray:
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK)


@functools.cache
def _table_of_places() -> tuple[np.ndarray, int]:
    """For each of 8 places, how each of 256 values there changes the CRC of 8 zeros; and that CRC."""
    zeros = google_crc32c.value(bytes(8))
    alone = [[bytes(place) + bytes([value]) + bytes(7 - place) for value in range(256)] for place in range(8)]
    return np.array([[google_crc32c.value(octets) ^ zeros for octets in row] for row in alone], np.uint32), zeros
