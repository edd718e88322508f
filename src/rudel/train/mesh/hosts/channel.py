"""Messages over a pair of pipes: what a member process and its host's worker tell each other.

A message is its length, 8 bytes little-endian, and its pickled content. Both ends are parts of one training: who can
write into such a pipe can start programs there anyway.
"""

import os
import pickle
import sys
import threading
from typing import IO, Any

_LENGTH = 8


def framed(message: Any) -> bytes:
    """A message as it travels."""
    content = pickle.dumps(message, protocol=5)
    return len(content).to_bytes(_LENGTH, "little") + content


def length_of(head: bytes) -> int:
    """How many bytes come after the first ones of a message."""
    return int.from_bytes(head, "little")


HEAD = _LENGTH
"""Bytes that say how long a message is."""


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

    def tell(self, message: Any) -> None:
        """Sends a message; any thread may."""
        content = framed(message)
        with self._lock:
            self._writing.write(content)
            self._writing.flush()

    def hear(self) -> Any:
        """Waits for a message.

        Raises:
            EOFError: the other end is gone.
        """
        return pickle.loads(self._exactly(length_of(self._exactly(_LENGTH))))

    def _exactly(self, count: int) -> bytes:
        content = self._reading.read(count)
        if content is None or len(content) < count:
            raise EOFError("the other end of the channel is gone")
        return content
