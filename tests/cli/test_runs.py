"""`rudel runs`, `rudel runs compare` and `rudel resume`, with trainings of handwritten digits."""

import datetime
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
from PIL import Image
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


@pytest.mark.parametrize(("encoding", "errors"), [("latin-1", "strict"), ("ascii", "surrogateescape")])
def test_a_terminal_of_another_encoding_gets_question_marks(
    trained, rudel, monkeypatch, tmp_path, encoding, errors
) -> None:
    shutil.copytree(trained / "short", tmp_path / "runs" / "数字")
    for arguments, name in ((("runs",), "??"), (("runs", "--json"), "\\u6570\\u5b57")):
        with (tmp_path / "out").open("w+", encoding=encoding, errors=errors) as out:
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
    run = '{"identity": {}}'
    for number, (config, summary) in enumerate(
        (
            ("{", "{}"),
            ('{"other": 1}', "{}"),
            ("5", "{}"),
            (run, "[1]"),
            (run, '{"metrics": null}'),
            (run, '{"train_seconds": "long"}'),
            ('{"identity": {}, "started": "yesterday"}', "{}"),
            ('{"identity": {}, "started": 5}', "{}"),
        )
    ):
        (tmp_path / "runs" / str(number)).mkdir(parents=True)
        (tmp_path / "runs" / str(number) / "config.json").write_text(config)
        (tmp_path / "runs" / str(number) / "summary.json").write_text(summary)
    (tmp_path / "runs" / "short").symlink_to(trained / "short")
    assert [run["name"] for run in json.loads(rudel("runs", "--json").out)] == ["short"]


def test_a_time_without_a_zone_is_of_this_computer(trained, rudel, tmp_path) -> None:
    started = datetime.datetime(2020, 2, 3, 4, 5)
    (tmp_path / "runs" / "old").mkdir(parents=True)
    (tmp_path / "runs" / "short").symlink_to(trained / "short")
    (tmp_path / "runs" / "old" / "config.json").write_text(json.dumps({"identity": {}, "started": started.isoformat()}))
    old, short = json.loads(rudel("runs", "--json").out)
    assert (old["name"], short["name"]) == ("old", "short")
    assert datetime.datetime.fromisoformat(old["started"]) == started.astimezone()


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


@pytest.mark.parametrize(
    ("page", "error"),
    [
        ("folder", "Error: folder cannot be written (Is a directory): give another with --page."),
        ("", "Error: . cannot be written (Is a directory): give another with --page."),
        ("no/page", "Error: no/page cannot be written (No such file or directory): give another with --page."),
    ],
)
def test_a_comparison_that_cannot_be_written(trained, rudel, tmp_path, page: str, error: str) -> None:
    (tmp_path / "folder").mkdir()
    runs = (trained / "short", trained / "sweep" / "long")
    assert rudel("runs", "compare", *runs, f"--page={page}").error == error


def test_a_link_in_a_circle_is_not_a_run(trained, rudel, tmp_path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert "no run directory `loop`" in rudel("runs", "compare", "loop", trained / "short").error


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


def test_a_run_is_resumed_on_fewer_of_its_hosts(rudel, tmp_path) -> None:
    run = tmp_path / "run"
    package.train_recipe("sine", epochs=1, run=run, verbose=False)
    (run / "summary.json").unlink()
    assert "--min-hosts says how many hosts to begin with, and none are" in rudel("resume", run, "--min-hosts", 1).error
    config = json.loads((run / "config.json").read_text())
    config["asked"]["on"] = "one,two"
    (run / "config.json").write_text(json.dumps(config))
    assert "--min-hosts must be between 1 and 2" in rudel("resume", run, "--min-hosts", 3).error


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


READING = """
import keras, numpy, rudel
def data():
    pixels = numpy.linspace(0, 255, 8 * 16, dtype="float32").reshape(8, 4, 4)
    return rudel.Dataset(rudel.Examples(pixels, numpy.arange(8) % 2))
def model(dataset):
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(2, "softmax")]
    model = keras.Sequential([keras.Input((4, 4)), *layers])
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model
"""
INVERTED = """
def read_image(image):
    return 255 - numpy.asarray(image.convert("L"))
"""


@pytest.fixture
def reading(tmp_path: Path) -> Callable[[str], Path]:
    """Trains a recipe of images for a step, and returns its file; images and arrays for its run lie beside it."""

    def trained_from(source: str) -> Path:
        recipe = tmp_path / "code/reading.py"
        recipe.parent.mkdir()
        recipe.write_text(source)
        package.train_recipe(str(recipe), steps=1, run=tmp_path / "run", verbose=False)
        pixels = np.random.default_rng(0).integers(0, 256, (4, 4), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "one.png")
        np.save(tmp_path / "one.npy", pixels)
        return recipe

    return trained_from


def test_images_are_refused_where_the_recipe_that_reads_them_cannot_be_loaded(
    reading, rudel, tmp_path, monkeypatch
) -> None:
    recipe = reading(READING + INVERTED)
    read = rudel("predict", "run", "one.png")
    array = rudel("predict", "run", "one.npy")
    assert read.out.partition(":")[2] != array.out.partition(":")[2]

    recipe.write_text("import a_package_that_is_not_here\n" + READING + INVERTED)
    need = "Images for the run run need the `read_image` of its recipe: "
    broken = f"{need}The recipe {recipe} cannot be imported in line 1: ModuleNotFoundError: No module named 'a_package"
    for command in (["predict", "run", "one.png"], ["play", "run", "--no-browser"]):
        assert broken in rudel(*command).error
    recipe.unlink()
    missing = f"{need}there is no file {recipe}; put it there, or give arrays."
    for command in (["predict", "run", "one.png"], ["play", "run", "--no-browser"]):
        assert missing in rudel(*command).error
    assert rudel("predict", "run", "one.npy").out == array.out

    monkeypatch.chdir("run")
    assert "give the run directory `.`, not the file in it." in rudel("predict", "model.keras", "../one.png").error
    monkeypatch.chdir(tmp_path)
    from_file = rudel("predict", "run/model.keras", "one.png").error
    instead = "give the run directory `run`, not the file in it."
    assert f"model run/model.keras need the `read_image` of its recipe: {instead}" in from_file


def test_images_are_read_as_photographs_where_a_recipe_that_is_gone_had_no_other_way(reading, rudel) -> None:
    recipe = reading(READING)
    before = rudel("predict", "run", "one.png")
    recipe.unlink()
    assert (rudel("predict", "run", "one.png").out, before.code) == (before.out, 0)
