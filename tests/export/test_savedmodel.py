"""A SavedModel that takes photographs as files: what it answers where neither Rudel nor Keras is."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from predicting import predict_files

import rudel
from rudel.backend import keras_on_jax
from rudel.data.photographs import decode
from rudel.data.stream import Stream
from rudel.export.inputs import inputs_of
from rudel.export.materials import gather
from rudel.export.photographs import Serving, serving_of, write_files
from rudel.runs.run_directory import open_finished

keras = keras_on_jax()

SIDES = (32, 24, 3)
NAMES = ["nought", "œil", "two", "three"]

ALONE = """
import json, os, pathlib, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.modules |= dict.fromkeys(("rudel", "keras", "PIL", "jax"))  # cannot be imported
import numpy as np
import tensorflow as tf

model = tf.saved_model.load("model")
answers = model.signatures["serving_default"](
    image_bytes=tf.constant([path.read_bytes() for path in sorted(pathlib.Path("photos").iterdir())])
)
assert {name: value.dtype.name for name, value in answers.items()} == {
    "class": "string", "class_id": "int64", "probabilities": "float32"
}
nobody = model.signatures["serving_default"](image_bytes=tf.constant([], tf.string))
assert nobody["probabilities"].shape == (0, len(answers["probabilities"][0])), nobody
refused = []
for path in sorted(pathlib.Path("wrong").iterdir()):
    try:
        model.signatures["serving_default"](image_bytes=tf.constant([path.read_bytes()]))
        refused.append("")
    except tf.errors.InvalidArgumentError as error:
        refused.append(str(error))
arrays = model.signatures["serving_arrays"](**{sys.argv[1]: tf.constant(np.load("arrays.npy"))})
(arrays,) = [value.numpy().tolist() for value in arrays.values()]
signed = {name: value.numpy() for name, value in answers.items()}
print(json.dumps({
    "class": [name.decode() for name in signed["class"]], "class_id": signed["class_id"].tolist(),
    "probabilities": signed["probabilities"].tolist(), "arrays": arrays, "refused": refused,
}))
"""
"""What a server does with the model, which has TensorFlow and nothing else."""


class Photographs(Stream):
    """Photographs that are read and decoded when they are needed."""

    def __init__(self, files: list[tuple[Path, int]]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def take(self, indices: np.ndarray | slice) -> rudel.Examples:
        chosen = [self._files[i] for i in np.arange(len(self))[indices]]
        pixels = np.stack([decode(path.read_bytes(), *SIDES) for path, _ in chosen])
        return rudel.Examples(pixels, np.array([label for _, label in chosen], np.int32))

    def fingerprint(self) -> str:
        return str(len(self))


@pytest.fixture(scope="module")
def photographs(shared_data: Path) -> list[tuple[Path, int]]:
    """Photographs of hand signs, and their labels; one is of 3024 x 3024 pixels, and turned by its EXIF."""
    folders = [shared_data / "sign-digits" / str(label) for label in range(4)]
    files = [(path, label) for label, folder in enumerate(folders) for path in sorted(folder.iterdir())]
    large = [pair for pair in files if pair[0].stat().st_size > 200_000]
    return large + files[::9]


@pytest.fixture(scope="module")
def signs(photographs: list[tuple[Path, int]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learned from a stream of photographs."""
    run = tmp_path_factory.mktemp("runs") / "signs"
    model = keras.Sequential(
        [
            keras.Input(SIDES, dtype="uint8"),
            keras.layers.Rescaling(1 / 127.5, -1),
            keras.layers.Conv2D(8, 5, strides=3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(4, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    data = rudel.Dataset(Photographs(photographs), Photographs(photographs[::3]), class_names=NAMES)
    rudel.fit(model, data, run=run, epochs=4, batch_size=16, verbose=False)
    return run


def put(folder: Path, contents: list[bytes]) -> None:
    folder.mkdir()
    for number, content in enumerate(contents):
        (folder / f"{number:03d}").write_bytes(content)


def test_it_answers_as_rudel_does_where_there_is_no_rudel(
    signs: Path, photographs: list[tuple[Path, int]], tmp_path: Path, command: Callable[..., Any]
) -> None:
    given = rudel.export(
        signs, "savedmodel", tmp_path / "model", data=rudel.Dataset(Photographs(photographs), class_names=NAMES)
    )
    assert given.examples == len(photographs)
    assert given.from_files is not None
    assert (given.from_files.files, given.from_files.agreement, given.notes) == (64, 1, [])
    assert given.from_files.largest_difference < 1e-5
    assert given.largest_difference < 1e-5
    put(tmp_path / "photos", [path.read_bytes() for path, _ in photographs[:40]])
    pixels = np.stack([decode(path.read_bytes(), *SIDES) for path, _ in photographs[:40]])
    np.save(tmp_path / "arrays.npy", pixels)
    whole = photographs[5][0].read_bytes()
    put(tmp_path / "wrong", [b"", b"no picture", whole[: len(whole) // 2], b"GIF89a" + bytes(100), whole])
    words = [sys.executable, "-c", ALONE, given.inputs[0]["name"]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    document = json.loads(done.stdout)
    predicted = predict_files(signs, sorted((tmp_path / "photos").iterdir()))
    assert document["class"] == [prediction.ranking[0][0] for prediction in predicted]
    assert [NAMES[i] for i in document["class_id"]] == document["class"]
    expected = [prediction.outputs for prediction in predicted]
    assert np.array(document["probabilities"]) == pytest.approx(np.array(expected), abs=1e-5)
    assert np.array(document["probabilities"]) == pytest.approx(np.array(document["arrays"]), abs=1e-6)
    assert [bool(message) for message in document["refused"]] == [True, True, True, True, False]
    assert "A picture is not a JPEG or PNG file" in document["refused"][1]


def test_predict_sees_the_pixels_of_training(signs: Path, photographs: list[tuple[Path, int]]) -> None:
    paths = [path for path, _ in photographs[:9]]
    pixels = np.stack([decode(path.read_bytes(), *SIDES) for path in paths])
    expected = rudel.predict(rudel.load(signs), pixels)
    np.testing.assert_array_equal(
        [prediction.outputs for prediction in predict_files(signs, paths)], expected.astype(float)
    )


def test_a_logit_of_grey_pictures_becomes_two_probabilities(
    tmp_path: Path, fitted: Callable[..., Path], command: Callable[..., Any]
) -> None:
    x = np.random.default_rng(0).integers(0, 256, (80, 14, 10), np.uint8)
    model = keras.Sequential([keras.Input((14, 10)), keras.layers.Flatten(), keras.layers.Dense(1)])
    run = fitted(model, x, (x.mean((1, 2)) > 127).astype("int32"), keras.losses.BinaryCrossentropy(from_logits=True))
    np.savez(tmp_path / "data.npz", x=x)
    done = command(run, "--to", "savedmodel", "--data", "data.npz", "--out", "model", "--json", folder=tmp_path)
    document = json.loads(done.stdout)["from_files"]
    assert (document["files"], document["agreement"]) == (64, 1)
    assert document["largest_difference"] < 1e-5


@pytest.mark.parametrize(
    ("loss", "squash"), [("BinaryCrossentropy", "sigmoid"), ("CategoricalCrossentropy", "softmax")]
)
def test_logits_become_what_their_loss_means(fitted: Callable[..., Path], loss: str, squash: str) -> None:
    x, y = np.zeros((32, 6, 4), np.uint8), np.eye(3, dtype="float32")[np.arange(32) % 3]
    model = keras.Sequential([keras.Input((6, 4)), keras.layers.Flatten(), keras.layers.Dense(3)])
    run = fitted(model, x, y, getattr(keras.losses, loss)(from_logits=True))
    materials = gather(open_finished(run), (x, y), None, 0)
    serving = serving_of(materials, inputs_of(materials.model, x), rudel.predict(materials.model, x))
    assert isinstance(serving, Serving)
    assert (serving.squash, serving.pairs) == (squash, False)


def test_floats_may_be_pixels(fitted: Callable[..., Path], tmp_path: Path) -> None:
    x, y = np.linspace(0, 255, 768, dtype="float32").reshape(32, 6, 4, 1), np.arange(32, dtype="int32") % 2
    model = keras.Sequential(
        [keras.Input((6, 4, 1)), keras.layers.Flatten(), keras.layers.Dense(2, activation="softmax")]
    )
    materials = gather(open_finished(fitted(model, x, y, "sparse_categorical_crossentropy")), (x, y), None, 0)
    serving = serving_of(materials, inputs_of(materials.model, x), rudel.predict(materials.model, x))
    assert isinstance(serving, Serving)
    written = write_files(materials, serving, tmp_path)
    np.testing.assert_array_equal(written[0], x[0].astype(np.uint8))


def test_files_are_not_taken_where_the_recipe_that_reads_them_is_gone(fitted: Callable[..., Path]) -> None:
    x, y = np.zeros((32, 6, 4), np.uint8), np.arange(32) % 2
    model = keras.Sequential([keras.Input((6, 4)), keras.layers.Flatten(), keras.layers.Dense(2, "softmax")])
    run = open_finished(fitted(model, x, y, "sparse_categorical_crossentropy"))
    run.write_config(run.read_config() | {"recipe": "/gone/own.py", "reads_images": True})
    materials = gather(run, (x, y), None, 0)
    serving = serving_of(materials, inputs_of(materials.model, x), rudel.predict(materials.model, x))
    assert serving == (
        "It takes arrays alone: the recipe makes inputs of pictures in a way of its own, by `read_image`."
    )


SERIES = np.linspace(0, 200, 32 * 24 * 5, dtype="float32").reshape(32, 24, 5)
"""Such as temperatures by the hour."""


@pytest.mark.parametrize(
    ("x", "shape", "loss", "words"),
    [
        (np.zeros((32, 6, 4), np.float32), (6, 4), "sparse_categorical_crossentropy", "learned from float32 numbers"),
        (SERIES, (24, 5), "sparse_categorical_crossentropy", "learned from float32 numbers"),
        (np.zeros((32, 6, 4), np.uint8), (6, 4), "mse", "does not classify pictures"),
        (np.zeros((32, 9), np.uint8), (9,), "sparse_categorical_crossentropy", "does not classify pictures"),
    ],
)
def test_what_takes_no_photographs(
    fitted: Callable[..., Path], x: np.ndarray, shape: tuple[int, ...], loss: str, words: str
) -> None:
    model = keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(2, activation="softmax")])
    y = np.arange(32, dtype="int32") % 2 if loss != "mse" else np.zeros((32, 2), "float32")
    run = fitted(model, x, y, loss)
    materials = gather(open_finished(run), (x, y), None, 0)
    reason = serving_of(materials, inputs_of(materials.model, x), rudel.predict(materials.model, x))
    assert isinstance(reason, str)
    assert words in reason
