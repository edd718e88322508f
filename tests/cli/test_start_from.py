"""`rudel train RECIPE --from RUN|FILE`: trainings that begin with another model's weights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from rudel.backend import set_seed, without_tensorflow
from rudel.errors import RunError
from rudel.runs.start_weights import copy_weights

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


def test_notes_are_told_before_the_training(rudel: Callable[..., Any], recipe: Path) -> None:
    assert rudel("train", recipe, "--run", "a").code == 0
    recipe.write_text(recipe.read_text().replace("SGD(0.0)", "SGD(float('nan'))"))
    failed = rudel("train", recipe, "--run", "b", "--from", "a")
    assert failed.code != 0
    assert failed.err.startswith("note     4 of 4 weights begin with those of a.\n")
    assert "note" not in rudel("train", recipe, "--run", "c", "--from", "a", "--quiet").err


def test_of_a_layer_all_weights_are_taken_or_none(tmp_path: Path) -> None:
    def model(inputs: int) -> Any:
        sizes = {"body": 8, "head": 3}
        layers = [keras.layers.Dense(size, kernel_initializer="ones", name=name) for name, size in sizes.items()]
        return keras.Sequential([keras.Input((inputs,)), keras.layers.BatchNormalization(name="norm"), *layers])

    begin = tmp_path / "begin.keras"
    zeros = model(5)
    zeros.set_weights([0 * each for each in zeros.get_weights()])
    with without_tensorflow():
        zeros.save(begin)
    own = model(4)
    own.get_layer("body").bias.assign(np.ones(8))
    assert copy_weights(own, begin) == (
        f"2 of 8 weights begin with those of {begin}; 6 do not fit: norm/gamma (4) instead of (5), "
        "norm/beta (4) instead of (5), norm/moving_mean (4) instead of (5) and 3 more."
    )
    body, head = (own.get_layer(name) for name in ("body", "head"))
    assert (np.asarray(body.kernel).min(), np.asarray(body.bias).min(), np.asarray(head.kernel).max()) == (1, 1, 0)
    with without_tensorflow():
        keras.Sequential([keras.Input((4,)), keras.layers.BatchNormalization(name="norm")]).save(
            tmp_path / "norm.keras"
        )
    with pytest.raises(RunError, match=r"No kernel in .*norm\.keras has the name and the shape"):
        copy_weights(own, tmp_path / "norm.keras")


@pytest.mark.parametrize("gained", ["lora", "bias"])
def test_a_layer_that_has_gained_a_weight_takes_the_others(tmp_path: Path, gained: str) -> None:
    def model(use_bias: bool, kernel: str) -> Any:
        layer = keras.layers.Dense(4, use_bias=use_bias, kernel_initializer=kernel, name="body")
        return keras.Sequential([keras.Input((3,)), layer])

    begin, own = tmp_path / "begin.keras", model(use_bias=True, kernel="zeros")
    with without_tensorflow():
        model(use_bias=gained == "lora", kernel="ones").save(begin)
    body = own.get_layer("body")
    if gained == "lora":
        body.enable_lora(2)
    fit, rest = {
        "lora": ("2 of 4", "2 do not fit: body/lora_kernel_a (3, 2), body/lora_kernel_b (2, 4)"),
        "bias": ("1 of 2", "1 do not fit: body/bias (4)"),
    }[gained]
    assert copy_weights(own, begin) == f"{fit} weights begin with those of {begin}; {rest}."
    np.testing.assert_array_equal(body.kernel, np.ones((3, 4)))


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
        ("other.keras", "No kernel in other.keras has the name and the shape of one of the recipe's model, which has "),
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
