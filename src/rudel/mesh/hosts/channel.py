"""Messages as bytes: what a member process and the driver send each other.

A message is its length, 8 bytes little-endian, and its content as plain data (`plain.py`). It goes through a pipe
between a member and its worker, and slice by slice over the network, so that a long one (a checkpoint) is not taken for
silence. The driver runs nothing of what a host sends; what it sends itself, the parcel of an `Order`, is code.
"""

import os
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

SLICE = 2**19
"""Bytes that travel in one call: less than a second's on a link of 10 Mbit/s."""

_LENGTH = 8


def framed(message: object) -> bytes:
    """A message as it travels."""
    from rudel.mesh.hosts.plain_messages import encoded

    content = encoded(message)
    return len(content).to_bytes(_LENGTH, "little") + content


def slices(content: bytes) -> Iterator[bytes]:
    """Bytes, in parts that travel in one call each.

    >>> [len(part) for part in slices(bytes(SLICE + 1))]
    [524288, 1]
    """
    view = memoryview(content)
    return (bytes(view[first : first + SLICE]) for first in range(0, len(content), SLICE))


class Messages:
    """Puts messages together again from the bytes in which they arrive."""

    def __init__(self) -> None:
        self._held = bytearray()

    def take(self, content: bytes) -> Iterator[Any]:
        """Takes bytes in; yields the messages that are whole.

        Raises:
            ValueError: one of them is damaged.
        """
        from rudel.mesh.hosts.plain_messages import decoded

        self._held += content
        while len(self._held) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._held[:_LENGTH], "little")
            if len(self._held) < end:
                return
            message = decoded(bytes(memoryview(self._held)[_LENGTH:end]))
            del self._held[:end]
            yield message


class Channel:
    """The member's end.

    Args:
        reading, writing: binary files.
    """

    def __init__(self, reading: IO[bytes], writing: IO[bytes]) -> None:
        self._reading, self._writing = reading, writing
        self._lock = threading.Lock()

    @classmethod
    def of_standard_streams(cls) -> "Channel":
        """Takes over standard input and output; what is printed goes to standard error from then on."""
        writing = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        return cls(sys.stdin.buffer, writing)

    def send(self, message: object) -> None:
        """Sends a message; any thread may."""
        content = framed(message)
        with self._lock:
            self._writing.write(content)
            self._writing.flush()

    def receive(self) -> Any:
        """Waits for a message.

        Raises:
            EOFError: the other end is gone.
        """
        from rudel.mesh.hosts.plain_messages import decoded

        return decoded(self._exactly(int.from_bytes(self._exactly(_LENGTH), "little")))

    def _exactly(self, count: int) -> bytes:
        content = self._reading.read(count)
        if content is None or len(content) < count:
            raise EOFError("the other end of the channel is gone")
        return content
