"""`rudel train RECIPE --from RUN|FILE`: trainings that begin with another model's weights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from rudel.backend import set_seed

RECIPE = """
import keras
import numpy as np
import rudel


def data():
    x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
    return rudel.Dataset(rudel.Examples(x, (x[:, 0] > 0).astype("int32")))


def model(classes: int = 2):
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, activation="relu", name="body"),
         keras.layers.Dense(classes, activation="softmax", name="head")]
    )
    model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
    return model


training = {"epochs": 1}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(RECIPE)
    return path


def weights(path: Path) -> dict[str, np.ndarray]:
    model: Any = keras.models.load_model(path)
    return {f"{layer.name}/{each.name}": np.asarray(each) for layer in model.layers for each in layer.weights}


def test_weights_that_fit_are_taken_and_the_others_named(rudel: Callable[..., Any], recipe: Path) -> None:
    assert rudel("train", recipe, "--run", "a", "--seed", 1).code == 0
    same = rudel("train", recipe, "--run", "b", "--seed", 2, "--from", "a")
    assert "4 of 4 weights begin with those of a." in same.err
    other = rudel("train", recipe, "--run", "c", "--seed", 2, "--from", "a/model.keras", "--set", "classes=3")
    assert "2 of 4 weights begin with those of a/model.keras; 2 do not fit: head/kernel (8, 3) instead of (8, 2)" in (
        " ".join(other.err.split())
    )
    a, b, c = (weights(Path(name) / "model.keras") for name in "abc")
    for name in a:  # the learning rate is 0
        np.testing.assert_array_equal(a[name], b[name])
        assert np.array_equal(a[name], c[name]) == name.startswith("body")
    notes = json.loads(Path("b/config.json").read_text())["notes"]
    assert notes == ["4 of 4 weights begin with those of a."]


def test_a_resumed_run_needs_them_no_more(rudel: Callable[..., Any], recipe: Path, tmp_path: Path) -> None:
    set_seed(5)
    file = tmp_path / "begin.keras"
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, name="body")]).save(file)
    assert rudel("train", recipe, "--run", "a", "--from", file).code == 0
    file.unlink()
    again = rudel("train", recipe, "--run", "a", "--from", file, "--resume", "--epochs", 2)
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nothing.keras", "There is no model file at nothing.keras."),
        ("nothing", "no run"),
        ("text.keras", "text.keras is not a Keras model file"),
        ("other.keras", "No weight in other.keras has the name and the shape of one of the recipe's model, which has "),
    ],
)
def test_what_does_not_fit_is_refused(
    rudel: Callable[..., Any], recipe: Path, tmp_path: Path, name: str, sentence: str
) -> None:
    (tmp_path / "text.keras").write_text("no archive")
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(9, name="body")]).save(tmp_path / "other.keras")
    done = rudel("train", recipe, "--from", name)
    assert sentence in done.error
    assert not Path("runs").exists()
