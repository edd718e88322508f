"""Examples and files as TensorFlow reads and writes them; it runs in one process of its own for all of these tests."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import started

from rudel.data.records.collection import Collection
from rudel.data.records.example import MalformedError, encode_example, parse_example
from rudel.data.records.example_features import Features, columns_like
from rudel.data.records.layout import layout_of
from rudel.data.records.protobuf_wire import field, varint_of
from rudel.data.records.writer import write_examples
from rudel.errors import DataError
from rudel.export.process import ENVIRONMENT

_TENSORFLOW = """
import base64, json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

def described(example):
    kinds = {"bytes_list": lambda v: base64.b64encode(v).decode(), "float_list": lambda v: v.hex(), "int64_list": int}
    features = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        features[name] = [kind, [kinds[kind](v) for v in getattr(feature, kind).value] if kind else []]
    return features

def parse(content):
    try:
        return described(tf.train.Example.FromString(base64.b64decode(content)))
    except Exception:
        return None

def encode(features):
    example = tf.train.Example()
    for name, (kind, values) in features.items():
        read = {"bytes_list": base64.b64decode, "float_list": float.fromhex, "int64_list": int}[kind]
        getattr(example.features.feature[name], kind).value.extend(map(read, values))
    return base64.b64encode(example.SerializeToString()).decode()

def read(paths):
    dataset = tf.data.TFRecordDataset(paths)
    return [base64.b64encode(content.numpy()).decode() for content in dataset]

def read_columns(paths):
    shapes = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64),
              "point": tf.io.FixedLenFeature([2], tf.float32)}
    (batch,) = tf.data.TFRecordDataset(paths).batch(1000).map(lambda batch: tf.io.parse_example(batch, shapes))
    images = [base64.b64encode(value).decode() for value in batch.pop("image").numpy()]
    return {name: column.numpy().tolist() for name, column in batch.items()} | {"image": images}

def write(path, contents):
    with tf.io.TFRecordWriter(path) as writer:
        for content in contents:
            writer.write(base64.b64decode(content))

for line in sys.stdin:
    name, *arguments = json.loads(line)
    print(json.dumps(globals()[name](*arguments)), flush=True)
"""


class TensorFlow:
    """Asks TensorFlow."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps([name, *arguments]), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def parse(self, content: bytes) -> dict[str, Any] | None:
        """The features by name, each with its kind, as `comparable` tells them; None for what is no example."""
        return self("parse", base64.b64encode(content).decode())


@pytest.fixture(scope="module")
def tensorflow(warm_python: str) -> Iterator[TensorFlow]:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with started([warm_python, "-c", _TENSORFLOW], **pipes, env=os.environ | ENVIRONMENT) as process:
        yield TensorFlow(process)


def comparable(features: dict[str, Any]) -> dict[str, Any]:
    """Features in the form in which TensorFlow's process tells them."""
    listed = {}
    for name, feature in features.items():
        if isinstance(feature, list):
            listed[name] = ["bytes_list", [base64.b64encode(value).decode() for value in feature]]
        elif feature.dtype == np.float32:
            listed[name] = ["float_list", [float(value).hex() for value in feature]]
        else:
            listed[name] = ["int64_list", feature.tolist()]
    return listed


def without_kind_of_empty(features: dict[str, Any]) -> dict[str, Any]:
    """A feature without values is a list of nothing, whatever its kind is said to be."""
    return {name: values if values[1] else [] for name, values in features.items()}


names = st.text(max_size=8)
strings = st.lists(st.binary(max_size=20), max_size=4)
floats = st.lists(st.floats(width=32, allow_nan=False), max_size=5)
integers = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5)
slow_machine = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@slow_machine
@given(st.dictionaries(names, strings | floats | integers, max_size=5))
def test_tensorflow_reads_what_is_encoded(tensorflow: TensorFlow, features: dict[str, Any]) -> None:
    content = encode_example(features)
    expected = tensorflow.parse(content)
    assert expected is not None
    own = parse_example(content)
    assert without_kind_of_empty(expected) == without_kind_of_empty(comparable(own))
    for name, values in features.items():
        assert list(own[name]) == [np.float32(value) if isinstance(value, float) else value for value in values]


@st.composite
def written_unusually(draw: st.DrawFn) -> bytes:
    """An example as another conforming program might write it."""

    def unknown() -> bytes:
        number = draw(st.integers(4, 3000)) << 3
        kind = draw(st.sampled_from([0, 1, 2, 5]))
        rest = {0: varint_of(draw(st.integers(0, 2**64 - 1))), 1: bytes(8), 2: b"\x03abc", 5: bytes(4)}[kind]
        return varint_of(number | kind) + rest

    def several(make: Any, most: int = 3) -> bytes:
        return b"".join(draw(st.sampled_from([make, make, unknown]))() for _ in range(draw(st.integers(0, most))))

    def string() -> bytes:
        return field(1, draw(st.binary(max_size=6)))

    def number() -> bytes:
        return b"\x0d" + draw(st.binary(min_size=4, max_size=4).filter(lambda octets: octets[3] & 0x7F < 0x7F))

    def packed_numbers() -> bytes:
        return field(1, b"".join(number()[1:] for _ in range(draw(st.integers(0, 3)))))

    def integer() -> bytes:
        return b"\x08" + varint_of(draw(st.integers(0, 2**64 - 1)))

    def packed_integers() -> bytes:
        return field(1, b"".join(integer()[1:] for _ in range(draw(st.integers(0, 3)))))

    def a_list() -> bytes:
        kind = draw(st.integers(1, 3))
        either = {1: [string], 2: [number, packed_numbers], 3: [integer, packed_integers]}[kind]
        return field(kind, several(draw(st.sampled_from(either))))

    def entry() -> bytes:
        name, feature = field(1, draw(st.sampled_from(["a", "b", "ä"])).encode()), field(2, several(a_list))
        # Without unknown fields here: an entry of a map that has some is damaged.
        return field(1, draw(st.sampled_from([name + feature, feature + name, name, feature])))

    return several(lambda: field(1, several(entry)), 2)


@slow_machine
@given(written_unusually())
def test_unusual_writers_are_understood_as_tensorflow_does(tensorflow: TensorFlow, content: bytes) -> None:
    expected = tensorflow.parse(content)
    assert expected is not None
    assert without_kind_of_empty(comparable(parse_example(content))) == without_kind_of_empty(expected)


@slow_machine
@given(st.dictionaries(names, strings | floats | integers, max_size=3), st.data())
def test_what_is_damaged_is_no_example_or_the_one_that_tensorflow_sees(
    tensorflow: TensorFlow, features: dict[str, Any], data: st.DataObject
) -> None:
    content = bytearray(encode_example(features))
    for _ in range(data.draw(st.integers(1, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    expected = tensorflow.parse(bytes(content))
    try:
        own = comparable(parse_example(bytes(content)))
    except MalformedError:
        return
    if expected is not None and "nan" not in str(own):
        assert without_kind_of_empty(own) == without_kind_of_empty(expected)


@slow_machine
@given(st.data())
def test_examples_parsed_together_are_as_parsed_alone(tensorflow: TensorFlow, data: st.DataObject) -> None:
    integer = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300)
    shapes = data.draw(
        st.dictionaries(names, st.tuples(st.sampled_from("bfi"), st.integers(1, 3)), min_size=1, max_size=3)
    )
    make = {"b": st.binary(min_size=3, max_size=3), "f": st.floats(width=32, allow_nan=False), "i": integer}
    examples = [
        {name: data.draw(st.lists(make[kind], min_size=n, max_size=n)) for name, (kind, n) in shapes.items()}
        for _ in range(data.draw(st.integers(1, 12)))
    ]
    contents = []
    for example in examples:
        if data.draw(st.booleans()):
            contents.append(encode_example(example))
        else:
            kinds = {"b": "bytes_list", "f": "float_list", "i": "int64_list"}
            features = {
                name: [kinds[shapes[name][0]], comparable(parse_example(encode_example({name: values})))[name][1]]
                for name, values in sorted(example.items(), reverse=True)
            }
            contents.append(base64.b64decode(tensorflow("encode", features)))
    columns = columns_like(Features(), contents[0], lambda: "the first").of(contents, str)
    for place, content in enumerate(contents):
        for name, feature in parse_example(content).items():
            alone = np.frombuffer(b"".join(feature), np.uint8) if isinstance(feature, list) else feature
            np.testing.assert_array_equal(columns[name][place].ravel(), alone)


def test_records_alike_but_for_their_values_have_one_layout() -> None:
    contents = [encode_example({"image": bytes([i]) * 784, "label": i, "at": [0.5, i]}) for i in range(100)]
    layout = layout_of(contents[0])
    assert layout is not None
    rows = np.frombuffer(b"".join(contents), np.uint8).reshape(100, -1)
    assert layout.matches(rows).all()
    assert layout.column(rows, "label").ravel().tolist() == list(range(100))
    assert layout.column(rows, "image")[:, 0, 5].tolist() == list(range(100))
    assert layout.column(rows, "at")[:, 1].tolist() == list(range(100))
    changed = rows.copy()
    changed[3, 5] ^= 1
    assert np.flatnonzero(~layout.matches(changed)).tolist() == [3]


def test_tensorflow_reads_files_written_here(tensorflow: TensorFlow, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    examples = [
        {"image": rng.bytes(784), "label": i * 1000 - 5000, "point": rng.random(2, np.float32), "name": f"Nr. {i}"}
        for i in range(30)
    ]
    paths = write_examples(tmp_path, examples, "train", shards=3)
    expected = tensorflow("read", [str(path) for path in paths])
    assert [base64.b64decode(content) for content in expected] == [
        encode_example(example) for shard in range(3) for example in examples[shard::3]
    ]
    columns = tensorflow("read_columns", [str(path) for path in paths])
    inorder = [example for shard in range(3) for example in examples[shard::3]]
    assert columns["label"] == [example["label"] for example in inorder]
    assert columns["point"] == [example["point"].tolist() for example in inorder]
    assert [base64.b64decode(image) for image in columns["image"]] == [example["image"] for example in inorder]


def test_files_that_tensorflow_writes_are_read_here(tensorflow: TensorFlow, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    contents = [rng.bytes(size) for size in (0, 1, 100, 70_000, 5, 300_000)]
    tensorflow("write", str(tmp_path / "a.tfrecord"), [base64.b64encode(content).decode() for content in contents])
    records = Collection([str(tmp_path / "a.tfrecord")])
    assert records.contents(np.arange(len(records))) == contents


@pytest.mark.parametrize("dtype", ["U3", "S3", object])
def test_an_array_of_texts_is_as_a_list_of_them(dtype: Any) -> None:
    names = np.array([["cat"], ["dog"]], dtype)
    assert encode_example({"name": names}) == encode_example({"name": ["cat", "dog"]})


def test_what_no_feature_can_hold_is_refused() -> None:
    for value, message in (
        ([b"text", 3], "mixes text"),
        ({"a": 1}, "`thing` is dict"),
        (2**64, "`thing` is int"),
        (np.array([2**63], np.uint64), "64 bits"),
        ([[1, 2], [3]], "`thing` holds lists of different lengths"),
        ([1.0, 1e300], "`thing` has a number that is too large"),
        (os.fsdecode(b"h\xfchner.jpg"), "`thing` has text that UTF-8 cannot hold"),
    ):
        with pytest.raises(DataError, match=message):
            encode_example({"thing": value})
    for example in ({1: 2}, [1, 2]):
        with pytest.raises(DataError, match="An example is a dict of features"):
            encode_example(cast("Any", example))
    assert np.isinf(parse_example(encode_example({"infinite": float("inf")}))["infinite"]).all()
    assert list(parse_example(encode_example({"yes": True, "none": []}))["yes"]) == [1]


@pytest.mark.parametrize(("name", "value", "place", "tag"), [("name", 7, 4, 0x08), ("", [], -2, 0x18)])
def test_an_entry_with_more_than_a_name_and_a_feature_is_damaged(name: str, value: Any, place: int, tag: int) -> None:
    content = bytearray(encode_example({name: value}))
    start = content.index(b"name") if name else content.index(b"\x0a\x00\x12") + 2
    content[start + place] = tag  # the tag of the feature or of the name becomes that of a number
    with pytest.raises(MalformedError):
        parse_example(bytes(content))
