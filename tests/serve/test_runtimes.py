"""LiteRT files, in float32 and int8, and SavedModels, beside each other and beside a run."""

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import until
from serve_support import keras, serving, write_run

from rudel.export.process import ENVIRONMENT
from rudel.serve.refusal import Refusal
from rudel.serve.runtimes.keras_runtime import load_run
from rudel.serve.runtimes.litert_runtime import load_litert

MAKE = """
import sys
import numpy as np, tensorflow as tf
folder = sys.argv[1]
weights = tf.constant(np.random.default_rng(0).normal(size=(4, 3)).astype("float32"))

class Net(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")])
    def __call__(self, x):
        return {"scores": tf.nn.softmax(x @ weights)}

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="text"),
                                  tf.TensorSpec((None, None), tf.int32, name="numbers")])
    def lengths(self, text, numbers):
        return {"length": tf.strings.length(text), "sum": tf.reduce_sum(numbers, 1), "again": text}

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")])
    def positive(self, x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, message="x is to be positive")]):
            return {"scores": tf.identity(x)}

net = Net()
tf.saved_model.save(net, folder + "/saved/2", signatures={"serving_default": net.__call__})
tf.saved_model.save(net, folder + "/texts", signatures={"serving_default": net.lengths})
tf.saved_model.save(net, folder + "/positive", signatures={"serving_default": net.positive})
one = tf.function(lambda x: tf.gather(weights, x - 1)).get_concrete_function(tf.TensorSpec((1, 1), tf.int32, name="x"))
open(folder + "/gather.tflite", "wb").write(tf.lite.TFLiteConverter.from_concrete_functions([one], net).convert())
table = tf.function(lambda x: tf.gather(weights, x)).get_concrete_function(tf.TensorSpec((1, 1), tf.int32, name="x"))
open(folder + "/table.tflite", "wb").write(tf.lite.TFLiteConverter.from_concrete_functions([table], net).convert())
fixed = tf.function(lambda x: net(x)).get_concrete_function(tf.TensorSpec((1, 4), tf.float32, name="x"))
converter = tf.lite.TFLiteConverter.from_concrete_functions([fixed], net)
open(folder + "/float.tflite", "wb").write(converter.convert())
converter.optimizations = [tf.lite.Optimize.DEFAULT]
seen = np.random.default_rng(1).normal(size=(200, 1, 4)).astype("float32")
converter.representative_dataset = lambda: ([row] for row in seen)
converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
converter.inference_input_type = converter.inference_output_type = tf.int8
open(folder + "/int8.tflite", "wb").write(converter.convert())
x = np.random.default_rng(2).normal(size=(5, 4)).astype("float32")
np.savez(folder + "/expected.npz", x=x, y=net(x)["scores"].numpy())
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, warm_python: str) -> Path:
    """A net in three forms, what it answers, and a SavedModel that takes texts."""
    folder = tmp_path_factory.mktemp("made")
    command = [warm_python, "-c", MAKE, folder]
    done = subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def served(made: Path, runs: Path, warm_python: str) -> Iterator[Any]:
    """A server for all of them, and for versions `net`, of which the first cannot be computed."""
    (made / "net").mkdir()
    shutil.copy(made / "gather.tflite", made / "net/1.tflite")
    shutil.copy(made / "float.tflite", made / "net/2.tflite")
    arguments = [made / "saved", made / "texts", made / "float.tflite", f"whole={made / 'int8.tflite'}", runs / "small"]
    more = (made / "positive", made / "net", "--max-batch", "4")
    with serving(made, *arguments, *more, python=warm_python) as server:
        yield server


@pytest.mark.parametrize(("name", "near"), [("saved", 1e-6), ("float", 1e-6), ("whole", 0.02)])
def test_all_forms_answer_alike(served: Any, made: Path, name: str, near: float) -> None:
    with np.load(made / "expected.npz") as stored:
        x, y = stored["x"], stored["y"]
    (outputs,) = served.ask(f"/v1/models/{name}:predict", {"instances": x.tolist()}).json.values()
    np.testing.assert_allclose(outputs, y, atol=near)
    about = served.ask(f"/v2/models/{name}").json
    assert [(each["datatype"], each["shape"]) for each in about["inputs"]] == [("FP32", [-1, 4])]
    assert [(each["datatype"], each["shape"]) for each in about["outputs"]] == [("FP32", [-1, 3])]
    given = {"name": about["inputs"][0]["name"], "shape": [5, 4], "datatype": "FP32", "data": x.tolist()}
    (output,) = served.ask(f"/v2/models/{name}/infer", {"inputs": [given]}).json["outputs"]
    np.testing.assert_allclose(np.reshape(output["data"], (5, 3)), y, atol=near)


def test_they_say_what_computes_them(served: Any) -> None:
    platforms = {name: served.ask(f"/v2/models/{name}").json["platform"] for name in ("saved", "float", "small")}
    assert platforms == {"saved": "tensorflow_savedmodel", "float": "litert", "small": "jax"}
    assert served.ask("/v2/models/saved").json["versions"] == ["2"]


def test_what_was_loaded_of_a_file_stays_when_another_is_copied_over_it(made: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(made / "table.tflite", tmp_path))
    loaded = load_litert(path)
    (before,) = loaded.compute([np.array([[2], [3]], np.int32)])
    path.write_bytes(b"the beginning of another one")
    (after,) = loaded.compute([np.array([[2], [3]], np.int32)])
    np.testing.assert_array_equal(after, before)
    assert np.ptp(before) > 0


def test_an_index_that_no_table_of_a_file_has_is_refused(made: Path) -> None:
    with pytest.raises(Refusal, match=r"^The model cannot take this input \(gather index out of bounds") as refused:
        load_litert(made / "table.tflite").compute([np.array([[4]], np.int32)])
    assert refused.value.status == 400


def test_both_classes_of_one_output_have_a_score(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, "sigmoid")])
    model.compile("sgd", "binary_crossentropy")
    scores = load_run(write_run(tmp_path, model, classes=("dark", "bright")), 1).scores(np.array([[0.75]], np.float32))
    assert scores is not None
    assert scores.tolist() == [[0.25, 0.75]]


def test_texts_and_open_shapes(served: Any) -> None:
    encoded = {"b64": base64.b64encode(b"\xff").decode()}
    rows = [{"text": "three", "numbers": [1, 2, 3]}, {"text": encoded, "numbers": [4, 5, 6]}]
    answer = served.ask("/v1/models/texts:predict", {"instances": rows})
    assert answer.json["predictions"] == [
        {"again": "three", "length": 5, "sum": 6},
        {"again": {"b64": "/w=="}, "length": 1, "sum": 15},
    ]
    one = {"instances": [{"text": "x", "numbers": list(range(7))}]}
    assert served.ask("/v1/models/texts:predict", one).json["predictions"][0]["sum"] == 21
    (again,) = served.ask(
        "/v2/models/texts/infer",
        {
            "inputs": [
                {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["äh"]},
                {"name": "numbers", "shape": [1, 2], "datatype": "INT32", "data": [1, 2]},
            ],
            "outputs": [{"name": "again"}],
        },
    ).json["outputs"]
    assert again == {"name": "again", "datatype": "BYTES", "shape": [1], "data": ["äh"]}


def test_a_model_that_refuses_zeros_is_served(served: Any) -> None:
    ones, zero = (served.ask("/v1/models/positive:predict", {"instances": [[n, 1, 1, 1]]}) for n in (1, 0))
    assert ones.json["predictions"] == [[1, 1, 1, 1]]
    assert zero.error.startswith("The model cannot take this input")


def test_versions_that_cannot_be_computed_or_are_still_copied(served: Any, made: Path) -> None:
    net = made / "net"
    assert "net: version 2 of" in served.log.read_text()
    assert f"cannot be served: {net / '1.tflite'} cannot be computed: " in served.log.read_text()
    shutil.copytree(made / "saved/2", net / "3", ignore=shutil.ignore_patterns("variables.data*"))
    until(lambda: "a new version cannot be served, and the old one stays" in served.log.read_text())
    shutil.copytree(made / "saved/2/variables", net / "3/variables", dirs_exist_ok=True)
    until(lambda: "net: version 3 is now served." in served.log.read_text())
