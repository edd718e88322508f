"""A connection of Dask's, taken over for messages that are bytes and are answered at once, many times a second.

Dask's own messages are taken apart by some thousand calls of functions, which costs a small computer more than the
training steps of an exchange. Here, a message is its length and its bytes. The event loop reads; any thread may write,
and does so itself, so that what comes in and goes out of a thread that trains passes through no queue.

A slow link delivers a message in many packets. Its length is sent first, as a TLS record of its own, and then the
system is set to report the connection as readable only when the rest is there: a process wakes twice for each message.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 18
_MOST_AWAITED = 1 << 16
"""Bytes that the system collects before it reports them, at most: less than it has room for."""

_RECORD = 17_000
"""Bytes of which TLS may have taken some already, as it takes a record by pieces: the largest that there are."""

_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Line:
    """See the module. To be made in the event loop's thread.

    Args:
        connection: a socket, connected, not blocking, and nobody else's; with TLS or without.
        received: called in the event loop with each message.
        lost: called there once if the other side has closed, or the network.
    """

    def __init__(self, connection: socket.socket, received: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._socket, self._received, self._lost = connection, received, lost
        self._loop, self._lock = asyncio.get_running_loop(), threading.Lock()
        self._unread, self._unsent = bytearray(), deque[bytes | memoryview]()
        self._awaited = 1
        self.closed = False
        self._loop.add_reader(connection.fileno(), self._read)
        self._loop.call_soon(self._read)  # TLS may have read more than was requested

    def send(self, message: bytes) -> None:
        """Sends a message, and returns before it has arrived; may be called in any thread.

        Raises:
            ConnectionError: the connection was lost.
        """
        with self._lock:
            if self.closed:
                raise ConnectionResetError("the connection is closed")
            waiting = bool(self._unsent)
            self._unsent += _LENGTH.pack(len(message)), memoryview(message)
            if not waiting and not self._flushed():
                self._loop.call_soon_threadsafe(self._write_later)

    def close(self) -> None:
        """Ends it; to be called in the event loop's thread."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()

    def _flushed(self) -> bool:
        """Sends as much as there is room for; whether that is all. An error is seen when something is read."""
        with contextlib.suppress(*_NOT_NOW, OSError):
            while self._unsent:
                first = self._unsent[0]
                sent = self._socket.send(first[:_CHUNK])
                if sent < len(first):
                    self._unsent[0] = memoryview(first)[sent:]
                else:
                    self._unsent.popleft()
        return not self._unsent

    def _write_later(self) -> None:
        if not self.closed:
            self._loop.add_writer(self._socket.fileno(), self._write)

    def _write(self) -> None:
        with self._lock:
            if not self.closed and self._flushed():
                self._loop.remove_writer(self._socket.fileno())

    def _read(self) -> None:
        ended, awaited = False, 1
        while not self.closed and (missing := self._missing()):
            try:
                with self._lock:
                    chunk = self._socket.recv(_CHUNK)
            except _NOT_NOW:
                awaited = max(1, missing - _RECORD)
                break
            except OSError:
                chunk = b""
            if not chunk:
                ended = True
                break
            self._unread += chunk
            if len(self._unread) == _LENGTH.size:
                awaited = max(1, self._missing())
                break
        while not self.closed and not self._missing():
            end = _LENGTH.size + _LENGTH.unpack_from(self._unread)[0]
            message = bytes(self._unread[_LENGTH.size : end])
            del self._unread[:end]
            self._received(message)
        if ended and not self.closed:
            self.close()
            self._lost()
        elif not self.closed:
            self._wait_for(min(awaited, _MOST_AWAITED))

    def _missing(self) -> int:
        """Bytes that the first message not read yet, or its length, lacks."""
        if len(self._unread) < _LENGTH.size:
            return _LENGTH.size - len(self._unread)
        return max(0, _LENGTH.size + _LENGTH.unpack_from(self._unread)[0] - len(self._unread))

    def _wait_for(self, count: int) -> None:
        """Lets the connection count as readable when so many bytes are there."""
        if count != self._awaited:
            with contextlib.suppress(OSError):  # where a system cannot, it reports every packet
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._awaited = count


class Talk:
    """Requests and answers over a line, one at a time; messages are plain data, which is all that msgpack reads.

    Args:
        connection: see `Line`.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._line = Line(connection, self._answers.put_nowait, lambda: self._answers.put_nowait(None))

    @property
    def closed(self) -> bool:
        """Whether it was closed, here or there."""
        return self._line.closed

    async def ask(self, message: bytes) -> bytes:
        """Sends a message, and returns the one that comes next.

        Raises:
            ConnectionError: the connection was lost.
        """
        self._line.send(message)
        return await self.next()

    async def next(self) -> bytes:
        """The message that comes next.

        Raises:
            ConnectionError: the connection was lost.
        """
        answer = await self._answers.get()
        if answer is None:
            self._answers.put_nowait(None)
            raise ConnectionResetError("the connection was closed")
        return answer

    def close(self) -> None:
        """Ends it; who waits for an answer gets none."""
        self._line.close()
        self._answers.put_nowait(None)
