"""Which models are taken for those that predict numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rudel
from rudel.report.read import read_run

X = np.random.default_rng(0).normal(size=(64, 2)).astype("float32")
NUMBERS = X @ np.array([[1.0], [2.0]], "float32")
LABELS = (NUMBERS[:, 0] > 0).astype("int32")


def trained(path: Path, y: np.ndarray, loss: Any, units: int = 1, activation: str | None = None, **given: Any) -> Any:
    import keras

    net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units, activation=activation)])
    net.compile("sgd", loss)
    rudel.fit(net, X, y, run=path / "run", verbose=False, **given)
    return read_run(path / "run")


def pinball(truth: Any, predicted: Any) -> Any:
    from keras import ops

    return ops.mean(ops.maximum(0.9 * (truth - predicted), -0.1 * (truth - predicted)))


@pytest.mark.parametrize("loss", ["mse", "mae", "huber", "log_cosh", pinball])
def test_numbers_with_a_loss_for_numbers(tmp_path: Path, loss: Any) -> None:
    run = trained(tmp_path, NUMBERS, loss)
    assert run.regression is not None
    assert run.predictions is None
    assert list(run.regression) == ["train"]
    assert run.regression["train"].x is None


@pytest.mark.parametrize("shape", [(64,), (64, 1)])
def test_targets_with_and_without_a_last_axis(tmp_path: Path, shape: tuple[int, ...]) -> None:
    run = trained(tmp_path, NUMBERS.reshape(shape), "mse", validation=(X[:9], NUMBERS[:9].reshape((9, *shape[1:]))))
    assert run.regression is not None
    assert run.regression["validation"].truth.shape == (9, 1)


def test_whole_numbers_may_be_predicted_too(tmp_path: Path) -> None:
    assert trained(tmp_path, np.rint(NUMBERS).astype("int32"), "mse").regression is not None


@pytest.mark.parametrize(
    ("y", "loss", "units", "activation"),
    [
        (LABELS, "sparse_categorical_crossentropy", 2, "softmax"),
        (LABELS, "binary_crossentropy", 1, "sigmoid"),
        (LABELS.astype("float32"), "binary_crossentropy", 1, "sigmoid"),
        (np.eye(2, dtype="float32")[LABELS], "mse", 2, "softmax"),
        (2 * LABELS - 1, "hinge", 1, None),
        (LABELS, pinball, 1, None),
    ],
    ids=["sparse", "binary", "binary floats", "one-hot", "hinge", "own loss"],
)
def test_classes_are_not_numbers(tmp_path: Path, y: Any, loss: Any, units: int, activation: str | None) -> None:
    assert trained(tmp_path, y, loss, units, activation).regression is None


def test_a_large_dataset_is_sampled(tmp_path: Path) -> None:
    import keras

    x = np.random.default_rng(1).normal(size=(5_000, 3)).astype("float32")
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    net.compile("sgd", "mse")
    rudel.fit(net, x, x, run=tmp_path / "run", batch_size=500, verbose=False)
    answers = read_run(tmp_path / "run").regression
    assert answers is not None
    assert answers["train"].truth.shape == (2000, 3)
    assert "2,000 training examples, chosen at random" in (tmp_path / "run/report.html").read_text()


def test_a_column_with_missing_numbers_is_enough(tmp_path: Path) -> None:
    table = {"area": [None if n % 10 == 0 else n for n in range(80)], "rent": [3.5 * n for n in range(80)]}
    rudel.train_recipe("table", data=table, options={"target": "rent"}, run=tmp_path / "run", steps=1, verbose=False)
    run = read_run(tmp_path / "run")
    assert run.summary is not None
    assert run.regression is not None
    assert run.regression["train"].x is None


@pytest.mark.filterwarnings("ignore:The run can be opened only by")
def test_a_model_that_cannot_predict_has_no_predictions(tmp_path: Path) -> None:
    import keras

    @keras.saving.register_keras_serializable("tests")
    class Silent(keras.Sequential):
        def predict_step(self, *given: object) -> Any:
            raise ValueError("ask me later")

    net = Silent([keras.Input((2,)), keras.layers.Dense(1)])
    net.compile("sgd", "mse")
    with pytest.warns(UserWarning, match=r"There is no predictions.npz: `predict_step` of .* cannot be compiled: ask"):
        rudel.fit(net, X, NUMBERS, run=tmp_path / "run", verbose=False)
    run = read_run(tmp_path / "run")
    assert run.summary is not None
    assert run.regression is None
