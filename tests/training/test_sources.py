"""`rudel.fit` on what other libraries feed to Keras: the weights are those of Keras' own `fit`."""

import contextlib
import importlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pandas
import pytest
from distributed import Client, LocalCluster

import rudel
from rudel.backend import set_seed
from rudel.data.batch_source import training_stream
from rudel.errors import DataError, ModelError, OptionError
from rudel.loop.batch_blocks import BatchBlocks
from rudel.watch.watched import Watched

X = np.random.default_rng(0).normal(size=(100, 8)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
WEIGHTS = np.linspace(0.5, 1.5, 100).astype("float32")
SIZE = 16


def net() -> Any:
    set_seed(0)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def test_a_run_keeps_the_range_of_the_first_inputs(tmp_path: Path) -> None:
    rudel.fit(net(), Numbered(), steps=1, run=tmp_path / "run")
    first = X[:SIZE].min(), X[:SIZE].max()
    assert json.loads((tmp_path / "run/config.json").read_text())["input_range"] == pytest.approx(first)


class Numbered(keras.utils.PyDataset):
    """Batches by number, the last of 4 examples, with weights; remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int | str] = []

    def __len__(self) -> int:
        return -(-len(X) // SIZE)

    def __getitem__(self, number: int) -> Any:
        self.calls.append(number)
        rows = slice(number * SIZE, (number + 1) * SIZE)
        return X[rows], Y[rows], WEIGHTS[rows]

    def on_epoch_begin(self) -> None:
        self.calls.append("begin")

    def on_epoch_end(self) -> None:
        self.calls.append("end")


class Uneven(Numbered):
    """Batches of 16, 16, 5, 16, 5, 16 and 4 examples."""

    def __getitem__(self, number: int) -> Any:
        return tuple(part[: 5 if number in (2, 4) else SIZE] for part in super().__getitem__(number))


class Meeting(Numbered):
    """Six batches, each of which is had only while another one is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.workers, self.both = 2, threading.Barrier(2)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> Any:
        if self.calls:  # an epoch has begun
            self.both.wait(60)
        return super().__getitem__(number)


class Padded(keras.utils.PyDataset):
    """Sequences of numbers, padded to the longest of their batch."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> Any:
        rows = slice(number * SIZE, (number + 1) * SIZE)
        return X[rows, : (8, 5, 5, 8, 3, 5)[number], None], Y[rows]


def recurrent() -> Any:
    """A model for sequences of any length."""
    set_seed(0)
    layers = keras.layers
    model = keras.Sequential([keras.Input((None, 1)), layers.SimpleRNN(4), layers.Dense(2, activation="softmax")])
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def in_this_order(source: Any, numbers: list[int]) -> Iterator[Any]:
    return (source[number] for number in numbers)


class Loader:
    """What a PyTorch `DataLoader` is to those who read it: a length, and lists of what has `detach`."""

    def __len__(self) -> int:
        return -(-len(X) // SIZE)

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, len(X), SIZE):
            yield [_Tensor(X[first : first + SIZE]), _Tensor(Y[first : first + SIZE].astype("int64"))]


class _Tensor:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def detach(self) -> "_Tensor":
        return self

    def cpu(self) -> np.ndarray:
        return self.array


def endless() -> Iterator[Any]:
    while True:
        for first in range(0, 96, SIZE):
            yield X[first : first + SIZE], Y[first : first + SIZE]


@contextlib.contextmanager
def two_hosts() -> Iterator[Client]:
    """A client of two workers in this process."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def same(one: Any, other: Any) -> bool:
    return all(np.allclose(a, b, atol=1e-6) for a, b in zip(one.get_weights(), other.get_weights(), strict=True))


def test_batches_by_number_train_and_evaluate_as_in_keras() -> None:
    mine, theirs, source = net(), net(), Numbered()
    history = rudel.fit(mine, source, epochs=3, shuffle=False, validation_data=Numbered(), verbose=0).history
    keras_source = Numbered()
    expected = theirs.fit(keras_source, epochs=3, shuffle=False, validation_data=Numbered(), verbose=0).history
    assert same(mine, theirs)
    for name, values in expected.items():
        assert history[name] == pytest.approx(values, rel=1e-5)
    assert source.calls[1:] == keras_source.calls[2:]  # the first batch is looked at before


def test_the_workers_of_a_source_read_at_once_and_its_batches_stay_in_order() -> None:
    ours, expected, source = net(), net(), Meeting()
    rudel.fit(ours, source, epochs=2, shuffle=False)
    rudel.fit(expected, in_this_order(Numbered(), [*range(6)] * 2), steps_per_epoch=6, epochs=2)
    assert same(ours, expected)
    marks = [place for place, call in enumerate(source.calls) if isinstance(call, str)]
    assert [source.calls[place] for place in marks] == ["end", "begin", "end", "begin", "end"]
    assert [set(source.calls[marks[i] + 1 : marks[i + 1]]) for i in (1, 3)] == [set(range(6))] * 2


class Harder(Numbered):
    """Batches of a level that the end of an epoch raises."""

    def __init__(self) -> None:
        super().__init__()
        self.level, self.levels = 0, []

    def __getitem__(self, number: int) -> Any:
        x, y, weights = super().__getitem__(number)
        self.levels.append(self.level)
        return x + np.float32(self.level), y, weights

    def on_epoch_end(self) -> None:
        super().on_epoch_end()
        self.level += 1


def test_a_source_that_changes_at_the_end_of_an_epoch_trains_as_in_keras() -> None:
    mine, theirs, source, keras_source = net(), net(), Harder(), Harder()
    rudel.fit(mine, source, epochs=4, shuffle=False, validation_data=(X, Y), verbose=0)
    theirs.fit(keras_source, epochs=4, shuffle=False, validation_data=(X, Y), verbose=0)
    assert same(mine, theirs)
    assert source.levels[-28:] == keras_source.levels[-28:]  # the first batch is looked at before
    assert len(set(source.levels[-28:])) == 4


def test_a_source_that_changes_at_the_end_of_an_epoch_validates_as_in_keras() -> None:
    given: Any = {"epochs": 3, "verbose": 0, "shuffle": False}
    mine = rudel.fit(net(), X, Y, validation_data=Harder(), **given).history
    theirs = net().fit(X, Y, validation_data=Harder(), **given).history
    np.testing.assert_allclose(mine["val_loss"], theirs["val_loss"], rtol=1e-5)


def test_a_source_that_changes_and_cannot_be_validated_on_is_refused_before_the_first_step() -> None:
    class Wider(Harder):
        def __getitem__(self, number: int) -> Any:
            x, *others = super().__getitem__(number)
            return np.hstack([x, x]), *others

    begun: list[int] = []
    callback = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: begun.append(epoch))
    with pytest.raises(rudel.RudelError, match=r"`test_step` .* cannot be compiled"):
        rudel.fit(net(), X, Y, validation=Wider(), callbacks=[callback], verbose=0)
    assert not begun


def test_epochs_end_for_a_source_wherever_evaluations_come(tmp_path: Path) -> None:
    mine, theirs, again, source, keras_source = net(), net(), net(), Harder(), Harder()
    rudel.fit(mine, source, epochs=4, eval_every=3, shuffle=False, verbose=0)  # 7 steps an epoch
    theirs.fit(keras_source, epochs=4, shuffle=False, verbose=0)
    assert same(mine, theirs)
    assert source.calls[1:] == keras_source.calls[2:]  # the first batch is looked at before
    for steps in (12, 28):
        rudel.fit(again, Harder(), steps=steps, eval_every=3, shuffle=False, run=tmp_path, resume=True, verbose=0)
    for one, other in zip(mine.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_slow_source_is_trained_on_as_it_is_read() -> None:
    class Slow(Numbered):
        def __len__(self) -> int:
            return 60

        def __getitem__(self, number: int) -> Any:
            time.sleep(0.03)  # like reading a file
            return super().__getitem__(number % 6)

    read: list[int] = []
    source = Slow()
    note = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: read.append(len(source.calls)))
    rudel.fit(net(), source, callbacks=[note], verbose=0)
    assert len(read) == 60
    assert read[0] < 40


@pytest.mark.parametrize(("kind", "model"), [(Uneven, net), (Padded, recurrent)])
def test_batches_of_any_size_and_shape_are_a_step_each_in_an_order_by_the_seed(
    kind: Callable[[], Any], model: Callable[[], Any]
) -> None:
    class Remembers(kind):  # type: ignore[valid-type, misc]  # a class, that pyright takes for a function
        def __init__(self) -> None:
            super().__init__()
            self.order: list[int] = []

        def __getitem__(self, number: int) -> Any:
            self.order.append(number)
            return super().__getitem__(number)

    mine, theirs, source = model(), model(), Remembers()
    history = rudel.fit(mine, source, epochs=3, validation_data=kind(), seed=3, verbose=0).history
    order, length = source.order[1:], len(source)
    epochs = [order[i : i + length] for i in range(0, 3 * length, length)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(length))] * 3
    assert len(set(map(tuple, epochs))) == 3
    batches = in_this_order(kind(), order)
    expected = theirs.fit(
        batches, epochs=3, steps_per_epoch=length, shuffle=False, validation_data=kind(), verbose=0
    ).history
    assert same(mine, theirs)
    for name, values in expected.items():
        assert history[name] == pytest.approx(values, rel=1e-5)
    assert rudel.evaluate(mine, kind()) == pytest.approx(theirs.evaluate(kind(), return_dict=True, verbose=0), rel=1e-5)
    np.testing.assert_allclose(rudel.predict(mine, kind()), theirs.predict(kind(), verbose=0), rtol=1e-5, atol=1e-6)


def test_uneven_batches_of_an_iterable_train_as_in_keras() -> None:
    class Again:
        def __iter__(self) -> Iterator[Any]:
            return in_this_order(Uneven(), list(range(7)))

    mine, theirs = net(), net()
    rudel.fit(mine, Again(), epochs=2, verbose=0)
    theirs.fit(Uneven(), epochs=2, shuffle=False, verbose=0)
    assert same(mine, theirs)


def test_epochs_of_other_lengths_than_a_pass_end_for_the_source_as_in_keras() -> None:
    mine, theirs, source, keras_source = net(), net(), Numbered(), Numbered()
    rudel.fit(mine, source, epochs=4, steps_per_epoch=7, shuffle=False, verbose=0)
    theirs.fit(keras_source, epochs=4, steps_per_epoch=7, shuffle=False, verbose=0)
    assert same(mine, theirs)
    assert source.calls[1:] == keras_source.calls[2:]
    source = Numbered()
    rudel.fit(net(), source, epochs=2, steps_per_epoch=10, verbose=0)
    assert [source.calls[1:].index(call) for call in ("end", "begin")] == [0, 1]
    assert sorted(source.calls[3:10]) == list(range(7))
    assert source.calls[13] == "end"
    assert sorted([*source.calls[10:13], *source.calls[15:19]]) == list(range(7))


def test_an_endless_source_by_number_continues() -> None:
    class Endless(Numbered):
        @property
        def num_batches(self) -> Any:
            return None

        def __getitem__(self, number: int) -> Any:
            return super().__getitem__(number % 7)

    mine, theirs = net(), net()
    rudel.fit(mine, Endless(), epochs=2, steps_per_epoch=10, verbose=0)
    theirs.fit(Endless(), epochs=2, steps_per_epoch=10, shuffle=False, verbose=0)
    assert same(mine, theirs)


def test_an_iterable_trains_as_in_keras() -> None:
    mine, theirs = net(), net()
    rudel.fit(mine, Loader(), epochs=2, verbose=0)
    theirs.fit(X, Y, SIZE, 2, shuffle=False, verbose=0)
    assert same(mine, theirs)


def test_a_generator_continues_over_epochs() -> None:
    mine, theirs = net(), net()
    rudel.fit(mine, endless(), epochs=3, steps_per_epoch=4, verbose=0)
    theirs.fit(X[:96], Y[:96], SIZE, 2, shuffle=False, verbose=0)
    assert same(mine, theirs)


def read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


@pytest.mark.parametrize(
    "given", [np.asarray, read_only, memoryview, _Tensor, lambda array: pandas.DataFrame(array, copy=False)]
)
def test_a_generator_may_write_its_next_batch_into_the_same_memory(given: Callable[[np.ndarray], Any]) -> None:
    def batches(x: np.ndarray, y: np.ndarray) -> Iterator[Any]:
        for first in range(0, 96, SIZE):
            x[:], y[:] = X[first : first + SIZE], Y[first : first + SIZE]
            yield given(x), y

    taken = training_stream(batches(X[:SIZE].copy(), Y[:SIZE].copy()), 6).in_memory()
    np.testing.assert_array_equal(taken.x, X[:96])
    np.testing.assert_array_equal(taken.y, Y[:96])


def test_a_tensorflow_pipeline_trains_as_in_keras(tmp_path: Path, warm_python: str) -> None:
    script = """
import rudel, keras, numpy as np, tensorflow as tf
from distributed import Client, LocalCluster
x = np.random.default_rng(0).normal(size=(100, 8)).astype("float32")
y = (x[:, 0] > 0).astype("int64")
def net():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, "sigmoid")])
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy")
    return model
source = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
lengths = tf.data.Dataset.from_tensor_slices([16, 16, 5, 16, 4])
x_there, y_there = tf.constant(x), tf.constant(y)
uneven = lengths.map(lambda n: (x_there[:n], y_there[:n]))
even = source.unbatch().batch(16, drop_remainder=True)
for data, steps in (source, None), (source.repeat(), 9), (even, None), (uneven, None):
    mine, theirs = net(), net()
    rudel.fit(mine, data, epochs=2, steps_per_epoch=steps, validation_data=source.take(2), verbose=0)
    theirs.fit(data, epochs=2, steps_per_epoch=steps, shuffle=False, verbose=0)
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(mine.get_weights(), theirs.get_weights())), data
with (
    LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
    Client(cluster) as client,
):
    losses = rudel.fit(net(), source, epochs=20, client=client, verbose=0).history["loss"]
assert losses[-1] < 0.9 * losses[0], losses
try:
    rudel.fit(mine, source.repeat())
except rudel.RudelError as error:
    print(error)
"""
    done = subprocess.run([warm_python, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "does not say how many batches it has: give `steps_per_epoch`." in done.stdout


class _Tensors:
    """What a PyTorch `TensorDataset` is."""

    def __init__(self, *tensors: np.ndarray) -> None:
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(tensor[index] for tensor in self.tensors)


class _Scaled(_Tensors):
    """One that changes its rows."""

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        x, y = super().__getitem__(index)
        return x / 2, y


def default_collate(rows: list[tuple[np.ndarray, np.ndarray]]) -> list[_Tensor]:
    return [_Tensor(np.stack(part)) for part in zip(*rows, strict=True)]


class _LoaderOfTensors:
    """What a `DataLoader` over one is."""

    num_workers, batch_size, collate_fn = 0, SIZE, staticmethod(default_collate)

    def __init__(self, dataset: _Tensors) -> None:
        self.dataset = dataset
        rows = range(len(X))
        self.batch_sampler = [rows[first : first + SIZE] for first in rows[::SIZE]]

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        return (self.collate_fn([self.dataset[row] for row in rows]) for rows in self.batch_sampler)


def test_tensors_that_a_data_set_changes_are_not_read_past_it() -> None:
    found = training_stream(_LoaderOfTensors(_Scaled(X, Y)), None).in_memory()
    np.testing.assert_array_equal(found.x, X / 2)
    np.testing.assert_array_equal(found.y, Y)


@pytest.mark.others("torch")
@pytest.mark.parametrize("kind", ["tensors", "rows", "copied"])
def test_a_pytorch_loader_trains_as_in_keras(kind: str) -> None:
    data = importlib.import_module("torch.utils.data")
    tensor = importlib.import_module("torch").from_numpy
    mine, theirs = net(), net()
    tensors = data.TensorDataset(tensor(X), tensor(Y.astype("int64")))
    collate = {"collate_fn": lambda rows: data.default_collate(rows)} if kind == "copied" else {}
    loader = data.DataLoader([*tensors] if kind == "rows" else tensors, batch_size=SIZE, **collate)
    rudel.fit(mine, loader, epochs=2, verbose=0)
    theirs.fit(X, Y, SIZE, 2, shuffle=False, verbose=0)
    assert same(mine, theirs)
    shuffled = training_stream(data.DataLoader(tensors, batch_size=SIZE, shuffle=True), None).in_memory()
    assert not np.array_equal(shuffled.x, X)
    np.testing.assert_array_equal(np.sort(shuffled.x, axis=0), np.sort(X, axis=0))
    with two_hosts() as client:
        losses = rudel.fit(net(), loader, epochs=20, client=client, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.others("datasets")
@pytest.mark.filterwarnings("default")  # of what `datasets` imports
def test_a_hugging_face_data_set_trains_alone_and_on_two_hosts() -> None:
    datasets = importlib.import_module("datasets")
    kinds = {"label": datasets.ClassLabel(names=["low", "high"]), "x": datasets.Array2D((2, 4), "float32")}
    rows = {"label": Y.tolist(), "x": X.reshape(-1, 2, 4)}
    data = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds)).train_test_split(0.2, seed=0)

    def flat() -> Any:
        set_seed(0)
        model = keras.Sequential([keras.Input((2, 4)), keras.layers.Flatten(), keras.layers.Dense(2)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
        return model

    with two_hosts() as client:
        for where in (None, client):
            history = rudel.fit(flat(), data["train"], epochs=30, validation_data=data["test"], verbose=0, client=where)
            assert history.history["val_loss"][-1] < 0.8 * history.history["val_loss"][0]
    with pytest.raises(DataError, match="has no column `score`: it has label, x"):
        rudel.fit(flat(), data["train"], "score")
    with pytest.raises(DataError, match=r"Which of the columns x has the targets\? Name it"):
        rudel.fit(flat(), data["train"].remove_columns("label"))
    turned = data["test"].cast_column("label", datasets.ClassLabel(names=["high", "low"]))
    with pytest.raises(DataError, match=r"validation data are high, low, and those of the training data low, high: "):
        rudel.fit(flat(), data["train"], validation_data=turned)
    with pytest.raises(DataError, match=r"the data sets train, test: give one of them, such as data\['train'\]"):
        rudel.fit(flat(), data)
    with pytest.raises(DataError, match=r"A column of a Hugging Face data set cannot be given by itself"):
        rudel.fit(flat(), data["train"]["x"], data["train"]["label"])
    alike = turned.align_labels_with_mapping({"low": 0, "high": 1}, "label")
    rudel.fit(flat(), data["train"], validation_data=alike, epochs=1, verbose=0)


@pytest.mark.others("datasets")
@pytest.mark.filterwarnings("default")  # of what `datasets` imports
def test_a_hugging_face_data_set_is_evaluated_and_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = importlib.import_module("datasets").Dataset.from_dict({"x": X, "label": Y})
    model = net()
    expected = rudel.evaluate(model, X, Y)
    for found in (data, data.with_format("numpy")):
        assert rudel.evaluate(model, found) == expected
        assert rudel.evaluate(model, found, "label") == expected
        np.testing.assert_array_equal(rudel.predict(model, found), rudel.predict(model, X))
    np.testing.assert_array_equal(rudel.predict(model, data.remove_columns("label")), rudel.predict(model, X))
    monkeypatch.setattr("rudel.data.hugging_face._MOST_IN_MEMORY", 0)
    assert rudel.evaluate(model, data) == expected
    np.testing.assert_array_equal(rudel.predict(model, data), rudel.predict(model, X))
    with pytest.raises(OptionError, match="`y` is the name of a column"):
        rudel.evaluate(model, data, Y)
    with pytest.raises(DataError, match=r"the columns x, z, and the model takes one input"):
        rudel.predict(model, data.remove_columns("label").add_column("z", Y.tolist()))


def test_two_hosts_read_a_pass_into_memory() -> None:
    with two_hosts() as client:
        history = rudel.fit(net(), Numbered(), epochs=20, validation_data=Numbered(), client=client, verbose=0).history
    assert history["val_loss"][-1] < 0.8 * history["val_loss"][0]


@pytest.mark.parametrize(("kind", "model"), [(Numbered, net), (Loader, net), (Uneven, net), (Padded, recurrent)])
def test_a_source_with_a_length_is_resumed(kind: Callable[[], Any], model: Callable[[], Any], tmp_path: Path) -> None:
    whole, again, run = model(), model(), tmp_path / "run"
    rudel.fit(whole, kind(), epochs=3, verbose=0)
    rudel.fit(model(), kind(), steps=9, run=run, validation_data=kind(), verbose=0)  # in the middle of the second epoch
    rudel.fit(again, kind(), epochs=3, run=run, validation_data=kind(), resume=True, verbose=0)
    for one, other in zip(whole.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    counted = {Numbered: 300, Loader: 300, Uneven: 3 * 78, Padded: 3 * 96}[kind]
    assert json.loads((run / "summary.json").read_text())["samples"] == counted
    assert (run / "predictions.npz").exists()
    watched = Watched(run).document()
    assert (watched["step"], watched["epoch"]) == (watched["total"], watched["epochs"])


def test_a_source_resumes_with_the_state_that_its_epochs_leave(tmp_path: Path) -> None:
    class Own(Numbered):
        """Shuffles its examples itself."""

        def __init__(self) -> None:
            super().__init__()
            self.random = np.random.default_rng(0)
            self.rows = np.arange(100)

        def __getitem__(self, number: int) -> Any:
            rows = self.rows[number * SIZE : (number + 1) * SIZE]
            return X[rows], Y[rows]

        def on_epoch_end(self) -> None:
            self.random.shuffle(self.rows)

    whole, theirs, again, run = net(), net(), net(), tmp_path / "run"
    rudel.fit(whole, Own(), epochs=3, shuffle=False, verbose=0)
    theirs.fit(Own(), epochs=3, shuffle=False, verbose=0)
    assert same(whole, theirs)
    rudel.fit(net(), Own(), steps=9, shuffle=False, run=run, verbose=0)
    rudel.fit(again, Own(), epochs=3, shuffle=False, run=run, resume=True, verbose=0)
    assert same(whole, again)


def test_predictions_come_in_the_order_in_which_a_source_was_made() -> None:
    class Shuffled(Numbered):
        def __init__(self) -> None:
            super().__init__()
            self.rows = np.arange(100)

        def __getitem__(self, number: int) -> Any:
            return X[self.rows[number * SIZE : (number + 1) * SIZE]]

        def on_epoch_end(self) -> None:
            self.rows = self.rows[::-1]

    model, quiet = net(), {"verbose": 0}
    theirs = model.predict(Shuffled(), **quiet)
    np.testing.assert_allclose(rudel.predict(model, Shuffled()), theirs, rtol=1e-5, atol=1e-6)


def test_examples_are_read_once_in_their_order() -> None:
    stream = training_stream(Numbered(), None)
    assert len(stream) == 100
    np.testing.assert_array_equal(stream.take(np.array([0])).x, X[:1])
    over = np.array([97, 98, 99, 0, 1])
    np.testing.assert_array_equal(stream.take(np.arange(20, 97)).x, X[20:97])
    np.testing.assert_array_equal(stream.take(over).x, X[over])
    np.testing.assert_array_equal(stream.take(slice(2, 40)).y, Y[2:40])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"y": Y}, "A Numbered brings its own targets and weights"),
        ({"batch_size": 8}, "The batch size is that of the Numbered"),
        ({"validation_split": 0.2}, "A Numbered cannot be split"),
        ({"on": "nowhere", "steps_per_epoch": 3}, "take one pass of a Numbered into memory: leave out"),
    ],
)
def test_what_a_source_has_no_use_for_is_refused(
    arguments: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=sentence):
        rudel.fit(net(), Numbered(), **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_generator_without_steps_is_refused() -> None:
    with pytest.raises(OptionError, match="a generator, does not say how many batches it has: give `steps_per_epoch`"):
        rudel.fit(net(), endless())


def test_the_first_validation_batches_are_evaluated_as_in_keras() -> None:
    mine, theirs = net(), net()
    given = {"epochs": 2, "shuffle": False, "validation_data": Uneven(), "validation_steps": 3, "verbose": 0}
    history, expected = rudel.fit(mine, Uneven(), **given).history, theirs.fit(Uneven(), **given).history
    assert history["val_loss"] == pytest.approx(expected["val_loss"], rel=1e-5)
    assert history["val_accuracy"] == pytest.approx(expected["val_accuracy"])


def test_validation_batches_without_a_number_are_refused() -> None:
    with pytest.raises(OptionError, match=r"The validation data, a generator, .* give `validation_steps`"):
        rudel.fit(net(), endless(), steps_per_epoch=2, validation_data=endless())


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (Y[:SIZE].astype(str), r"<U[0-9]+ values: give numbers"),
        (np.ma.masked_equal(Y[:SIZE], 0), r"masked values, which would count like others: give `filled\(\.\.\.\)`"),
        (np.zeros(SIZE, [("a", "f4")]), "structured values: give numbers"),
    ],
)
def test_labels_of_batches_are_numbers(labels: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=f"A source gives {words}"):
        rudel.fit(net(), iter([(X[:SIZE], labels)] * 2), steps_per_epoch=2)


@pytest.mark.parametrize("source", [Numbered, lambda: (Numbered()[i] for i in range(len(Numbered())))])
def test_a_source_is_evaluated_and_predicted(source: Callable[[], Any]) -> None:
    model = net()
    assert rudel.evaluate(model, source()) == pytest.approx(rudel.evaluate(model, X, Y, sample_weight=WEIGHTS))
    np.testing.assert_allclose(rudel.predict(model, source()), rudel.predict(model, X), rtol=1e-5)


def test_batches_that_the_model_cannot_take_are_refused() -> None:
    def batches() -> Iterator[Any]:
        yield X[:4], Y[:4]
        yield X[:4, :3], Y[:4]

    with pytest.raises(ModelError, match=r"received input with shape \(4, 3\)"):
        rudel.fit(net(), batches(), steps_per_epoch=2, verbose=0)


@pytest.mark.parametrize("where", [{"client": "tcp://nowhere:1"}, {"strategy": "mesh"}])
def test_several_hosts_or_devices_refuse_changing_shapes(where: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"examples of the shapes \(3, 1\) and \(5, 1\), and several hosts or devices"):
        rudel.fit(recurrent(), Padded(), **where)


def test_outputs_of_several_shapes_are_refused() -> None:
    inputs = keras.Input((None, 1))
    with pytest.raises(DataError, match=r"outputs have the shapes \(3, 2\) and \(5, 2\)"):
        rudel.predict(keras.Model(inputs, keras.layers.Dense(2)(inputs)), Padded())


def test_few_programs_serve_many_batches() -> None:
    class Late(Padded):
        def __len__(self) -> int:
            return 600

        def __getitem__(self, number: int) -> Any:
            return super().__getitem__(0 if number < 599 else 4)

    stream = training_stream(Late(), None)
    blocks = BatchBlocks(stream, recurrent(), "training", 1200)
    groups = list(blocks.runs(stream.steps(0, 1200, lambda epoch: np.arange(600), blocks.together)))
    runs = [run for group in groups for run in group]
    assert [runs[0].first, *(run.last for run in runs)][:: len(runs)] == [0, 1200]
    assert len({run.block.form for run in runs}) == 2
    assert len(groups) > 2


def test_a_source_that_ends_too_soon_is_refused() -> None:
    with pytest.raises(DataError, match=r"ended after 1 of 3 batches of an epoch: give fewer `steps_per_epoch`"):
        rudel.fit(net(), iter([(X[:SIZE], Y[:SIZE])]), steps_per_epoch=3)


def test_an_evaluation_without_a_batch_is_refused() -> None:
    batches = iter([(X[:SIZE], Y[:SIZE])] * 3)
    with pytest.raises(DataError, match=r"The validation data, a list_iterator, has no batch left: give a source that"):
        rudel.fit(net(), X, Y, epochs=3, validation_data=batches, validation_steps=2, verbose=0)
