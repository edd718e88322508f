"""Bad input: each a 4xx with one clear sentence, and the server goes on."""

import asyncio
import contextlib
import functools
import io
import json
import socket
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from processes import LONG, until
from serve_support import tokens, write_run

from rudel.serve.access_log import AccessLog
from rudel.serve.application import Application
from rudel.serve.guard import Guard
from rudel.serve.metrics import Metrics
from rudel.serve.model_signature import Tensor
from rudel.serve.models import Models
from rudel.serve.protocols import PROTOCOLS
from rudel.serve.refusal import Refusal
from rudel.serve.routes import other_routes
from rudel.serve.server import listen
from rudel.serve.server_limits import Limits
from rudel.serve.values import column_of_rows
from rudel.serve.web import Web

PREDICT = "/v1/models/small:predict"
INFER = "/v2/models/small/infer"
DEEP = b"[" * 100_000 + b"]" * 100_000


def tensor(**changes: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]} | changes]}


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (PREDICT, b"{", 400, "not JSON"),
        (PREDICT, b"", 400, "not JSON"),
        (PREDICT, b"\xff\xfe", 400, "not JSON"),
        (PREDICT, DEEP, 400, "not JSON"),
        (PREDICT, b'{"instances": [[1, 2, 3, NaN]]}', 400, "not JSON"),
        (PREDICT, b'{"instances": [[1, 2, 3, 1e39]]}', 400, "too large for float32"),
        (PREDICT, [1], 400, "not a JSON object"),
        (PREDICT, {}, 400, "`instances`"),
        (PREDICT, {"instances": [[1, 2, 3, 4]], "inputs": []}, 400, "either"),
        (PREDICT, {"instances": []}, 400, "at least one example"),
        (PREDICT, {"instances": 3}, 400, "not a list"),
        (PREDICT, {"instances": [[1, 2, 3]]}, 400, "shape (3,)"),
        (PREDICT, {"instances": [[1, 2, 3, 4], [1]]}, 400, "different shapes"),
        (PREDICT, {"instances": [["1", "2", "3", "4"]]}, 400, "takes numbers of shape (4,)"),
        (PREDICT, {"instances": [[1, 2, 3, None]]}, 400, "takes numbers"),
        (PREDICT, {"instances": [[1, 2, 3, True]]}, 400, "takes numbers"),
        (PREDICT, {"instances": [[True] * 4]}, 400, "takes real numbers"),
        ("/v1/models/small:classify", {"examples": [{"x": [1, 2, 3, True]}]}, 400, "takes numbers"),
        ("/v1/models/small:classify", {"examples": [{"x": [True] * 4}]}, 400, "takes real numbers"),
        (PREDICT, {"instances": [{"y": [1, 2, 3, 4]}]}, 400, "takes `x`"),
        (PREDICT, {"instances": [{"x": [1, 2, 3, 4]}, {}]}, 400, "Example 1 lacks the input `x`"),
        (PREDICT, {"instances": [{"x": [1, 2, 3, 4]}, 5]}, 400, "Example 1 is not an object"),
        (PREDICT, {"inputs": {"x": [[1, 2, 3, 4]], "y": []}}, 400, "`inputs` has an input `y`, which is unknown"),
        (PREDICT, {"instances": [{"b64": "AAAA"}]}, 400, "no images"),
        (PREDICT, {"instances": [[1, 2, 3, 4]], "signature_name": "other"}, 400, "serving_default"),
        ("/v1/models/pairs:predict", {"instances": [[1, 2]]}, 400, "`left`, `right`"),
        ("/v1/models/pairs:predict", {"instances": [{"left": [1, 2], "right": [0.5]}]}, 400, "whole numbers"),
        ("/v1/models/pairs:predict", {"instances": [{"left": [1, 2], "right": [2**40]}]}, 400, "numbers from -2147"),
        ("/v1/models/pairs:predict", {"inputs": {"left": [[1, 2]], "right": [[1], [2]]}}, 400, "different numbers"),
        ("/v1/models/pairs:classify", {"examples": [{"left": [1, 2], "right": [1]}]}, 400, "does not classify"),
        ("/v1/models/small:regress", {"examples": [{"x": [1, 2, 3, 4]}]}, 400, "one number"),
        ("/v1/models/quick:predict", {"instances": [{"b64": "?"}]}, 400, "base64"),
        ("/v1/models/quick:predict", {"instances": [{"b64": "data:image/png;base64,iV"}]}, 400, "follows the comma"),
        ("/v1/models/quick:classify", b"\xff\xd8\xff", 415, "`Content-Type: image/jpeg`"),
        ("/v1/models/quick:predict", b"--2f1e\r\nContent-Disposition: form-data", 415, "send a file as it is"),
        ("/v1/models/quick:predict", {"instances": [{"b64": "AAAA"}]}, 400, "JPEG, PNG, WebP"),
        ("/v1/models/nothing:predict", {"instances": [[1]]}, 404, "no model `nothing`: there are digits, pairs, quick"),
        ("/v1/models/..:predict", {"instances": [[1]]}, 404, "no model `..`"),
        ("/v1/models/..%2f..%2fetc:predict", {"instances": [[1]]}, 404, "nothing here"),
        ("/v1/models/../../etc/passwd", {"instances": [[1]]}, 404, "nothing here"),
        ("/v1/models/small/versions/2:predict", {"instances": [[1]]}, 404, "no version `2`: there are 1"),
        ("/v1/models/small/versions/..:predict", {"instances": [[1]]}, 404, "no version `..`"),
        ("/v1/models/small:explode", {"instances": [[1]]}, 404, "nothing here"),
        ("/v1/models/small", {"instances": [[1]]}, 405, "Use GET"),
        (INFER, b"{", 400, "not JSON"),
        (INFER, {"inputs": {}}, 400, "not a list"),
        (INFER, {"inputs": []}, 400, "`x` is missing"),
        (INFER, tensor(name="y"), 400, "takes each of x once"),
        (INFER, tensor(datatype="FP8"), 400, "`datatype`"),
        (INFER, tensor(datatype="INT32", data=[1, 2, 3, 4.5]), 400, "not a list of INT32"),
        (INFER, tensor(datatype="INT8", data=[1, 2, 3, 400]), 400, "no INT8"),
        (INFER, tensor(datatype="BOOL", data=[True] * 4), 400, "real numbers"),
        (INFER, tensor(datatype="BYTES", shape=[1], data=["x"]), 400, "no images"),
        (INFER, tensor(shape=[1, 5]), 400, "4 elements, and its shape says 5"),
        (INFER, tensor(shape=[4, 1]), 400, "shape (1,)"),
        (INFER, tensor(shape=[0, 4], data=[]), 400, "no examples"),
        (INFER, tensor(shape=[-1, 4]), 400, "list of sizes"),
        (INFER, tensor(shape=[1, 0, 2**39, 2**39], data=[]), 400, "larger than any array"),
        (INFER, tensor(shape=[1] * 40 + [4]), 400, "more than 32"),
        (INFER, tensor(data=[[1, 2], [3]]), 400, "not a list of FP32"),
        (INFER, tensor(parameters={"binary_data_size": 16}), 400, "binary_data_size"),
        (INFER, tensor() | {"outputs": [{"name": "y"}]}, 400, "`outputs`"),
        (INFER, tensor() | {"id": 3}, 400, "`id`"),
        ("/v2/models/small/versions/7/infer", tensor(), 404, "no version `7`"),
        ("/v2/models/small/what", None, 404, "nothing here"),
        ("/v3", None, 404, "nothing here"),
        ("/metrics", b"x", 405, "another method"),
    ],
)
def test_one_sentence(server: Any, path: str, body: Any, status: int, words: str) -> None:
    answer = server.ask(path, body)
    assert (answer.status, words) == (status, words if words in answer.error else answer.error)
    assert answer.error.count(". ") == 0


def binary(head: Any, rest: bytes, length: int | str | None = None) -> tuple[bytes, dict[str, str]]:
    body = json.dumps(head).encode()
    size = str(len(body) if length is None else length)
    return body + rest, {"inference-header-content-length": size}


EMPTY: dict[str, Any] = {"name": "x", "shape": [1, 0, 2**39, 2**39], "datatype": "FP32"}
BINARY: dict[str, Any] = {"parameters": {"binary_data_size": 16}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (binary({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32"} | BINARY]}, b"123"), "more than what"),
        (binary({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32"} | BINARY]}, bytes(20)), "More bytes"),
        (binary({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP64"} | BINARY]}, bytes(16)), "2 elements"),
        (
            binary(
                {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32"} | BINARY]},
                struct.pack("<4f", 1, 2, 3, float("nan")),
            ),
            "NaN",
        ),
        (binary({"inputs": [EMPTY | BINARY | {"parameters": {"binary_data_size": 0}}]}, b""), "larger than any array"),
        (binary(tensor(), b"", 10**6), "length of the JSON"),
        (binary(tensor(), b"", "x"), "length of the JSON"),
    ],
)
def test_bad_binary_tensors(server: Any, given: tuple[bytes, dict[str, str]], words: str) -> None:
    answer = server.ask(INFER, *given)
    assert answer.status == 400
    assert words in answer.error


def bomb(width: int, height: int) -> bytes:
    """A PNG file of a few kilobytes that says it has very many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(10**6))) + chunk(b"IEND", b"")


def damaged() -> bytes:
    file = io.BytesIO()
    Image.effect_noise((40, 40), 50).save(file, "PNG")
    return file.getvalue()[:-200]


@pytest.mark.parametrize("model", ["quick", "digits"])
@pytest.mark.parametrize(
    ("content", "kind", "status", "words"),
    [
        (bomb(60_000, 60_000), "png", 400, "more than"),
        (b"no picture", "png", 400, "picture"),
        (b"", "jpeg", 400, "picture"),
        (damaged(), "png", 400, "picture"),
        (b"GIF89a", "gif", 400, "picture"),
        (b"<svg/>", "svg+xml", 415, "image/jpeg, image/png, image/webp, image/avif, image/gif, image/bmp"),
    ],
)
def test_bad_pictures(server: Any, model: str, content: bytes, kind: str, status: int, words: str) -> None:
    answer = server.ask(f"/v1/models/{model}:predict", content, {"content-type": f"image/{kind}"})
    assert answer.status == status
    assert words in answer.error


def test_a_picture_for_a_model_that_takes_none(server: Any) -> None:
    answer = server.ask("/v1/models/pairs:predict", damaged(), {"content-type": "image/png"})
    assert (answer.status, answer.error) == (400, "The model `pairs` takes no images.")


def test_a_huge_body(server: Any) -> None:
    answer = server.ask(PREDICT, b"[" + b"1," * 300_000)
    assert (answer.status, answer.error) == (413, "The body is larger than 200,000 bytes.")


def test_a_huge_body_of_unknown_length(server: Any) -> None:
    connection = server.connect()
    chunks = (b"1," * 10_000 for _ in range(30))
    connection.request("POST", PREDICT, chunks, encode_chunked=True, headers={"transfer-encoding": "chunked"})
    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_that_is_not_sent_before_it_is_asked_for(server: Any) -> None:
    connection = server.connect()
    connection.putrequest("POST", PREDICT)
    connection.putheader("content-length", str(10**12))
    connection.putheader("expect", "100-continue")
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_compressed_body(server: Any) -> None:
    answer = server.ask(PREDICT, b"x", {"content-encoding": "gzip"})
    assert answer.status == 415


def test_no_http(server: Any) -> None:
    def counted() -> float:
        series = 'rudel_requests_total{model="",route="other",status="400",version=""} '
        lines = server.ask("/metrics").body.decode().splitlines()
        return sum(float(line.removeprefix(series)) for line in lines if line.startswith(series))

    before, logged = counted(), server.log.read_text().count("  400  -  ")
    connection = server.connect()
    connection.connect()
    connection.sock.sendall(b"this is no request\r\n\r\n")
    answer = connection.sock.recv(1000)
    connection.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'{"error":"This is no request of HTTP/1.1."}' in answer
    assert counted() == before + 1
    until(lambda: server.log.read_text().count("  400  -  ") > logged)
    *_, line = [line for line in server.log.read_text().splitlines() if "  400  -  " in line]
    assert line.endswith("This is no request of HTTP/1.1.")


@pytest.mark.parametrize("first", [b"4\r\n[1,2\r\n", b""])
def test_a_chunk_that_is_none(server: Any, first: bytes) -> None:
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port), LONG) as connection:
        connection.sendall(head + first)
        connection.sendall(b"no length\r\n")
        with connection.makefile("rb") as file:
            answer = file.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b'{"error":"The body of the request is not one of HTTP/1.1."}')


def test_a_chunk_that_is_none_where_no_body_is_read(server: Any) -> None:
    head = b"GET /v1/models/small HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), LONG) as connection:
        connection.sendall(head + b"no length\r\n")
        with connection.makefile("rb") as file:
            answer = file.read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close\r\n" in answer


def test_headers_without_an_end(server: Any) -> None:
    with socket.create_connection(("127.0.0.1", server.port), LONG) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000)
        answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'{"error":"The headers of the request are longer than 65,536 bytes."}' in answer


def test_an_answer_that_is_not_read_is_given_up() -> None:
    limits, content = Limits(connections=1, seconds=0.1), bytes(64 << 20)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": content if scope["path"] == "/large" else b"small"})

    async def ask(place: tuple[str, int], path: str) -> tuple[bytes, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*place, limit=1000)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return await reader.readline(), writer

    async def answer() -> None:
        web, ready = Web(application, limits, lambda *_: None), asyncio.Event()
        with contextlib.closing(listen("127.0.0.1", 0)) as listening:
            running, place = asyncio.create_task(web.run(listening, ready.set)), listening.getsockname()
            await ready.wait()
            status, unread = await ask(place, "/large")
            assert status == b"HTTP/1.1 200 OK\r\n"
            status, refused = await ask(place, "/small")
            assert status.startswith(b"HTTP/1.1 503 ")
            refused.close()
            async with asyncio.timeout(LONG):
                while not status.startswith(b"HTTP/1.1 200 "):
                    web.drop_slow()
                    status, read = await ask(place, "/small")
                    read.close()
            unread.close()
            web.stop()
            await running

    asyncio.run(answer())


def test_connections_beyond_the_limit_are_refused_counted_and_logged(capsys: pytest.CaptureFixture[str]) -> None:
    limits, metrics, log = Limits(connections=1), Metrics(), AccessLog("json")
    models = Models(limits, metrics)
    other = other_routes(models, PROTOCOLS, metrics, False)
    application = Application(models, limits, metrics, log, Guard(None, True), PROTOCOLS, other)

    async def answer() -> bytes:
        web, ready = Web(application, limits, application.note_unread), asyncio.Event()
        with contextlib.closing(listen("127.0.0.1", 0)) as listening:
            running = asyncio.create_task(web.run(listening, ready.set))
            await ready.wait()
            connections = [await asyncio.open_connection(*listening.getsockname()) for _ in range(2)]
            refusal = await connections[1][0].read()
            web.stop()
            await running
        for _, writer in connections:
            writer.close()
        return refusal

    assert asyncio.run(answer()).startswith(b"HTTP/1.1 503 ")
    log.flush()
    line = json.loads(capsys.readouterr().err)
    sentence = "Too many connections are open: try again later."
    assert (line["status"], line["client"], line["error"]) == (503, "127.0.0.1", sentence)
    assert b'route="other",status="503",version=""} 1.0' in metrics.text("")[0]


def test_indices_beyond_a_table_and_outputs_that_are_not_finite(start: Any, tmp_path: Path) -> None:
    server = start(write_run(tmp_path / "words", tokens()), "--max-batch", "2")

    def ask(words: list[int], by: float) -> Any:
        rows = [{"words": [0, 0, 0, 0], "by": [1]}, {"words": words, "by": [by]}]
        return server.ask("/v1/models/words:predict", {"instances": rows})

    assert ask([0, 1, 2, 9], 2.0).json == {"predictions": [[1.0], [0.5]]}
    for value in (10, -1):
        answer = ask([0, 1, 2, value], 2.0)
        assert answer.status == 400
        assert f"`words` holds {value} at example 1, and the layer `table` takes 0 to 9" in answer.error
    answer = ask([0, 1, 2, 9], 0.0)
    assert (answer.status, "answers example 1 with NaN or infinity" in answer.error) == (422, True)
    inputs = [
        {"name": "words", "shape": [1, 4], "datatype": "INT32", "data": [0, 1, 2, 9]},
        {"name": "by", "shape": [1, 1], "datatype": "FP32", "data": [0]},
    ]
    for wanted in (True, False):
        body = {"inputs": inputs, "parameters": {"binary_data_output": wanted}}
        assert server.ask("/v2/models/words/infer", body).status == 422


@pytest.mark.parametrize(
    "rows",
    [
        ["a" * 10_000, *[0.0] * 30_000],
        [[*[""] * 30_000, "a" * 10_000]],
        functools.reduce(lambda x, _: [x], range(99), 1),
    ],
    ids=["a text", "texts", "deep"],
)
def test_what_is_no_array_of_numbers_takes_no_memory(rows: Any) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Refusal, match="these are none, or have different shapes"):
            column_of_rows(rows, Tensor("x", (), "float32"))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1e6


def test_the_server_still_answers(server: Any) -> None:
    assert server.ask(PREDICT, {"instances": [[1, 2, 3, 4]]}).status == 200
    assert "Traceback" not in server.log.read_text()
