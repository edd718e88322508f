"""The frames in which a board sends the samples of its sensor.

    0xA5 0x5A | kind | sequence | length, 2 bytes | payload | CRC-16, 2 bytes

Numbers are little-endian. The kind is `H`, a header, whose payload is the text `sound RATE` or `motion COLUMN,...`, or
`D`, data: int16 samples, or a row of float32 numbers. The sequence counts the frames of data modulo 256, so that the
reader notices what is missing. The CRC is CRC-16/CCITT-FALSE (polynomial 0x1021, first value 0xFFFF) over everything
between the mark and itself.

Guarantee: a frame that arrives damaged is never taken for a sound one except by 1 in 65,536. After anything else on the
line, such as text that the board prints when it starts, the reader finds the next frame.
"""

import binascii
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

MARK = b"\xa5\x5a"
MOST = 1024
"""Bytes of a payload at most."""

_HEAD = struct.Struct("<2sBBH")
_TAIL = struct.Struct("<H")


@dataclass(frozen=True)
class Header:
    """Properties of the frames that a board sends.

    Args:
        rate: samples a second of sound; 0 of motion.
        columns: names of the numbers of a row of motion; empty of sound.
    """

    rate: int = 0
    columns: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """`sound` or `motion`."""
        return "motion" if self.columns else "sound"


@dataclass(frozen=True)
class Frame:
    """Samples in the order in which they were taken.

    Args:
        values: int16 (samples,) of sound, or float32 (1, columns) of motion.
        follows: whether nothing is missing between this frame and the last one.
    """

    values: np.ndarray
    follows: bool


def written(kind: str, sequence: int, payload: bytes) -> bytes:
    """A frame as the sketch writes it.

    Args:
        kind: H or D.
        sequence: modulo 256.
        payload: at most `MOST` bytes.

    >>> written("H", 0, b"sound 16000")[:6].hex(" ")
    'a5 5a 48 00 0b 00'
    """
    head = _HEAD.pack(MARK, ord(kind), sequence % 256, len(payload))
    return head + payload + _TAIL.pack(binascii.crc_hqx(head[2:] + payload, 0xFFFF))


class Reader:
    """Finds frames in the bytes of a line.

    Attributes:
        header: the last one; None until one has come.
        received: bytes that have come.
        lost: how often frames of data were missing.
    """

    def __init__(self) -> None:
        self.header: Header | None = None
        self.received = self.lost = 0
        self._kept = bytearray()
        self._expected: int | None = None

    def take(self, content: bytes) -> Iterator[Frame]:
        """The frames of data that are complete with these bytes; those before the first header are left out."""
        self.received += len(content)
        self._kept += content
        while (found := self._next()) is not None:
            kind, sequence, payload = found
            if kind == ord("H"):
                self.header = _header_of(payload) or self.header
            elif kind == ord("D") and self.header and (values := _values_of(payload, self.header)) is not None:
                follows = self._expected in (None, sequence)
                self.lost += not follows
                self._expected = (sequence + 1) % 256
                yield Frame(values, follows)

    def _next(self) -> tuple[int, int, bytes] | None:
        """Kind, sequence and payload of the next sound frame; None until more has come."""
        while True:
            start = self._kept.find(MARK)
            if start < 0:
                del self._kept[: max(0, len(self._kept) - 1)]  # the last byte may be half of a mark
                return None
            del self._kept[:start]
            if len(self._kept) < _HEAD.size:
                return None
            _, kind, sequence, length = _HEAD.unpack_from(self._kept)
            end = _HEAD.size + length
            if length <= MOST:
                if len(self._kept) < end + _TAIL.size:
                    return None
                (check,) = _TAIL.unpack_from(self._kept, end)
                if binascii.crc_hqx(bytes(self._kept[2:end]), 0xFFFF) == check:
                    payload = bytes(self._kept[_HEAD.size : end])
                    del self._kept[: end + _TAIL.size]
                    return kind, sequence, payload
            del self._kept[: len(MARK)]


def _header_of(payload: bytes) -> Header | None:
    kind, _, rest = payload.decode("ascii", "replace").partition(" ")
    if kind == "sound" and rest.isdecimal() and int(rest) > 0:
        return Header(rate=int(rest))
    columns = tuple(rest.split(","))
    return Header(columns=columns) if kind == "motion" and all(columns) else None


def _values_of(payload: bytes, header: Header) -> np.ndarray | None:
    """The samples of a payload; None if it is not of this header."""
    if header.kind == "sound":
        return np.frombuffer(payload, "<i2") if payload and len(payload) % 2 == 0 else None
    row = 4 * len(header.columns)
    return np.frombuffer(payload, "<f4").reshape(1, -1) if len(payload) == row else None
