import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rudel.cli.application import app


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=True)


@pytest.fixture(scope="module")
def hello(shared_data: Path) -> Path:
    return shared_data / "tflite" / "hello_world_int8.tflite"


def test_compile_writes_a_header_and_a_source(hello, tmp_path):
    result = _run("micro", "compile", hello, "--out", tmp_path / "c", "--name", "sine")
    assert result.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["sine.c", "sine.h"]
    assert "multiplications" in result.stdout


def test_a_tilde_means_the_home_folder(hello, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert _run("micro", "compile", hello, "--out", "~/c", "--name", "sine").exit_code == 0
    assert (tmp_path / "home/c/sine.h").exists()


def test_compile_prints_json(hello, tmp_path):
    result = _run("micro", "compile", hello, "--out", tmp_path, "--json", "--rounding", "tflm", "--target", "cortex-m4")
    document = json.loads(result.stdout)
    assert document["name"] == "hello_world_int8"
    assert document["rounding"] == "tflm"
    assert document["arena_bytes"] <= 100
    assert document["outputs"] == [
        {
            "name": "dense_2",
            "shape": [1, 1],
            "dtype": "int8",
            "scale": 0.008290956728160381,
            "zero_point": 5,
            "variable": "output",
            "macro": "HELLO_WORLD_INT8_OUTPUT",
        }
    ]


def test_a_file_that_is_no_model_is_one_sentence_and_writes_nothing(tmp_path):
    wrong = tmp_path / "wrong.tflite"
    wrong.write_text("no model")
    result = _run("micro", "compile", wrong, "--out", tmp_path / "c")
    assert str(result.exception).startswith(f"`{wrong}`: This is not a .tflite model")
    assert not (tmp_path / "c").exists()


def test_a_model_of_keras_is_exported_first(tmp_path):
    path = tmp_path / "my net.keras"
    path.write_bytes(b"PK\x03\x04")
    sentence = str(_run("micro", "compile", path, "--out", tmp_path / "c").exception)
    assert sentence.startswith(f"`{path}` is a model of Keras")
    assert sentence.endswith(f"by `rudel export '{path}' --to litert-int8`.")


@pytest.mark.parametrize("name", ["sine.c", "sine.h"])
def test_compiling_replaces_its_own_files_and_no_others(name, hello, tmp_path):
    def compiled() -> Result:
        return _run("micro", "compile", hello, "--out", tmp_path / "c", "--name", "sine")

    assert [compiled().exit_code, compiled().exit_code] == [0, 0]
    (tmp_path / "c" / name).write_text("/* mine */\n")
    other = tmp_path / "c" / {"sine.c": "sine.h", "sine.h": "sine.c"}[name]
    other.unlink()
    message = f"`{tmp_path / 'c' / name}` exists and was not made by Rudel: give another folder, or another name."
    assert str(compiled().exception) == message
    assert (tmp_path / "c" / name).read_text() == "/* mine */\n"
    assert not other.exists()


def test_explain_shows_layers_and_the_arena(hello, tmp_path):
    result = _run("micro", "explain", hello, "--plot", tmp_path / "arena.svg")
    assert result.exit_code == 0
    assert result.stdout.count("FULLY_CONNECTED") == 3
    assert "The arena" in result.stdout
    assert (tmp_path / "arena.svg").read_text().startswith("<?xml")


def test_explain_writes_a_page_and_says_why_it_has_no_cycles(hello, tmp_path):
    result = _run("micro", "explain", hello, "--html", tmp_path / "page.html")
    assert result.exit_code == 0
    assert "`generic` cannot be measured" in result.stderr
    page = (tmp_path / "page.html").read_text()
    assert page.count("FULLY_CONNECTED") >= 3
    assert "remove channels that are constant or unused" in page


def test_explain_prints_json(shared_data):
    model = shared_data / "tflite" / "person_detect_int8.tflite"
    document = json.loads(_run("micro", "explain", model, "--json").stdout)
    assert len(document["layers"]) == 31
    assert sum(layer["macs"] for layer in document["layers"]) == document["macs"] == 7_160_192
    assert max(layer["ram"] for layer in document["layers"]) == document["arena_bytes"]
    assert sum(layer["flash"] for layer in document["layers"]) == document["weights_bytes"]


def test_check_compares_with_the_interpreter(hello, lacking):
    if importlib.util.find_spec("ai_edge_litert") is None:
        lacking("This test needs LiteRT: pip install ai-edge-litert")
    result = _run("micro", "check", hello, "-n", 20)
    assert result.exit_code == 0
    assert "the same bits on 20 random inputs" in result.stdout
