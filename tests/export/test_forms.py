"""Every form of one run: what it is made of, that it runs, and that it is made the same again."""

import dataclasses
import json
import os
import pkgutil
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages.blocks import ROOT

import rudel
from rudel.backend import set_seed
from rudel.errors import ExportError, OptionError
from rudel.export import compiled
from rudel.export.forms import FORMS, Form
from rudel.export.int8_model import Int8Model
from rudel.export.process import ENVIRONMENT
from rudel.micro.check import check
from rudel.micro.compiler import compile_model
from rudel.micro.reader import read_model

DYNAMIC = {"SHAPE", "STRIDED_SLICE", "PACK", "FILL", "WHILE"}


def content(path: Path) -> dict[str, bytes]:
    """The bytes of every file."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.mark.parametrize(
    ("form", "difference", "smaller"),
    [("litert", 1e-5, 1.0), ("litert-f16", 5e-3, 0.56), ("litert-dynamic", 0.1, 0.32)],
)
def test_litert(digits: Path, tmp_path: Path, form: str, difference: float, smaller: float) -> None:
    made = rudel.export(digits, form, tmp_path / "digits.tflite")
    assert made.path.stat().st_size == made.bytes
    assert made.largest_difference < difference
    assert made.metrics["accuracy"] == pytest.approx(made.model_metrics["accuracy"], abs=0.012)
    assert made.model_metrics["accuracy"] == pytest.approx(rudel_accuracy(digits))
    assert made.agreement is not None
    assert made.agreement > 0.97
    assert (made.examples, made.compared_on, made.calibrated_on) == (357, "validation", 0)
    weights = 4 * rudel.load(digits).count_params()
    assert made.bytes < weights * smaller + 6000
    assert not any("in float32" in note for note in made.notes)
    if form != "litert-f16":
        graph = read_model(made.path.read_bytes())
        kinds = {operator.kind for operator in graph.operators}
        assert kinds == {"MUL", "RESHAPE", "CONV_2D", "FULLY_CONNECTED", "SOFTMAX"}
        assert [graph[i].shape for i in (*graph.inputs, *graph.outputs)] == [(1, 8, 8), (1, 10)]


@pytest.fixture(scope="module")
def int8(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The run in int8."""
    return rudel.export(digits, "litert-int8", tmp_path_factory.mktemp("int8") / "net.tflite")


def rudel_accuracy(run: Path) -> float:
    return json.loads((run / "summary.json").read_text())["metrics"]["val_accuracy"]


def test_int8_is_int8_throughout_with_a_scale_per_channel(int8: Any) -> None:
    graph = read_model(int8.path.read_bytes())
    assert {tensor.dtype for tensor in graph.tensors} == {"int8", "int32"}
    assert {operator.kind for operator in graph.operators} == {
        "MUL",
        "RESHAPE",
        "CONV_2D",
        "FULLY_CONNECTED",
        "SOFTMAX",
    }
    for operator in graph.operators:
        if operator.kind in ("CONV_2D", "FULLY_CONNECTED"):
            weights = graph[operator.inputs[1]]
            assert weights.quantisation is not None
            assert len(weights.quantisation.scale) == weights.shape[0] > 1
    assert [port["dtype"] for port in (*int8.inputs, *int8.outputs)] == ["int8", "int8"]
    assert (int8.inputs[0]["scale"], int8.inputs[0]["zero_point"]) == (1, -128)  # pixels of 0 to 255
    assert (int8.largest_difference, int8.agreement) == (pytest.approx(0.05, abs=0.05), pytest.approx(1, abs=0.02))
    assert (int8.bytes, int8.calibrated_on) == (pytest.approx(26_000, rel=0.05), 500)


def test_int16_has_activations_in_int16_and_weights_in_int8(digits: Path, int8: Any, tmp_path: Path) -> None:
    made = rudel.export(digits, "litert-int16", tmp_path / "net.tflite")
    data = made.path.read_bytes()
    graph = read_model(data)
    assert {tensor.dtype for tensor in graph.tensors} == {"int16", "int8", "int32", "int64"}
    for operator in graph.operators:
        if operator.kind in ("CONV_2D", "FULLY_CONNECTED"):
            assert [graph[index].dtype for index in (*operator.inputs, *operator.outputs)] == [
                "int16",
                "int8",
                "int64",
                "int16",
            ]
    assert [port["dtype"] for port in (*made.inputs, *made.outputs)] == ["int16", "int16"]
    assert made.inputs[0]["zero_point"] == made.outputs[0]["zero_point"] == 0
    assert made.largest_difference < int8.largest_difference
    assert made.calibrated_on == 500
    assert check(compile_model(made.path), data, count=8).passed


def test_int8_depends_on_the_examples_and_on_nothing_else(digits: Path, int8: Any, tmp_path: Path) -> None:
    again = rudel.export(digits, "litert-int8", tmp_path / "b.tflite")
    assert content(again.path) == content(int8.path)
    other = rudel.export(digits, "litert-int8", tmp_path / "c.tflite", calibration=3, seed=1)
    assert other.calibrated_on == 3
    assert content(other.path) != content(int8.path)


def test_calibration_is_refused_where_there_is_none(digits: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="`calibration=` is for forms with ranges of integers, and `litert` has"):
        rudel.export(digits, "litert", tmp_path / "d.tflite", calibration=500)
    assert not list(tmp_path.iterdir())


def test_onnx(digits: Path, tmp_path: Path, needs: Callable[..., None]) -> None:
    needs("tf2onnx", "onnx", "onnxruntime")
    made = rudel.export(digits, "onnx", tmp_path / "one.onnx")
    assert made.largest_difference < 1e-5
    assert made.metrics == pytest.approx(made.model_metrics)
    assert (made.inputs[0]["shape"], made.outputs[0]["shape"]) == ([None, 8, 8], [None, 10])
    assert content(rudel.export(digits, "onnx", tmp_path / "two.onnx").path) == content(made.path)
    import onnx

    graph = onnx.load(made.path).graph
    assert not {node.op_type for node in graph.node} & {"Loop", "If", "BatchNormalization"}


def test_onnx_takes_batches_of_any_size_and_gelu(tmp_path: Path, needs: Callable[..., None]) -> None:
    needs("tf2onnx", "onnx", "onnxruntime")
    import keras
    import onnxruntime

    set_seed(0)
    layers = [keras.layers.Dense(6, "gelu"), keras.layers.LayerNormalization(), keras.layers.GRU(4)]
    model = keras.Sequential([keras.Input((5, 3)), *layers])
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(7, 5, 3)).astype("float32")
    rudel.fit(model, x, np.zeros((7, 4), "float32"), run=tmp_path / "run", verbose=0)
    made = rudel.export(tmp_path / "run", "onnx", tmp_path / "gelu.onnx")
    assert made.compared_on == "made-up"
    session = onnxruntime.InferenceSession(str(made.path))
    (given,) = session.get_inputs()
    for count in (1, 7):
        answers: Any = session.run(None, {given.name: x[:count]})[0]
        np.testing.assert_allclose(answers, rudel.predict(model, x[:count]), atol=1e-6)


def test_a_saved_model_serves_batches_as_keras_expects(digits: Path, tmp_path: Path, warm_python: str) -> None:
    made = rudel.export(digits, "savedmodel", tmp_path / "model")
    assert made.largest_difference < 1e-5
    assert made.metrics == pytest.approx(made.model_metrics)
    assert made.inputs[0]["shape"] == [None, 8, 8]
    assert "by `read_image`" in made.notes[0]
    assert made.from_files is None
    assert made.bytes == sum(map(len, content(made.path).values()))
    assert content(rudel.export(digits, "savedmodel", tmp_path / "again").path) == content(made.path)
    x = np.random.default_rng(0).integers(0, 256, (3, 8, 8)).astype("uint8")
    np.save(tmp_path / "x.npy", x)
    script = (
        "import keras, numpy as np\n"
        "layer = keras.layers.TFSMLayer('model', call_endpoint='serve')\n"
        "(outputs,) = layer(np.load('x.npy').astype('float32')).values()\n"
        "np.save('outputs.npy', outputs)\n"
        "import tensorflow as tf\n"
        "made = tf.saved_model.load('model').signatures\n"
        "assert {*made} == {'serving_default', 'serving_arrays'}\n"
        "for signature in made.values():\n"
        "    (name,) = signature.structured_input_signature[1]\n"
        "    (again,) = signature(**{name: tf.constant(np.load('x.npy').astype('float32'))}).values()\n"
        "    assert np.allclose(again, outputs, atol=1e-6)\n"
    )
    subprocess.run([warm_python, "-c", script], check=True, cwd=tmp_path, env=os.environ | ENVIRONMENT)
    assert np.load(tmp_path / "outputs.npy") == pytest.approx(rudel.predict(rudel.load(digits), x), abs=1e-5)


def test_an_array_for_tensorflow_lite_micro(
    digits: Path, int8: Any, tmp_path: Path, needs: Callable[..., None], command: Callable[..., Any]
) -> None:
    needs(program="c++", install="apt-get install g++")
    done = command(digits, "--to", "c-array", "--out", "deep/wake word", "--json", folder=tmp_path)
    made = json.loads(done.stdout)
    assert (made["path"], made["form"], made["compared_on"]) == ("deep/wake word", "c-array", "validation")
    assert set(made) == {field.name for field in dataclasses.fields(int8)}
    assert made["outputs"][0]["classes"] == list("0123456789")
    folder = tmp_path / "deep/wake word"
    assert set(content(folder)) == {"wake_word.h", "wake_word.cc"}
    header, source = ((folder / f"wake_word.{ending}").read_text() for ending in ("h", "cc"))
    model = bytes(int(byte, 16) for byte in re.findall("0x(..),", source))
    assert "alignas(16) const unsigned char wake_word_model[]" in source
    assert model == content(int8.path)["."]
    assert made["bytes"] == len(model)
    assert f"wake_word_model_len = {len(model)};" in source
    constants = dict(re.findall(r"#define WAKE_WORD_(\w+) (\S+)", header))
    assert constants.pop("ARENA_SIZE")
    assert constants == {
        "MODEL_SIZE": str(len(model)), "OPERATORS": "5",
        "INPUT_SIZE": "64", "INPUT_SCALE": "1.0f", "INPUT_ZERO_POINT": "(-128)",
        "OUTPUT_SIZE": "10", "OUTPUT_SCALE": "0.00390625f", "OUTPUT_ZERO_POINT": "(-128)",
    }  # fmt: skip
    assert "resolver.AddConv2D();" in header
    assert any("was compiled here" in note for note in made["notes"])


@pytest.mark.parametrize("form", ["c", "wasm"])
def test_compiled_to_c(digits: Path, tmp_path: Path, form: str, needs: Callable[..., None]) -> None:
    if form == "wasm":
        needs("ziglang")
        needs(program="node", install="apt-get install nodejs")
    else:
        needs(program="cc", install="apt-get install gcc")
    made = rudel.export(digits, form, tmp_path / "net")
    files = set(content(made.path))
    assert (
        files
        >= {
            "c": {"net.h", "net.c"},
            "wasm": {"net.wasm", "net.js"},
        }[form]
    )
    if form == "c":
        classes = ", ".join(f'"{number}"' for number in range(10))
        assert f"#define NET_OUTPUT_CLASSES {{{classes}}}" in (made.path / "net.h").read_text()
    if form == "wasm":
        loader = (made.path / "net.js").read_text()
        assert f"export const classes = {json.dumps(list('0123456789'))};" in loader
        assert "int8 [1, 8, 8], real numbers from 0 to 255" in loader
    assert any("every output has the bits of LiteRT's reference kernels" in note for note in made.notes)
    assert made.metrics["accuracy"] == pytest.approx(made.model_metrics["accuracy"], abs=0.012)


@pytest.mark.parametrize("form", ["c", "arduino", "cmake", "zephyr"])
def test_a_difference_in_one_bit_is_not_passed_over(
    int8: Any, tmp_path: Path, needs: Callable[..., None], form: str
) -> None:
    needs(program="cc", install="apt-get install gcc")
    x = np.zeros((4, 1, 8, 8), "int8")
    raw: dict[str, Any] = {"input0": x, "output0": np.zeros((4, 1, 10), "int8")}
    np.savez(tmp_path / "raw.npz", **raw)
    (tmp_path / "work").mkdir()
    model = Int8Model("net", int8.path, "digits", tmp_path / "raw.npz")
    with pytest.raises(ExportError, match=r"differs from LiteRT in \d+ of 40 outputs"):
        getattr(compiled, form)(model, tmp_path / "made", tmp_path / "work")
    written = content(tmp_path / "made")
    assert {Path(name).name for name in written} >= {"net.c", "net.h"}
    marks = {"c": "net.c", "arduino": "library.properties", "cmake": "CMakeLists.txt", "zephyr": "zephyr/module.yml"}
    assert marks[form] in written


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_an_entry_names_what_makes_its_form(form: Form) -> None:
    assert not form.maker or callable(pkgutil.resolve_name(form.maker))
    assert not form.check or callable(pkgutil.resolve_name(form.check))


def test_the_documentation_lists_every_form() -> None:
    page = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| ((?:`[^`|]+`(?:, )?)+) \|", page, re.MULTILINE)
    listed = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell) if name in FORMS]
    assert listed == list(FORMS)
