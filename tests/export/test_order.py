"""Inputs and outputs have the order of Keras' `model.inputs` and `model.outputs` in every form."""

import ctypes
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rudel
from rudel.backend import keras_on_jax

keras = keras_on_jax()
layers = keras.layers


@pytest.fixture(scope="session")
def three_inputs(fitted: Callable[..., Path]) -> tuple[Path, Any, Any]:
    """A run of (query, doc, ctx) -> (zz, aa), all inputs of one shape, with examples and its answers to them."""
    query, doc, ctx = (keras.Input((4,), name=name) for name in ("query", "doc", "ctx"))
    zz = layers.Dense(2, name="zz")(layers.Concatenate()([query, doc]))
    aa = layers.Dense(2, name="aa")(layers.Concatenate()([doc, ctx]))
    random = np.random.default_rng(0)
    x = [random.uniform(-1, 1, (200, 4)).astype("f4") for _ in range(3)]
    model = keras.Model([query, doc, ctx], [zz, aa])
    run = fitted(model, x, [random.uniform(-1, 1, (200, 2)) for _ in range(2)])
    return run, x, model.predict_on_batch(x)


@pytest.mark.parametrize("form", ["litert", "litert-int8", "onnx", "savedmodel", "c", "wasm"])
def test_inputs_and_outputs_stay_in_order(
    three_inputs: Any, needs: Callable[..., None], form: str, tmp_path: Path
) -> None:
    """A file of LiteRT says so twice: in its signature, and by the numbers that interpreters go by."""
    run, x, y = three_inputs
    if form == "wasm":
        needs("ziglang", program="node")
    made = rudel.export(run, form, tmp_path / "net", data=x)
    assert [port["name"] for port in made.inputs] == ["query", "doc", "ctx"]
    assert [port["name"] for port in made.outputs] == ["zz", "aa"]
    if form == "savedmodel":  # has names alone
        return
    given = [column[:1] for column in x]
    if form.startswith("litert"):
        answers = interpreted(made.path, given)
    elif form == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(made.path))
        answers = session.run(None, {i.name: g for i, g in zip(session.get_inputs(), given, strict=True)})
    elif form == "wasm":
        answers = in_node(made.path, given)
    else:
        answers = in_c(made, given)
    for mine, right in zip(answers, y, strict=True):
        np.testing.assert_allclose(
            np.reshape(np.asarray(mine), (2,)), right[0], atol=1e-5 if form in ("litert", "onnx") else 0.1
        )


def interpreted(path: Path, given: list[np.ndarray]) -> list[np.ndarray]:
    """What LiteRT's interpreter makes of inputs in its own order."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    for port, values in zip(interpreter.get_input_details(), given, strict=True):
        interpreter.set_tensor(port["index"], as_numbers(values, port["dtype"], *port["quantization"]))
    interpreter.invoke()
    ports = interpreter.get_output_details()
    return [as_reals(interpreter.get_tensor(port["index"]), *port["quantization"]) for port in ports]


def in_c(made: Any, given: list[np.ndarray]) -> list[np.ndarray]:
    """What the C gives for inputs in the order of its parameters."""
    (source,) = made.path.rglob("*.c")
    library = made.path / "net.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    arrays = [as_numbers(g, "int8", p["scale"], p["zero_point"]) for g, p in zip(given, made.inputs, strict=True)]
    outputs = [np.zeros(port["shape"], "int8") for port in made.outputs]
    invoke = ctypes.CDLL(str(library)).net_invoke
    invoke(*(ctypes.c_void_p(array.ctypes.data) for array in (*arrays, *outputs)))
    return [as_reals(o, p["scale"], p["zero_point"]) for o, p in zip(outputs, made.outputs, strict=True)]


def in_node(folder: Path, given: list[np.ndarray]) -> list[np.ndarray]:
    """What the module gives for real numbers in the order of `inputs`."""
    script = 'import {{ load }} from "./net.js";\nconst answers = (await load()).run(...{});\n'
    script += "console.log(JSON.stringify(answers.map((array) => [...array])));\n"
    (folder / "ask.mjs").write_text(script.format([values.ravel().tolist() for values in given]))
    done = subprocess.run(["node", "ask.mjs"], cwd=folder, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def as_numbers(values: np.ndarray, dtype: Any, scale: float, zero_point: int) -> np.ndarray:
    return np.clip(np.round(values / scale) + zero_point, -128, 127).astype(dtype) if scale else values


def as_reals(numbers: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    return (numbers.astype("f4") - zero_point) * scale if scale else numbers
