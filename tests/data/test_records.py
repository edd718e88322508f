import functools
import io
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import keras
import numpy as np
import pytest
from PIL import Image

import rudel
from rudel.data.records.code import code_fingerprint
from rudel.data.records.writer import write_examples, write_records
from rudel.errors import DataError, OptionError
from rudel.loop.schedule import plan_schedule

COUNT = 50


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (COUNT, 28, 28), np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, images: np.ndarray) -> Path:
    """Records with raw pixels, a label and a point, in three shards; example i of the set is `images[order(i)]`."""
    folder = tmp_path_factory.mktemp("records")
    examples = ({"image": images[i].tobytes(), "label": i, "point": [i / 2, i / 4]} for i in range(COUNT))
    write_examples(folder, examples, "train", shards=3)
    return folder


ORDER = np.concatenate([np.arange(COUNT)[shard::3] for shard in range(3)])


def pixels_and_label(features: dict[str, Any]) -> tuple[np.ndarray, np.int64]:
    return np.frombuffer(features["image"], np.uint8).reshape(28, 28), features["label"]


def test_examples_are_columns_of_their_features(folder: Path, images: np.ndarray) -> None:
    records = rudel.Records(folder)
    assert len(records) == COUNT
    indices = np.array([3, 49, 3, 0, -1])
    taken = records.take(indices)
    np.testing.assert_array_equal(taken.x["image"], images[ORDER[indices]].reshape(-1, 784))
    np.testing.assert_array_equal(taken.x["label"], ORDER[indices])
    np.testing.assert_array_equal(taken.x["point"], np.stack([ORDER[indices] / 2, ORDER[indices] / 4], 1))
    assert {name: column.dtype for name, column in taken.x.items()} == {
        "image": np.uint8,
        "label": np.int64,
        "point": np.float32,
    }
    assert all(column.ctypes.data % 64 == 0 for column in taken.x.values())
    np.testing.assert_array_equal(records.take(slice(10, 20)).x["label"], ORDER[10:20])
    np.testing.assert_array_equal(records.in_memory().x["label"], ORDER)
    with pytest.raises(IndexError):
        records.take(np.array([COUNT]))
    for indices in ([0.5], 5, ["label"]):
        with pytest.raises(OptionError, match="Indices of examples are a list of whole numbers"):
            records.take(cast("Any", indices))


def test_features_are_chosen_and_shaped(folder: Path, images: np.ndarray) -> None:
    assert list(rudel.Records(folder, features=["label"]).take(slice(2)).x) == ["label"]
    shaped = rudel.Records(folder, features={"image": (28, 28), "label": (1,)}).take(slice(None))
    np.testing.assert_array_equal(shaped.x["image"], images[ORDER])
    np.testing.assert_array_equal(shaped.x["label"], ORDER[:, None])
    mapped = rudel.Records(folder, features={"image": (28, 28), "label": None}).map(lambda f: (f["image"], f["label"]))
    np.testing.assert_array_equal(mapped.take(slice(None)).x, images[ORDER])
    with pytest.raises(DataError, match=r"has no feature `picture`; its features are: image, label, point"):
        rudel.Records(folder, features=["picture"]).take(slice(1))
    with pytest.raises(DataError, match=r"`image` of the record at byte 0 of .* has 784 bytes, which are not of shape"):
        rudel.Records(folder, features={"image": (10, 10)}).take(slice(1))
    with pytest.raises(OptionError, match=r"give \[\"label\"\]"):
        rudel.Records(folder, features="label")
    for shape in (784, (None,), (-1,)):
        with pytest.raises(OptionError, match="The shape of the feature `image` is a tuple of whole numbers"):
            rudel.Records(folder, features={"image": cast("Any", shape)})


@pytest.mark.parametrize("workers", [1, 4])
def test_map_functions_follow_each_other(folder: Path, images: np.ndarray, workers: int) -> None:
    records = rudel.Records(folder, workers=workers).map(pixels_and_label).map(lambda pair: (pair[0] / 255, *pair))
    taken = records.map(lambda three: ({"a": three[0], "b": [three[1]]}, three[2], np.float32(2))).take(slice(None))
    np.testing.assert_array_equal(taken.x["a"], images[ORDER] / 255)
    np.testing.assert_array_equal(taken.x["b"][0], images[ORDER])
    np.testing.assert_array_equal(taken.y, ORDER)
    assert taken.sample_weight is not None
    assert taken.sample_weight.tolist() == [2] * COUNT
    assert taken.x["a"].ctypes.data % 64 == 0
    scaled, pixels, label = records[7]
    assert (scaled.shape, pixels.shape, label) == ((28, 28), (28, 28), ORDER[7])


class Pair(NamedTuple):
    x: Any
    y: Any


def test_a_map_function_may_give_named_tuples(folder: Path, images: np.ndarray) -> None:
    records = rudel.Records(folder).map(lambda features: Pair(*pixels_and_label(features)))
    taken = records.take(slice(3))
    np.testing.assert_array_equal(taken.x, images[ORDER[:3]])
    assert taken.y.tolist() == ORDER[:3].tolist()
    assert rudel.Examples(Pair(taken.x, taken.y)).take(np.array([2, 0])).x.y.tolist() == ORDER[[2, 0]].tolist()


def test_functions_of_many_examples(folder: Path, images: np.ndarray) -> None:
    records = rudel.Records(folder)
    alone = records.map(pixels_and_label)
    many = records.map(lambda f: (f["image"].reshape(-1, 28, 28), f["label"]), batched=True)
    after = alone.map(lambda pair: (pair[0][..., None] / np.float32(255), pair[1]), batched=True)
    indices = np.random.default_rng(0).permutation(COUNT)
    for mapped in (alone, many):
        np.testing.assert_array_equal(mapped.take(indices).x, images[ORDER[indices]])
        np.testing.assert_array_equal(mapped.take(indices).y, ORDER[indices])
    assert after.take(indices).x.shape == (COUNT, 28, 28, 1)
    with pytest.raises(OptionError, match="cannot follow"):
        many.map(pixels_and_label)
    with pytest.raises(DataError, match="a row per example"):
        records.map(lambda f: f["label"][:1], batched=True).take(slice(3))
    with pytest.raises(DataError, match="examples along axis 0"):
        records.map(lambda f: f["label"].mean(), batched=True).take(slice(3))


def test_a_row_that_is_not_like_the_first_is_told_with_its_record(folder: Path) -> None:
    def growing(features: dict[str, Any]) -> Any:
        return np.zeros(4 if features["label"] == 3 else 3)

    others: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
        (growing, r"`x` of the record at byte 861 of .*-00000-of-00003\.tfrecord is float64 \(4,\), .* float64 \(3,\)"),
        (lambda f: f["label"] if f["label"] < 3 else float(f["label"]), r"`x` of .* is float64 \(\), .* int64 \(\)"),
        (lambda f: {"a": 1} if f["label"] < 3 else {"b": 1}, "became another structure"),
        (lambda f: "text", "is str, which is not a number"),
        (lambda f: (1, 2, 3, 4), r"a tuple of 4: let it give \(x, y\)"),
    ]
    for function, message in others:
        with pytest.raises(DataError, match=message):
            rudel.Records(folder).map(function).take(slice(None))


def test_what_a_map_function_raises_names_the_record(folder: Path) -> None:
    def refusing(features: dict[str, Any]) -> Any:
        if features["label"] == 6:
            raise DataError("The label is 6.")
        return 1 / (features["label"] - 9)

    records = rudel.Records(folder).map(refusing)
    with pytest.raises(DataError, match=r"^The record at byte 1,722 of .*: The label is 6\.$"):
        records.take(slice(None))
    with pytest.raises(ZeroDivisionError) as raised, np.errstate(all="raise"):
        rudel.Records(folder).map(lambda f: 1 // (int(f["label"]) - 9)).take(slice(None))
    assert "the record at byte 2,583 of" in raised.value.__notes__[0]


def test_features_that_differ_need_a_map_function(tmp_path: Path) -> None:
    write_examples(tmp_path, [{"text": "ab", "n": 1}, {"text": "abc", "n": 1}, {"n": [1, 2]}])
    for features in (["text"], ["n"]):
        with pytest.raises(DataError, match=r"and that of the first example|has no feature `text`"):
            rudel.Records(tmp_path, features=features).take(slice(None))
    lengths = rudel.Records(tmp_path).map(lambda f: (len(f.get("text", b"")), np.sum(f["n"])))
    assert lengths.take(slice(None)).x.tolist() == [2, 3, 0]
    assert lengths.take(slice(None)).y.tolist() == [1, 1, 3]
    (tmp_path / "train-00000-of-00001.tfrecord").unlink()
    write_examples(tmp_path, [{"two": ["a", "bcd"]}])
    with pytest.raises(DataError, match="byte strings of different lengths"):
        rudel.Records(tmp_path).take(slice(1))


def test_records_that_are_no_examples_are_told(tmp_path: Path) -> None:
    write_records(tmp_path / "train.tfrecord", [b"\xff\xff"])
    with pytest.raises(DataError, match=r"The record at byte 0 of .*train\.tfrecord is not a tf\.train\.Example"):
        rudel.Records(tmp_path).take(slice(1))


def test_damage_is_refused_or_left_out_and_counted(tmp_path: Path, folder: Path) -> None:
    copy = tmp_path / "train-00000-of-00001.tfrecord"
    content = bytearray((folder / "train-00000-of-00003.tfrecord").read_bytes())
    content[2000] ^= 1
    copy.write_bytes(content)
    whole = rudel.Records(tmp_path)
    assert (len(whole), whole.skipped) == (17, 0)
    with pytest.raises(DataError, match=r"byte 1,722 has a wrong checksum; .*skip_corrupt=True"):
        whole.take(slice(None))
    rest = rudel.Records(tmp_path, skip_corrupt=True)
    assert (len(rest), rest.skipped) == (16, 1)
    np.testing.assert_array_equal(rest.take(slice(None)).x["label"], np.delete(np.arange(0, COUNT, 3), 2))
    assert rest.fingerprint() != whole.fingerprint()


def test_photographs_are_decoded_in_threads_as_one_by_one(tmp_path: Path) -> None:
    def encoded(i: int) -> bytes:
        file = io.BytesIO()
        Image.effect_noise((20 + i, 30), 50 + i).convert("RGB").save(file, "JPEG")
        return file.getvalue()

    pictures = [encoded(i) for i in range(40)]
    write_examples(tmp_path, ({"image/encoded": one, "image/class/label": i} for i, one in enumerate(pictures)))

    def decoded(features: dict[str, Any]) -> tuple[np.ndarray, np.int64]:
        picture = Image.open(io.BytesIO(features["image/encoded"])).resize((16, 16))
        return np.asarray(picture), features["image/class/label"]

    expected = np.stack([np.asarray(Image.open(io.BytesIO(one)).resize((16, 16))) for one in pictures])
    taken = rudel.Records(tmp_path, workers=3).map(decoded).take(np.arange(39, -1, -1))
    np.testing.assert_array_equal(taken.x, expected[::-1])
    assert (taken.x.dtype, taken.y.tolist()) == (np.uint8, list(range(39, -1, -1)))


def scaled(features: dict[str, Any], by: float) -> Any:
    return features["label"] * by


def test_the_fingerprint_follows_data_and_functions(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    records = rudel.Records(folder)
    assert rudel.Records(tmp_path).fingerprint() == records.fingerprint()
    by = 3.0
    mapped = [
        records,
        rudel.Records(folder, features=["label"]),
        records.map(pixels_and_label),
        records.map(pixels_and_label, batched=True),
        records.map(functools.partial(scaled, by=2)),
        records.map(functools.partial(scaled, by=by)),
        records.map(lambda f: f["label"] * 2),
        records.map(lambda f: f["label"] * by),
        records.map(lambda f: scaled(f, 5)),
    ]
    assert len({one.fingerprint() for one in mapped}) >= len(mapped) - 1
    assert records.map(pixels_and_label).fingerprint() == pickle.loads(pickle.dumps(mapped[2])).fingerprint()
    write_examples(tmp_path, [{"image": b"", "label": 0, "point": 0.0}], shards=3)
    assert rudel.Records(tmp_path).fingerprint() != records.fingerprint()


def test_the_fingerprint_of_a_function_follows_what_it_calls() -> None:
    def made(source: str) -> str:
        namespace: dict[str, Any] = {"__name__": "recipe"}
        exec(source, namespace)
        return code_fingerprint(namespace["f"])

    first = made("SIZE = 3\ndef g(x): return x + SIZE\ndef f(x): return g(x)")
    assert made("SIZE = 3\ndef g(x): return x + SIZE\n\n\ndef f(x): return g(x)  # moved") == first
    assert made("SIZE = 4\ndef g(x): return x + SIZE\ndef f(x): return g(x)") != first
    assert made("SIZE = 3\ndef g(x): return x - SIZE\ndef f(x): return g(x)") != first

    class Crop:
        def __init__(self, size: int) -> None:
            self.size = size
            self.itself = self

        def __call__(self, x: Any) -> Any:
            return x[: self.size]

    assert code_fingerprint(Crop(3)) == code_fingerprint(Crop(3))
    assert code_fingerprint(Crop(3)) != code_fingerprint(Crop(4))


_FINGERPRINTS = """
import logging, pathlib, re, sys
import numpy as np
from rudel.data.records.code import code_fingerprint

class Node:
    def __init__(self, name):
        self.name, self.log, self.own = name, logging.getLogger("decoder"), {self}

def closed_over(value):
    return lambda features: (features, value)

values = [pathlib.Path("a"), pathlib.Path("b"), re.compile("a"), re.compile("b"), logging.getLogger("decoder"),
          Node("a"), Node("b"), {pathlib.Path(name) for name in "abcdef"}, np.array([Node("a"), {"x", "y"}])]
print(*(code_fingerprint(closed_over(value)) for value in values))
"""


def test_the_fingerprint_of_objects_is_the_same_in_every_process() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", _FINGERPRINTS],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert len(set(found[0])) == 9


def test_the_fingerprint_follows_what_objects_are_made_of(folder: Path) -> None:
    def closed_over(value: Any) -> str:
        return code_fingerprint(lambda features: (features, value))

    def dense(initializer: str) -> Any:
        return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer=initializer)])

    @functools.cache
    def cached(x: Any) -> Any:
        return x + 1

    generator = np.random.default_rng()
    before = closed_over(generator)
    generator.random()
    assert closed_over(generator) == before, "where a generator stands does not matter"
    assert closed_over(threading.Lock()) == closed_over(threading.Lock()), "nor what cannot be copied"
    assert closed_over(dense("ones")) == closed_over(dense("ones")) != closed_over(dense("zeros"))
    records = rudel.Records(folder)
    assert closed_over(records) == closed_over(rudel.Records(folder)) != closed_over(records.map(cached))
    assert closed_over(cached) == closed_over(functools.cache(cached.__wrapped__))
    assert closed_over(cached) != closed_over(functools.cache(lambda x: x))


def test_pickled_records_read_the_same(folder: Path) -> None:
    records = pickle.loads(pickle.dumps(rudel.Records(folder).map(pixels_and_label)))
    np.testing.assert_array_equal(records.take(slice(None)).y, ORDER)


def labels(folder: Path) -> rudel.Records:
    return rudel.Records(folder, features=["label"]).map(lambda f: (f["label"], f["label"]), batched=True)


@pytest.mark.parametrize("ahead", [0, 3])
def test_batches_come_in_the_order_of_trainings(folder: Path, ahead: int) -> None:
    batches = labels(folder).shuffle(5).batch(8).prefetch(ahead)
    schedule = plan_schedule(COUNT, 8, epochs=2, steps=None, seed=5)
    assert len(batches) == COUNT // 8
    for epoch in range(2):
        found = np.stack([batch.x for batch in batches])
        np.testing.assert_array_equal(found, ORDER[schedule.order(epoch)[: COUNT // 8]])


@pytest.mark.parametrize("ahead", [0, 3])
def test_a_restored_position_gives_the_batches_that_would_have_come(folder: Path, ahead: int) -> None:
    def batches() -> Any:
        return labels(folder).shuffle(1).batch(7).prefetch(ahead)

    reference = batches()
    expected = [batch.x.tolist() for _ in range(3) for batch in reference]
    for stop in (1, 6, 7, 8, 20):
        first, found = batches(), []
        while len(found) < stop:
            for batch in first:
                found.append(batch.x.tolist())
                if len(found) == stop:
                    break
        second = batches()
        second.restore(json.loads(json.dumps(first.state())))
        while second.state()["epoch"] < 3:
            found += [batch.x.tolist() for batch in second]
        assert found == expected
    for state in ({"epoch": 0, "batch": 7}, {"epoch": -1, "batch": 0}):
        with pytest.raises(DataError, match="There is no batch"):
            reference.restore(state)


def test_the_last_batch_is_filled_up_and_every_example_counts_once(folder: Path) -> None:
    batches = list(labels(folder).batch(16, drop_last=False))
    assert [len(batch) for batch in batches] == [16] * 4
    weights = np.concatenate([np.asarray(batch.sample_weight) for batch in batches])
    values = np.concatenate([batch.x for batch in batches])
    assert weights.tolist() == [1] * COUNT + [0] * 14
    np.testing.assert_array_equal(values[weights == 1], ORDER)
    own = rudel.Records(folder).map(lambda f: (f["label"], f["label"], f["point"][0]))
    weights = np.concatenate([np.asarray(batch.sample_weight) for batch in own.batch(100, drop_last=False)])
    assert weights.tolist() == [*(ORDER / 2), *[0] * 50]


@pytest.mark.parametrize(
    ("size", "replicas", "drop_last"), [(4, 3, True), (4, 3, False), (30, 4, False), (1, 50, True)]
)
def test_replicas_share_what_one_would_get(folder: Path, size: int, replicas: int, drop_last: bool) -> None:
    together = labels(folder).shuffle(3).batch(size * replicas, drop_last)
    apart = [labels(folder).shuffle(3).shard(i, replicas).batch(size, drop_last) for i in range(replicas)]
    for whole, *parts in zip(together, *apart, strict=True):
        assert {len(part) for part in parts} == {size}

        def counted(batch: rudel.Examples) -> list[int]:
            kept = slice(None) if drop_last else batch.sample_weight == 1
            return batch.x[kept].tolist()

        assert sorted(counted(whole)) == sorted(label for part in parts for label in counted(part))


def test_batches_that_cannot_be_are_refused(folder: Path) -> None:
    records = labels(folder)
    with pytest.raises(DataError, match="50 examples do not fill one batch of 64"):
        next(iter(records.batch(64)))
    with pytest.raises(OptionError, match=r"say \.batch\(size\)"):
        len(records.shuffle(0))
    with pytest.raises(OptionError, match="There is no replica 2 of 2"):
        records.shard(2, 2)
    with pytest.raises(OptionError, match="`size` must be a whole number of at least 1"):
        records.batch(0)
    with pytest.raises(OptionError, match="`workers`"):
        rudel.Records(folder, workers=0)


def test_an_error_in_a_batch_read_ahead_reaches_the_loop_in_its_turn(folder: Path) -> None:
    def refusing(features: dict[str, Any]) -> Any:
        if features["label"] == ORDER[25]:
            raise DataError("No.")
        return features["label"]

    batches = rudel.Records(folder).map(refusing).batch(10).prefetch(4)
    coming = iter(batches)
    assert [len(next(coming)) for _ in range(2)] == [10, 10]
    with pytest.raises(DataError, match="No"):
        next(coming)
    assert batches.state() == {"epoch": 0, "batch": 2}
