"""`rudel.fit` takes the arguments of `keras.Model.fit`: each means the same, or is refused by a sentence."""

import inspect
from typing import Any

import keras
import numpy as np
import pytest

import rudel
from rudel.backend import set_seed
from rudel.errors import DataError, OptionError


class Counting(keras.callbacks.Callback):
    """Counts the epochs."""

    epochs = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs += 1


X = np.linspace(-1, 1, 64 * 6, dtype="float32").reshape(64, 6)
Y = np.arange(64, dtype="int32") % 3

SAME: dict[str, list[Any]] = {
    "x": [X],
    "y": [Y, Y[:, None]],
    "batch_size": [16, None],
    "epochs": [2],
    "verbose": [0, "auto"],
    "callbacks": [Counting(), [Counting()], None],
    "validation_split": [0.25],
    "validation_data": [(X[:40], Y[:40]), [X[:40], Y[:40]], (X[:40], Y[:40], np.linspace(0, 1, 40, dtype="float32"))],
    "shuffle": [False],
    "class_weight": [{0: 0.5, 2: 3.0}, None],
    "sample_weight": [np.linspace(0, 2, 64, dtype="float32")],
    "initial_epoch": [0, 1, 2],
    "steps_per_epoch": [2, None],
    "validation_steps": [1, None],
    "validation_batch_size": [16],
    "validation_freq": [1],
}
REFUSED = {
    "callbacks": (keras.callbacks.CallbackList([]), "give a list of the callbacks"),
    "validation_split": (1.5, "is a fraction"),
    "shuffle": ("batch", "must be True or False"),
    "initial_epoch": (-1, "whole number of at least 0"),
    "steps_per_epoch": (0, "whole number of at least 1"),
    "validation_steps": (-1, "whole number of at least 1"),
    "validation_freq": (2, "eval_every=..."),
    "class_weight": ([1, 2, 3], "is a dict"),
    "verbose": (3, "'auto', True, False, 0, 1 or 2"),
}
BASE = {"x": X, "y": Y, "batch_size": 16, "shuffle": False, "verbose": 0, "epochs": 2}


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)[1:]


def test_the_signature_begins_with_that_of_keras() -> None:
    theirs = parameters(keras.Model.fit)
    assert parameters(rudel.fit)[: len(theirs)] == theirs
    assert set(SAME) == set(theirs)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in SAME.items() for value in values])
def test_an_argument_means_the_same(classifier: Any, name: str, value: Any) -> None:
    arguments = BASE | {name: value}
    if name in ("validation_steps", "validation_batch_size"):
        arguments["validation_data"] = X, Y
    results = []
    fits: list[Any] = [keras.Model.fit, rudel.fit]
    for fit in fits:
        set_seed(0)
        model = classifier(keras.optimizers.SGD(0.1))
        results.append((fit(model, **arguments).history, model.get_weights()))
    (theirs, their_weights), (ours, our_weights) = results
    assert set(ours) == set(theirs)
    for metric, values in theirs.items():
        np.testing.assert_allclose(ours[metric], values, rtol=1e-4, err_msg=metric)
    for a, b in zip(our_weights, their_weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_mean_the_same_is_refused(classifier: Any, name: str) -> None:
    value, sentence = REFUSED[name]
    with pytest.raises(OptionError, match=sentence) as caught:
        rudel.fit(classifier(), **(BASE | {name: value}))
    assert str(caught.value).startswith((f"`{name}`", f"`{name}=`"))


def test_arguments_go_by_position_as_in_keras(classifier: Any) -> None:
    callback = Counting()
    rudel.fit(classifier(), X, Y, 16, 3, 0, callback)
    assert callback.epochs == 3


def test_one_hot_labels_have_weights_by_class(classifier: Any) -> None:
    losses = []
    one_hot = np.eye(3, dtype="float32")[Y]
    for y, loss in ((Y, "sparse_categorical_crossentropy"), (one_hot, "categorical_crossentropy")):
        set_seed(0)
        losses.append(rudel.fit(classifier(loss=loss), X, y, class_weight={1: 4.0}).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"class_weight": {0: 1.0}, "sample_weight": np.ones(64, "float32")}, "not both"),
        ({"validation_split": 0.2, "validation": 0.2}, "not both"),
        ({"steps_per_epoch": 2, "eval_every": 3}, "not both"),
        ({"x": None}, "There is nothing to train on"),
    ],
)
def test_what_contradicts_itself_is_refused(classifier: Any, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        rudel.fit(classifier(), **(BASE | arguments))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"callbacks": Counting}, "is not a Keras callback: give instances"),
        ({"class_weight": {"none": 2.0}}, "a weight for `none`, and classes have no names here: give their numbers"),
        ({"y": Y.astype(str), "class_weight": {"none": 2.0}}, "a weight for `none`, and the classes are 0, 1, 2"),
        ({"y": None}, "There are no targets, and the model has a loss that needs them: give `y`"),
        ({"validation_data": X}, "The validation data has no targets"),
        ({"x": "photos", "y": None}, "The training data is a str: give NumPy arrays"),
    ],
)
def test_a_mistake_is_one_sentence(classifier: Any, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(rudel.RudelError, match=sentence):
        rudel.fit(classifier(), **(BASE | arguments))


@pytest.mark.parametrize("call", [rudel.fit, rudel.evaluate, lambda model, x, y: rudel.predict(model, x)])
def test_what_is_not_a_model_is_refused(call: Any) -> None:
    with pytest.raises(rudel.RudelError, match=r"The first argument must be a keras\.Model, not 'model'"):
        call("model", X, Y)


def test_a_split_that_leaves_nothing_is_refused(classifier: Any) -> None:
    with pytest.raises(DataError, match="leaves one side empty"):
        rudel.fit(classifier(), X, Y, validation_split=0.999)
