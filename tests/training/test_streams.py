"""Training, evaluating and predicting on streams: the same bits as in memory, and only a few blocks are in memory."""

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from processes import LONG

import rudel
from rudel.backend import set_seed
from rudel.data.augmentation import random_zoom_and_shift
from rudel.data.records.writer import write_examples
from rudel.errors import DataError, OptionError
from rudel.loop.feed import feed_of
from rudel.loop.read_ahead import Ahead
from rudel.loop.schedule import Schedule

layers = keras.layers
random = np.random.default_rng(5)
PICTURES = random.integers(0, 256, (330, 12, 12, 1)).astype("uint8")
KINDS = random.integers(0, 3, 330)

pytestmark = pytest.mark.usefixtures("small_blocks")


def convolutional() -> Any:
    set_seed(4)
    model = keras.Sequential(
        [
            keras.Input((12, 12, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(4, 3, strides=2),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def dense() -> Any:
    set_seed(4)
    model = keras.Sequential([keras.Input((12, 12, 1)), layers.Flatten(), layers.Dense(3, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def bits(model: Any) -> str:
    return hashlib.sha256(b"".join(np.array(w).tobytes() for w in model.get_weights())).hexdigest()


def lines(run: Path) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in read]


@pytest.mark.optimized
@pytest.mark.parametrize("augment", [None, random_zoom_and_shift], ids=["plain", "augmented"])
def test_streamed_resumed_and_in_memory_are_the_same_bits(listed: Any, tmp_path: Path, augment: Any) -> None:
    def train(streamed: bool, name: str, **settings: Any) -> Any:
        make = listed if streamed else rudel.Examples
        data = rudel.Dataset(make(PICTURES, KINDS), make(PICTURES[:101], KINDS[:101]), augment=augment)
        model = convolutional()
        rudel.fit(model, data, batch_size=16, run=tmp_path / name, **settings)
        return model

    expected = train(False, "memory", steps=50)  # 20 an epoch
    assert bits(train(True, "streamed", steps=50)) == bits(expected)
    assert lines(tmp_path / "streamed") == lines(tmp_path / "memory")

    class Crash(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                raise InterruptedError

    with pytest.raises(InterruptedError):
        train(True, "resumed", steps=50, checkpoint_every=7, callbacks=[Crash()])
    assert {path.stem for path in (tmp_path / "resumed/checkpoints").iterdir()} == {
        "step-0000000028",
        "step-0000000035",
    }
    resumed = train(True, "resumed", steps=50, resume=True)
    assert bits(resumed) == bits(expected)
    assert lines(tmp_path / "resumed") == lines(tmp_path / "memory")


def test_a_step_reads_what_the_schedule_says_a_few_blocks_ahead(listed: Any) -> None:
    examples_of_a_step, under_way, most = 16, threading.Semaphore(0), []
    stream = listed(PICTURES, KINDS, before=lambda indices: under_way.release())

    class Count(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            most.append(len(stream.asked))

    model = dense()
    rudel.fit(model, stream, epochs=3, batch_size=examples_of_a_step, callbacks=[Count()])
    asked = [indices for indices in stream.asked if len(indices) > 1][1:]  # without what the model was built with
    assert max(len(indices) for indices in asked) <= 2000 // 148 * examples_of_a_step
    together = np.concatenate(asked)
    for epoch in np.split(together, 3):
        assert sorted(epoch) == list(range(len(stream)))
    assert most[0] < len(stream.asked)


def test_a_fraction_of_a_stream_is_held_out_as_of_arrays(listed: Any) -> None:
    streamed, in_memory = dense(), dense()
    one = rudel.fit(streamed, listed(PICTURES, KINDS), validation=0.2, steps=12)
    other = rudel.fit(in_memory, PICTURES, KINDS, validation=0.2, steps=12)
    assert bits(streamed) == bits(in_memory)
    assert one.history == other.history


def test_a_batch_larger_than_the_data_takes_no_more_memory_than_the_data(listed: Any) -> None:
    models = []
    for batch_size in (330, 10**6):
        schedule = Schedule(330, batch_size, 2)
        for data in (listed(PICTURES, KINDS), rudel.Examples(PICTURES, KINDS)):
            block = feed_of(data, schedule, dense()).forms()[0]
            assert {len(block.data[0]), block.order.size} == {330}
            models.append(dense())
            rudel.fit(models[-1], data, epochs=2, batch_size=batch_size)
    assert len({bits(model) for model in models}) == 1


@pytest.mark.parametrize("batch_size", [256, 16, 330])
def test_every_example_is_evaluated_and_asked_about_once(listed: Any, batch_size: int) -> None:
    model, stream = dense(), listed(PICTURES, KINDS)
    expected = rudel.evaluate(model, PICTURES, KINDS, batch_size=batch_size)
    stream.asked.clear()
    assert rudel.evaluate(model, stream, batch_size=batch_size) == expected
    asked = np.concatenate(stream.asked[2:])  # after a batch to build the model, and one example to see its shapes
    assert sorted(asked) == list(range(330))
    found = rudel.predict(model, stream, batch_size=batch_size)
    np.testing.assert_array_equal(found, rudel.predict(model, PICTURES, batch_size=batch_size))


def test_predictions_and_pictures_are_those_of_arrays(listed: Any, tmp_path: Path) -> None:
    answers = []
    for name, make in (("streamed", listed), ("memory", rudel.Examples)):
        data = rudel.Dataset(make(PICTURES, KINDS), make(PICTURES, KINDS), test=make(PICTURES, KINDS))
        rudel.fit(dense(), data, steps=5, run=tmp_path / name)
        answers.append(np.load(tmp_path / name / "predictions.npz"))
    assert set(answers[0]) == set(answers[1]) >= {"examples_x", "truth"}
    for name in answers[0]:
        np.testing.assert_array_equal(answers[0][name], answers[1][name])
    summary = json.loads((tmp_path / "streamed/summary.json").read_text())
    assert 0 <= summary["wait_seconds"] <= summary["train_seconds"]
    assert summary["metrics"]["test_accuracy"] == summary["metrics"]["val_accuracy"]


def test_numbers_can_be_predicted_from_a_stream(listed: Any, tmp_path: Path) -> None:
    x = random.normal(size=(400, 3)).astype("float32")
    model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
    model.compile("adam", "mse")
    y = x.sum(1, keepdims=True)
    rudel.fit(model, rudel.Dataset(listed(x, y), listed(x[:50], y[:50])), run=tmp_path)
    answers = np.load(tmp_path / "predictions.npz")
    assert len(answers["validation_truth"]) == 50
    assert len(answers["train_truth"]) == 400


class TestMistakes:
    def test_an_error_of_the_reader_is_raised_as_it_is(self, listed: Any) -> None:
        def fail(indices: np.ndarray) -> None:
            if 300 in indices:
                raise DataError("shard.tfrecord is truncated at byte 1,234.")

        with pytest.raises(DataError, match=r"^shard\.tfrecord is truncated at byte 1,234\.$"):
            rudel.fit(dense(), listed(PICTURES, KINDS, before=fail), epochs=2, shuffle=False)
        assert not [thread for thread in threading.enumerate() if thread.name == "reader"]

    def test_examples_are_looked_at_when_they_are_read(self, listed: Any) -> None:
        wrong = KINDS.copy()
        wrong[217] = 3
        for streams in ((listed(PICTURES, wrong), None), (listed(PICTURES, KINDS), listed(PICTURES, wrong))):
            with pytest.raises(DataError, match=r"label 3 of example 217 in (training|validation) y is out of range"):
                rudel.fit(dense(), streams[0], validation=streams[1])
        x = np.zeros((330, 4), "float32")
        x[123, 1] = np.nan
        model = keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        with pytest.raises(DataError, match="NaN or an infinity in training x at example 123"):
            rudel.fit(model, listed(x, KINDS))

    def test_a_stream_that_does_not_keep_its_promises_is_told(self, listed: Any) -> None:
        class Short(listed):  # type: ignore[misc]
            def take(self, indices: Any) -> Any:
                found = super().take(indices)
                return found.take(slice(0, 5)) if len(found) > 10 else found

        class Growing(listed):  # type: ignore[misc]
            def take(self, indices: Any) -> Any:
                found = super().take(indices)
                return found if len(self.asked) < 4 else rudel.Examples(found.x[:, 1:], found.y)

        with pytest.raises(DataError, match=r"Short gave 5 examples where .* were asked for"):
            rudel.fit(dense(), Short(PICTURES, KINDS), batch_size=16)
        with pytest.raises(DataError, match=r"stream gives examples of shapes .*11, 12, 1.* all have to be alike"):
            rudel.fit(dense(), Growing(PICTURES, KINDS), batch_size=16)

    def test_what_a_stream_brings_is_not_given_twice(self, listed: Any) -> None:
        with pytest.raises(OptionError, match="A stream brings its own targets"):
            rudel.fit(dense(), listed(PICTURES, KINDS), KINDS)


class TestAhead:
    def test_no_more_than_two_are_made_ahead(self) -> None:
        made, second = [], threading.Event()

        def items() -> Any:
            for i in range(100):
                made.append(i)
                if i == 2:
                    second.set()
                yield i

        with Ahead(items()) as ahead:
            assert next(ahead) == 0
            assert second.wait(LONG)
            assert next(ahead) == 1
        assert made[-1] <= 3

    def test_an_interrupted_wait_ends_without_an_item(self) -> None:
        go_on = threading.Event()

        def items() -> Any:
            go_on.wait(LONG)
            yield 1

        with Ahead(items(), interrupted=lambda: True) as ahead:
            assert next(ahead, None) is None
            go_on.set()


def test_records_are_the_same_bits_as_the_arrays_in_them(tmp_path: Path) -> None:
    pictures = ({"image": x.tobytes(), "label": int(y)} for x, y in zip(PICTURES, KINDS, strict=True))
    write_examples(tmp_path / "shards", pictures, shards=3)
    shapes = {"image": (12, 12, 1), "label": ()}
    records = rudel.Records(tmp_path / "shards", features=shapes).map(lambda given: (given["image"], given["label"]))
    order = np.argsort(np.arange(330) % 3, kind="stable")  # neighbours go to different shards
    models = []
    for data in (records, rudel.Examples(PICTURES[order], KINDS[order])):
        models.append(dense())
        rudel.fit(models[-1], data, validation=0.2, epochs=2, batch_size=16, run=tmp_path / f"run{len(models)}")
    assert bits(models[0]) == bits(models[1])
    assert lines(tmp_path / "run1") == lines(tmp_path / "run2")
