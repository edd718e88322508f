"""The server behind `rudel play`, the command, and which runs can be played with."""

import dataclasses
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from play_support import CLASSES, serving
from processes import LONG, started

import rudel
from rudel.backend import keras_on_jax
from rudel.cli import main
from rudel.data.pictures import ink_on_a_square
from rudel.errors import ExportError, ServeError
from rudel.export.page import check_page
from rudel.play.drawing import Drawing, drawing_for
from rudel.play.opening import newest_run, open_run
from rudel.play.page_files import POLICY, page_files
from rudel.play.play_server import PlayServer
from rudel.play.player import Player
from rudel.recipes import digits, quickdraw

COMMAND = [sys.executable, "-c", "from rudel.cli.main import run; run()", "play", "--no-browser", "--port", "0"]


def ask(address: str, path: str, method: str = "GET", body: bytes | None = None, host: str | None = None) -> Any:
    """Status, headers and content of an answer."""
    connection = http.client.HTTPConnection(address.split("/")[2], timeout=LONG)
    connection.request(method, path, body, {"Host": host} if host else {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


def test_the_page_and_a_guess(served_address: str, player: Player) -> None:
    status, headers, content = ask(served_address, "/")
    assert (status, content) == (200, page_files()["index.html"])
    assert headers["Content-Security-Policy"].startswith(POLICY)
    about = json.loads(ask(served_address, "/model.json")[2])
    assert about["classes"] == list(CLASSES)
    assert (about["side"], about["lineWidth"], about["margin"], about["module"]) == (28, 16, None, None)
    pixels = Drawing(28, 16, 28).samples()[0]
    status, _, content = ask(served_address, "/guess", "POST", pixels.tobytes())
    document = json.loads(content)
    assert status == 200
    expected = rudel.predict(player.model, pixels[None])[0]
    assert document["probabilities"] == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("path", "method", "body", "status", "words"),
    [
        ("/guess", "POST", b"\x00" * 783, 400, "784 bytes"),
        ("/guess", "POST", b"\x00" * 100_000, 413, "too long"),
        ("/guess", "GET", None, 404, "no guess here"),
        ("/elsewhere", "POST", b"", 404, "nothing to post"),
        ("/model/../player.py", "GET", None, 404, "There is no"),
        ("/model/guess.wasm", "GET", None, 404, "There is no"),
        ("/../../etc/passwd", "GET", None, 404, "There is no"),
        ("/%2e%2e/player.py", "GET", None, 404, "There is no"),
        ("/", "DELETE", None, 501, "DELETE"),
    ],
)
def test_what_is_not_there(
    served_address: str, path: str, method: str, body: bytes | None, status: int, words: str
) -> None:
    code, _, content = ask(served_address, path, method, body)
    assert code == status
    assert words in content.decode()
    assert b"Traceback" not in content


def test_other_sites_cannot_ask_by_a_name_of_their_own(served_address: str) -> None:
    assert ask(served_address, "/", host="evil.example")[0] == 403
    assert ask(served_address, "/guess", "POST", bytes(784), host="evil.example:8480")[0] == 404
    assert ask(served_address, "/", host="localhost:8480")[0] == 200


def test_an_address_that_is_taken_is_one_sentence(player: Player) -> None:
    with PlayServer(player) as server, pytest.raises(ServeError, match=r"port \d+ cannot be used .*--port"):
        PlayServer(player, port=server.server_address[1])
    with pytest.raises(ServeError, match="cannot be used"):
        PlayServer(player, "no.such.host.example")
    with pytest.raises(ServeError, match="cannot be used"):
        PlayServer(player, "192.168..1")


def test_once_it_is_there_the_module_guesses(player: Player, exported: Path) -> None:
    with serving(PlayServer(player, module=lambda: exported / "model")) as address:
        about = json.loads(ask(address, "/model.json")[2])
        assert about["module"] == "model/guess.js"
        assert ask(address, "/model/guess.wasm")[2] == (exported / "model/guess.wasm").read_bytes()
        assert ask(address, "/model/guess.js")[1]["Content-Type"].startswith("text/javascript")


def test_how_drawings_become_inputs() -> None:
    assert drawing_for("run", (28, 28), quickdraw.read_image) == Drawing(28, 16, 28)
    assert drawing_for("run", (784,), None) == Drawing(28, 16, 28)
    assert drawing_for("run", (28, 28, 1), None) == Drawing(28, 16, 28)
    small = drawing_for("run", (8, 8), digits.read_image)
    assert small == Drawing(64, 48, 8, margin=0.0)
    pixels = small.samples()[1]
    expected = ink_on_a_square(Image.fromarray(pixels), 8, 0)
    assert np.array_equal(small.input(pixels, digits.read_image, (8, 8)), expected[None])
    own = drawing_for("run", (16, 16), lambda picture: 1 - np.asarray(picture.resize((16, 16))) / 255)
    assert own.by_recipe
    for shape in ((100, 100, 3), (28, 27), (4, 3), (10,), (None, None), None):
        with pytest.raises(ServeError, match=r"cannot be drawn: give a run of `digits`"):
            drawing_for("runs/other", shape, None)  # pyright: ignore[reportArgumentType]


def test_runs_that_cannot_be_played_with(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keras = keras_on_jax()
    monkeypatch.chdir(tmp_path)
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    net.compile("adam", "mse")
    rudel.fit(net, np.zeros((32, 3), "float32"), np.zeros(32), run="runs/numbers", epochs=1, verbose=False)
    net = keras.Sequential([keras.Input((4, 4)), keras.layers.Flatten(), keras.layers.Dense(1)])
    net.compile("adam", "mse")
    rudel.fit(net, np.zeros((32, 4, 4), "float32"), np.zeros(32), run="runs/grey", epochs=1, verbose=False)
    with pytest.raises(ServeError, match="which cannot be drawn"):
        open_run(Path("runs/numbers"))
    with pytest.raises(ServeError, match="is not a classifier"):
        open_run(Path("runs/grey"))
    net = keras.Sequential([keras.Input((4, 4)), keras.layers.Flatten(), keras.layers.Dense(2, "softmax")])
    net.compile("adam", "sparse_categorical_crossentropy")
    rudel.fit(net, np.eye(4, dtype="float32")[None], np.zeros(1), run="runs/shares", epochs=1, verbose=False)
    with pytest.raises(ServeError, match="runs/shares learned from numbers from 0 to 1, and drawings have pixels"):
        open_run(Path("runs/shares"))
    assert newest_run() is None
    shutil.copytree(run, "runs/quickdraw")
    found = newest_run()
    assert isinstance(found, Player)
    assert found.run == Path("runs/quickdraw")
    assert sum(found.guess(bytes(784))) == pytest.approx(1, abs=1e-5)


def test_the_command_serves_until_ctrl_c(run: Path, tmp_path: Path) -> None:
    environment = os.environ | {"RUDEL_CACHE": str(tmp_path / "cache")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started([*COMMAND, str(run)], **pipes, env=environment) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"Play with {run} at http://127.0.0.1:")
        address = line.split()[4]
        with urllib.request.urlopen(f"{address}model.json", timeout=LONG) as answer:
            assert json.load(answer)["classes"] == list(CLASSES)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert not list((tmp_path / "cache").glob("play/.making-*"))


def test_without_a_run_it_trains_digits_first(tmp_path: Path) -> None:
    with started(COMMAND, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        message = process.stderr.readline()
        assert message == "There is no run in ./runs to play with: training `digits` first.\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LONG)
    assert process.returncode == 130


def test_a_run_that_is_not_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["rudel", "play", "--no-browser", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match="2"):
        main.run()
    assert "nowhere: give a directory that `rudel train` has made." in capsys.readouterr().err


def test_a_page_without_python_cannot_call_a_recipe(player: Player, run: Path) -> None:
    own = dataclasses.replace(player, drawing=Drawing(64, 48, 28, by_recipe=True))
    with pytest.raises(ExportError, match=r"`read_image` of its own.*use `rudel play`"):
        check_page(own, "mine.py")
