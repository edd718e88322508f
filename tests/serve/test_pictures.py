"""Encoded pictures: where they are decoded, and how much of that a request may ask for."""

import asyncio
import base64
import io
import json
import threading
from collections.abc import MutableMapping
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rudel.data.photographs import FORMATS
from rudel.serve.access_log import AccessLog
from rudel.serve.application import Application
from rudel.serve.guard import Guard
from rudel.serve.image_inputs import Admit, reader
from rudel.serve.metrics import Metrics
from rudel.serve.model_signature import Signature, Tensor
from rudel.serve.models import Models
from rudel.serve.protocols import PROTOCOLS
from rudel.serve.runtimes.runtime import Loaded
from rudel.serve.server_limits import Limits

SIGNATURE = Signature((Tensor("x", (8, 8), "float32"),), (Tensor("y", (1,), "float32"),))
FILES = Signature((Tensor("image_bytes", (), "bytes"),), SIGNATURE.outputs)
"""Of a model that decodes images itself."""

HEAD = {"content-type": "application/json"}


def png(width: int, height: int, mode: str = "1") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, "PNG")
    return file.getvalue()


def rows(*contents: bytes, key: str = "b64") -> bytes:
    """A `:predict` request with pictures; `key` is written into the JSON as it is."""
    return b'{"instances": [%s]}' % b", ".join(
        b'{"%s": "%s"}' % (key.encode(), base64.b64encode(content)) for content in contents
    )


class Served:
    """The application around the reader of photographs, which notes the threads that it is called in."""

    def __init__(self, limits: Limits, signature: Signature = SIGNATURE) -> None:
        self.threads: list[str] = []
        read = reader(signature, None)
        assert read

        def decode(content: bytes, admit: Admit) -> np.ndarray:
            self.threads.append(threading.current_thread().name)
            return read(content, admit)

        def compute(columns: Any) -> list[np.ndarray]:
            if signature.inputs[0].dtype == "bytes":
                return [np.array([[len(content)] for content in columns[0]], np.float32)]
            return [columns[0].mean(axis=(1, 2))[:, None]]

        self._limits = limits
        self._loaded = Loaded(signature, compute, "test", decode=decode)

    def ask(
        self, body: bytes, path: str = "/v1/models/m:predict", media_type: str = "application/json"
    ) -> tuple[int, dict[str, Any]]:
        return asyncio.run(self._ask(body, path, media_type))

    async def _ask(self, body: bytes, path: str, media_type: str) -> tuple[int, dict[str, Any]]:
        metrics = Metrics()
        models = Models(self._limits, metrics)
        models.put("m", 1, self._loaded, 0.0)
        application = Application(
            models, self._limits, metrics, AccessLog("none"), Guard(None, True), PROTOCOLS, _no_other
        )
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", media_type.encode())]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        await application(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])


async def _no_other(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError


@pytest.mark.parametrize("key", ["b64", "b\\u00364", "\\u0062\\u0036\\u0034"])
def test_pictures_are_decoded_off_the_event_loop_however_they_are_written(key: str) -> None:
    served = Served(Limits())
    assert served.ask(rows(png(8, 8), key=key)) == (200, {"predictions": [[0.0]]})
    assert [name.partition("_")[0] for name in served.threads] == ["decoding"]


def test_bytes_of_the_open_inference_protocol_too() -> None:
    served = Served(Limits())
    picture = {"name": "x", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 0}}
    assert served.ask(json.dumps({"inputs": [picture]}).encode(), "/v2/models/m/infer")[0] == 400
    content = png(8, 8)
    # a picture as text, as far as JSON can hold one, is none
    text = {"name": "x", "shape": [1], "data\\u0074ype": "BYTES", "data": [content.decode("latin-1")]}
    body = json.dumps({"inputs": [text]}).replace("data\\\\u0074ype", "data\\u0074ype").encode()
    assert served.ask(body, "/v2/models/m/infer")[0] == 400
    assert [name.partition("_")[0] for name in served.threads] == ["decoding"]


@pytest.mark.parametrize(
    ("kind", "media_type"),
    [("JPEG", "image/jpg"), *((kind, f"image/{kind.lower()}") for kind in FORMATS)],
)
def test_a_photograph_is_a_body_as_it_is_a_text(kind: str, media_type: str) -> None:
    file = io.BytesIO()
    Image.new("L", (8, 8), 255).save(file, kind)
    for read_image in (None, lambda image: np.asarray(image.convert("L"))):
        decode = reader(SIGNATURE, read_image)
        assert decode
        assert decode(file.getvalue(), lambda pixels: None).max() == 255
    served = Served(Limits())
    answer = served.ask(file.getvalue(), media_type=media_type)
    assert answer == served.ask(rows(file.getvalue())) == (200, {"predictions": [[255.0]]})


@pytest.mark.parametrize(("learned_from", "takes"), [((0, 1), False), ((-2, 9), False), ((0, 255), True)])
def test_pixels_are_for_models_that_learned_from_pixels(learned_from: tuple[float, float], takes: bool) -> None:
    assert (reader(SIGNATURE, None, learned_from) is not None) == takes
    assert reader(SIGNATURE, np.asarray, learned_from) is not None, "a recipe makes its own inputs"


@pytest.mark.parametrize("signature", [SIGNATURE, FILES])
def test_the_pixels_of_a_request_are_bounded(signature: Signature) -> None:
    served = Served(Limits(pixels=10_000), signature)
    assert served.ask(rows(*[png(100, 20)] * 5))[0] == 200
    served.threads.clear()
    status, answer = served.ask(rows(*[png(100, 20)] * 6))
    assert (status, answer["error"]) == (
        400,
        "The images have more than 10,000 pixels together: send fewer at once.",
    )


def test_a_model_that_decodes_images_gets_them_as_they_are() -> None:
    content = png(8, 8)
    served = Served(Limits(), FILES)
    assert served.ask(rows(content, b"of another format")) == (200, {"predictions": [[len(content)], [17]]})
    status, answer = served.ask(rows(b"\xff\xd8\xff"))
    unread = "The picture is not a JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF file that can be read."
    assert (status, answer["error"]) == (400, unread)


def test_a_body_of_picture_bombs_is_refused_by_the_server(server: Any) -> None:
    """Each of them is allowed alone; all together would be decoded for many times as long."""
    for model in ("quick", "digits"):
        answer = server.ask(f"/v1/models/{model}:predict", rows(*[png(8000, 8000)] * 8))
        assert (answer.status, "pixels together" in answer.error) == (400, True)


def test_a_picture_of_thousands_of_scans_is_refused_by_the_server(server: Any) -> None:
    """Few bytes and few pixels, which would be changed again and again."""
    file = io.BytesIO()
    Image.new("L", (2000, 2000), 128).save(file, "JPEG", progressive=True)
    content = file.getvalue()[:-2]
    content += content[content.rindex(b"\xff\xda") :] * 3000
    for model in ("quick", "digits"):
        answer = server.ask(f"/v1/models/{model}:predict", rows(content))
        assert (answer.status, "more than 64 scans" in answer.error) == (400, True)


def test_the_time_is_looked_at_between_pictures() -> None:
    served = Served(Limits(seconds=0.2, pixels=10**12))
    status, answer = served.ask(rows(*[png(2000, 2000)] * 500))
    assert (status, answer["error"]) == (504, "The images were not decoded within 0.2 seconds: send fewer.")
    assert len(served.threads) < 500
