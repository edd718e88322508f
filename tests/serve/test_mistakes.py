"""What cannot be served is one sentence and exit code 2, before anything listens."""

import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import keras
import pytest

from rudel.cli import main
from rudel.serve.model_sources import find_versions, read_sources


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
    assert "`a b` cannot be the name of a model: give one by NAME='/x y', of" in refused("a b=/x y")
    assert [each.name for each in read_sources(["runs/a b", "Ōsu (2)", "x/c=d"])] == ["a-b", "su-2", "c-d"]
    assert "`東京` cannot be the name of a model: give one by NAME='東京', of" in refused("東京")
    assert [each.name for each in read_sources(["runs/digits_", "2026-11-", "_a b_"])] == ["digits_", "2026-11-", "a-b"]
    said = f"Two models would be called `a-b`: give one of them another name by NAME='{runs / 'a b'}'."
    assert said in refused("a-b", runs / "a b")


def test_two_versions_of_one_number(refused: Callable[..., str], runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "small", tmp_path / "1")
    (tmp_path / "1.tflite").touch()
    assert f"{tmp_path / '1'} and {tmp_path / '1.tflite'} are both version 1: rename or remove" in refused(tmp_path)
    shutil.rmtree(tmp_path / "1")
    (tmp_path / "1").mkdir()  # an empty folder is no version
    (source,) = read_sources([str(tmp_path)])
    assert [each.path for each in find_versions(source)] == [tmp_path / "1.tflite"]


def test_the_first_kind_of_file_is_served(tmp_path: Path) -> None:
    for name in ("1.h5", "1.tflite", "2.h5", "2.keras", "only/net.tflite", "only/10.keras"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    numbered, only = (find_versions(source) for source in read_sources([str(tmp_path), str(tmp_path / "only")]))
    assert [each.path.name for each in numbered] == ["1.tflite", "2.keras"]
    assert [each.path.name for each in only] == ["net.tflite"]


def test_a_model_in_a_folder_changes_as_long_as_a_run_is_copied_there(tmp_path: Path) -> None:
    """The server loads what two looks find unchanged, and so no `model.keras` before the `config.json` beside it."""
    (tmp_path / "1/checkpoints").mkdir(parents=True)
    (source,) = read_sources([str(tmp_path)])
    found = []
    for name in ("model.keras", "predictions.npz", "checkpoints/step-1.npz"):
        (tmp_path / "1" / name).write_bytes(b"some")
        found += find_versions(source)
    (tmp_path / "1/checkpoints/step-1.npz").write_bytes(b"some more")
    found += find_versions(source)
    assert [each.path.name for each in found] == ["model.keras"] * 4
    assert len(set(found)) == 4
    assert find_versions(source) == found[-1:]


def test_a_model_behind_a_link_has_the_name_of_the_link(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "now").symlink_to(runs / "small")
    (tmp_path / "latest.tflite").symlink_to(runs / "2026-11-28.tflite")
    sources = read_sources([str(tmp_path / name) for name in ("now", "latest.tflite")])
    assert [source.name for source in sources] == ["now", "latest"]


def test_a_model_file_is_named_as_it_was_given(refused: Callable[..., str], tmp_path: Path) -> None:
    given = keras.Input((4,))
    model = keras.Model(given, [keras.layers.Dense(1)(given), keras.ops.sum(given)])
    model.compile("adam", ["mse", "mse"])
    model.save(tmp_path / "two.keras")
    said = f"of the model {tmp_path / 'two.keras'} is not one for each example: it cannot be served."
    assert said in refused(tmp_path / "two.keras")


def test_options_for_model_files_beside_runs(refused: Callable[..., str], runs: Path) -> None:
    said = f"is for model files (.keras, .h5), and {runs / 'small'} is not one: leave it out."
    for option in (("--classes", "a,b,c"), ("--code", "layers.py"), ("--unsafe",)):
        assert f"`{option[0]}` {said}" in refused(runs / "small", *option)
    assert "There is nothing at gone.keras" in refused(runs / "small", "gone.keras", "--code", "layers.py")


def test_a_tflite_file_has_classes_but_no_code(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "1.tflite").write_bytes(b"nothing")
    assert "`--code` is for model files" in refused(tmp_path, "--code", "layers.py")
    assert "cannot be read by LiteRT" in refused(tmp_path, "--classes", "a,b")


def test_options_that_do_not_fit_a_model_file_end_the_command(
    refused: Callable[..., str], runs: Path, tmp_path: Path
) -> None:
    shutil.copy(runs / "small/model.keras", tmp_path / "net.keras")
    said = f"--classes has 2 names, and the model in {tmp_path / 'net.keras'} has 3 outputs."
    assert said in refused(runs / "small", tmp_path / "net.keras", "--max-batch", "1", "--classes", "a,b")


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
