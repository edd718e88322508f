"""The ASGI application: which request asks for what, and what becomes of errors.

The paths of predictions are answered here, without a framework between; what else there is (metrics, the OpenAPI
document) are Starlette's routes. Every request is answered once, counted once and logged once.
What goes wrong in the server itself is told on standard error, and the client gets 500 without the reason.
"""

import asyncio
import re
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import orjson

from rudel import __version__
from rudel.serve import open_inference, pictures, tensorflow_rest
from rudel.serve.access_log import Access, AccessLog
from rudel.serve.batcher import Columns
from rudel.serve.body import Bodies, Headers, Receive, Scope, read_headers
from rudel.serve.guard import Guard
from rudel.serve.limits import Limits
from rudel.serve.metrics import Metrics
from rudel.serve.models import Models, Version
from rudel.serve.pictures import PICTURES
from rudel.serve.recordings import RECORDINGS
from rudel.serve.refusal import ClientGoneError, Refusal, bad, busy, missing
from rudel.serve.runtimes.runtime import Loaded
from rudel.serve.values import column_of_bytes, is_encoded

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Other = Callable[[Scope, Receive, Send], Awaitable[None]]

_V1 = re.compile(r"/v1/models/([^/:]+)(?:/versions/([^/:]+))?(?:/(metadata)|:([a-z]+))?")
_V2 = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/(ready|infer))?")
_VERBS = ("predict", "classify", "regress")

_JSON = b"application/json"
_BYTES = b"application/octet-stream"
_HEALTH = ("/v2/health/live", "/v2/health/ready")

_LARGE = 128 << 10
"""Bytes of a body that are parsed in a thread, so that others need not wait for it."""


@dataclass(slots=True)
class Asked:
    """What a request turned out to be about; filled in as it is read.

    Args:
        began: by `time.perf_counter`.
        route: what was asked for.
        version: of a model, if there is one.
        received: bytes of the body.
        examples: how many.
    """

    began: float
    route: str = "other"
    version: Version | None = None
    received: int = 0
    examples: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A response.

    Args:
        body: of it.
        status: of HTTP.
        content_type: of the body.
        headers: others.
    """

    body: bytes
    status: int = 200
    content_type: bytes = _JSON
    headers: Sequence[tuple[bytes, bytes]] = field(default=())


class Application:
    """Answers requests.

    Args:
        models: what is served.
        limits: of bodies and times.
        metrics: counts every request.
        log: gets a line for every request.
        guard: whom it answers.
        other: answers what is not about a model.
    """

    def __init__(
        self, models: Models, limits: Limits, metrics: Metrics, log: AccessLog, guard: Guard, other: Other
    ) -> None:
        self._models = models
        self._limits = limits
        self._metrics = metrics
        self._log = log
        self._guard = guard
        self._other = other
        self._bodies = Bodies(limits)
        self._parsing = ThreadPoolExecutor(1, thread_name_prefix="parsing")
        self._decoding = ThreadPoolExecutor(2, thread_name_prefix="decoding")
        self._handed = 0
        self._handed_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI's entry point."""
        asked = Asked(time.perf_counter())
        path: str = scope["path"]
        error = ""
        try:
            headers = read_headers(scope)
            self._guard.check(headers, is_open=path in _HEALTH)
            answer = await self._answer(scope, path, headers, receive, asked)
            if answer is None:
                await self._pass_on(scope, receive, send, asked)
                return
        except Refusal as refusal:
            error = refusal.sentence
            answer = Answer(orjson.dumps({"error": error}), refusal.status, headers=refusal.headers)
        except ClientGoneError:
            self._note(scope, asked, 499, 0, "The client has closed the connection.")
            return
        except Exception:
            error = "The server has failed to answer; its log says why."
            self._log.tell(traceback.format_exc())
            answer = Answer(orjson.dumps({"error": error}), 500)
        head = [(b"content-type", answer.content_type), (b"content-length", b"%d" % len(answer.body)), *answer.headers]
        await send({"type": "http.response.start", "status": answer.status, "headers": head})
        await send({"type": "http.response.body", "body": answer.body})
        self._note(scope, asked, answer.status, len(answer.body), error)

    async def _answer(self, scope: Scope, path: str, headers: Headers, receive: Receive, asked: Asked) -> Answer | None:
        """The answer to what is about models; None for anything else."""
        if path.startswith("/v1/models/") and (found := _V1.fullmatch(path)):
            name, version, metadata, verb = found.groups()
            if verb is None:
                return self._v1_about(scope, name, version, metadata, asked)
            if verb in _VERBS:
                return await self._v1_ask(scope, name, version, verb, headers, receive, asked)
        elif path.startswith("/v2/models/") and (found := _V2.fullmatch(path)):
            name, version, what = found.groups()
            if what == "infer":
                return await self._infer(scope, name, version, headers, receive, asked)
            return self._v2_about(scope, name, version, what, asked)
        elif path in _HEALTH:
            _check_method(scope, "GET")
            asked.route = "health"
            return _json({path.rpartition("/")[2]: True})
        elif path in ("/v2", "/v2/"):
            _check_method(scope, "GET")
            asked.route = "metadata"
            return _json({"name": "rudel", "version": __version__, "extensions": ["binary_tensor_data"]})
        elif path in ("/v1/models", "/v2/models"):
            _check_method(scope, "GET")
            asked.route = "models"
            return _json({"models": self._models.names})
        if path.startswith(("/v1/", "/v2/")):
            raise missing("There is nothing here; /openapi.json lists what can be asked for.")
        return None

    def _v1_about(self, scope: Scope, name: str, version: str | None, metadata: str | None, asked: Asked) -> Answer:
        _check_method(scope, "GET")
        asked.route = metadata or "status"
        asked.version = found = self._models.find(name, version)
        if metadata:
            return _json(tensorflow_rest.metadata(name, found.number, found.loaded.signature))
        return _json(tensorflow_rest.status(name, self._models.versions(name) if version is None else [found.number]))

    def _v2_about(self, scope: Scope, name: str, version: str | None, what: str | None, asked: Asked) -> Answer:
        _check_method(scope, "GET")
        asked.route = what or "metadata"
        asked.version = found = self._models.find(name, version)
        if what == "ready":
            return _json({"name": name, "ready": True})
        loaded = found.loaded
        return _json(open_inference.metadata(name, self._models.versions(name), loaded.platform, loaded.signature))

    async def _v1_ask(
        self, scope: Scope, name: str, version: str | None, verb: str, headers: Headers, receive: Receive, asked: Asked
    ) -> Answer:
        _check_method(scope, "POST")
        asked.route = verb
        body = await self._read(headers, receive, asked)
        asked.version = found = self._models.find(name, version)
        loaded = found.loaded
        in_rows = True
        if headers.media_type.startswith(("image/", "audio/")):
            columns: Columns = _file(body, headers.media_type, found)
        elif verb == "predict":
            columns, in_rows = await self._parsed(
                body, lambda: tensorflow_rest.read_predict(_document(body), loaded.signature)
            )
        else:
            columns = await self._parsed(body, lambda: tensorflow_rest.read_examples(_document(body), loaded.signature))
        outputs = await self._compute(found, columns, asked)
        if verb == "predict":
            return Answer(tensorflow_rest.write_predict(outputs, loaded.signature, in_rows))
        if verb == "regress":
            return Answer(tensorflow_rest.write_regress(outputs))
        scores = _scores(loaded, outputs)
        if scores is None:
            raise bad(f"The model `{name}` does not classify: ask by `:predict`.")
        return Answer(tensorflow_rest.write_classify(scores, loaded.labels))

    async def _infer(
        self, scope: Scope, name: str, version: str | None, headers: Headers, receive: Receive, asked: Asked
    ) -> Answer:
        _check_method(scope, "POST")
        asked.route = "infer"
        body = await self._read(headers, receive, asked)
        asked.version = found = self._models.find(name, version)
        signature = found.loaded.signature

        def parse() -> open_inference.Inference:
            head, binary = open_inference.split(body, headers.json_length)
            return open_inference.read_inference(_document(head), binary, signature)

        inference = await self._parsed(body, parse)
        outputs = await self._compute(found, inference.columns, asked)
        content, length = open_inference.write_inference(inference, outputs, name, found.number, signature)
        if length is None:
            return Answer(content)
        return Answer(content, content_type=_BYTES, headers=((open_inference.JSON_LENGTH, b"%d" % length),))

    async def _read(self, headers: Headers, receive: Receive, asked: Asked) -> bytes:
        body = await self._bodies.read(headers, receive, asked.began)
        asked.received = len(body)
        return body

    async def _parsed(self, body: bytes, parse: Callable[[], Any]) -> Any:
        """What `parse` makes of a body; in a thread where that may take long."""
        if len(body) < _LARGE:
            return parse()
        return await self._in_thread(self._parsing, parse, len(body))

    async def _decoded(self, columns: Columns, version: Version, asked: Asked) -> Columns:
        """Columns whose files, if there are any, are inputs of the model; decoded in a thread."""
        tensors, decode = version.loaded.signature.inputs, version.loaded.decode
        made = list(columns)
        for place, (column, tensor) in enumerate(zip(columns, tensors, strict=True)):
            if is_encoded(column, tensor):
                kind = version.loaded.files
                call = partial(pictures.decode_all, column, tensor, decode, self._limits, asked.began, kind)
                made[place] = await self._in_thread(self._decoding, call, asked.received)
        return made

    async def _in_thread(self, threads: ThreadPoolExecutor, call: Callable[[], Any], size: int) -> Any:
        """What `call` returns, which holds so many bytes of a body until then."""
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

    async def _compute(self, version: Version, columns: Columns, asked: Asked) -> Columns:
        asked.examples = len(columns[0])
        columns = await self._decoded(columns, version, asked)
        version.loaded.check(columns)
        outputs = await version.batcher.submit(columns, asked.began)
        for output, tensor in zip(outputs, version.loaded.signature.outputs, strict=True):
            _check_finite(output, tensor.name)
        return outputs

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, asked: Asked) -> None:
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
            self._note(scope, asked, status, sent, "")

    def _note(self, scope: Scope, asked: Asked, status: int, sent: int, error: str) -> None:
        seconds = time.perf_counter() - asked.began
        version = asked.version
        model, number = (version.model, str(version.number)) if version else ("", "")
        (version.metrics.requests if version else self._metrics.others).count(asked.route, status, seconds)
        client = scope.get("client")
        self._log.request(
            Access(
                client[0] if client else "",
                scope["method"],
                scope["path"],
                status,
                seconds,
                asked.received,
                sent,
                model,
                number,
                asked.examples,
                error,
            )
        )


def _check_finite(output: np.ndarray, name: str) -> None:
    """Refuses what JSON has no word for, and what no client wants in bytes."""
    if output.dtype.kind == "f" and not np.isfinite(output).all():
        example = int(np.flatnonzero(~np.isfinite(output.reshape(len(output), -1)).all(axis=1))[0])
        raise Refusal(422, f"The model answers example {example:,} with NaN or infinity in its output `{name}`.")


def _file(body: bytes, media_type: str, version: Version) -> Columns:
    """The column of one encoded picture or recording."""
    kind = next((kind for kind in (PICTURES, RECORDINGS) if media_type in kind.types), None)
    if kind is None:
        raise Refusal(
            415, f"Pictures are taken as {' or '.join(PICTURES.types)}, recordings as audio/wav or audio/flac."
        )
    if version.loaded.decode is None or version.loaded.files is not kind:
        raise bad(f"The model `{version.model}` takes no {kind.noun}.")
    return [column_of_bytes([body], version.loaded.signature.inputs[0])]


def _scores(loaded: Loaded, outputs: Columns) -> np.ndarray | None:
    """Scores (N, C) of classes; None where it does not classify."""
    if len(outputs) != 1 or outputs[0].dtype.kind != "f" or outputs[0].ndim != 2:
        return None
    return loaded.scores(outputs[0])


def _check_method(scope: Scope, allowed: str) -> None:
    if scope["method"] != allowed:
        raise Refusal(405, f"Use {allowed} here.", ((b"allow", allowed.encode()),))


def _document(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise bad(f"The body is no JSON ({error}).") from None


def _json(document: Any) -> Answer:
    return Answer(orjson.dumps(document))
