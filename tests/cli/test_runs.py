"""`rudel runs`, `rudel runs compare` and `rudel resume`, with trainings of handwritten digits."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import LONG, started

import rudel as package


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, digits_run: Path) -> Path:
    """A folder with two finished runs, one of them a folder deeper, as those of a sweep are."""
    folder = tmp_path_factory.mktemp("runs")
    shutil.copytree(digits_run, folder / "short")
    options = {"filters": 4, "dropout": 0.1, "validation": 0.1987}  # so that no batch is smaller, and all one program
    package.train_recipe("digits", epochs=2, options=options, run=folder / "sweep" / "long", verbose=False)
    return folder


def test_runs_are_listed_with_what_they_are_and_how_well_they_do(trained, rudel) -> None:
    result = rudel("runs", "--in", trained, "--json")
    assert result.code == 0
    short, long = json.loads(result.out)
    assert (short["name"], long["name"]) == ("short", "sweep/long")
    summary = json.loads((trained / "short" / "summary.json").read_text())
    assert short["metrics"] == pytest.approx(summary["metrics"])
    assert short["seconds"] == summary["train_seconds"]
    assert {short["recipe"], short["strategy"], short["state"]} == {"digits", "single", "finished"}
    assert "val_accuracy" in rudel("runs", "--in", trained).out


def test_a_terminal_of_another_encoding_gets_question_marks(trained, rudel, monkeypatch, tmp_path) -> None:
    shutil.copytree(trained / "short", tmp_path / "runs" / "数字")
    for arguments, name in ((("runs",), "??"), (("runs", "--json"), "\\u6570\\u5b57")):
        with (tmp_path / "out").open("w+", encoding="latin-1", errors="strict") as out:
            monkeypatch.setattr("sys.stdout", out)
            assert rudel(*arguments).code == 0
            out.seek(0)
            assert name in out.read()


def test_runs_are_sorted_by_a_metric_the_best_first(trained, rudel) -> None:
    def order(by: str) -> list[float]:
        return [run["metrics"][by] for run in json.loads(rudel("runs", "--in", trained, "--sort", by, "--json").out)]

    assert order("val_loss") == sorted(order("val_loss"))
    assert order("val_accuracy") == sorted(order("val_accuracy"), reverse=True)
    error = rudel("runs", "--in", trained, "--sort", "beauty").error
    assert "`beauty`" in error
    assert "val_accuracy" in error


def test_a_folder_without_runs_is_said(rudel, tmp_path) -> None:
    (tmp_path / "runs").mkdir()
    assert rudel("runs").out == "There are no runs in runs.\n"
    assert "nowhere" in rudel("runs", "--in", "nowhere").error


def test_a_damaged_run_does_not_hide_the_others(trained, rudel, tmp_path) -> None:
    for name, content in (("damaged", "{"), ("strange", '{"other": 1}')):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text(content)
    (tmp_path / "runs" / "short").symlink_to(trained / "short")
    assert [run["name"] for run in json.loads(rudel("runs", "--json").out)] == ["short"]


def test_a_comparison_names_what_differs_and_draws_the_curves(trained, rudel, tmp_path) -> None:
    runs, page = (trained / "short", trained / "sweep" / "long"), tmp_path / "compared.html"
    result = json.loads(rudel("runs", "compare", *runs, "--page", page, "--json").out)
    assert result["settings"]["filters"] == {"short": "16", "long": "4"}
    assert result["settings"]["epochs"] == {"short": "1", "long": "2"}
    assert "batch_size" not in result["settings"]
    written = page.read_text()
    assert "Line plot of the validation accuracy of each run" in written
    assert written.count("<svg") >= 3  # loss, accuracy, learning rate
    table = rudel("runs", "compare", *runs, "--page", page).out
    assert "dropout" in table
    assert "batch_size" not in table


def test_a_run_is_not_compared_with_itself(trained, rudel) -> None:
    assert "two runs" in rudel("runs", "compare", trained / "short", trained / "short").error


def test_a_run_is_resumed_as_it_was_begun(rudel: Callable[..., Any], tmp_path: Path, warm_python: str) -> None:
    arguments = ["--steps", "700", "--set", "filters=4", "--batch-size", "60", "--checkpoint-every", "20"]
    arguments += ["--set", "validation=0.1987"]
    command = [Path(warm_python).with_name("rudel"), "train", "digits", *arguments, "--run", "runs/first"]
    run = tmp_path / "runs" / "first"
    with started(command, cwd=tmp_path, stderr=subprocess.PIPE) as training:
        while not any((run / "checkpoints").glob("*.npz")) and training.poll() is None:
            time.sleep(0.01)
        training.send_signal(signal.SIGINT)
        errors = training.communicate(timeout=LONG)[1]
    assert training.returncode == 130, errors
    before = (run / "metrics.jsonl").read_text()
    assert [line["state"] for line in json.loads(rudel("runs", "--json").out)] == ["unfinished"]

    result = rudel("resume", run, "--json")

    assert result.code == 0, result.err
    assert json.loads(result.out)["steps"] == 700
    assert (run / "metrics.jsonl").read_text().startswith(before)
    assert json.loads((run / "config.json").read_text())["options"]["filters"] == 4
    assert "is finished" in rudel("resume", run).error


def test_a_run_of_objects_that_no_file_holds_is_not_resumed(rudel, tmp_path) -> None:
    import keras

    run = tmp_path / "run"
    package.train_recipe("sine", epochs=1, callbacks=[keras.callbacks.Callback()], run=run, verbose=False)
    (run / "summary.json").unlink()
    assert "with callbacks" in rudel("resume", run).error
    assert "There is no run" in rudel("resume", tmp_path / "nothing").error


def test_a_run_is_resumed_from_another_folder(rudel, tmp_path, monkeypatch) -> None:
    begun, elsewhere = tmp_path / "begun", tmp_path / "elsewhere"
    (begun / "table").mkdir(parents=True)  # of the name of the recipe
    elsewhere.mkdir()
    (begun / "rows.csv").write_text("a,b\n" + "".join(f"{row % 7},{row % 2}\n" for row in range(40)))
    monkeypatch.chdir(begun)
    package.train_recipe("table", data="rows.csv", options={"target": "b"}, steps=4, run="run", verbose=False)
    (begun / "run" / "summary.json").unlink()
    monkeypatch.chdir(elsewhere)
    result = rudel("resume", "../begun/run", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["steps"] == 4
    assert Path.cwd() == elsewhere
    assert list(elsewhere.iterdir()) == []


def test_a_recipe_finds_files_beside_the_folder_of_its_run(rudel, tmp_path, monkeypatch) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    np.save(begun / "numbers.npy", np.arange(12, dtype=np.float32)[:, None])
    (begun / "own.py").write_text(
        """
import keras, numpy, rudel
def data(file: str = ""):
    x = numpy.load(file)
    return rudel.Dataset(rudel.Examples(x, 2 * x))
def model(dataset):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
"""
    )
    monkeypatch.chdir(begun)
    package.train_recipe("own.py", options={"file": "numbers.npy"}, steps=1, run="run", verbose=False)
    (begun / "run" / "summary.json").unlink()
    monkeypatch.chdir(tmp_path)
    assert json.loads(rudel("resume", "begun/run", "--json").out)["steps"] == 1
