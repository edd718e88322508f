"""`rudel export` as typed, and everything that can be wrong with what is typed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import rudel
from rudel.backend import keras_on_jax
from rudel.errors import CompileError, DataError, ExportError, RunError
from rudel.export import forms, process
from rudel.export.forms import Form

keras = keras_on_jax()


def test_the_command_prints_a_table_and_nothing_else(digits: Path, tmp_path: Path, command: Callable[..., Any]) -> None:
    done = command(digits, "--to", "litert-int8", folder=tmp_path)
    assert (done.returncode, [path.name for path in tmp_path.iterdir()]) == (0, ["digits-int8.tflite"])
    headings, keras_model, exported = done.stdout.splitlines()
    assert headings.split() == ["size", "accuracy", "largest", "difference", "same", "class"]
    assert keras_model.split()[0] == "model.keras"
    assert exported.split()[0] == "digits-int8.tflite"
    assert done.stderr == "compared on 357 validation examples\n"
    again = command(digits, "--to", "litert-int8", folder=tmp_path)
    assert again.returncode == 2
    assert again.stderr == ("Error: digits-int8.tflite already exists: remove it, or give another place with --out.\n")


def test_a_row_stays_a_line_however_many_metrics_there_are(
    fitted: Callable[..., Path], tmp_path: Path, command: Callable[..., Any]
) -> None:
    x = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, "sigmoid")])
    metrics = ["accuracy", "auc", "precision", "recall", "f1_score", keras.metrics.PrecisionAtRecall(0.8)]
    run = fitted(net, x, (x[:, :1] > 0).astype("float32"), "binary_crossentropy", metrics=metrics)
    np.savez(tmp_path / "data.npz", x=x, y=(x[:, :1] > 0).astype("float32"))
    done = command(
        run, "--to", "litert", "--data", "data.npz", "--out", "a-name-of-some-length.tflite", folder=tmp_path
    )
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["model.keras", "a-name-of-some-length.tflite"]


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"to": "litert8"}, ExportError, "did you mean `litert`?"),
        ({"to": "tensorrt"}, ExportError, "cannot be exported to `tensorrt`"),
        ({"out": "taken"}, ExportError, "taken already exists: remove it"),
        ({"out": "file/inside"}, ExportError, "file/inside"),
        ({"out": "/"}, ExportError, "/ is a root folder: give another place with `out=`."),
        ({"to": "c", "out": "int"}, CompileError, "`int` cannot be a name in C"),
        ({"to": "litert-int8", "calibration": 0}, rudel.RudelError, "must be a whole number of at least 1"),
        ({"seed": -1}, rudel.RudelError, "`seed=` must be a whole number of at least 0"),
        ({"data": "missing.npz"}, DataError, "There is no file missing.npz"),
        ({"data": "folder"}, rudel.RudelError, "takes no data from elsewhere"),
        ({"data": np.zeros((5, 3))}, DataError, "has shape (8, 8), and the examples have (3,)"),
        ({"data": np.full((5, 8, 8), np.nan)}, DataError, "NaN"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence_and_leave_nothing(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], kind: Any, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/mine").touch()
    (tmp_path / "file").touch()
    given: dict[str, Any] = {"to": "litert"} | arguments
    with pytest.raises(kind) as failure:
        rudel.export(digits, **given)
    assert words in str(failure.value)
    assert "\n" not in str(failure.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]


def test_a_tilde_means_the_home_folder(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(process.ENVIRONMENT, "HOME", os.environ["HOME"])  # so that its process begins as all others do
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert rudel.export(digits, "litert", "~/model.tflite").path == tmp_path / "home/model.tflite"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_run_without_a_recipe_asks_for_data(fitted: Callable[..., Path], tmp_path: Path) -> None:
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    run = fitted(net, np.zeros((64, 3), "float32"), np.zeros(64))
    with pytest.raises(RunError, match=r"has no recipe that makes its data: give data with `data='FILE\.npz'`\."):
        rudel.export(run, "litert-int8", tmp_path / "net.tflite")
    two = {"left": np.zeros((4, 3)), "right": np.zeros((4, 3))}
    with pytest.raises(DataError, match="takes 1 inputs, and the examples have 2"):
        rudel.export(run, "litert", tmp_path / "net.tflite", data=list(two.values()))
    np.savez(tmp_path / "data.npz", z=np.zeros((4, 3)))
    with pytest.raises(DataError, match="has no array `x`: save it by"):
        rudel.export(run, "litert", tmp_path / "net.tflite", data=tmp_path / "data.npz")


def test_an_unfinished_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RunError, match="is not finished"):
        rudel.export(tmp_path, "litert")


def test_a_missing_package_is_named_with_what_installs_it() -> None:
    form = Form("none", "", "litert", ("tensorflow", "no_such_package"), "")
    with pytest.raises(ExportError, match=r"needs no_such_package: install it by `pip install 'rudel\[export\]'`"):
        forms.check_needs(form)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ("import os, signal; print('so far'); os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
        ("raise ValueError('too wide')", "ended with code 1 (ValueError: too wide)"),
        ("raise SystemExit(3)", "ended with code 3"),
    ],
)
def test_a_process_that_dies_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, words: str
) -> None:
    body = f"    {work}"
    (tmp_path / "dying.py").write_text(
        f"from rudel.export.process import serve\ndef work(job):\n{body}\nif __name__ == '__main__': serve(work)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with pytest.raises(ExportError) as failure:
        process.run("dying", {}, tmp_path, "the conversion to nothing")
    assert str(failure.value).startswith("The conversion to nothing failed: its process ")
    assert words in str(failure.value)


def test_a_full_disk_leaves_nothing(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: Callable[[str], NoReturn]
) -> None:
    monkeypatch.setattr(process, "sys", sys)  # what TensorFlow says when it is imported is on the disk, too
    if os.geteuid() != 0:
        lacking("mounting a small disk needs root: sudo env PATH=$PATH python -m pytest tests/export")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", disk], check=True)
    try:
        with pytest.raises(ExportError, match="disk"):
            rudel.export(digits, "litert", disk / "net.tflite")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_the_package_is_the_function_too() -> None:
    script = "import rudel\nimport rudel.export.forms\nassert callable(rudel.export)\nprint(rudel.export.__doc__)"
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert "calibration: how many training examples" in output
