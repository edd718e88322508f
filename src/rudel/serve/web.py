"""uvicorn with what it lacks: time limits for headers, a bound on connections, and errors as JSON."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rudel.internals import require
from rudel.serve.server_limits import Limits

require(
    "uvicorn",
    {
        "Server.startup": hasattr(uvicorn.Server, "startup") and hasattr(uvicorn.Server, "capture_signals"),
        "HttpToolsProtocol.send_400_response": hasattr(HttpToolsProtocol, "send_400_response"),
        "HttpToolsProtocol.connections": {"connections", "cycle", "transport"}
        <= set(HttpToolsProtocol.__init__.__code__.co_names),
    },
)

_HEADER_SECONDS = 10.0

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
        """Closes connections whose request takes too long to begin."""
        oldest = time.monotonic() - min(_HEADER_SECONDS, self._limits.seconds)
        for connection in list(self._server.server_state.connections):
            if isinstance(connection, _Protocol) and 0 < connection.waits_since < oldest:
                connection.give_up()


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

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.waits_since = time.monotonic()
        if len(self.connections) > self.most:
            self._end(503, "Too many connections are open: try again later.", b"retry-after: 1\r\n")

    def on_message_begin(self) -> None:
        self.waits_since = self.waits_since or time.monotonic()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self.waits_since = 0.0
        super().on_headers_complete()

    def give_up(self) -> None:
        """Closes it because no request comes."""
        if self.cycle is None or self.cycle.response_complete:
            self._end(408, "The headers of the request came too slowly.")
        self.waits_since = 0.0  # also where it is in the middle of an answer

    def send_400_response(self, msg: str) -> None:
        """Answers a request that uvicorn cannot read; called by uvicorn."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # it is in the middle of an answer
            return
        self._end(400, "This is no request of HTTP/1.1.")

    def _end(self, status: int, sentence: str, header: bytes = b"") -> None:
        body = orjson.dumps({"error": sentence})
        reason = {400: b"Bad Request", 408: b"Request Timeout", 503: b"Service Unavailable"}[status]
        head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%sconnection: close\r\n\r\n"
        self.transport.write(head % (status, reason, len(body), header) + body)
        self.transport.close()
        waited = time.monotonic() - self.waits_since if self.waits_since else 0.0
        self.waits_since = 0.0
        self.refused(self.client[0] if self.client else "", status, waited, sentence)


def _protocol(limits: Limits, on_refusal: Refused) -> type[_Protocol]:
    return type("Protocol", (_Protocol,), {"most": limits.connections, "refused": staticmethod(on_refusal)})
