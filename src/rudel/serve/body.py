"""The headers that matter, and the body of a request, within bounds of size and time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from rudel.serve.refusal import CLOSE, ClientGoneError, Refusal, busy
from rudel.serve.server_limits import Limits

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

MALFORMED = "rudel.malformed"
"""Key of a scope whose body ends where it cannot be read: its chunks are not those of HTTP/1.1."""

_DRAINED = 4
"""Multiple of the largest body that is read and thrown away, so that the client gets to read why it is refused."""


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of a request that the server looks at.

    Args:
        media_type: of the body, without parameters; lower case.
        length: of the body in bytes, where it is known.
        encoding: how the body is compressed; empty where it is not.
        json_length: see `inference_documents.JSON_LENGTH`.
        authorization: as it is.
        host: the name by which the client reached the server; None where it does not say, as in HTTP/1.0.
        waits: whether the client waits for a `100 Continue` before it sends the body.
    """

    media_type: str = ""
    length: int | None = None
    encoding: str = ""
    json_length: bytes | None = None
    authorization: bytes = b""
    host: str | None = None
    waits: bool = False


def read_headers(scope: Scope) -> Headers:
    """Picks out the headers that matter."""
    found = {name: value for name, value in scope["headers"] if name in _READ}
    length = found.get(b"content-length", b"")
    return Headers(
        found.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1"),
        int(length) if length.isdigit() else None,
        found.get(b"content-encoding", b"").strip().lower().decode("latin-1"),
        found.get(b"inference-header-content-length"),
        found.get(b"authorization", b""),
        found[b"host"].decode("latin-1") if b"host" in found else None,
        found.get(b"expect", b"").lower() == b"100-continue",
    )


_READ = frozenset(
    (
        *(b"content-type", b"content-length", b"content-encoding", b"inference-header-content-length"),
        *(b"authorization", b"host", b"expect"),
    )
)


class Bodies:
    """Reads bodies, and bounds the memory that all of them take together.

    Args:
        limits: of size and time.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0

    async def read(self, headers: Headers, receive: Receive, began: float) -> bytes:
        """The whole body of a request.

        Raises:
            Refusal: it is too large (413), too slow (408), compressed (415), or all together are too large (503).
            ClientGoneError: the client has closed the connection.
        """
        if headers.encoding not in ("", "identity"):
            await self._drain(headers, receive)
            raise Refusal(415, "Compressed bodies are not taken: send it without Content-Encoding.", CLOSE)
        if headers.length is not None and headers.length > self._limits.body:
            await self._drain(headers, receive)
            raise self._too_large()
        message = await self._within(receive, began)
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body = message.get("body", b"")
        if not message.get("more_body", False):
            return body
        return await self._rest(body, headers, receive, began)

    async def _rest(self, first: bytes, headers: Headers, receive: Receive, began: float) -> bytes:
        parts, size, held = [first], len(first), max(headers.length or 0, len(first))
        if self._held and self._held + held > self._limits.memory:
            await self._drain(headers, receive)
            raise busy("Too much is being sent at the same time: try again later.")
        self._held += held
        try:
            more = True
            while more:
                message = await self._within(receive, began)
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                part = message.get("body", b"")
                parts.append(part)
                size += len(part)
                if size > self._limits.body:
                    await self._drain(headers, receive)
                    raise self._too_large()
                if size > held:
                    self._held += size - held
                    held = size
                more = message.get("more_body", False)
        finally:
            self._held -= held
        return b"".join(parts)

    async def _within(self, receive: Receive, began: float) -> MutableMapping[str, Any]:
        left = self._limits.seconds - (time.perf_counter() - began)
        try:
            async with asyncio.timeout(max(0.0, left)):
                return await receive()
        except TimeoutError:
            raise Refusal(
                408, f"The request was not complete within {self._limits.seconds:g} seconds.", CLOSE
            ) from None

    async def _drain(self, headers: Headers, receive: Receive) -> None:
        """Throws away some of what the client still sends: many read no answer before they have sent all."""
        if headers.waits:
            return
        left = _DRAINED * self._limits.body
        try:
            async with asyncio.timeout(min(2.0, self._limits.seconds)):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            return

    def _too_large(self) -> Refusal:
        return Refusal(413, f"The body is larger than {self._limits.body:,} bytes.", CLOSE)
