"""Every command, on real input."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rudel import __version__
from rudel.cli.train import _print_result
from rudel.recipes import BUILT_IN

WHOLE = ("--set", "validation=0.1987")
"""Leaves 1,440 of the 1,797 digits: a smaller last batch would be one program more to compile."""

CLASSES = "airplane,alarm clock,apple,banana,bicycle,bird,book,cat,dog,fish,flower,house,rainbow"


@pytest.mark.optimized  # it computes longer than it compiles
def test_digits_end_to_end(rudel: Callable[..., Any], tmp_path: Path) -> None:
    settings = ("--json", "--epochs", 25, *WHOLE)
    trained = rudel("train", *settings)
    assert trained.code == 0
    summary = json.loads(trained.out)
    assert summary["metrics"]["val_accuracy"] >= 0.98
    assert summary["run"] == "runs/digits"
    assert (tmp_path / "runs/digits/report.html").is_file()

    evaluated = json.loads(rudel("evaluate", "runs/digits", "--json").out)
    assert evaluated["metrics"]["accuracy"] == pytest.approx(summary["metrics"]["val_accuracy"])

    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    np.save("digits.npy", (digits.images[:3] * 255 / 16).astype("uint8"))
    Image.fromarray((digits.images[4] * 255 / 16).astype("uint8")).resize((64, 64)).save("four.png")
    output = rudel("predict", "runs/digits", "digits.npy", "four.png").out.splitlines()
    assert [line.split(":")[0] for line in output] == ["digits.npy[0]", "digits.npy[1]", "digits.npy[2]", "four.png"]
    assert [line.split(": ")[1][0] for line in output] == ["0", "1", "2", "4"]

    (tmp_path / "runs/digits/report.html").unlink()
    assert rudel("report", "runs/digits").out.strip() == "runs/digits/report.html"
    assert (tmp_path / "runs/digits/report.html").is_file()

    Path("runs/digits-2").mkdir()
    again = json.loads(rudel("train", "digits", *settings).out)
    assert again["run"] == "runs/digits-3"
    assert again["metrics"] == summary["metrics"]


@pytest.mark.optimized  # it computes longer than it compiles
@pytest.mark.parametrize(
    ("options", "steps", "samples", "accuracy"),
    [
        (("--set", "drawings=1000", "--steps", 1500), 1500, 47952, 0.72),
        pytest.param((), 8192, 262072, 0.805, marks=pytest.mark.slow, id="whole"),
    ],
)
def test_the_articles_job_on_real_drawings(
    rudel: Callable[..., Any], shared_data: Path, options: tuple[object, ...], steps: int, samples: int, accuracy: float
) -> None:
    source = shared_data / "quickdraw"
    arguments = ("--data", source, "--set", f"classes={CLASSES}", *options, "--json")
    trained = json.loads(rudel("train", "quickdraw", *arguments).out)
    assert (trained["steps"], trained["samples"]) == (steps, samples), "epochs end with a smaller batch"
    assert trained["metrics"]["val_accuracy"] >= accuracy

    # Rows of other classes are left out and counted; labels are matched by name, whatever their order.
    names = ["zebra", "rainbow", "cat", "airplane"]
    folder = source / "full/numpy_bitmap"
    drawings = [np.load(folder / f"{name}.npy")[-50:] for name in names[1:]]
    x = np.concatenate([np.zeros((7, 784), "uint8"), *drawings])
    y = np.repeat(np.arange(4), [7, 50, 50, 50])
    np.savez("other.npz", x=x, y=y, names=names)
    evaluated = json.loads(rudel("evaluate", "runs/quickdraw", "--data", "other.npz", "--json").out)
    assert (evaluated["examples"], evaluated["left_out"]) == (150, {"zebra": 7})
    assert evaluated["metrics"]["accuracy"] > 0.7


@pytest.mark.parametrize(
    ("steps", "classes", "drawings", "accuracy"),
    [
        (60, ",".join(CLASSES.split(",")[:8]), 320, 0.25),  # whole batches, for training and evaluation
        pytest.param(
            300, CLASSES, 4000, 0.74, marks=[pytest.mark.slow, pytest.mark.optimized]
        ),  # 0.93 after all of its 10,240 steps
    ],
)
def test_the_convolutional_net_on_real_drawings(
    rudel: Callable[..., Any], shared_data: Path, steps: int, classes: str, drawings: int, accuracy: float
) -> None:
    settings = ("--set", f"classes={classes}", "--set", f"drawings={drawings}", "--set", "net=cnn")
    arguments = ("--data", shared_data / "quickdraw", *settings, "--json")
    trained = json.loads(rudel("train", "quickdraw", *arguments, "--steps", steps).out)
    assert trained["metrics"]["val_accuracy"] >= accuracy
    config = json.loads(Path("runs/quickdraw/config.json").read_text())
    assert "conv2d" in config["model"]["text"]


def test_options_reach_the_recipe(rudel: Callable[..., Any]) -> None:
    arguments = (
        "--set",
        "filters=4",
        "--epochs",
        1,
        "--batch-size",
        64,
        "--learning-rate",
        0.01,
        "--seed",
        3,
        "--run",
        "r",
        *WHOLE,
    )
    rudel("train", "digits", *arguments)
    config = json.loads(Path("r/config.json").read_text())
    assert config["options"]["filters"] == 4
    assert config["options"]["learning_rate"] == 0.01
    assert (config["batch_size"], config["seed"], config["epochs"]) == (64, 3, 1)


def test_mixed_precision(rudel: Callable[..., Any]) -> None:
    trained = rudel("train", "digits", "--precision", "mixed_bfloat16", "--epochs", 4, "--json", *WHOLE)
    assert json.loads(trained.out)["metrics"]["val_accuracy"] > 0.9
    assert json.loads(Path("runs/digits/config.json").read_text())["precision"] == "mixed_bfloat16"


def test_a_recipe_of_ones_own(rudel: Callable[..., Any]) -> None:
    assert "moons.py" in rudel("new", "moons").out
    Path("moons.py").write_text(Path("moons.py").read_text().replace("import rudel", "import neighbour\nimport rudel"))
    Path("neighbour.py").write_text("")
    trained = json.loads(rudel("train", "moons.py", "--set", "hidden=16", "--json").out)
    assert trained["metrics"]["val_accuracy"] > 0.9
    np.save("points.npy", np.array([[-1, 0], [2, 0.5]], "float32"))
    guesses = json.loads(rudel("predict", "runs/moons", "points.npy", "--json").out)
    assert [guess["classes"][0]["name"] for guess in guesses] == ["upper", "lower"]
    assert rudel("evaluate", "runs/moons").code == 0


def test_a_regression_says_whether_it_fits(rudel: Callable[..., Any]) -> None:
    small = rudel("train", "sine", "--set", "net=small", "--run", "small", "--epochs", 100, "--batch-size", 20).out
    assert "fit      It underfits.\n" in small
    assert "fit      It neither underfits nor overfits.\n" in rudel("train", "sine", "--epochs", 300).out
    assert "mae 0.0" in rudel("evaluate", "runs/sine").out
    np.save("angle.npy", np.array([[np.pi / 2]], "float32"))
    output = rudel("predict", "runs/sine", "angle.npy").out
    assert float(output.removeprefix("angle.npy: ")) == pytest.approx(1, abs=0.15)
    assert rudel("report", "runs/sine").code == 0


def test_lists_recipes(rudel: Callable[..., Any]) -> None:
    output = rudel("recipes").out
    assert all(word in output for word in ("digits", "quickdraw", "hidden", "classes"))
    names = [recipe["name"] for recipe in json.loads(rudel("recipes", "--json").out)]
    assert names == list(BUILT_IN)


def test_goes_on_with_a_run(rudel: Callable[..., Any]) -> None:
    first = json.loads(rudel("train", "sine", "--epochs", 2, "--run", "r", "--json").out)
    assert first["steps"] > 0
    again = json.loads(rudel("train", "sine", "--epochs", 3, "--run", "r", "--resume", "--json").out)
    assert 2 * again["steps"] == 3 * first["steps"]


def test_standard_error_may_be_closed(rudel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    refused = rudel("evaluate", "elsewhere")
    assert (refused.code, refused.out) == (2, "")
    sys.stderr.close()


def test_a_training_of_minutes_is_told_in_minutes(rudel: Callable[..., Any], capfd: pytest.CaptureFixture[str]) -> None:
    rudel("train", "sine", "--steps", "20", "--run", "run")
    summary = json.loads(Path("run", "summary.json").read_text()) | {"train_seconds": 250.0}
    trained: Any = SimpleNamespace(summary=summary, path=Path("run"), notes=(), attribution="")
    _print_result(trained)
    assert "20 steps in 4 min 10 s" in capfd.readouterr().out.replace("\u202f", " ")


def test_training_evaluating_and_predicting_leave_tensorflow_dask_and_pandas_alone(tmp_path: Path) -> None:
    """And they have no trouble with a backend of Matplotlib that is not installed.

    A notebook whose Jupyter is installed elsewhere leaves one to the commands that it starts.
    """
    script = (
        "import sys\nfrom rudel.cli import main\nimport numpy as np\nnp.save('x.npy', np.zeros((8, 8), 'uint8'))\n"
        "train = 'train digits --epochs 1 --set filters=4 --set validation=0.1987'\n"
        "for line in (train, 'evaluate runs/digits', 'predict runs/digits x.npy'):\n"
        "    sys.argv = ['rudel', *line.split()]\n"
        "    try: main.run()\n"
        "    except SystemExit as stop: assert not stop.code, stop.code\n"
        "    assert not {'tensorflow', 'distributed', 'pandas'} & sys.modules.keys(), line\n"
    )
    environment = os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, env=environment)
    assert "<svg" in (tmp_path / "runs/digits/report.html").read_text()


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "rudel", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"rudel {__version__}\n"


def test_imports_nothing_heavy_until_it_is_needed() -> None:
    script = (
        "import sys, rudel\nfrom rudel.cli import application\n"
        "heavy = {'jax', 'keras', 'matplotlib', 'numpy', 'sklearn', 'tensorflow'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
