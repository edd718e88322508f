"""The ASGI application: which request asks for what, and what becomes of errors.

Requests in a protocol (`rudel.serve.protocols`) are answered here, without a framework between; metrics and the OpenAPI
document are Starlette's routes. Every request is answered once, counted once and logged once. A defect of the server
leaves its traceback on standard error, and the client gets 500 without the reason.
"""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import orjson

from rudel.serve import image_inputs
from rudel.serve.access_log import Access, AccessLog
from rudel.serve.batcher import Columns
from rudel.serve.body import MALFORMED, Bodies, Headers, Receive, Scope, read_headers
from rudel.serve.guard import Guard
from rudel.serve.metrics import Metrics
from rudel.serve.models import Models, Version
from rudel.serve.protocols.protocol import Answer, Query, ServingProtocol, Target, json_answer
from rudel.serve.refusal import NOTHING_HERE, ClientGoneError, Refusal, busy, missing
from rudel.serve.server_limits import Limits
from rudel.serve.values import is_encoded

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Other = Callable[[Scope, Receive, Send], Awaitable[None]]

_LARGE = 128 << 10
"""Bytes of a body that are parsed in a thread, so that others need not wait for it."""


@dataclass(slots=True)
class RequestRecord:
    """A request, for log and metrics; filled in as it is read.

    Args:
        began: by `time.perf_counter`.
        route: the kind of request.
        version: of a model, if there is one.
        received: bytes of the body.
        examples: how many.
    """

    began: float
    route: str = "other"
    version: Version | None = None
    received: int = 0
    examples: int = 0


class Application:
    """Answers requests.

    Args:
        models: what is served.
        limits: of bodies and times.
        metrics: counts every request.
        log: gets a line for every request.
        guard: whom it answers.
        protocols: that clients may speak.
        other: answers what belongs to none of them.
    """

    def __init__(
        self,
        models: Models,
        limits: Limits,
        metrics: Metrics,
        log: AccessLog,
        guard: Guard,
        protocols: Sequence[ServingProtocol],
        other: Other,
    ) -> None:
        self._models = models
        self._limits = limits
        self._metrics = metrics
        self._log = log
        self._guard = guard
        self._protocols = protocols
        self._other = other
        self._bodies = Bodies(limits)
        self._parsing = ThreadPoolExecutor(1, thread_name_prefix="parsing")
        self._decoding = ThreadPoolExecutor(2, thread_name_prefix="decoding")
        self._handed = 0
        self._handed_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's entry point."""
        record = RequestRecord(time.perf_counter())
        path: str = scope["path"]
        error = ""
        try:
            headers, match = read_headers(scope), self._match(path)
            protocol, target = match or (None, None)
            self._guard.check(headers, is_open=target is not None and target.is_open)
            if protocol is None:
                await self._pass_on(scope, receive, send, record)
                return
            if target is None:
                raise missing(NOTHING_HERE)
            answer = await self._answer(scope, protocol, target, headers, receive, record)
        except Refusal as refusal:
            error = refusal.sentence
            answer = Answer(orjson.dumps({"error": error}), refusal.status, headers=refusal.headers)
        except ClientGoneError:
            self._note(scope, record, 499, 0, "The client has closed the connection.")
            return
        except Exception:
            error = "The server has failed to answer; its log says why."
            self._log.message(traceback.format_exc())
            answer = Answer(orjson.dumps({"error": error}), 500)
        head = [(b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body)), *answer.headers]
        await send({"type": "http.response.start", "status": answer.status, "headers": head})
        await send({"type": "http.response.body", "body": answer.body})
        self._note(scope, record, answer.status, len(answer.body), error)

    def _match(self, path: str) -> tuple[ServingProtocol, Target | None] | None:
        """The protocol that a path belongs to, and what it stands for there; None for what is Starlette's."""
        for protocol in self._protocols:
            if (target := protocol.match(path)) or path.startswith(f"{protocol.prefix}/"):
                return protocol, target
        return None

    async def _answer(
        self,
        scope: Scope,
        protocol: ServingProtocol,
        target: Target,
        headers: Headers,
        receive: Receive,
        record: RequestRecord,
    ) -> Answer:
        if scope["method"] not in target.methods:
            raise Refusal(405, f"Use {target.methods[0]} here.", ((b"allow", ", ".join(target.methods).encode()),))
        record.route = target.route
        if not target.computes:
            record.version = self._models.find(target.model, target.version) if target.model else None
            return json_answer(protocol.describe(target, self._models))
        body = await self._bodies.read(headers, receive, record.began)
        if MALFORMED in scope:
            raise Refusal(400, "The body of the request is not one of HTTP/1.1.")
        record.received = len(body)
        record.version = version = self._models.find(target.model, target.version)
        query: Query = await self._parsed(body, lambda: protocol.parse(target, body, headers, version))
        return query.write(await self._compute(version, query.columns, record))

    async def _parsed(self, body: bytes, parse: Callable[[], Any]) -> Any:
        """Parses a body; in a thread where that may take long."""
        if len(body) < _LARGE:
            return parse()
        return await self._in_thread(self._parsing, parse, len(body))

    async def _decoded(self, columns: Columns, version: Version, record: RequestRecord) -> Columns:
        """Columns whose files, if there are any, are inputs of the model; decoded, or only looked at, in a thread."""
        tensors, decode = version.loaded.signature.inputs, version.loaded.decode
        made = list(columns)
        for place, (column, tensor) in enumerate(zip(columns, tensors, strict=True)):
            if is_encoded(column, tensor) or (decode and tensor.takes_images):
                kind = version.loaded.files
                call = partial(image_inputs.decode_all, column, tensor, decode, self._limits, record.began, kind)
                made[place] = await self._in_thread(self._decoding, call, record.received)
        return made

    async def _in_thread(self, threads: ThreadPoolExecutor, call: Callable[[], Any], size: int) -> Any:
        """Runs `call` in a thread and returns its result; it holds so many bytes of a body until then."""
        full = self._handed >= self._limits.waiting or self._handed_bytes + size > self._limits.memory
        if self._handed and full:
            raise busy("Too many large bodies wait to be read: try again later.")
        self._handed += 1
        self._handed_bytes += size
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, call)
        finally:
            self._handed -= 1
            self._handed_bytes -= size

    async def _compute(self, version: Version, columns: Columns, record: RequestRecord) -> Columns:
        record.examples = len(columns[0])
        columns = await self._decoded(columns, version, record)
        version.loaded.check(columns)
        outputs = await version.batcher.submit(columns, record.began)
        for output, tensor in zip(outputs, version.loaded.signature.outputs, strict=True):
            _check_finite(output, tensor.name)
        return outputs

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, record: RequestRecord) -> None:
        """Lets other routes answer, and notes what they say."""
        status, sent = 500, 0

        async def listen(message: MutableMapping[str, Any]) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._other(scope, receive, listen)
        finally:
            self._note(scope, record, status, sent, "")

    def note_unread(self, client: str, status: int, seconds: float, error: str) -> None:
        """Counts and logs a request that was refused before it could be read.

        Args:
            client: its address.
            status: of the refusal.
            seconds: that were waited for the request.
            error: the sentence of the refusal.
        """
        self._metrics.others.count("other", status, seconds)
        self._log.request(Access(client, "", "", status, seconds, 0, 0, "", "", 0, error))

    def _note(self, scope: Scope, record: RequestRecord, status: int, sent: int, error: str) -> None:
        seconds = time.perf_counter() - record.began
        version = record.version
        model, number = (version.model, str(version.number)) if version else ("", "")
        (version.metrics.requests if version else self._metrics.others).count(record.route, status, seconds)
        client = scope.get("client")
        self._log.request(
            Access(
                client[0] if client else "",
                scope["method"],
                scope["path"],
                status,
                seconds,
                record.received,
                sent if scope["method"] != "HEAD" else 0,
                model,
                number,
                record.examples,
                error,
            )
        )


def _check_finite(output: np.ndarray, name: str) -> None:
    """Refuses what JSON has no word for, and what no client wants in bytes."""
    if output.dtype.kind == "f" and not np.isfinite(output).all():
        example = int(np.flatnonzero(~np.isfinite(output.reshape(len(output), -1)).all(axis=1))[0])
        raise Refusal(422, f"The model answers example {example:,} with NaN or infinity in its output `{name}`.")
