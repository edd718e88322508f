"""LiteRT files, in float32 and int8, and SavedModels, beside each other and beside a run."""

import asyncio
import base64
import io
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from processes import until
from serve_support import keras, serving, write_run

from rudel.errors import DataError, OptionError, RunError, ServeError
from rudel.export.process import ENVIRONMENT
from rudel.serve.metrics import Metrics
from rudel.serve.model_sources import FileOptions, find_versions, load, read_sources
from rudel.serve.models import Models
from rudel.serve.refusal import Refusal
from rudel.serve.runtimes.keras_runtime import load_run
from rudel.serve.runtimes.litert_runtime import load_litert
from rudel.serve.server_limits import Limits
from rudel.serve.values import checked, column_of_rows
from rudel.serve.watching import Watching

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

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="image_bytes")])
    def sizes(self, image_bytes):
        return {"size": tf.strings.length(image_bytes)}

    @tf.function(input_signature=[tf.TensorSpec((None, 1), tf.string, name="text")])
    def twice(self, text):
        return {"twice": tf.strings.join([text, text])}

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")])
    def positive(self, x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, message="x is to be positive")]):
            return {"scores": tf.identity(x)}

net = Net()
tf.saved_model.save(net, folder + "/saved/2", signatures={"serving_default": net.__call__})
tf.saved_model.save(net, folder + "/texts", signatures={"serving_default": net.lengths})
tf.saved_model.save(net, folder + "/images", signatures={"serving_default": net.sizes})
tf.saved_model.save(net, folder + "/column", signatures={"serving_default": net.twice})
tf.saved_model.save(net, folder + "/positive", signatures={"serving_default": net.positive})
one = tf.function(lambda x: tf.gather(weights, x - 1)).get_concrete_function(tf.TensorSpec((1, 1), tf.int32, name="x"))
open(folder + "/gather.tflite", "wb").write(tf.lite.TFLiteConverter.from_concrete_functions([one], net).convert())
table = tf.function(lambda x: tf.gather(weights, x)).get_concrete_function(tf.TensorSpec((1, 1), tf.int32, name="x"))
open(folder + "/table.tflite", "wb").write(tf.lite.TFLiteConverter.from_concrete_functions([table], net).convert())
fixed = tf.function(lambda x: net(x)).get_concrete_function(tf.TensorSpec((1, 4), tf.float32, name="x"))
converter = tf.lite.TFLiteConverter.from_concrete_functions([fixed], net)
open(folder + "/float.tflite", "wb").write(converter.convert())
row = tf.function(lambda x: tf.where(tf.math.is_nan(x), 0.25, x)[:, None])
row = row.get_concrete_function(tf.TensorSpec((1,), tf.float32, name="x"))
open(folder + "/row.tflite", "wb").write(tf.lite.TFLiteConverter.from_concrete_functions([row], net).convert())
both = tf.Module()
x = fixed.structured_input_signature[0]
both.call = tf.function(lambda x: dict.fromkeys(("one", "other"), net(x)["scores"]), x)
tf.saved_model.save(both, folder + "/both")
open(folder + "/both.tflite", "wb").write(tf.lite.TFLiteConverter.from_saved_model(folder + "/both").convert())
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
    more = (made / "positive", made / "column", made / "images", made / "net", "--max-batch", "4")
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


def test_a_tensor_with_two_names_is_two_outputs(made: Path) -> None:
    loaded = load_litert(made / "both.tflite")
    assert [output.name for output in loaded.signature.outputs] == ["one", "other"]
    one, other = loaded.compute([np.ones((1, 4), np.float32)])
    np.testing.assert_array_equal(one, other)


def test_an_index_that_no_table_of_a_file_has_is_refused(made: Path) -> None:
    with pytest.raises(Refusal, match=r"^The model cannot take this input \(gather index out of bounds") as refused:
        load_litert(made / "table.tflite").compute([np.array([[4]], np.int32)])
    assert refused.value.status == 400


def test_a_number_of_a_row_may_be_missing(made: Path) -> None:
    loaded = load_litert(made / "row.tflite")
    column = column_of_rows([0.5, None, 0.75], loaded.signature.inputs[0])
    assert loaded.compute([column])[0].tolist() == [[0.5], [0.25], [0.75]]


def test_the_classes_of_a_tflite_file_have_names(start: Any, made: Path) -> None:
    server = start(made / "float.tflite", f"net={made / 'table.tflite'}", "--classes", "bit,bot,but")
    row = {"instances": [[0.5, 1, -1, 2]]}
    (scores,) = server.ask("/v1/models/float:predict", row).json["predictions"]
    (found,) = server.ask("/v1/models/float:classify", row).json["results"]
    assert dict(found) == pytest.approx(dict(zip(("bit", "bot", "but"), scores, strict=True)))
    assert "/v1/models/float:classify" in server.ask("/openapi.json").json["paths"]


def test_names_of_classes_are_for_the_models_with_as_many_outputs(made: Path) -> None:
    def labels(*names: str) -> list[tuple[str, ...]]:
        models, sources = Models(Limits(batch=1), Metrics()), read_sources([str(made / name) for name in names])
        watching = Watching(sources, models, Limits(batch=1), FileOptions("dark,bright"), lambda sentence: None)
        asyncio.run(watching.load_all())
        return [version.loaded.labels for version in models.all]

    assert labels("float.tflite", "row.tflite") == [(), ("dark", "bright")]
    said = r"--classes has 2 names, and no model in .*float\.tflite has an output for each of them\."
    with pytest.raises(OptionError, match=said):
        labels("float.tflite")
    assert load_litert(made / "row.tflite", ("dark", "dim", "bright")).labels == (), "of numbers, not of classes"
    scores = load_litert(made / "row.tflite", ("dark", "bright")).scores(np.array([[0.75]], np.float32))
    assert scores is not None
    assert scores.tolist() == [[0.25, 0.75]]


def test_both_classes_of_one_output_have_a_score(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, "sigmoid")])
    model.compile("sgd", "binary_crossentropy")
    scores = load_run(write_run(tmp_path, model, classes=("dark", "bright")), 1).scores(np.array([[0.75]], np.float32))
    assert scores is not None
    assert scores.tolist() == [[0.25, 0.75]]


def test_lambdas_are_executed_for_the_model_file_alone(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x + 1), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.save(tmp_path / "net.keras")
    sources = read_sources([str(tmp_path / "net.keras"), str(write_run(tmp_path / "run", model))])
    (file,), (run,) = map(find_versions, sources)
    (outputs,) = load(file, 1, FileOptions(unsafe=True)).compute([np.ones((1, 4), np.float32)])
    np.testing.assert_allclose(outputs, model.predict_on_batch(np.ones((1, 4), np.float32)), rtol=1e-5)
    with pytest.raises(RunError, match=r"run/model\.keras cannot be loaded: .*lambda"):
        load(run, 1, FileOptions(unsafe=True))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_an_input_of_16_bits_takes_float32(tmp_path: Path, policy: str) -> None:
    model = keras.Sequential([keras.layers.Dense(2, dtype=policy)])
    model.compile("sgd", "mse")
    model.build((None, 4))
    assert model.inputs[0].dtype == policy.removeprefix("mixed_")
    loaded = load_run(write_run(tmp_path, model), 1)
    assert [(tensor.v2_name, tensor.shape) for tensor in loaded.signature.inputs] == [("FP32", (4,))]
    (outputs,) = loaded.compute([np.ones((1, 4), np.float32)])
    np.testing.assert_allclose(outputs, model.predict_on_batch(np.ones((1, 4), np.float32)), atol=0.01)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")
def test_an_input_of_64_bits_takes_the_32_that_jax_computes_in(tmp_path: Path) -> None:
    given = keras.Input((2,), dtype="int64")
    model = keras.Model(given, keras.ops.cast(given, "float32"))
    model.compile("sgd", "mse")
    loaded = load_run(write_run(tmp_path, model), 1)
    (tensor,) = loaded.signature.inputs
    assert tensor.v2_name == "INT32"
    column = checked(np.array([[1500, 2]]), tensor)
    assert loaded.compute([column])[0].tolist() == [[1500, 2]]
    with pytest.raises(Refusal, match=r"takes int32: numbers from -2147483648 to 2147483647\."):
        checked(np.array([[2**40, 2]]), tensor)


def test_a_model_of_open_sizes_says_which_export_can_be_served(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((None, 4)), keras.layers.GlobalAveragePooling1D()])
    model.compile("sgd", "mse")
    with pytest.raises(
        ServeError, match=r"\(None, 4\): export it for one size by .* --to savedmodel --data FILE\.npz`"
    ):
        load_run(write_run(tmp_path, model), 1)


def test_an_input_may_be_named_by_a_keyword_of_python(tmp_path: Path) -> None:
    given = keras.Input((2,), name="class")
    model = keras.Model({"class": given}, keras.ops.sum(given, axis=1, keepdims=True))
    model.compile("sgd", "mse")
    (tensor,) = load_run(write_run(tmp_path, model), 1).signature.inputs
    assert tensor.name == "class"


def test_logits_of_several_labels_become_a_probability_each(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
    scores = load_run(write_run(tmp_path, model), 1).scores(np.array([[0, np.log(3), np.log(9)]], np.float32))
    assert scores is not None
    np.testing.assert_allclose(scores, [[0.5, 0.75, 0.9]], rtol=1e-6)


def test_images_are_refused_where_the_recipe_that_reads_them_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = keras.Sequential([keras.Input((4, 4)), keras.layers.Flatten(), keras.layers.Dense(2, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    loaded = load_run(write_run(tmp_path, model, "/gone/own.py"), 1)
    reason = f"Images for the run {tmp_path} need the `read_image` of its recipe: there is no file /gone/own.py; "
    assert caplog.messages == [f"{reason}put it there, or give arrays."]
    file = io.BytesIO()
    Image.new("L", (4, 4)).save(file, "PNG")
    assert loaded.decode
    with pytest.raises(DataError, match=re.escape(reason)):
        loaded.decode(file.getvalue(), lambda pixels: None)
    assert loaded.compute([np.ones((1, 4, 4), np.float32)])[0].shape == (1, 2)


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


def test_a_savedmodel_that_decodes_images_is_described_with_what_an_export_decodes(served: Any) -> None:
    operation = served.ask("/openapi.json").json["paths"]["/v1/models/images:predict"]["post"]
    types = {"application/json", "image/jpg", "image/jpeg", "image/png"}
    assert set(operation["requestBody"]["content"]) == types
    png, webp = io.BytesIO(), io.BytesIO()
    Image.new("L", (4, 4)).save(png, "PNG")
    Image.new("L", (4, 4)).save(webp, "WEBP")
    for file, kind in ((png, "png"), (webp, "webp")):  # one from elsewhere may take more
        answer = served.ask("/v1/models/images:predict", file.getvalue(), {"content-type": f"image/{kind}"})
        assert answer.json == {"predictions": [len(file.getvalue())]}


@pytest.mark.parametrize("instances", [[["oh"], ["no"]], ["oh", "no"], [{"text": ["oh"]}, {"text": "no"}]])
def test_a_column_of_texts(served: Any, instances: list[Any]) -> None:
    answer = served.ask("/v1/models/column:predict", {"instances": instances})
    assert answer.json["predictions"] == [["ohoh"], ["nono"]]


def test_null_is_not_a_text(served: Any) -> None:
    answer = served.ask("/v1/models/column:predict", {"instances": [{"text": None}]})
    assert (answer.status, answer.error) == (400, 'The input `text` takes texts, or bytes as {"b64": "..."}.')


@pytest.mark.parametrize("data", [["oh", "no"], [["oh"], ["no"]]])
def test_a_column_of_texts_in_the_shape_that_the_metadata_say(served: Any, data: list[Any]) -> None:
    (about,) = served.ask("/v2/models/column").json["inputs"]
    assert about["shape"] == [-1, 1]
    given = {"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": data}
    (output,) = served.ask("/v2/models/column/infer", {"inputs": [given]}).json["outputs"]
    assert (output["shape"], output["data"]) == ([2, 1], ["ohoh", "nono"])


def test_a_model_that_refuses_zeros_is_served(served: Any) -> None:
    ones, zero = (served.ask("/v1/models/positive:predict", {"instances": [[n, 1, 1, 1]]}) for n in (1, 0))
    assert ones.json["predictions"] == [[1, 1, 1, 1]]
    assert zero.error.startswith("The model cannot take this input (assertion failed: [x is to be positive")
    assert "node" not in zero.error


def test_versions_that_cannot_be_computed_or_are_still_copied(served: Any, made: Path) -> None:
    net = made / "net"
    assert "net: version 2 of" in served.log.read_text()
    assert f"cannot be served: {net / '1.tflite'} cannot be computed: " in served.log.read_text()
    shutil.copytree(made / "saved/2", net / "3", ignore=shutil.ignore_patterns("variables.data*"))
    until(lambda: "a new version cannot be served, and the old one stays" in served.log.read_text())
    shutil.copytree(made / "saved/2/variables", net / "3/variables", dirs_exist_ok=True)
    until(lambda: "net: version 3 is now served." in served.log.read_text())


def test_two_versions_of_one_number_are_refused_once_and_the_old_one_stays(served: Any, made: Path) -> None:
    net = made / "net"
    same = f"{net / '2'} and {net / '2.tflite'} are both version 2: rename or remove one of them."
    shutil.copytree(made / "saved/2", net / "2")
    until(lambda: same in served.log.read_text())
    assert served.ask("/v2/models/net/versions/2").json["platform"] == "litert"
    shutil.rmtree(net / "2")
    shutil.copy(made / "float.tflite", net / "9.tflite")
    until(lambda: "net: version 9 is now served." in served.log.read_text())
    assert served.log.read_text().count(same) == 1
    assert "version 2 is now served" not in served.log.read_text()
