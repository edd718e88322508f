"""uvicorn with what it lacks.

Limits of time and size for headers, of time for clients that do not read their answer, and of connections; errors as
JSON; and HTTP/1.1 for clients that offer another protocol with their request, as Java's do with HTTP/2.
"""

import asyncio
import contextlib
import http
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httptools
import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from rudel.internals import require
from rudel.serve.body import MALFORMED
from rudel.serve.server_limits import Limits

require(
    "uvicorn",
    {
        "Server.startup": hasattr(uvicorn.Server, "startup") and hasattr(uvicorn.Server, "capture_signals"),
        "HttpToolsProtocol.send_400_response": hasattr(HttpToolsProtocol, "send_400_response"),
        "HttpToolsProtocol.connections": {"connections", "cycle", "transport", "parser"}
        <= set(HttpToolsProtocol.__init__.__code__.co_names),
        "RequestResponseCycle": {"scope", "keep_alive", "more_body", "message_event", "response_started"}
        <= set(RequestResponseCycle.__init__.__code__.co_names),
        "HttpToolsProtocol.on_message_begin": {"url", "headers"}
        <= set(HttpToolsProtocol.on_message_begin.__code__.co_names),
    },
)

_HEADER_SECONDS = 10.0
_HEADER_BYTES = 64 << 10

Refused = Callable[[str, int, float, str], None]
"""Called with the client's address, the status, the seconds that were waited for the request, and the sentence."""


class Web:
    """A web server for one application.

    Args:
        application: by ASGI.
        limits: of times and connections.
        on_refusal: called for each request that is refused before the application gets it; see `Refused`.
    """

    def __init__(self, application: Any, limits: Limits, on_refusal: Refused) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._limits = limits
        config = uvicorn.Config(
            application,
            http=_protocol(limits, on_refusal),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=max(5, round(limits.seconds)),
            timeout_graceful_shutdown=round(limits.seconds) + 5,
        )
        self._server = _Server(config)

    async def run(self, listening: socket.socket, ready: Callable[[], None]) -> None:
        """Answers until `stop` is called and all that was begun is done."""
        self._server.ready = ready
        await self._server.serve([listening])

    def stop(self) -> None:
        """Ends it in order, or at once when called again."""
        self._server.force_exit = self._server.should_exit
        self._server.should_exit = True

    def drop_slow(self) -> None:
        """Closes connections whose request takes too long to begin, or whose answer is not read."""
        now = time.monotonic()
        oldest = now - min(_HEADER_SECONDS, self._limits.seconds)
        for connection in list(self._server.server_state.connections):
            if not isinstance(connection, _Protocol):
                continue
            if 0 < connection.waits_since < oldest:
                connection.give_up()
            if connection.read_at(now) < now - self._limits.seconds:
                connection.transport.abort()


class _Server(uvicorn.Server):
    ready: Callable[[], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self.on_tick(0)
        self.ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # they are handled in the event loop


class _Protocol(HttpToolsProtocol):
    """A connection."""

    most = 0
    refused: Refused
    waits_since = 0.0
    """When it began to wait for headers, by the monotonic clock; 0 while it does not."""
    _header_bytes = 0
    _unread, _read_at = 0, 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.parser = _Parser(self)
        self.waits_since = time.monotonic()
        if len(self.connections) > self.most:
            self._end(503, "Too many connections are open: try again later.", b"retry-after: 1\r\n")

    def data_received(self, data: bytes) -> None:
        """Reads what has come; called by asyncio."""
        self._header_bytes += len(data)
        super().data_received(data)
        if self._header_bytes > _HEADER_BYTES and not self.transport.is_closing():
            self._refuse(431, f"The headers of the request are longer than {_HEADER_BYTES:,} bytes.")

    def on_message_begin(self) -> None:
        self.waits_since = self.waits_since or time.monotonic()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.offers_another:
            return  # they come again
        self.waits_since, self._header_bytes = 0.0, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0  # others may follow it
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.offers_another:
            return
        self._header_bytes = 0
        super().on_message_complete()

    @property
    def offers_another(self) -> bool:
        """Whether the request is one for another protocol, if the server spoke that."""
        return self.parser.should_upgrade() and self._get_upgrade() is not None

    def head(self) -> bytes:
        """The first line and the headers of the request, without an offer of another protocol."""
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def read_at(self, now: float) -> float:
        """When the client last read some of an answer; now, if it has nothing to read."""
        unread = self.transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._unread, self._read_at = unread, now
        return self._read_at

    def give_up(self) -> None:
        """Closes it because no request comes."""
        if self.cycle is None or self.cycle.response_complete:
            self._end(408, "The headers of the request came too slowly.")
        self.waits_since = 0.0  # also where it is in the middle of an answer

    def send_400_response(self, msg: str) -> None:
        """Answers a request that uvicorn cannot read; called by uvicorn.

        A body that cannot be read further ends there, and the application refuses it.
        """
        cycle: Any = self.cycle
        if cycle is not None and MALFORMED in cycle.scope and not cycle.response_complete:
            return  # what follows is of the same body
        if cycle is not None and cycle.more_body and not cycle.response_started:
            cycle.scope[MALFORMED], cycle.more_body, cycle.keep_alive = True, False, False
            cycle.message_event.set()
            return
        self._refuse(400, "This is no request of HTTP/1.1.")

    def _refuse(self, status: int, sentence: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # it is in the middle of an answer
            return
        self._end(status, sentence)

    def _end(self, status: int, sentence: str, header: bytes = b"") -> None:
        body = orjson.dumps({"error": sentence})
        reason = http.HTTPStatus(status).phrase.encode()
        head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%sconnection: close\r\n\r\n"
        self.transport.write(head % (status, reason, len(body), header) + body)
        self.transport.close()
        waited = time.monotonic() - self.waits_since if self.waits_since else 0.0
        self.waits_since = 0.0
        self.refused(self.client[0] if self.client else "", status, waited, sentence)


class _Parser(httptools.HttpRequestParser):
    """A parser that reads a request for another protocol, which it would give to that, as one of HTTP/1.1."""

    def __init__(self, protocol: _Protocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol
        with contextlib.suppress(AttributeError):  # of httptools before 0.6.3
            self.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it

    def feed_data(self, data: Any) -> None:
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._protocol.offers_another:
                raise
            self.feed_data(self._protocol.head() + data[upgrade.args[0] :])


def _protocol(limits: Limits, on_refusal: Refused) -> type[_Protocol]:
    return type("Protocol", (_Protocol,), {"most": limits.connections, "refused": staticmethod(on_refusal)})
