"""`rudel predict` on folders: bad files, tables of results, interruptions, hosts."""

import contextlib
import csv
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from PIL import Image

from rudel.cluster.calls import Calls
from rudel.data.table import read_table
from rudel.runs import predict_many as module
from rudel.runs.file_model import Prediction, Unreadable
from rudel.runs.predict_many import predict_many
from rudel.training.fit import fit

SIDE = 8


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model file that finds the brighter channel of pictures, red or green."""
    pictures = keras.Input((SIDE, SIDE, 3), dtype="uint8")
    mean = keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 32)(pictures))
    head = keras.layers.Dense(2, activation="softmax", use_bias=False)
    model = keras.Model(pictures, head(mean))
    head.set_weights([np.array([[1.0, 0], [0, 1], [0, 0]], "float32")])
    model.save(tmp_path / "colours.keras")
    return tmp_path / "colours.keras"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """20 pictures, one of each kind of file among them, and one that is none."""
    folder = tmp_path / "pictures"
    (folder / "more").mkdir(parents=True)
    kinds = [".tiff", ".avif", ".webp", ".png"]
    for number in range(20):
        name = folder / ("more" if number % 2 else "") / f"{number:02}{kinds[min(number, 3)]}"
        pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
        pixels[..., number % 2] = 200
        Image.fromarray(pixels).save(name)
    (folder / "05.png").write_text("no picture")
    (folder / "notes.md").write_text("not asked about")
    (folder / ".hidden.png").write_text("not either")
    return folder


def right(rows: list[dict[str, str]]) -> bool:
    return all(row["class"] == ("green" if "more" in row["source"] else "red") for row in rows if not row["error"])


@pytest.mark.parametrize("highest", [1, 255])
def test_images_are_for_models_that_learned_from_pixels(
    rudel: Callable[..., Any], folder: Path, tmp_path: Path, highest: int
) -> None:
    x = np.random.default_rng(0).uniform(size=(8, SIDE, SIDE, 3)).astype("float32")
    x[0, 0, 0] = 0, 1, 1
    model = keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Flatten(), keras.layers.Dense(2, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    fit(model, x * highest, np.arange(8) % 2, run=tmp_path / "run", verbose=False)
    np.save(tmp_path / "x.npy", x[0])
    reason = f"{folder}/00.tiff is an image, with pixels of 0 to 255, and the model learned from numbers from 0 to 1: "
    for model_or_run in (tmp_path / "run", tmp_path / "run/model.keras"):
        done = rudel("predict", model_or_run, folder / "00.tiff")
        assert (reason in done.err, done.code) == ((True, 2) if highest == 1 else (False, 0))
        assert rudel("predict", model_or_run, tmp_path / "x.npy").code == 0


def test_a_bad_file_does_not_stop_the_others(rudel: Callable[..., Any], model: Path, folder: Path) -> None:
    done = rudel("predict", model, folder, "--classes", "red,green", "--top", 1)
    assert done.error.endswith("1 of 21 inputs could not be read; the others are predicted.")
    assert f"{folder}/05.png cannot be read as a photograph" in done.err or f"{folder}/05.png" in done.err
    lines = done.out.splitlines()
    assert len(lines) == 20
    assert all((": green" in line) == ("/more/" in line) for line in lines)

    documents = json.loads(rudel("predict", model, folder, "--json").out)
    assert [each["source"] for each in documents if "error" in each] == [f"{folder}/05.png"]

    assert rudel("predict", model, "none.png", "no.png").error.endswith("2 of 2 inputs could not be read.")


def test_on_a_terminal_every_answer_has_a_line_of_its_own(model: Path, folder: Path, warm_python: str) -> None:
    (folder / "05.png").unlink()
    terminal, there = os.openpty()
    command = [Path(warm_python).with_name("rudel"), "predict", str(model), str(folder)]
    subprocess.run(command, stdout=there, stderr=there, check=True)
    os.close(there)
    shown = b""
    with contextlib.suppress(OSError), os.fdopen(terminal, "rb", buffering=0) as screen:
        while part := screen.read(1 << 16):
            shown += part
    lines = shown.decode().splitlines()
    assert len(lines) == 20
    assert all(line.startswith(f"{folder}/") for line in lines)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table(rudel: Callable[..., Any], model: Path, folder: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"found.{kind}"
    (folder / "05.png").unlink()
    done = rudel("predict", model, folder, "--classes", "red,green", "--out", out)
    assert (done.code, done.out) == (0, f"{out}\n")
    if kind == "csv":
        with out.open(newline="") as file:
            rows: list[dict[str, Any]] = list(csv.DictReader(file))
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        rows = parquet.read_table(out).to_pylist()
    assert list(rows[0]) == ["source", "class", "probability", "p_green", "p_red"]
    assert len(rows) == 20
    assert right([row | {"error": ""} for row in rows])
    assert not out.with_name(f"found.{kind}.partial").exists()


def test_nan_takes_the_classes_from_no_other_file(tmp_path: Path, run_of: Callable[[Path], Any]) -> None:
    given = keras.Input((2,))
    keras.Model(given, keras.layers.Softmax()(given)).save(tmp_path / "same.keras")
    paths = [tmp_path / "whole.npy", tmp_path / "nan.npy"]
    for path, value in zip(paths, (1, np.nan), strict=True):
        np.save(path, np.array([0, value], np.float32))
    out = tmp_path / "found.csv"
    with run_of(tmp_path / "same.keras") as run:
        whole, nan = predict_many(run, paths, out)
    assert isinstance(whole, Prediction)
    assert isinstance(nan, Prediction)
    assert ([name for name, _ in whole.ranking], nan.ranking) == (["green", "red"], [])
    with out.open(newline="") as file:
        assert [row["class"] for row in csv.DictReader(file)] == ["green", ""]


def test_an_interrupted_prediction_continues(
    model: Path, folder: Path, tmp_path: Path, run_of: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_SIZE", 4)
    out = tmp_path / "found.csv"
    with run_of(model) as run:
        answers: Any = predict_many(run, [folder], out)
        first = [next(answers) for _ in range(9)]
        answers.close()
        partial = out.with_name("found.csv.partial")
        partial.write_bytes(partial.read_bytes() + b'{"batch": 7, "fil')  # killed while it wrote
        asked: list[int] = []
        here = module._here
        monkeypatch.setattr(
            module, "_here", lambda model, batches, rest: asked.extend(rest) or here(model, batches, rest)
        )
        all_of_them = list(predict_many(run, [folder], out))
        assert asked == [3, 4, 5]
        assert all_of_them[:9] == first
        assert len(all_of_them) == 21
        answers = predict_many(run, [folder], out)
        first = [next(answers) for _ in range(9)]
        answers.close()
        changed = Path(first[0].source)
        os.utime(changed, ns=(0, changed.stat().st_mtime_ns - 1))
        asked.clear()
        assert len(list(predict_many(run, [folder], out))) == 21
    assert asked == [0, 3, 4, 5]
    with out.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 21


@pytest.fixture
def run_of() -> Callable[[Path], Any]:
    from rudel.runs.model_as_run import as_run

    return lambda path: as_run(path, "red,green")


def test_hosts_answer_and_one_may_be_lost(
    model: Path,
    folder: Path,
    tmp_path: Path,
    run_of: Callable[[Path], Any],
    two_workers: tuple[list[subprocess.Popen[bytes]], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BATCH_SIZE", 2)
    workers, client = two_workers
    calls = Calls(client, "run inference", "continues")
    with run_of(model) as run:
        here = list(predict_many(run, [folder]))
        answers = predict_many(run, [folder], tmp_path / "found.csv", calls)
        some = [next(answers)]
        workers[0].kill()
        some += list(answers)
    assert sorted(each.source for each in some) == sorted(each.source for each in here)
    by_source = {each.source: each for each in some}
    for each in here:
        if isinstance(each, Unreadable):
            assert by_source[each.source] == each
        else:
            other = by_source[each.source]
            assert isinstance(other, Prediction)
            np.testing.assert_allclose(other.outputs, each.outputs, rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--out", "found.txt"), "--out found.txt must end in .csv or .parquet."),
        (("--out", "nowhere/found.csv"), "there is no folder nowhere"),
        (("--on", "raspi1"), "Predictions on hosts are kept in a table"),
        (("--out", "found.csv", "--json"), "exclude each other"),
    ],
)
def test_mistakes(
    rudel: Callable[..., Any], model: Path, folder: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in rudel("predict", model, folder, *arguments).error
    (folder.parent / "empty").mkdir()
    assert "has no image, recording, table or .npy file" in rudel("predict", model, folder.parent / "empty").error


def test_a_table_that_cannot_be_written_is_said(rudel: Callable[..., Any], model: Path, folder: Path) -> None:
    error = rudel("predict", model, folder, "--out", "/proc/found.csv").error
    assert "/proc/found.csv cannot be written (No such file or directory): make room, or choose another --out" in error


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_names_of_files_need_not_be_utf_8(
    rudel: Callable[..., Any], model: Path, folder: Path, tmp_path: Path, kind: str
) -> None:
    for name, other in (("04.png", b"caf\xe9.png"), ("05.png", b"bad\xe9.png")):
        (folder / name).rename(folder / os.fsdecode(other))
    out = tmp_path / f"found.{kind}"
    assert rudel("predict", model, folder, "--out", out).error.endswith("the others are predicted.")
    rows = read_table(out).columns
    found = dict(zip(rows["source"], rows["error"], strict=True))
    assert not found[f"{folder}/caf\\udce9.png"]
    assert f"{folder}/bad\\udce9.png" in found[f"{folder}/bad\\udce9.png"]


def test_a_table_of_another_model_is_kept(rudel: Callable[..., Any], model: Path, folder: Path, tmp_path: Path) -> None:
    partial = tmp_path / "found.csv.partial"
    partial.write_text('{"model": "another"}\n')
    assert "has predictions of another model" in rudel("predict", model, folder, "--out", tmp_path / "found.csv").error
    assert partial.read_text() == '{"model": "another"}\n'
