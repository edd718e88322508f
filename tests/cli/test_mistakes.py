"""Every mistake of a user's is one sentence and exit code 2, and leaves nothing behind."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

RECIPE = """
import keras, numpy as np, rudel

def data():
    return rudel.Dataset(rudel.Examples(np.zeros((64, 3), "float32"), np.zeros(64, "int32")))

def model(dataset):
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, activation="softmax")])
    net.compile("sgd", "sparse_categorical_crossentropy")
    return net
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "digit"), "no recipe `digit`: did you mean `digits`?"),
        (("train", "xyz"), "no recipe `xyz`: there are `digits`"),
        (("train", "missing.py"), "no recipe file missing.py: `rudel new missing`"),
        (("train", "--set", "filter=3"), "no option `filter`: did you mean `filters`?"),
        (("train", "--set", "filters"), "KEY=VALUE"),
        (("train", "--set", "filters=many"), "`filters` must be a whole number, not 'many'"),
        (("train", "--data", "x"), "takes no data from elsewhere"),
        (("train", "--batch-size", "0"), "--batch-size must be a whole number of at least 1"),
        (("train", "--epochs", "1", "--steps", "1"), "not both"),
        (("train", "--learning-rate", "-1"), "--learning-rate must be a number above 0"),
        (("train", "--precision", "float8"), "'float8' is not one of 'float32', 'mixed_bfloat16'"),
        (("train", "--resume"), "--run"),
        (("train", "--seed", "-1"), "--seed must be a whole number of at least 0"),
        (("train", "--checkpoint-every", "0"), "--checkpoint-every"),
        (("train", "quickdraw", "--set", "net=rnn"), "`net` can be mlp or cnn, not 'rnn'"),
        (("train", "quickdraw", "--set", "classes=bananna"), "the nearest of its 345 is `banana`"),
        (("train", "quickdraw", "--data", "nowhere"), "no folder `nowhere`"),
        (("evaluate", "nowhere"), "no run at nowhere"),
        (("predict", "nowhere", "x.png"), "no run at nowhere"),
        (("report", "nowhere"), "nowhere"),
        (("new", "two words"), "Python identifier"),
        (
            ("train", "digits", "--run", "~nobody-here/run"),
            "no home folder `~nobody-here`: write ~nobody-here/run without",
        ),
        (("train", "~nobody-here/recipe.py"), "no home folder `~nobody-here`"),
        (("tune", "digits", "--set", "filters=4,8", "--run", "~nobody-here/run"), "no home folder `~nobody-here`"),
        (("evaluate", "~nobody-here/run"), "no home folder `~nobody-here`"),
        (("data", "images", "photographs", "--out", "~nobody-here/records"), "no home folder `~nobody-here`"),
        (
            ("watch", "nowhere", "--host", "192.168..1"),
            "cannot be used (Name or service not known)",
        ),
        (("tune", "digits", "--set", "filters=4,8", "--seed", "5000000000"), "--seed must be below 2**32"),
        (("tune", "digits", "--set", "filters=4,8", "--checkpoint-every", "0"), "--checkpoint-every must be a whole"),
        (("tune", "digits", "--set", "filters=4,8", "--monitor", "val_acuracy"), "no metric `val_acuracy` to monitor"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_commands(rudel: Callable[..., Any], tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    assert words in rudel(*arguments).error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("def model(dataset):", "def model(dataset:", "syntax error in line"),
        ("def model", "def modell", "no function `model`: add `model(dataset, ...) -> keras.Model`"),
        ("def data", "def daten", "no function `data`"),
        ("    net.compile", "    #", "is not compiled"),
        ("    return net", "    pass", "returns nothing: let it return a keras.Model"),
        ("return rudel.Dataset(", "return (", "returns something of type Examples: let it return a rudel.Dataset"),
        ("rudel.Examples(", "(", "whose `train` is something of type tuple: let it be a rudel.Examples(x, y)"),
        ("import keras,", "import kerass,", "cannot be imported in line 2: ModuleNotFoundError: No module"),
        ("np.zeros(64, ", "np.zeros(65, ", "`x` has 64, `y` has 65"),
        ("np.zeros(64, ", "np.full(64, 2, ", "label 2 of example 0"),
        ("np.zeros((64, 3)", "np.full((64, 3), np.nan", "NaN or an infinity in training x at example 0"),
        ("np.zeros((64, 3)", "np.zeros((64, 4)", "cannot take these examples"),
        ("def data():", "def data(size):", "`size` of `data` in"),
        ("    net =", "    1 / 0; net =", "`model` of the recipe mine.py failed in line 8: ZeroDivisionError"),
        ("def data", "training = {'batches': 3}\ndef data", "`training` in the recipe mine.py"),
        ('compile("sgd"', 'compile(keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(1., 9))', "schedule"),
    ],
)  # fmt: skip
def test_recipes(rudel: Callable[..., Any], tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in RECIPE
    Path("mine.py").write_text(RECIPE.replace(old, new))
    extra = ("--learning-rate", "0.1") if "CosineDecay" in new else ()
    assert words in rudel("train", "mine.py", *extra).error
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["mine.py"]


def test_a_recipe_file_without_its_suffix(rudel: Callable[..., Any]) -> None:
    Path("mine.py").write_text(RECIPE)
    for name in ("mine", "mine.txt"):
        assert f"no recipe `{name}`, but a file: give its path, mine.py." in rudel("train", name).error


def test_a_sweep_into_a_file(rudel: Callable[..., Any]) -> None:
    Path("file").write_text("")
    tune = ("tune", "digits", "--set", "filters=4,8", "--run")
    assert "file cannot be written (File exists): give another with --run." in rudel(*tune, "file").error


def test_a_loss_that_explodes_names_the_step(rudel: Callable[..., Any]) -> None:
    Path("mine.py").write_text(
        RECIPE.replace('"sparse_categorical_crossentropy"', '"mse"')
        .replace("np.zeros((64, 3)", "1e30 * np.ones((64, 3)")
        .replace("np.zeros(64, ", "np.zeros((64, 2), ")
        .replace(', activation="softmax"', "")
    )
    assert "became NaN or infinite at step" in rudel("train", "mine.py").error


@pytest.mark.parametrize("arguments", [("--help",), ("recipes", "--json")], ids=" ".join)
def test_an_output_that_cannot_be_written(
    rudel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert rudel(*arguments).error.startswith("Error: The output cannot be written (No space left on device)")


@pytest.mark.parametrize("command", ["evaluate", "resume"])
def test_a_name_that_is_too_long(rudel: Callable[..., Any], command: str) -> None:
    assert 300 * "x" in rudel(command, 300 * "x").error


def test_a_working_directory_that_was_removed(
    rudel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for command in (("watch", "nothing"), ("train", "sine"), ("predict", "a", "b")):
        assert rudel(*command).error == "Error: The working directory has been removed: change to another one."


def test_the_traceback_can_be_had(rudel: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match="no recipe"):
        rudel("--traceback", "train", "nothing")


class TestRuns:
    @pytest.fixture
    def trained(self, rudel: Callable[..., Any], digits_run: Path) -> Callable[..., Any]:
        shutil.copytree(digits_run, "r")
        return rudel

    def test_into_the_same_directory(self, trained: Callable[..., Any]) -> None:
        before = {path: path.stat().st_mtime_ns for path in Path("r").rglob("*")}
        assert "already holds a run: add --resume" in trained("train", "digits", "--run", "r").error
        another = trained("train", "digits", "--run", "r", "--resume", "--set", "filters=8").error
        assert "was begun with option filters 16, and this is 8" in another
        assert "batch size 32, and this is 16" in trained("train", "--run", "r", "--resume", "--batch-size", 16).error
        assert before == {path: path.stat().st_mtime_ns for path in Path("r").rglob("*")}

    def test_an_unfinished_one(self, trained: Callable[..., Any]) -> None:
        Path("r/model.keras").unlink()
        assert "not finished" in trained("evaluate", "r").error

    def test_a_damaged_one(self, trained: Callable[..., Any]) -> None:
        Path("r/model.keras").write_bytes(b"rubbish")
        assert "cannot be loaded: the file is cut short, or no .keras file." in trained("evaluate", "r").error
        Path("r/config.json").write_text("{")
        assert "config.json" in trained("evaluate", "r").error

    def test_where_nothing_can_be_written(self, rudel: Callable[..., Any]) -> None:
        Path("file").write_text("")
        assert "cannot be written" in rudel("train", "--run", "file/run").error

    def test_files_that_do_not_fit(self, trained: Callable[..., Any]) -> None:
        np.save("wide.npy", np.zeros((5, 9)))
        Path("text.png").write_text("no picture")
        np.savez("no_y.npz", x=np.zeros((2, 8, 8)))
        np.savez("strange.npz", x=np.zeros((2, 8, 8)), y=[0, 1], names=["cat", "dog"])
        np.savez("short.npz", x=np.zeros((2, 8, 8)), y=[0])
        Path("broken.npz").write_bytes(b"PK\x03\x04")
        for arguments, words in (
            (("predict", "r", "none.png"), "no file none.png"),
            (("predict", "r", "text.png"), "text.png cannot be read as an image"),
            (("predict", "r", "wide.npy"), "wide.npy has shape (5, 9), and the model takes inputs of shape (8, 8)"),
            (("evaluate", "r", "--data", "none.npz"), "There is no file none.npz"),
            (("evaluate", "r", "--data", "broken.npz"), "broken.npz cannot be read"),
            (("evaluate", "r", "--data", "no_y.npz"), "no array `y`"),
            (("evaluate", "r", "--data", "strange.npz"), "no example of a class that the model knows"),
            (("evaluate", "r", "--data", "short.npz"), "2 rows of `x` and 1 of `y`"),
        ):
            assert words in trained(*arguments).error

    def test_data_for_a_recipe_that_takes_none(self, trained: Callable[..., Any]) -> None:
        assert "takes no data from elsewhere" in trained("evaluate", "r", "--data", "nowhere").error

    def test_json_stays_json(self, trained: Callable[..., Any]) -> None:
        assert json.loads(trained("evaluate", "r", "--json").out)["examples"] == 359


@pytest.mark.skipif(sys.platform != "linux", reason="privileges of Linux")
def test_what_this_user_may_not_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0)
    like_others = [] if os.geteuid() else ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    command = [*like_others, sys.executable, "-m", "rudel", "serve", "run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    (tmp_path / "run").chmod(0o700)
    words = "run/config.json cannot be used (Permission denied): change its permissions, or give another path."
    assert (done.returncode, done.stderr) == (2, f"Error: {words}\n")
