"""Requests to a board and its answers, over a serial line that may lose or change bytes.

`bench_line.c` is the other side, and says what frames are. A request without an answer is sent again, and an answer
that comes late, or to another request, is passed over; so every request has its effect and one answer, or fails.
"""

import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

_START = b"\xa5\x5a"
_HEADER = struct.Struct("<2sBBH")
_CHECK = struct.Struct("<I")
_LONGEST = 132
_ATTEMPTS = 10


class Port(Protocol):
    """A serial port, such as `rudel.data.collecting.port.SerialPort`."""

    @property
    def name(self) -> str:
        """Such as /dev/ttyACM0."""
        ...

    def read(self) -> bytes:
        """Reads the bytes that have come; empty if none come for a moment."""
        ...

    def write(self, data: bytes) -> None:
        """Sends bytes."""
        ...


class NoAnswerError(Exception):
    """No answer has come in time, however often the request was sent."""


class RefusedError(Exception):
    """The board cannot do what is asked."""


@dataclass(frozen=True)
class Frame:
    """A request or an answer."""

    kind: str
    number: int
    payload: bytes

    def encoded(self) -> bytes:
        """The frame as it is sent."""
        head = _HEADER.pack(_START, ord(self.kind), self.number, len(self.payload))
        return head + self.payload + _CHECK.pack(zlib.crc32(head[2:] + self.payload))


def frames(received: bytearray) -> Iterator[Frame]:
    """Takes whole frames out of what was received, and drops what is none."""
    while (start := received.find(_START)) >= 0:
        del received[:start]
        if len(received) < _HEADER.size:
            return
        _, kind, number, length = _HEADER.unpack_from(received)
        end = _HEADER.size + length
        if length <= _LONGEST and len(received) < end + _CHECK.size:
            return
        frame = Frame(chr(kind), number, bytes(received[_HEADER.size : end]))
        if length <= _LONGEST and frame.encoded() == received[: end + _CHECK.size]:
            del received[: end + _CHECK.size]
            yield frame
        else:
            del received[:1]
    del received[:-1]


class Line:
    """Asks a board.

    Args:
        port: that it is at.
    """

    def __init__(self, port: Port) -> None:
        self._port, self._number, self._received = port, 0, bytearray()

    def ask(self, kind: str, payload: bytes = b"", *, timeout: float = 1.0, attempts: int = _ATTEMPTS) -> bytes:
        """Sends a request until it is answered.

        Args:
            kind: a capital letter.
            payload: at most 132 bytes.
            timeout: seconds after which it is sent again.
            attempts: how often it is sent.

        Returns:
            The payload of the answer.

        Raises:
            NoAnswerError: there is none.
            RefusedError: the answer is that this cannot be done.
        """
        self._number = (self._number + 1) % 256
        request = Frame(kind, self._number, payload).encoded()
        for _ in range(attempts):
            self._port.write(request)
            end = time.monotonic() + timeout
            while time.monotonic() < end:
                self._received += self._port.read()
                for answer in frames(self._received):
                    if (answer.kind, answer.number) == ("e", self._number):
                        raise RefusedError
                    if (answer.kind, answer.number) == (kind.lower(), self._number):
                        return answer.payload
        raise NoAnswerError
