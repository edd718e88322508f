"""Servers in processes of their own, and small runs for them."""

import contextlib
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from processes import LONG

from rudel.backend import keras_on_jax, set_seed
from rudel.files import write_json
from rudel.runs.model_file import save_model

keras = keras_on_jax()


@dataclass(frozen=True)
class Response:
    """What a server has answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The one sentence of a refusal."""
        document = self.json
        assert list(document) == ["error"]
        assert "Traceback" not in document["error"]
        return document["error"]


@dataclass(frozen=True)
class Server:
    """A running server."""

    process: subprocess.Popen[str]
    address: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)

    def ask(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None, method: str | None = None
    ) -> Response:
        """Asks once; a body that is no bytes is sent as JSON."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = self.connect()
        with contextlib.closing(connection):
            connection.request(method or ("GET" if body is None else "POST"), path, content, dict(headers or {}))
            answer = connection.getresponse()
            return Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends it in order, and returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(LONG)


@contextlib.contextmanager
def serving(folder: Path, *arguments: object, python: str = sys.executable) -> Iterator[Server]:
    """A server in a process of its own, by this interpreter, until the block ends."""
    log = folder / "serve.log"
    program = "import jax; jax.config.update('jax_platforms', 'cpu'); from rudel.cli.main import run; run()"
    command = [python, "-c", program, "serve", "--port", "0", *map(str, arguments)]
    with log.open("a") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder)
    try:
        out: IO[str] | None = process.stdout
        assert out
        address = out.readline().strip()
        assert address.startswith("http://127.0.0.1:"), log.read_text()
        yield Server(process, address, log)
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def write_run(path: Path, model: Any, recipe: str | None = None, classes: tuple[str, ...] = ()) -> Path:
    """A finished run with this model."""
    path.mkdir(parents=True, exist_ok=True)
    model.optimizer.build(model.trainable_variables)
    save_model(model, path / "model.keras")
    write_json(path / "config.json", {"recipe": recipe, "class_names": list(classes)})
    write_json(path / "summary.json", {"steps": 1})
    return path


def dense(bias: float = 0.0) -> Any:
    """A classifier of three classes from four numbers."""
    set_seed(1)
    made = keras.Sequential(
        [
            keras.Input((4,), name="x"),
            keras.layers.Dense(3, activation="softmax", bias_initializer=keras.initializers.Constant([bias, 0, 0])),
        ]
    )
    made.compile("sgd", "sparse_categorical_crossentropy")
    return made


def two_inputs() -> Any:
    """A model with two inputs, one of them of whole numbers, and two outputs."""
    left = keras.Input((2,), name="left")
    right = keras.Input((1,), name="right", dtype="int32")
    both = keras.layers.Concatenate()([left, keras.ops.cast(right, "float32")])
    outputs = {"total": keras.ops.sum(both, axis=1, keepdims=True), "same": both}
    made = keras.Model({"left": left, "right": right}, outputs)
    made.compile("sgd", {"total": "mse", "same": "mse"})
    return made


def tokens() -> Any:
    """A model that looks up four words in a table of ten, and divides by the first number of its other input."""
    words, by = keras.Input((4,), name="words", dtype="int32"), keras.Input((1,), name="by")
    looked_up = keras.layers.Embedding(10, 2, name="table")(words)
    outputs = keras.ops.sum(looked_up, axis=(1, 2))[:, None] * 0 + 1 / by
    made = keras.Model({"words": words, "by": by}, outputs)
    made.compile("sgd", "mse")
    return made
