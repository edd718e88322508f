"""What cannot be served is one sentence and exit code 2, before anything listens."""

import socket
import sys
from collections.abc import Callable
from pathlib import Path

import keras
import pytest

from rudel.cli import main


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs `rudel serve`, which has to fail, and returns its sentence."""

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["rudel", "serve", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main.run()
        captured = capfd.readouterr()
        assert (stop.value.code, captured.out) == (2, "")
        assert "Traceback" not in captured.err
        return captured.err.strip().splitlines()[-1]

    return run


def test_paths(refused: Callable[..., str], runs: Path, tmp_path: Path) -> None:
    assert "nothing at nowhere" in refused("nowhere")
    (tmp_path / "empty").mkdir()
    assert "nothing that can be served" in refused(tmp_path / "empty")
    (tmp_path / "model.onnx").touch()
    assert "model.onnx cannot be served: give a run" in refused(tmp_path / "model.onnx")
    (tmp_path / "model.tflite").write_bytes(b"nothing")
    assert "cannot be read by LiteRT" in refused(tmp_path / "model.tflite")
    assert "cannot be the name of a model" in refused(f"a b={runs / 'small'}")
    assert "Two models would be called `small`" in refused(runs / "small", runs / "small")


def test_a_model_file_is_named_as_it_was_given(refused: Callable[..., str], tmp_path: Path) -> None:
    given = keras.Input((4,))
    model = keras.Model(given, [keras.layers.Dense(1)(given), keras.ops.sum(given)])
    model.compile("adam", ["mse", "mse"])
    model.save(tmp_path / "two.keras")
    said = f"of the model {tmp_path / 'two.keras'} is not one for each example: it cannot be served."
    assert said in refused(tmp_path / "two.keras")


def test_numbers_without_an_end(refused: Callable[..., str], runs: Path) -> None:
    for name in ("--max-body", "--timeout"):
        assert f"Invalid value for '{name}'" in refused(runs / "small", name, "inf")


@pytest.mark.parametrize("there", ["config.json", "config.json model.keras"])
def test_a_run_that_is_not_finished(refused: Callable[..., str], runs: Path, tmp_path: Path, there: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in there.split():
        (run / name).write_bytes((runs / "small" / name).read_bytes())
    assert f"The run at {run} is not finished" in refused(run)
    run.rename(tmp_path / "1")
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "1").rename(folder / "1")
    assert "is not finished" in refused(folder)


def test_an_address_that_is_taken(refused: Callable[..., str], runs: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port} cannot be served at (Address already in use)" in refused(
            runs / "small", "--port", port
        )
    assert "cannot be served at" in refused(runs / "small", "--host", "192.0.2.1")
    assert "cannot be served at" in refused(runs / "small", "--host", "no such host")
    assert "cannot be served at" in refused(runs / "small", "--host", "192.168..1")


def test_tokens(refused: Callable[..., str], runs: Path, tmp_path: Path) -> None:
    assert "token cannot be read" in refused(runs / "small", "--token-file", tmp_path / "nothing")
    (tmp_path / "token").write_text(" \n")
    assert "must be letters, digits and signs" in refused(runs / "small", "--token-file", tmp_path / "token")


def test_missing_packages(refused: Callable[..., str], runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    hidden = {"uvloop", "orjson"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in hidden else real(name, *a))
    assert refused(runs / "small") == "Error: Serving needs uvloop and orjson: install by `pip install 'rudel[serve]'`."
