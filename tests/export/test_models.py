"""Models of many kinds: recurrent ones, several inputs, mixed precision, layers of one's own, integers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rudel
from rudel.backend import keras_on_jax, set_seed
from rudel.errors import ExportError
from rudel.micro.reader import read_model

keras = keras_on_jax()
layers = keras.layers

RECIPE = """
import jax.numpy as jnp
import keras, numpy as np, rudel

@keras.saving.register_keras_serializable("mine")
class Spread(keras.layers.Layer):
    def call(self, x):
        return OPERATION

def data():
    x = np.random.default_rng(0).normal(size=(128, 8)).astype("float32")
    return rudel.Dataset(rudel.Examples(x, x.sum(1)))

def model(dataset):
    net = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), Spread(), keras.layers.Dense(1)])
    net.compile("adam", "mse")
    return net
"""


def kinds_of(path: Path) -> list[str]:
    return [operator.kind for operator in read_model(path.read_bytes()).operators]


def test_lstms_become_one_operator_each(fitted: Callable[..., Path], waves: Any, tmp_path: Path) -> None:
    net = keras.Sequential(
        [
            keras.Input((10, 3)),
            layers.Bidirectional(layers.LSTM(6, return_sequences=True, dropout=0.1)),
            layers.LSTM(4, recurrent_dropout=0.1),
            layers.Dense(2, activation="softmax"),
        ]
    )
    run = fitted(net, *waves, "sparse_categorical_crossentropy")
    made = rudel.export(run, "litert-int8", tmp_path / "net.tflite", data=waves)
    assert kinds_of(made.path).count("UNIDIRECTIONAL_SEQUENCE_LSTM") == 3
    assert made.largest_difference < 0.1
    assert made.inputs[0]["dtype"] == made.outputs[0]["dtype"] == "int8"
    assert (made.examples, made.compared_on, made.calibrated_on) == (128, "given", 128)
    assert "accuracy" in made.metrics  # the model was compiled without it


@pytest.mark.parametrize("shape", [(4,), (6, 4), (3, 2, 4)])
def test_columns_of_different_scales_are_normalised_outside_of_int8(
    fitted: Callable[..., Path], shape: tuple[int, ...], tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    x = (random.normal(size=(256, *shape)) * [0.01, 1, 100, 10000]).astype(np.float32)
    y = (x.reshape(256, -1)[:, 0] > 0).astype(np.int32)
    normalise = layers.Normalization()
    normalise.adapt(x)
    set_seed(0)
    behind = [layers.Flatten(), layers.Dense(16, activation="relu"), layers.Dense(2, activation="softmax")]
    run = fitted(keras.Sequential([keras.Input(shape), normalise, *behind]), x, y, "sparse_categorical_crossentropy")
    made = rudel.export(run, "litert-int8", tmp_path / "net.tflite", data=(x, y))
    assert made.inputs[0]["name"] == "normalised"
    assert any("rows whose 4 columns are normalised" in note for note in made.notes)
    assert made.largest_difference < 0.1
    assert made.agreement is not None
    assert made.agreement > 0.95
    rudel.export(run, "c", tmp_path / "net", data=(x, y))
    assert (tmp_path / "net/net_features.c").is_file()


def test_an_input_that_something_else_takes_too_is_not_normalised_outside(
    fitted: Callable[..., Path], tmp_path: Path
) -> None:
    x = (np.random.default_rng(0).normal(size=(256, 3)) * [0.01, 1, 100]).astype(np.float32)
    normalise = layers.Normalization(name="normalise")
    normalise.adapt(x)
    given = keras.Input((3,), name="given")
    joined = layers.Concatenate()([normalise(given), layers.Rescaling(0.01)(given)])
    run = fitted(keras.Model(given, layers.Dense(1)(joined)), x, x[:, :1])
    made = rudel.export(run, "litert-int8", tmp_path / "net.tflite", data=x)
    assert made.inputs[0]["name"] == "given"


@pytest.mark.parametrize("form", ["litert", "savedmodel", "onnx"])
def test_outputs_may_be_named_as_an_input_or_be_one(fitted: Callable[..., Path], tmp_path: Path, form: str) -> None:
    x = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    given = keras.Input((3,), name="given")
    outputs = {"same": given, "given": layers.Dense(1)(given)}
    losses = dict.fromkeys(outputs, "mse")
    run = fitted(keras.Model(given, outputs), x, {"same": x, "given": x[:, :1]}, losses)
    made = rudel.export(run, form, tmp_path / "net", data=x)
    assert made.largest_difference < 1e-5
    given_too = "given_output" if form == "onnx" else "given"
    assert {output["name"] for output in made.outputs} == {"same", given_too}


def test_other_recurrent_layers_are_unrolled(fitted: Callable[..., Path], waves: Any, tmp_path: Path) -> None:
    waves = (waves[0][:, :4], waves[1])  # of few steps, as each of them is converted anew
    net = keras.Sequential(
        [
            keras.Input((4, 3)),
            layers.LSTM(3, return_sequences=True),
            layers.Masking(),
            layers.LSTM(4, return_sequences=True),  # its mask keeps it from being fused
            layers.GRU(4),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    run = fitted(net, *waves, "binary_crossentropy")
    made = rudel.export(run, "litert-int8", tmp_path / "net.tflite", data=waves)
    assert made.outputs[0]["dtype"] == "int8"
    assert not {"WHILE", "SHAPE"} & set(kinds_of(made.path))
    assert made.largest_difference < 0.1
    assert made.agreement is not None
    exact = rudel.export(run, "litert", tmp_path / "exact.tflite", data=waves[0])
    assert exact.largest_difference < 1e-5
    with pytest.raises(ExportError, match="LiteRT cannot compute NOT_EQUAL in int16: build the model without it, or"):
        rudel.export(run, "litert-int16", tmp_path / "finer.tflite", data=waves)
    assert (exact.examples, exact.metrics) == (256, {})


def test_several_inputs_and_outputs(fitted: Callable[..., Path], tmp_path: Path) -> None:
    left, right = keras.Input((4,), name="left"), keras.Input((5, 5, 2), name="right")
    seen = layers.Flatten()(layers.DepthwiseConv2D(3, activation="relu")(right))
    both = layers.Concatenate()([layers.Dense(6, activation="relu")(left), seen])
    outputs = {"total": layers.Dense(1, name="total")(both), "kind": layers.Dense(3, activation="softmax")(both)}
    random = np.random.default_rng(0)
    x = {
        "right": random.normal(size=(200, 5, 5, 2)).astype("f4"),
        "left": 9 * random.normal(size=(200, 4)).astype("f4"),
    }
    y = {"kind": x["left"][:, :3].argmax(1), "total": x["left"].sum(1)}
    losses = {"total": "mse", "kind": "sparse_categorical_crossentropy"}
    run = fitted(keras.Model({"left": left, "right": right}, outputs), x, y, losses, metrics={"total": "mae"})
    np.savez(tmp_path / "data.npz", **x, **y)
    for data in ((x, y), tmp_path / "data.npz"):
        made = rudel.export(run, "litert-int8", tmp_path / f"{type(data).__name__}.tflite", data=data)
        assert {port["name"]: tuple(port["shape"]) for port in made.inputs} == {"left": (1, 4), "right": (1, 5, 5, 2)}
        scales = {port["name"]: port["scale"] for port in made.inputs}
        assert scales["left"] == pytest.approx(9 * scales["right"], rel=0.4)
        assert {port["name"]: tuple(port["shape"]) for port in made.outputs} == {"total": (1, 1), "kind": (1, 3)}
        assert made.metrics["total_mae"] == pytest.approx(made.model_metrics["total_mae"], rel=0.1)
        assert made.agreement is None


def test_regression_in_mixed_precision(fitted: Callable[..., Path], tmp_path: Path) -> None:
    with_policy = [layers.Dense(16, activation="relu", dtype="mixed_bfloat16"), layers.Dense(2, dtype="mixed_bfloat16")]
    x = np.random.default_rng(0).uniform(-1, 1, (300, 2)).astype("float32")
    run = fitted(keras.Sequential([keras.Input((2,)), *with_policy]), x, x[:, ::-1])
    made = rudel.export(run, "litert", tmp_path / "net.tflite", data=(x, x[:, ::-1]))
    assert made.metrics["mae"] == pytest.approx(made.model_metrics["mae"], rel=0.02)
    assert made.largest_difference < 0.05  # bfloat16 has 8 bits
    assert made.notes == ["It computes in float32, and the model of the run in bfloat16."]
    assert {tensor.dtype for tensor in read_model(made.path.read_bytes()).tensors} == {"float32"}


def test_weights_of_16_bits_are_refused(fitted: Callable[..., Path], tmp_path: Path) -> None:
    x = np.zeros((64, 2), "float32")
    run = fitted(keras.Sequential([keras.Input((2,)), layers.Dense(2, dtype="bfloat16")]), x, x)
    with pytest.raises(ExportError, match=r"are bfloat16, .* with the policy mixed_bfloat16"):
        rudel.export(run, "litert", tmp_path / "net.tflite", data=(x, x))


def test_words_stay_integers(fitted: Callable[..., Path], tmp_path: Path) -> None:
    net = keras.Sequential(
        [keras.Input((6,), dtype="int32"), layers.Embedding(30, 8), layers.GlobalAveragePooling1D(), layers.Dense(1)]
    )
    x = np.random.default_rng(0).integers(0, 30, (200, 6))
    run = fitted(net, x, x.mean(1))
    made = rudel.export(run, "litert-int8", tmp_path / "net.tflite", data=(x, x.mean(1)))
    assert (made.inputs[0]["dtype"], made.outputs[0]["dtype"]) == ("int32", "int8")
    assert made.metrics["mae"] == pytest.approx(made.model_metrics["mae"], rel=0.05)


def test_layers_of_ones_own_come_from_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RECIPE.replace("OPERATION", "keras.ops.tanh(x) * 2"))
    run = rudel.train_recipe(str(path), epochs=1, run=tmp_path / "run", verbose=False).path
    made = rudel.export(run, "litert", tmp_path / "net.tflite")
    assert made.compared_on == "training"
    assert made.largest_difference < 1e-5
    assert "TANH" in kinds_of(made.path)


@pytest.mark.parametrize(
    ("operation", "form", "words"),
    [
        ("jnp.tanh(x)", "litert", "Layers of your own have to compute with keras.ops, not with jax.numpy, and"),
        ("keras.ops.erfinv(keras.ops.tanh(x))", "litert", "LiteRT has no operator for Erfinv"),
    ],
)
def test_what_cannot_be_converted(tmp_path: Path, operation: str, form: str, words: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RECIPE.replace("OPERATION", operation))
    run = rudel.train_recipe(str(path), epochs=1, run=tmp_path / "run", verbose=False).path
    with pytest.raises(ExportError) as failure:
        rudel.export(run, form, tmp_path / "net.tflite")
    assert words in str(failure.value)
    assert "\n" not in str(failure.value)
    assert sorted(found.name for found in tmp_path.iterdir() if found.name != "__pycache__") == ["mine.py", "run"]
