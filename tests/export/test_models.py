"""Models of many kinds: recurrent ones, several inputs, mixed precision, layers of one's own, integers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rudel
from rudel.backend import keras_on_jax, set_seed
from rudel.errors import CompileError, ExportError
from rudel.export import process
from rudel.export.comparison import Comparison, notes_on_calibration, notes_on_quantisation
from rudel.export.inputs import inputs_of
from rudel.export.materials import gather
from rudel.features.sensor_columns import columns_of
from rudel.micro import compile_model
from rudel.micro.reader import read_model
from rudel.runs.model_as_run import as_run
from rudel.runs.run_directory import open_finished

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


def test_inferences_of_an_lstm_stand_alone_in_webassembly(
    waves: Any, tmp_path: Path, needs: Callable[..., None]
) -> None:
    """The export compares the module's answers to examples one after the other with LiteRT's to each alone."""
    needs("ziglang")
    needs(program="node", install="apt-get install nodejs")
    net = keras.Sequential([keras.Input((10, 3)), layers.LSTM(4), layers.Dense(2, activation="softmax")])
    net.save(tmp_path / "net.keras")
    with as_run(tmp_path / "net.keras") as run:
        made = rudel.export(run, "wasm", tmp_path / "net", data=waves)
    assert any("every output has the bits of LiteRT's reference kernels" in note for note in made.notes)


def test_an_export_says_that_small_weights_stay_float32(
    fitted: Callable[..., Path], waves: Any, tmp_path: Path
) -> None:
    run = fitted(keras.Sequential([keras.Input((10, 3)), layers.LSTM(16), layers.Dense(1)]), *waves)
    made = [rudel.export(run, f"litert{kind}", tmp_path / f"net{kind}.tflite", data=waves) for kind in ("", "-dynamic")]
    assert [any("No weights are in int8" in note for note in each.notes) for each in made] == [False, True]
    assert made[0].bytes == made[1].bytes


def test_lstms_and_flips_before_a_concatenation_are_quantised_alike(
    fitted: Callable[..., Path], tmp_path: Path
) -> None:
    net = keras.Sequential([keras.Input((10, 3)), layers.Bidirectional(layers.LSTM(4, return_sequences=True))])
    random = np.random.default_rng(2)
    net.set_weights([random.normal(scale=0.5, size=weight.shape) for weight in net.get_weights()])
    x = random.uniform(-1, 1, (400, 10, 3))
    run = fitted(net, x, np.zeros((400, 10, 8), np.float32))
    made = rudel.export(run, "litert-int8", tmp_path / "net.tflite", data=x)
    assert made.largest_difference < 0.05
    graph = read_model(made.path.read_bytes())
    assert [operator.kind for operator in graph.operators].count("UNIDIRECTIONAL_SEQUENCE_LSTM") == 2
    for operator in graph.operators:
        if operator.kind == "UNIDIRECTIONAL_SEQUENCE_LSTM":
            like = {(graph[i].scale, graph[i].zero_point) for i in (operator.inputs[18], operator.intermediates[4])}
            assert like == {(graph[operator.outputs[0]].scale, graph[operator.outputs[0]].zero_point)}
    assert compile_model(made.path.read_bytes()).inputs


@pytest.mark.parametrize("form", ["litert", "litert-int8"])
def test_lstms_that_hand_on_their_states_are_not_fused(fitted: Callable[..., Path], tmp_path: Path, form: str) -> None:
    seen, said = keras.Input((3, 2), name="seen"), keras.Input((2, 2), name="said")
    _, hidden, carry = layers.LSTM(4, return_state=True)(layers.LSTM(3, return_sequences=True)(seen))
    outputs = layers.LSTM(4)(said, initial_state=[hidden, carry])
    random = np.random.default_rng(0)
    x = {"seen": random.uniform(-1, 1, (400, 3, 2)), "said": random.uniform(-1, 1, (400, 2, 2))}
    run = fitted(keras.Model([seen, said], outputs), x, np.zeros((400, 4), np.float32))
    made = rudel.export(run, form, tmp_path / "net.tflite", data=x)
    assert made.largest_difference < (1e-5 if form == "litert" else 0.1)
    if form == "litert-int8":
        assert kinds_of(made.path).count("UNIDIRECTIONAL_SEQUENCE_LSTM") == 1


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


@pytest.mark.parametrize(
    ("means", "spreads"), [([22, 55, 1013], [4, 15, 8]), ([1013], [8])], ids=["weather", "pressure"]
)
def test_columns_far_from_zero_are_normalised_outside_of_int8(
    fitted: Callable[..., Path], means: list[float], spreads: list[float], tmp_path: Path
) -> None:
    shares = np.random.default_rng(0).uniform(-2, 2, (256, 1))
    x = (means + shares * np.array(spreads)).astype(np.float32)
    normalise = layers.Normalization()
    normalise.adapt(x)
    net = keras.Sequential([keras.Input((len(means),)), normalise, layers.Dense(1, kernel_initializer="ones")])
    made = rudel.export(fitted(net, x, x[:, :1]), "litert-int8", tmp_path / "net.tflite", data=x)
    assert made.inputs[0]["name"] == "normalised"
    assert any("one scale of int8 is too coarse" in note for note in made.notes)
    assert made.largest_difference < 0.1


def test_columns_that_share_a_scale_well_are_normalised_inside() -> None:
    normalise = layers.Normalization(mean=[22, 55, 0], variance=[36, 225, 36])
    normalise.build((None, 3))
    assert columns_of(normalise) is None


def test_an_lstm_whose_cells_stay_small_computes_in_int8(tmp_path: Path) -> None:
    """The converter gives cells below 1/2 a scale with which LiteRT's kernels leave hidden states as they were."""
    set_seed(0)
    keras.Sequential([keras.Input((6, 3)), layers.LSTM(4, return_sequences=True)]).save(tmp_path / "net.keras")
    x = np.random.default_rng(0).uniform(-0.3, 0.3, (80, 6, 3)).astype(np.float32)
    with as_run(tmp_path / "net.keras") as run:
        made = rudel.export(run, "litert-int8", tmp_path / "made.tflite", data=(x, None))
    assert made.largest_difference < 0.05
    compile_model(made.path)


def test_an_export_says_where_quantisation_costs_much(tmp_path: Path) -> None:
    net: Any = keras.Sequential([keras.Input((2,), name="sizes"), layers.Dense(1)])
    net.set_weights([np.array([[1.0], [0.0]]), np.zeros(1)])
    net.compile("sgd", "mse", metrics=["mae"])
    net.save(tmp_path / "net.keras")
    random = np.random.default_rng(0)
    x = np.stack([random.uniform(-1, 1, 200), random.uniform(0, 50_000, 200)], 1).astype(np.float32)
    with as_run(tmp_path / "net.keras") as run:
        for form, said in (("litert-int8", ["Quantisation changes MAE from 0 to "]), ("litert-dynamic", [])):
            made = rudel.export(run, form, tmp_path / f"{form}.tflite", data=(x, x[:, :1]))
            found = [note for note in made.notes if "Quantisation changes" in note]
            assert [note[: len(words)] for note, words in zip(found, said, strict=True)] == said
            for note in found:
                assert "The widest input, `sizes`, spans 0 to 49," in note
                assert note.endswith(
                    " in 255 steps: if that is too coarse, scale it before the model, or export to litert-dynamic."
                )


def test_an_input_that_is_exact_is_not_blamed_for_quantisation() -> None:
    pixels = {"name": "pixels", "dtype": "int8", "scale": 1.0, "zero_point": -128}
    sizes = {"name": "sizes", "dtype": "int8", "scale": 0.5, "zero_point": 0}
    worse = Comparison({"accuracy": 0.5}, {"accuracy": 0.9}, 1.0, 0.5)
    (note,) = notes_on_quantisation(worse, [pixels])
    assert note.endswith("Export to litert-dynamic, which has float32 activations.")
    (note,) = notes_on_quantisation(worse, [pixels, sizes])
    assert "The widest input, `sizes`, spans \N{MINUS SIGN}64 to 63.5 in 255 steps" in note


def test_an_input_that_does_not_vary_in_the_calibration_is_named() -> None:
    (note,) = notes_on_calibration(["flat", "varied"], [np.full((8, 2), 1.5), np.eye(8, 2)])
    assert note == (
        "All values of `flat` in the calibration examples are 1.5, which gives no ranges for others: calibrate on "
        "examples in which it varies."
    )


def test_what_is_advised_in_the_place_of_upsampling_can_be_compiled(
    fitted: Callable[..., Path], tmp_path: Path
) -> None:
    x = np.random.default_rng(0).uniform(0, 1, (64, 4, 4, 1)).astype(np.float32)

    def export(layer: Any) -> Any:
        net = keras.Sequential([keras.Input((4, 4, 1)), layers.Conv2D(2, 3, padding="same"), layer])
        return rudel.export(fitted(net, x, np.zeros((64, 8, 8, 2))), "c", tmp_path / "net", data=x)

    advised = r': use Resizing\(height, width, interpolation="nearest"\) in the place of upsampling'
    with pytest.raises(CompileError, match=rf"RESIZE_BILINEAR, .*{advised}\.$"):
        export(layers.UpSampling2D(interpolation="bilinear"))
    of_vectors = r"Concatenate\(1\)\(\[Reshape\(\(1, size\)\)\(x\)\] \* n\) in that of RepeatVector\(n\)"
    of_sequences = rf", {of_vectors}, or Conv1DTranspose where it is of sequences\.$"
    with pytest.raises(ExportError, match=f"operator TILE, .*{advised}{of_sequences}"):
        export(layers.UpSampling2D())
    assert export(layers.Resizing(8, 8, interpolation="nearest")).largest_difference < 0.05
    net = keras.Sequential([keras.Input((4, 4)), layers.Conv1DTranspose(2, 3, strides=2, padding="same")])
    run = fitted(net, x[..., 0], np.zeros((64, 8, 2)))
    assert rudel.export(run, "c", tmp_path / "series", data=x[..., 0]).largest_difference < 0.05


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


def test_the_name_of_an_input_is_the_key_of_no_other() -> None:
    x = {name: np.zeros((2, 1), "float32") for name in ("a b", "a_b", "a-b", "Größe", "x")}
    given = {name: keras.Input((1,), name=name) for name in x}
    model = keras.Model(given, layers.Concatenate()(list(given.values())))
    names = {leaf.key: leaf.name for leaf in inputs_of(model, x).leaves}
    assert (names["a_b"], names["x"], names["Größe"]) == ("a_b", "x", "Gr_e")
    assert len({*names.values()}) == 5


def test_inputs_may_be_named_by_keywords_of_python_and_by_case(fitted: Callable[..., Path], tmp_path: Path) -> None:
    names = ("class", "class_", "self", "y", "Y")
    x = {name: np.random.default_rng(0).normal(size=(64, 1)).astype("f4") for name in names}
    given = {name: keras.Input((1,), name=name) for name in x}
    run = fitted(keras.Model(given, layers.Dense(1)(layers.Concatenate()(list(given.values())))), x, x["y"])
    made = rudel.export(run, "savedmodel", tmp_path / "net", data=x)
    assert made.largest_difference < 1e-5
    keys = {port.get("key", port["name"]): port["name"] for port in made.inputs}
    assert keys == {"class": "class__1", "class_": "class_", "self": "self_", "Y": "Y", "y": "y_4"}
    words = "Names of its inputs are identifiers: `class__1` is `class`, `self_` is `self`, `y_4` is `y`."
    assert words in made.notes


def test_onnx_has_grouped_convolutions_and_what_layers_hold_beside_weights(
    fitted: Callable[..., Path], tmp_path: Path
) -> None:
    x = np.random.default_rng(0).normal(3, 10, (64, 6, 6, 4)).astype(np.float32)
    few, many = layers.Normalization(), layers.Normalization(axis=(1, 2, 3))
    many.adapt(x)
    few.adapt(x / 10)
    net = keras.Sequential([keras.Input((6, 6, 4)), many, few, layers.Conv2D(6, 3, groups=2), layers.Flatten()])
    made = rudel.export(fitted(net, x, np.zeros((64, 96))), "onnx", tmp_path / "net.onnx", data=x)
    assert made.largest_difference < 1e-4
    assert len(made.inputs) == 1


def run_exported(made: Any, x: np.ndarray, folder: Path) -> np.ndarray:
    """The only output of an exported SavedModel."""
    arrays: dict[str, Any] = {"0": x}
    np.savez(folder / "x.npz", **arrays)
    job = {"kind": "savedmodel", "path": str(made.path), "inputs": [made.inputs[0]["name"]], "files": 0}
    job |= {"examples": str(folder / "x.npz"), "outputs": str(folder / "y.npz")}
    process.run("rudel.export.runner", job, folder, "running the exported model")
    with np.load(folder / "y.npz") as stored:
        return stored[made.outputs[0]["name"]]


@pytest.mark.parametrize(("dtype", "mode"), [("float32", "one_hot"), ("int32", "int")])
def test_onnx_has_the_buckets_of_discretization(
    fitted: Callable[..., Path], tmp_path: Path, dtype: str, mode: str
) -> None:
    x = np.array([[-5], [-1], [0], [0.1], [2], [3]]).astype(dtype)
    buckets = layers.Discretization([-1.0, 0.1, 2.0], output_mode=mode)
    inside = [buckets] if mode == "one_hot" else [buckets, layers.Embedding(4, 3), layers.Flatten()]
    run = fitted(keras.Sequential([keras.Input((1,), dtype=dtype), *inside, layers.Dense(2)]), x, np.zeros((6, 2)))
    made = rudel.export(run, "onnx", tmp_path / "net.onnx", data=x)
    assert made.largest_difference < 1e-5


def test_an_exported_model_that_cannot_be_run_says_why(fitted: Callable[..., Path], tmp_path: Path) -> None:
    x = np.arange(32).reshape(32, 1) % 2
    net = keras.Sequential([keras.Input((1,), dtype="int32"), layers.Embedding(2, 1), layers.Flatten()])
    made = rudel.export(fitted(net, x, x), "savedmodel", tmp_path / "net", data=x)
    with pytest.raises(ExportError, match=r"^The exported model does not run: .* = 9 is not in \[0, 2\)\.$"):
        run_exported(made, x + 9, tmp_path)


def test_a_savedmodel_of_a_model_of_open_sizes_takes_images(fitted: Callable[..., Path], tmp_path: Path) -> None:
    """TensorFlow makes no `CenterCrop` of images whose size is open."""
    x = np.random.default_rng(0).integers(0, 256, (64, 6, 9, 3), np.uint8)
    seen = [keras.Input((None, None, 3), dtype="uint8"), layers.Rescaling(1 / 255), layers.CenterCrop(8, 8)]
    net = keras.Sequential([*seen, layers.Flatten(), layers.Dense(2, activation="softmax")])
    run = fitted(net, x, np.arange(64) % 2, "sparse_categorical_crossentropy")
    made = rudel.export(run, "savedmodel", tmp_path / "net", data=x)
    assert made.inputs[0]["shape"] == [None, 6, 9, 3]
    assert made.from_files
    assert made.from_files.agreement == 1


@pytest.mark.parametrize("form", ["onnx", "savedmodel", "litert"])
def test_an_export_says_that_it_takes_the_size_of_the_examples_alone(
    fitted: Callable[..., Path], tmp_path: Path, form: str
) -> None:
    """In steps of any number, `TimeDistributed` on TensorFlow computes as many as there are examples."""
    x = np.random.default_rng(0).normal(size=(32, 4, 3)).astype(np.float32)
    steps = keras.Input((None, 3), name="steps")
    net = keras.Model(steps, layers.GlobalMaxPooling1D()(layers.TimeDistributed(layers.Dense(2))(steps)))
    made = rudel.export(fitted(net, x, x[:, 0, :2]), form, tmp_path / "net", data=x)
    assert made.inputs[0]["shape"][1:] == [4, 3]
    assert made.notes[-1] == (
        "The model takes `steps` in any size, (None, 3), and the export in that of the examples alone, (4, 3)."
    )


def test_inputs_of_any_size_may_be_normalised_before_an_int8_model(fitted: Callable[..., Path], tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(3, 2, size=(64, 4, 3)).astype(np.float32)
    steps, normalised = keras.Input((None, 3)), layers.Normalization(mean=[3, 3, 3], variance=[4, 4, 4])
    net = keras.Model(steps, layers.GlobalMaxPooling1D()(layers.Conv1D(2, 1)(normalised(steps))))
    made = rudel.export(fitted(net, x, x[:, 0, :2]), "litert-int8", tmp_path / "net.tflite", data=x)
    assert made.inputs[0]["shape"] == [1, 4, 3]
    assert made.largest_difference < 0.1


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


def test_an_input_that_nothing_reads_is_refused_in_int16(fitted: Callable[..., Path], tmp_path: Path) -> None:
    x = {name: np.random.default_rng(0).normal(size=(8, 3)).astype("float32") for name in ("read", "unread")}
    given = {name: keras.Input((3,), name=name) for name in x}
    run = fitted(keras.Model(given, layers.Dense(1)(given["read"])), x, np.zeros((8, 1)))
    with pytest.raises(
        ExportError, match="The model has an input that nothing reads, which LiteRT cannot have in int16"
    ):
        rudel.export(run, "litert-int16", tmp_path / "net.tflite", data=x)


def test_a_calibration_on_which_the_interpreter_aborts_is_explained(
    fitted: Callable[..., Path], tmp_path: Path
) -> None:
    x = np.zeros((8, 4), np.float32)
    net = keras.Sequential([keras.Input((4,)), layers.Rescaling(1.0, offset=5.0), layers.LayerNormalization()])
    with pytest.raises(CompileError, match=r"cannot be compiled: .* calibrate on examples for which its output varies"):
        rudel.export(fitted(net, x, x), "c", tmp_path / "net", data=x)


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
    run = fitted(keras.Sequential(with_policy), x, x[:, ::-1])  # its input is of bfloat16, as the layers say
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


@pytest.mark.parametrize(("dtype", "words"), [("float32", 1), ("float32", 30), ("uint8", 30)])
def test_inputs_that_are_made_up_are_in_the_tables_that_read_them(
    fitted: Callable[..., Path], dtype: str, words: int
) -> None:
    net = keras.Sequential([keras.Input((6,), dtype=dtype), layers.Embedding(words, 2), layers.Flatten()])
    run = fitted(net, np.zeros((32, 6), dtype), np.zeros((32, 12), np.float32))
    materials = gather(open_finished(run), None, None, 0)
    assert materials.compared_on == "made-up"
    x = np.asarray(materials.comparison.x)
    assert x.dtype == dtype
    assert set(np.unique(x)) <= set(range(words))
    assert rudel.predict(materials.model, x).shape == (64, 12)


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
        (
            "keras.ops.erfinv(keras.ops.tanh(x))",
            "litert",
            "LiteRT has no operator for Erfinv: build the model without it, or export to savedmodel.",
        ),
        (
            "keras.ops.erfinv(keras.ops.tanh(x))",
            "onnx",
            "ONNX has no operator for Erfinv: build the model without it, or export to savedmodel.",
        ),
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


def test_photographs_to_calibrate_on_may_lack_a_class(
    fitted: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "cache"))
    for name, count in {"cat": 3, "emu": 6, "fox": 1}.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (40, 40), (9 * number, 0, 0)).save(tmp_path / "photos" / name / f"{number}.png")
    net = keras.Sequential([keras.Input((32, 32, 3)), layers.Flatten(), layers.Dense(3, "softmax")])
    run = open_finished(
        fitted(net, np.zeros((4, 32, 32, 3), np.uint8), np.arange(4) % 3, "sparse_categorical_crossentropy")
    )
    about = {"recipe": "images", "options": {"side": 32}, "source": "gone", "class_names": ["cat", "dog", "emu"]}
    run.write_config(run.read_config() | about)
    materials = gather(run, tmp_path / "photos", 4, 0)
    assert materials.calibration is not None
    labels = np.concatenate([materials.calibration.y, materials.comparison.y])
    assert np.bincount(labels).tolist() == [3, 0, 6]
    assert materials.notes[-1] == "Examples were left out, because the model does not know their classes: 1 of fox."
