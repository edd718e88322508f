"""Keras model files on the command line, those of strangers among them."""

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from predicting import predict_files
from processes import started

from rudel.backend import set_seed
from rudel.errors import DataError
from rudel.runs.model_arrays import names_of
from rudel.runs.model_as_run import as_run

pytestmark = pytest.mark.usefixtures("warm_exports")

CODE = """
import keras

class Twice(keras.layers.Layer):
    def call(self, x):
        return 2 * x
"""


def net(*more: Any) -> Any:
    set_seed(0)
    layers = [keras.Input((4,)), *more, keras.layers.Dense(3, activation="softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model in both kinds of files, and examples that it tells apart by chance."""
    model = net()
    for name in ("small.keras", "small.h5"):
        model.save(tmp_path / name)
    x = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
    np.savez(tmp_path / "data.npz", x=x, y=model.predict(x, verbose=0).argmax(1))
    np.save(tmp_path / "some.npy", x[:2])
    return tmp_path


@pytest.mark.parametrize("name", ["small.keras", "small.h5"])
def test_a_file_is_evaluated_and_asked(rudel: Callable[..., Any], folder: Path, name: str) -> None:
    done = rudel("evaluate", folder / name, "--data", folder / "data.npz", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert result["run"] == str(folder / name)
    assert result["metrics"]["accuracy"] == 1.0
    output = rudel("predict", folder / name, folder / "some.npy", "--classes", "a,b,c", "--top", 1).out
    assert [line.split()[1] in "abc" for line in output.splitlines()] == [True, True]


def test_a_file_is_exported_with_examples(rudel: Callable[..., Any], folder: Path) -> None:
    result = rudel("export", folder / "small.keras", "--to", "litert-int8", "--data", folder / "data.npz")
    assert result.code == 0, result.err
    assert (folder / "small-int8.tflite").is_file()
    asked = rudel("export", folder / "small.keras", "--to", "c-array").error
    assert (
        f"The model {folder / 'small.keras'} has no recipe that makes its data: give data with --data FILE.npz."
        in asked
    )


def test_a_file_is_exported_without_examples_where_none_are_needed(rudel: Callable[..., Any], folder: Path) -> None:
    result = rudel("export", folder / "small.h5", "--to", "litert", "--json")
    assert result.code == 0, result.err
    made = json.loads(result.out)
    assert (made["compared_on"], made["metrics"]) == ("made-up", {})
    assert 0 < made["largest_difference"] + 1e-9 < 1e-5


def test_int8_is_calibrated_on_a_folder_of_pictures(rudel: Callable[..., Any], tmp_path: Path) -> None:
    from PIL import Image

    broken = [tmp_path / "broken.jpg", tmp_path / "text.png", tmp_path / "wide.npy"]
    broken[0].write_bytes(b"\xff\xd8\xff\xe0 cut off")
    broken[1].write_text("no image\n")
    np.save(broken[2], np.zeros((3, 50)))
    (tmp_path / "notes.txt").write_text("not meant as an input\n")
    set_seed(0)
    model = keras.Sequential([keras.Input((8, 9, 1)), keras.layers.Flatten(), keras.layers.Dense(3)])
    model.save(tmp_path / "grey.keras")
    command = ("export", tmp_path / "grey.keras", "--to", "litert-int8", "--calibrate", tmp_path)
    refused = rudel(*command)
    assert (refused.code, refused.error.count("\n")) == (2, 0)
    assert f"No file in {tmp_path} can be used, out of 3; the first: {broken[0]} is damaged" in refused.error
    for number in range(6):
        Image.new("L", (9, 8), 40 * number).save(tmp_path / f"{number}.png")
    result = rudel(*command, "--json")
    assert result.code == 0, result.err
    made = json.loads(result.out)
    assert (made["calibrated_on"], made["examples"]) == (3, 3)
    assert [note.split(": ")[1].split()[0] for note in made["notes"][:3]] == list(map(str, broken))
    assert all(note.startswith("Left out: ") for note in made["notes"][:3]), made["notes"]
    assert made["notes"][3].startswith(f"Images in {tmp_path} were taken as pixels of 0 to 255: if the model learned")


def test_several_inputs_are_arrays_by_name(rudel: Callable[..., Any], tmp_path: Path) -> None:
    set_seed(0)
    left, right = keras.Input((3,), name="left"), keras.Input((2,), name="right")
    both = keras.layers.Dense(2, activation="softmax")(keras.layers.Concatenate()([left, right]))
    model: Any = keras.Model([left, right], both)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.save(tmp_path / "two.keras")
    x = {"left": np.eye(3, dtype="float32"), "right": np.ones((3, 2), "float32")}
    y = model.predict(x, verbose=0).argmax(1)
    np.savez(tmp_path / "two.npz", **x, y=y)  # type: ignore[arg-type]
    result = rudel("evaluate", tmp_path / "two.keras", "--data", tmp_path / "two.npz", "--json")
    assert json.loads(result.out)["metrics"]["accuracy"] == 1.0
    lines = rudel("predict", tmp_path / "two.keras", tmp_path / "two.npz", "--top", 1).out.splitlines()
    assert [int(line.split()[1]) for line in lines] == y.tolist()
    np.save(tmp_path / "one.npy", x["left"])
    assert (
        "takes left, right: give an .npz file" in rudel("predict", tmp_path / "two.keras", tmp_path / "one.npy").error
    )
    np.savez(tmp_path / "less.npz", left=x["left"])
    wanted = "must have an array for each input of the model: `left`, `right`"
    assert wanted in rudel("predict", tmp_path / "two.keras", tmp_path / "less.npz").error


def test_a_class_of_ones_own_takes_the_arrays_that_it_was_built_with(rudel: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(
        "import keras\n\nclass Added(keras.Model):\n    def call(self, x):\n        return x['left'] + x['right']\n"
    )
    scope: dict[str, Any] = {"__name__": "layers"}
    exec((tmp_path / "layers.py").read_text(), scope)
    model = scope["Added"]()
    model.compile("adam", "mse", metrics=["mae"])
    x: dict[str, Any] = {"right": np.ones((3, 2), "float32"), "left": np.zeros((3, 2), "float32")}
    model(x)
    model.save(tmp_path / "added.keras")
    np.savez(tmp_path / "both.npz", **x, y=x["right"])
    given = ("evaluate", tmp_path / "added.keras", "--code", tmp_path / "layers.py", "--json", "--data")
    assert json.loads(rudel(*given, tmp_path / "both.npz").out)["metrics"]["mae"] == 0
    np.savez(tmp_path / "less.npz", left=x["left"], y=x["right"])
    wanted = "must have an array for each input of the model: `right`, `left`"
    assert wanted in rudel(*given, tmp_path / "less.npz").error


def test_arrays_of_several_files_are_checked_and_reshaped(rudel: Callable[..., Any], tmp_path: Path) -> None:
    net: Any = keras.Sequential([keras.Input((2, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
    net.save(tmp_path / "net.keras")
    x = np.arange(12, dtype="float32").reshape(2, 2, 3)
    np.savez(tmp_path / "flat.npz", x=x.reshape(2, 6))
    np.savez(tmp_path / "wrong.npz", x=x[..., :2])
    np.save(tmp_path / "one.npy", x[0])
    files = [tmp_path / name for name in ("flat.npz", "one.npy", "wrong.npz")]
    done = rudel("predict", tmp_path / "net.keras", *files, "--json")
    first, _, third, wrong = json.loads(done.out)
    assert (first["source"], third["outputs"]) == (f"{files[0]}[0]", first["outputs"])
    assert wrong["error"] == f"`x` in {files[2]} has shape (2, 2, 2), and the model takes inputs of shape (2, 3)."


def test_inputs_of_any_length_come_from_files_of_one(tmp_path: Path) -> None:
    left, right = keras.Input((None, 2), name="left"), keras.Input((1,), name="right")
    mean = keras.layers.GlobalAveragePooling1D()(left)
    model: Any = keras.Model([left, right], keras.layers.Concatenate()([mean, right]))
    model.save(tmp_path / "any.keras")
    for length in (3, 4):
        np.savez(tmp_path / f"{length}.npz", left=np.ones((2, length, 2)), right=np.ones(2))
    with as_run(tmp_path / "any.keras") as run:
        assert [each.outputs for each in predict_files(run, [tmp_path / "3.npz"])] == [[1.0, 1.0, 1.0]] * 2
        with pytest.raises(DataError, match="The files give inputs of different shapes"):
            predict_files(run, [tmp_path / "3.npz", tmp_path / "4.npz"])


def test_inputs_by_name_are_in_the_order_of_the_model() -> None:
    inputs = {name: keras.Input((size,), name=name) for size, name in ((2, "right"), (3, "left"))}
    model: Any = keras.Model(inputs, keras.layers.Concatenate()(list(inputs.values())))
    assert [model.input[name].shape for name in names_of(model, "inputs")] == [each.shape for each in model.inputs]


def test_a_file_is_served(folder: Path, warm_python: str) -> None:
    import urllib.error
    import urllib.request

    (folder / "broken.keras").write_bytes((folder / "small.keras").read_bytes()[:900])
    command = [
        str(Path(warm_python).with_name("rudel")),
        "serve",
        str(folder / "small.keras"),
        str(folder / "broken.keras"),
        "--port",
        "0",
        "--classes",
        "a,b,c",
    ]
    with started(command, stdout=subprocess.PIPE) as server:
        assert server.stdout
        address = next(word for line in server.stdout for word in line.split() if word.startswith("http")).rstrip("/")
        body = json.dumps({"examples": [{"x": [0, 0, 0, 0]}]}).encode()
        described = json.load(urllib.request.urlopen(f"{address}/v1/models/small/metadata"))
        name = next(iter(described["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]))
        body = json.dumps({"instances": [{name: [0, 0, 0, 0]}]}).encode()
        answer = json.load(urllib.request.urlopen(f"{address}/v1/models/small:classify", body))
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/v1/models/broken")
        problem = refused.value.read().decode()
    assert {label for label, _ in answer["results"][0]} == {"a", "b", "c"}
    assert "broken.keras is not a Keras model file" in problem


def test_layers_of_ones_own_come_from_a_file(rudel: Callable[..., Any], folder: Path) -> None:
    (folder / "layers.py").write_text(CODE)
    scope: dict[str, Any] = {"__name__": "layers"}
    exec(CODE, scope)
    net(scope["Twice"]()).save(folder / "own.keras")
    asked = rudel("predict", folder / "own.keras", folder / "some.npy").error
    assert asked.endswith("own.keras cannot be loaded: it needs the class `Twice`: give it by --code FILE.py.")
    assert rudel("predict", folder / "own.keras", folder / "some.npy", "--code", folder / "layers.py").code == 0
    assert "layers" not in sys.modules
    assert "cannot be loaded" in rudel("predict", folder / "own.keras", folder / "some.npy").error


def test_own_layers_are_evaluated_and_compiled_to_c(rudel: Callable[..., Any], folder: Path) -> None:
    (folder / "layers.py").write_text(CODE)
    scope: dict[str, Any] = {"__name__": "layers"}
    exec(CODE, scope)
    net(scope["Twice"]()).save(folder / "own.keras")
    given = ("--data", folder / "data.npz", "--code", folder / "layers.py")
    assert "accuracy" in rudel("evaluate", folder / "own.keras", *given).out
    done = rudel("export", folder / "own.keras", "--to", "c", *given)
    assert "every output has the bits of LiteRT's reference kernels" in done.err, done.err
    assert (folder / "own-c/own.c").is_file()


def test_layers_beyond_convolutions_become_c(rudel: Callable[..., Any], tmp_path: Path) -> None:
    set_seed(0)
    inputs = keras.Input((4, 3))
    inner = keras.layers.GRU(6)(inputs)
    inner = keras.layers.Dense(8, activation="gelu")(inner)
    inner = keras.layers.LayerNormalization()(inner)
    inner = keras.layers.PReLU(alpha_initializer="random_uniform")(inner)
    model = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(inner))
    model.save(tmp_path / "many.keras")
    attention = keras.layers.Attention(name="looks")([inputs, inputs])
    keras.Model(inputs, keras.layers.Flatten()(attention)).save(tmp_path / "attention.keras")
    x = np.random.default_rng(0).normal(size=(60, 4, 3)).astype("float32")
    np.savez(tmp_path / "data.npz", x=x, y=np.zeros(60, "int32"))
    done = rudel("export", tmp_path / "many.keras", "--to", "c", "--data", tmp_path / "data.npz")
    assert "every output has the bits of LiteRT's reference kernels" in done.err, done.err
    refused = rudel("export", tmp_path / "attention.keras", "--to", "c", "--data", tmp_path / "data.npz").error
    assert "of the layer `looks` is BATCH_MATMUL" in refused
    assert "in the place of attention" in refused


def test_a_lambda_needs_trust(rudel: Callable[..., Any], folder: Path, warm_python: str) -> None:
    net(keras.layers.Lambda(lambda x: x + 1, name="lambda")).save(folder / "lambda.keras")
    before = sorted(folder.iterdir())
    refused = rudel("predict", folder / "lambda.keras", folder / "some.npy").error
    assert "has a lambda in its layer `lambda`" in refused
    assert "add --unsafe if you trust" in refused
    assert sorted(folder.iterdir()) == before
    program = [str(Path(warm_python).with_name("rudel"))]
    command = ["export", folder / "lambda.keras", "--to", "savedmodel", "--out", folder / "saved", "--unsafe"]
    subprocess.run([*program, *map(str, command)], check=True)
    assert (folder / "saved/saved_model.pb").is_file()


@pytest.mark.parametrize(
    ("member", "size", "words"),
    [
        ("../../outside.txt", 4, r"Keras writes no member `\.\./\.\./outside\.txt`"),
        ("assets/../../outside.txt", 4, "Keras writes no member"),
        ("assets/bomb", 1 << 28, "unpacks from"),
    ],
)
def test_a_malicious_archive_is_refused(
    rudel: Callable[..., Any], folder: Path, member: str, size: int, words: str
) -> None:
    with zipfile.ZipFile(folder / "small.keras", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, bytes(size))
    before = sorted(folder.rglob("*"))
    error = rudel("evaluate", folder / "small.keras", "--data", folder / "data.npz").error
    assert re.search(words, error)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["small.keras", "--classes", "a,b"], "--classes has 2 names, and the model"),
        (["small.keras", "--classes", "a,a,b"], "has a name twice"),
        (["small.keras", "--code", "nothing.py"], "is not a Python file"),
        (["nothing.keras"], "There is no model file at"),
        (["data.npz", "--classes", "a,b,c"], "`--classes` is for model files"),
    ],
)
def test_mistakes_are_one_sentence(rudel: Callable[..., Any], folder: Path, arguments: list[str], words: str) -> None:
    first, *others = arguments
    assert words in rudel("predict", folder / first, folder / "some.npy", *others).error


def test_one_output_stands_for_two_classes(rudel: Callable[..., Any], folder: Path) -> None:
    model: Any = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile("adam", "binary_crossentropy")
    model.save(folder / "one.keras")
    given = ("predict", folder / "one.keras", folder / "some.npy", "--classes")
    assert rudel(*given, "dark,bright").code == 0
    said = f"the model in {folder / 'one.keras'} has 1 output, which stands for 2 classes."
    assert f"--classes has 3 names, and {said}" in rudel(*given, "dark,dim,bright").error
    assert f"--classes has 1 name, and {said}" in rudel(*given, "dark").error


def test_what_is_no_archive_is_refused(rudel: Callable[..., Any], folder: Path) -> None:
    (folder / "text.keras").write_text("no zip")
    assert "text.keras is not a Keras model file" in rudel("predict", folder / "text.keras", folder / "some.npy").error


def test_a_damaged_archive_is_refused(rudel: Callable[..., Any], folder: Path) -> None:
    path = folder / "small.keras"
    with zipfile.ZipFile(path) as archive:
        place = archive.getinfo("config.json").header_offset + 60
    content = path.read_bytes()
    path.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
    assert f"The model {path} cannot be loaded: " in rudel("predict", path, folder / "some.npy").error
