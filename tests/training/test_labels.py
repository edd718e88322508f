"""Labels in the forms that people have: strings, integers, one-hot; and steps written for other backends."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import rudel
from rudel.backend import set_seed
from rudel.errors import DataError, ModelError

NAMES = np.array(["zebra", "ant", "cat"])


@pytest.mark.parametrize("form", [list, np.asarray, lambda labels: np.array(labels, object), lambda y: y[:, None]])
def test_strings_are_numbered_and_name_the_classes(classifier: Any, blobs: Any, tmp_path: Path, form: Any) -> None:
    x, y = blobs
    labels, numbers = NAMES[y], np.array([2, 0, 1])[y]
    weights, histories = [], []
    for targets, class_weight in ((form(labels), {"ant": 3.0}), (numbers, {0: 3.0})):
        set_seed(0)
        model = classifier()
        run = tmp_path / "run" if targets is not numbers else None
        history = rudel.fit(model, x, targets, validation=(x, targets), class_weight=class_weight, run=run)
        weights.append(model.get_weights())
        histories.append(history.history)
    assert histories[0] == histories[1]
    assert all(np.array_equal(a, b) for a, b in zip(*weights, strict=True))
    assert json.loads((tmp_path / "run/config.json").read_text())["class_names"] == ["ant", "cat", "zebra"]


def test_strings_are_refused_where_nobody_knows_the_classes(classifier: Any, blobs: Any) -> None:
    x, y = blobs
    with pytest.raises(DataError, match=r"evaluation y are strings: give .* its place in `class_names`"):
        rudel.evaluate(classifier(), x, NAMES[y])


def test_a_class_may_be_held_out_as_a_whole(classifier: Any, blobs: Any) -> None:
    x, y = blobs
    labels = NAMES[y % 2]
    labels[np.random.default_rng(5).permutation(192)[0]] = NAMES[2]  # the first one that this seed holds out
    history = rudel.fit(classifier(), x, labels, validation=0.2, seed=5).history
    assert np.isfinite(history["val_loss"]).all()


def test_strings_become_one_hot_where_the_loss_takes_that(classifier: Any, blobs: Any) -> None:
    x, y = blobs
    histories = []
    for targets in (NAMES[y], np.eye(3, dtype="float32")[np.array([2, 0, 1])[y]]):
        set_seed(0)
        model = classifier(loss="categorical_crossentropy")
        histories.append(rudel.fit(model, x, targets, validation=(x, targets)).history)
    assert histories[0] == histories[1]


def test_names_of_a_data_set_give_the_order(classifier: Any, blobs: Any) -> None:
    x, y = blobs
    data = rudel.Dataset(rudel.Examples(x, NAMES[y]), class_names=NAMES.tolist())
    histories = []
    for train in (data, (x, y)):
        set_seed(0)
        histories.append(rudel.fit(classifier(), train).history)
    assert histories[0] == histories[1]


@pytest.mark.parametrize(
    ("train", "validation", "sentence"),
    [
        (NAMES, [*NAMES[[0, 1]].tolist(), "cow"], "'cow' in validation y is not one of the 3 classes: ant, cat, zebra"),
        (np.arange(3), NAMES, "validation y are strings, and those of the training data are not"),
    ],
)
def test_a_string_that_is_no_class_is_refused(classifier: Any, train: Any, validation: Any, sentence: str) -> None:
    x = np.zeros((3, 6), "float32")
    with pytest.raises(DataError, match=sentence):
        rudel.fit(classifier(), x, train, batch_size=1, validation=(x, validation))


@pytest.mark.parametrize(
    ("loss", "one_hot", "sentence"),
    [
        ("sparse_categorical_crossentropy", True, "one-hot, .* give y.argmax"),
        (keras.losses.SparseCategoricalCrossentropy(), True, "compile with categorical_crossentropy"),
        ("categorical_crossentropy", False, "are integers .* compile with sparse_categorical_crossentropy"),
        (keras.losses.CategoricalCrossentropy(), False, r"to_categorical\(y, 3\)"),
    ],
)
def test_a_loss_for_other_labels_is_recognised(
    classifier: Any, blobs: Any, loss: Any, one_hot: bool, sentence: str
) -> None:
    x, y = blobs
    with pytest.raises(DataError, match=sentence):
        rudel.fit(classifier(loss=loss), x, np.eye(3, dtype="float32")[y] if one_hot else y)


def test_a_step_written_for_tensorflow_is_recognised(blobs: Any) -> None:
    class Own(keras.Sequential):
        def train_step(self, data: Any) -> Any:  # type: ignore[override]
            return {"loss": 0.0}

    model = Own([keras.Input((6,)), keras.layers.Dense(3)])
    model.compile(optimizer="sgd", loss="mse")
    with pytest.raises(ModelError, match=r"`train_step\(self, data\)` .* `train_step\(self, state, data\)`"):
        rudel.fit(model, *blobs)
