"""A model that hears, in other forms: with its features in it, or in C beside it; the answers are its own."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from missing import skip_or_fail

import rudel
from rudel.backend import keras_on_jax
from rudel.features import Features, LogMel
from rudel.features.masks import SpecAugment
from rudel.micro.host import OPTIONS, c_compiler
from rudel.runs.model_as_run import as_run

keras = keras_on_jax()
layers = keras.layers

FEATURES = LogMel(bands=16)


@pytest.fixture(scope="module")
def tones() -> rudel.Dataset:
    """High and low tones of half a second, in noise."""
    random, n = np.random.default_rng(0), np.arange(4000) / 8000
    labels = random.integers(0, 2, 200).astype(np.int32)
    pitch = np.where(labels, 1500, 500) * random.uniform(0.7, 1.4, 200)
    waves = np.sin(2 * np.pi * pitch[:, None] * n) * 10 ** random.uniform(2, 4, (200, 1))
    x = np.rint(waves + random.normal(0, 30, waves.shape)).astype(np.int16)
    return rudel.Dataset(
        rudel.Examples(x[:150], labels[:150]), rudel.Examples(x[150:], labels[150:]), class_names=["low", "high"]
    )


@pytest.fixture(scope="module")
def run(tones: rudel.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "ears"
    sound = keras.Input((4000,), dtype="int16", name="sound")
    x = layers.Rescaling(1 / 64)(Features(FEATURES)(sound))
    x = layers.Reshape((25, 16, 1))(SpecAugment(2, 3)(x))
    x = layers.Conv2D(8, (5, 4), 2, activation="relu")(x)
    outputs = layers.Dense(2, activation="softmax")(layers.Flatten()(x))
    model = keras.Model(sound, outputs, name="ears")
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    rudel.fit(model, tones, epochs=30, batch_size=10, verbose=False, run=path)
    return path


@pytest.mark.parametrize("form", ["savedmodel", "onnx"])
def test_features_are_in_forms_that_can_compute_them(form: str, run: Path, tones: Any, tmp_path: Path) -> None:
    exported = rudel.export(run, form, tmp_path / "made", data=tones)
    assert [(port["name"], port["dtype"]) for port in exported.inputs] == [("sound", "int16")]
    assert exported.largest_difference < 1e-4
    assert exported.metrics["accuracy"] > 0.9


@pytest.mark.parametrize("form", ["litert", "litert-int8"])
def test_others_take_the_spectrogram(form: str, run: Path, tones: Any, tmp_path: Path) -> None:
    exported = rudel.export(run, form, tmp_path / "made.tflite", data=tones)
    (port,) = exported.inputs
    assert (port["name"], tuple(port["shape"])) == ("spectrogram", (1, 25, 16))
    assert form == "litert" or (port["scale"], port["zero_point"]) == (1.0, 0), "it is taken as it is"
    assert exported.metrics["accuracy"] >= exported.model_metrics["accuracy"] - 0.005
    assert "It takes 25 frames of 16 mel bands" in exported.notes[0]


def test_the_c_hears_what_keras_hears(run: Path, tones: Any, tmp_path: Path) -> None:
    """Hop by hop, by the two C files as they are exported."""
    folder = tmp_path / "ears"
    exported = rudel.export(run, "c", folder, data=tones)
    assert sorted(path.name for path in folder.iterdir()) == ["ears.c", "ears.h", "ears_features.c", "ears_features.h"]
    subprocess.run([*c_compiler(), *OPTIONS, "ears.c", "ears_features.c", "-o", "ears.so"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "ears.so"))
    right = []
    for samples, label in zip(tones.validation.x, tones.validation.y, strict=True):
        frames, answer = np.zeros((25, 16), np.int8), np.zeros(2, np.int8)
        library.ears_features_reset()
        for hop, frame in zip(samples.reshape(25, 160), frames, strict=True):
            library.ears_features_push(ctypes.c_void_p(hop.ctypes.data), ctypes.c_void_p(frame.ctypes.data))
        library.ears_invoke(ctypes.c_void_p(frames.ctypes.data), ctypes.c_void_p(answer.ctypes.data))
        right.append(answer.argmax() == label)
    assert np.mean(right) == pytest.approx(exported.metrics["accuracy"])
    assert np.mean(right) >= exported.model_metrics["accuracy"] - 0.005


def test_a_recogniser_forgets_its_last_run_before_the_next(tones: Any, tmp_path: Path) -> None:
    """Its scores are the means of what an LSTM answers to each window of 4 frames, asked in the opposite order."""
    sound = keras.Input((640,), dtype="int16", name="sound")
    x = layers.LSTM(4)(layers.Rescaling(1 / 64)(Features(FEATURES)(sound)))
    model = keras.Model(sound, layers.Dense(2, activation="softmax")(x))
    model.set_weights([3 * weights for weights in model.get_weights()])
    model.save(tmp_path / "ears.keras")
    with as_run(tmp_path / "ears.keras", "low,high") as run:
        rudel.export(run, "arduino", tmp_path / "ears", data=tones.train.x[:, :640])
    folder, (text,) = tmp_path / "ears/src", (tmp_path / "ears/src").glob("ears_recogniser.c")
    assert "EVERY = 1," in text.with_suffix(".h").read_text()
    assert "SMOOTHED = 30," in text.read_text()
    sources = ["ears.c", "ears_features.c", "ears_recogniser.c"]
    subprocess.run([*c_compiler(), *OPTIONS, *sources, "-o", "ears.so"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "ears.so"))

    samples = tones.validation.x[:2].reshape(50, 160)
    frames = np.concatenate([np.tile(FEATURES.silence, (3, 1)), FEATURES(samples.reshape(-1))])
    answers = np.zeros((50, 2), np.int8)
    for hop in reversed(range(50)):
        window = np.ascontiguousarray(frames[hop : hop + 4])
        library.ears_invoke(ctypes.c_void_p(window.ctypes.data), ctypes.c_void_p(answers[hop].ctypes.data))
    library.ears_recogniser_reset()
    for hop in samples:
        library.ears_recogniser_push(ctypes.c_void_p(hop.ctypes.data), ctypes.byref(ctypes.c_uint8()))
    scores = (ctypes.c_uint8 * 2).in_dll(library, "ears_recogniser_scores")
    assert list(scores) == ((answers[-30:].astype(int) + 128).sum(0) // 30).tolist()


def test_a_word_that_lasts_is_recognised_once(run: Path, tones: Any, tmp_path: Path) -> None:
    """A word is longer in the window and in the mean than the rest after it, as a tone of three seconds is."""
    rudel.export(run, "arduino", tmp_path / "ears", data=tones)
    folder, sources = tmp_path / "ears/src", ["ears.c", "ears_features.c", "ears_recogniser.c"]
    subprocess.run([*c_compiler(), *OPTIONS, *sources, "-o", "ears.so"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "ears.so"))
    pitches = np.repeat([500, 1500, 500], 24_000)
    sound = np.rint(3000 * np.sin(np.cumsum(2 * np.pi * pitches / 8000))).astype(np.int16)
    for _ in range(2):
        library.ears_recogniser_reset()
        found = [
            library.ears_recogniser_push(ctypes.c_void_p(hop.ctypes.data), ctypes.byref(ctypes.c_uint8()))
            for hop in sound.reshape(-1, 160)
        ]
        assert [tones.class_names[place] for place in found if place >= 0] == ["low", "high", "low"]


@pytest.mark.parametrize(
    ("form", "files"),
    [
        ("cmake", ["include/ears_features.h", "src/ears_features.c"]),
        ("zephyr", ["include/ears_features.h", "src/ears_features.c"]),
        ("arduino", ["src/ears_features.c", "src/ears_features.h"]),
        ("wasm", ["ears_features.wasm"]),
    ],
)
def test_packages_have_the_features_beside_the_model(
    form: str, files: list[str], run: Path, tones: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "ears"
    rudel.export(run, form, folder, data=tones)
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("ears_features.*")) == files
    if form == "cmake":
        cmake = shutil.which("cmake") or skip_or_fail("There is no CMake: pip install cmake.")
        subprocess.run([cmake, "-S", str(folder), "-B", str(tmp_path / "build")], check=True, capture_output=True)
        subprocess.run([cmake, "--build", str(tmp_path / "build")], check=True, capture_output=True)
        symbols = subprocess.run(
            ["nm", str(tmp_path / "build/libears.a")], check=True, capture_output=True, text=True
        ).stdout
        assert "ears_features_push" in symbols
        assert "ears_invoke" in symbols
