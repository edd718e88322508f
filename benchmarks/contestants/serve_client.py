"""Asks a server by many clients at once, and prints how fast it answers: `python serve_client.py JOB`

A client has one connection, and asks again as soon as it has its answer. A job is JSON:

    host, port    of the server
    path          to POST to
    headers       of the request, by name
    body          of the request, in base64
    clients       how many
    seconds       for how long, after a tenth of that which does not count

Prints one JSON document: `requests` a second; `p50`, `p90`, `p99`, `largest`: seconds that a request took.
It is written for little time per request: answers are not parsed, but for their status and length.
"""

import asyncio
import base64
import json
import sys
import time
from typing import Any

import uvloop


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, request: bytes, taken: list[float], failed: asyncio.Future[None]) -> None:
        self._request = request
        self._taken = taken
        self._failed = failed
        self._answer = b""
        self._length = -1
        self._began = 0.0
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._answer = self._answer + data if self._answer else data
        if self._length < 0:
            self._length = self._whole_length()
        if 0 <= self._length <= len(self._answer):
            self._taken.append(time.perf_counter() - self._began)
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the server has closed a connection")

    def _ask(self) -> None:
        self._answer, self._length = b"", -1
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def _whole_length(self) -> int:
        head, found, _ = self._answer.partition(b"\r\n\r\n")
        if not found:
            return -1
        if not head.startswith(b"HTTP/1.1 200"):
            self._fail(self._answer[:300].decode(errors="replace"))
        _, _, length = head.lower().partition(b"content-length:")
        return len(head) + 4 + int(length.partition(b"\r")[0])

    def _fail(self, message: str) -> None:
        if not self._failed.done():
            self._failed.set_exception(RuntimeError(message))


async def load(job: dict[str, Any]) -> dict[str, float]:
    """Does a job."""
    body = base64.b64decode(job["body"])
    head = [f"POST {job['path']} HTTP/1.1", f"Host: {job['host']}", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in job["headers"].items()]
    request = "\r\n".join([*head, "", ""]).encode() + body
    loop = asyncio.get_running_loop()
    taken: list[float] = []
    failed = loop.create_future()
    for _ in range(job["clients"]):
        await loop.create_connection(lambda: Client(request, taken, failed), job["host"], job["port"])
    await _unless(failed, job["seconds"] / 10)
    taken.clear()
    began = time.perf_counter()
    await _unless(failed, job["seconds"])
    seconds = time.perf_counter() - began
    ordered = sorted(taken)
    quantiles = {f"p{share}": ordered[len(ordered) * share // 100] for share in (50, 90, 99)}
    return {"requests": len(taken) / seconds, "largest": ordered[-1], **quantiles}


async def _unless(failed: asyncio.Future[None], seconds: float) -> None:
    await asyncio.wait([failed], timeout=seconds)
    if failed.done():
        failed.result()


if __name__ == "__main__":
    print(json.dumps(uvloop.run(load(json.loads(sys.argv[1])))))
