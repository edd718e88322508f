"""The recipes `keywords` and `motion`: from recordings to a run that knows them, and predicts files of them."""

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from predicting import predict_files

import rudel
from rudel.backend import keras_on_jax
from rudel.data.augmentation import (
    random_background,
    random_gain,
    random_jitter,
    random_noise,
    random_scale,
    random_sound_shift,
    random_speed,
    random_turn,
)
from rudel.errors import DataError, OptionError
from rudel.features import MFCC, Features, LogMel
from rudel.features.masks import SpecAugment
from rudel.recipes.load import find_recipe
from rudel.runs.evaluate_run import evaluate_run

keras = keras_on_jax()
jax = pytest.importorskip("jax")
KEY = jax.random.key(3)
SHORT = {"net": "tiny", "seconds": 0.5}
"""For recordings of half a second. Below, all batches of a training are whole: other sizes are programs to compile."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 recordings of a rising, a falling and a steady tone, by three speakers of different pitch."""
    root, random = tmp_path_factory.mktemp("tones"), np.random.default_rng(0)
    n = np.arange(4000) / 8000
    for name, slope in (("falling", -1), ("rising", 1), ("steady", 0)):
        (root / name).mkdir()
        for number in range(30):
            speaker = number % 3
            pitch = 700 + 150 * speaker + random.uniform(-50, 50)
            wave = np.sin(2 * np.pi * (pitch + slope * 500 * (n - 0.25)) * n) * random.uniform(0.05, 0.5)
            samples = wave + random.normal(0, 0.002, n.shape)
            soundfile.write(root / name / f"{name}_{'abc'[speaker]}_{number}.wav", samples, 8000)
    return root


@pytest.fixture(scope="module")
def run(folder: Path, optimized: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned from 12 recordings of each word, and was validated with 3."""
    few, run = tmp_path_factory.mktemp("few"), tmp_path_factory.mktemp("runs") / "keywords"
    for word in ("falling", "rising", "steady"):
        (few / word).mkdir()
        for path in sorted((folder / word).iterdir())[:15]:
            shutil.copy(path, few / word)
    with optimized():
        rudel.train_recipe("keywords", data=str(few), options=SHORT | {"validation": 0.2}, batch_size=18, run=run)
    return run


def test_a_run_knows_words_and_applies_its_features_by_itself(run: Path, folder: Path, tmp_path: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert summary["metrics"]["val_accuracy"] > 0.85
    model = rudel.load(run)
    assert [layer.features for layer in model.layers if isinstance(layer, Features)] == [MFCC(bands=20)]
    assert evaluate_run(run, folder).examples == 90
    files = sorted(folder.glob("*/*_a_*.wav"))
    right = [one.ranking[0][0] == Path(one.source).parent.name for one in predict_files(run, files)]
    assert np.mean(right) > 0.85
    louder, rate = soundfile.read(files[0])
    soundfile.write(tmp_path / "other.flac", np.stack([np.repeat(louder, 2)] * 2, 1), 2 * rate)
    (other,) = predict_files(run, [tmp_path / "other.flac"])
    assert other.ranking[0][0] == "falling", "at another rate, in stereo, as FLAC"
    (tmp_path / "bad.wav").write_bytes(b"RIFF")
    with pytest.raises(DataError, match=r"bad\.wav cannot be decoded \(.*\): give WAV or FLAC"):
        predict_files(run, [tmp_path / "bad.wav"])


def test_speakers_are_held_out_and_others_are_unknown(folder: Path) -> None:
    recipe = find_recipe("keywords")
    dataset = recipe.data(recipe.settings({"speakers": "b", "words": "rising"}), source=str(folder))
    assert list(dataset.class_names) == ["rising", "unknown", "silence"]
    assert np.bincount(dataset.train.y).tolist() == [20, 40, 20]
    assert dataset.validation is not None
    assert np.bincount(dataset.validation.y).tolist() == [10, 20, 10]
    assert not dataset.notes
    every = recipe.data(recipe.settings({"words": "rising,falling,steady"}), source=str(folder))
    assert every.notes == ("No recording is left to learn `unknown` from: record some, or hold out fewer.",)
    with pytest.raises(DataError, match="give a folder that has a folder of them for each word with `data=`"):
        recipe.data(recipe.settings({}), source=None)


def test_a_word_may_be_absent_from_what_is_evaluated(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "rising", tmp_path / "rising")
    recipe = find_recipe("keywords")
    settings = recipe.settings({"words": "falling,rising"})
    names = ["falling", "rising", "unknown", "silence"]
    found = recipe.evaluation(settings, source=str(tmp_path), split=None, class_names=names)
    assert np.bincount(found.examples.y).tolist() == [0, 30, 0, 30]
    with pytest.raises(DataError, match="has no class `falling`: there are rising"):
        recipe.evaluation(recipe.settings({"words": "falling"}), source=str(tmp_path), split=None, class_names=names)
    shutil.copytree(folder / "steady", tmp_path / "steady")
    with pytest.raises(DataError, match="has no class `falling`: there are rising, steady"):
        recipe.data(settings, source=str(tmp_path))


def test_silence_that_is_held_out_is_not_that_of_the_training(folder: Path) -> None:
    recipe = find_recipe("keywords")
    settings = recipe.settings({"words": "falling,rising,steady", "validation": 0.5})
    dataset = recipe.data(settings, source=str(folder))
    assert dataset.validation is not None
    every = recipe.evaluation(settings, source=str(folder), split=None, class_names=dataset.class_names).examples
    silent = [part.x[part.y == 4] for part in (dataset.train, dataset.validation, every)]
    assert [len(part) for part in silent] == [15, 15, 30]
    learned = {window.tobytes() for window in silent[0]}
    assert not learned & {window.tobytes() for part in silent[1:] for window in part}


def test_a_few_recordings_are_enough(run: Path, folder: Path) -> None:
    assert json.loads((run / "summary.json").read_text())["steps"] == 400
    assert evaluate_run(run, folder).metrics["accuracy"] > 0.8


def test_background_noise_is_mixed_in_and_is_no_class(folder: Path, tmp_path: Path) -> None:
    words, noise = tmp_path / "words", tmp_path / "words/_background_noise_"
    shutil.copytree(folder, words)
    noise.mkdir()
    (noise / "README.md").write_text("Noise.")
    hum = 0.05 * np.sin(2 * np.pi * 100 * np.arange(48_000) / 16_000)
    soundfile.write(noise / "hum.flac", hum, 16_000)
    (noise / "._hum.wav").write_bytes(b"\0\5\x16\7")  # as macOS writes beside a file on a foreign disk
    recipe = find_recipe("keywords")

    def hums(settings: dict[str, str]) -> float:
        """How many silent recordings hum after they are changed."""
        dataset = recipe.data(recipe.settings(settings), source=str(words))
        assert list(dataset.class_names) == ["falling", "rising", "steady"]
        assert not dataset.notes
        assert dataset.augment is not None
        changed = np.asarray(dataset.augment(KEY, np.zeros((64, 8000), np.int16))).astype(float)
        spectrum = np.abs(np.fft.rfft(changed, axis=1))
        return float(np.mean(spectrum[:, 100] > 100 * np.median(spectrum, axis=1)))

    assert 0.6 < hums({}) < 0.95
    (tmp_path / "quiet").mkdir()
    soundfile.write(tmp_path / "quiet/none.wav", np.zeros(800), 8000)
    assert hums({"noise": str(tmp_path / "quiet")}) == 0
    with pytest.raises(DataError, match="has no recordings of background noise: give a folder with WAV or FLAC files"):
        hums({"noise": str(tmp_path / "nowhere")})
    (tmp_path / "quiet/none.wav").write_bytes(b"RIFF")
    with pytest.raises(DataError, match=r"none\.wav cannot be decoded"):
        hums({"noise": str(tmp_path / "quiet")})


@pytest.mark.parametrize(
    ("settings", "features"),
    [({"coefficients": 13}, MFCC(bands=20, coefficients=13)), ({"features": "log_mel"}, LogMel(bands=20))],
)
def test_nets_hear_either_features(settings: dict[str, Any], features: LogMel) -> None:
    recipe = find_recipe("keywords")
    dataset = rudel.Dataset(rudel.Examples(np.zeros((2, 8000), np.int16)), class_names=["a", "b"])
    model = recipe.model(recipe.settings(settings), dataset=dataset)
    assert [layer.features for layer in model.layers if isinstance(layer, Features)] == [features]


@pytest.mark.parametrize("net", ["large", "medium", "small", "tiny"])
def test_nets_hear_samples(net: str) -> None:
    recipe = find_recipe("keywords")
    labels = np.arange(2, dtype=np.int32)
    dataset = rudel.Dataset(rudel.Examples(np.zeros((2, 16_000), np.int16), labels), class_names=["a", "b"])
    model = recipe.model(recipe.settings({"net": net, "rate": 16_000}), dataset=dataset)
    assert (model.input_shape, model.input.dtype, model.output_shape) == ((None, 16_000), "int16", (None, 2))


def test_medium_is_as_large_as_the_net_of_mlperf_tiny() -> None:
    recipe = find_recipe("keywords")
    dataset = rudel.Dataset(rudel.Examples(np.zeros((2, 8000), np.int16)), class_names=list("abcdefghijkl"))
    model = recipe.model(recipe.settings({}), dataset=dataset)
    assert 22_000 < model.count_params() < 28_000  # its has 24,908


# -- changes of recordings --------------------------------------------------------------------------------------


def clip(count: int = 64) -> Any:
    wave = 8000 * np.sin(2 * np.pi * 440 * np.arange(4000) / 8000)
    return np.repeat(np.pad(wave, 2000)[None], count, axis=0).astype(np.int16)


def test_changes_of_sound() -> None:
    x = clip()
    moved = np.asarray(random_sound_shift(KEY, x, 0.25))
    begins = [np.flatnonzero(row)[0] for row in moved]
    assert min(begins) < 200
    assert max(begins) > 3800
    assert np.array_equal(np.sort(moved[0]), np.sort(x[0])), "nothing falls out"
    louder = 20 * np.log10(np.asarray(random_gain(KEY, x, (-12, 6))).std(1) / x.std(1))
    assert (louder.min() < -10, louder.max() > 4, np.abs(louder + 3).max() <= 9.01) == (True, True, True)
    noise = np.asarray(random_noise(KEY, np.zeros_like(x), (-60, -40))).astype(float).std(1) / 2**15
    assert 20 * np.log10(noise).min() > -67
    assert 20 * np.log10(noise).max() < -38
    pitch = np.abs(np.fft.rfft(np.asarray(random_speed(KEY, x, 0.2)).astype(float), axis=1)).argmax(1)
    assert (pitch.min() < 385, pitch.max() > 495, pitch.min() > 365, pitch.max() < 530) == (True,) * 4  # of 440
    assert np.array_equal(random_speed(KEY, x, 0.0), x)
    short = np.full(300, 1000, np.int16)
    levels = np.asarray(random_background(KEY, np.zeros_like(x), short, (-20, 0), 0.5))[:, 0] / 1000
    assert 0.3 < np.mean(levels > 0) < 0.7
    assert (levels[levels > 0].min() >= 0.1, levels.max() <= 1) == (True, True)
    mixed = partial(random_background, noise=short)
    for change in (random_sound_shift, random_gain, random_noise, random_speed, mixed):
        made = jax.jit(change)(KEY, x)
        assert (made.shape, made.dtype) == (x.shape, np.int16)
        assert np.abs(made.astype(int) - np.asarray(change(KEY, x))).max() <= 8, "of 8,000"


def test_changes_of_motion() -> None:
    x: Any = np.random.default_rng(0).normal(size=(32, 50, 6)).astype(np.float32)
    turned = np.asarray(random_turn(KEY, x, 30))
    for part in (slice(0, 3), slice(3, 6)):
        before, after = (np.linalg.norm(array[..., part], axis=2) for array in (x, turned))
        assert np.allclose(before, after, atol=1e-5), "turning makes nothing longer"
    cosine = (x[..., :3] * turned[..., :3]).sum(2) / np.linalg.norm(x[..., :3], axis=2) ** 2
    assert np.degrees(np.arccos(np.clip(cosine, -1, 1))).max() <= 30.1
    assert np.allclose(np.asarray(random_turn(KEY, x, 0)), x, atol=1e-6)
    assert np.allclose((np.asarray(random_scale(KEY, x)) / x).std(axis=(1, 2)), 0, atol=1e-4)
    assert 0.02 < (np.asarray(random_jitter(KEY, x)) - x).std() < 0.04
    with pytest.raises(OptionError, match="turns axes in threes"):
        random_turn(KEY, x[..., :4])


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        (random_sound_shift, {"share": 2}),
        (random_speed, {"most": 1}),
        (random_gain, {"decibels": (1, 0)}),
        (random_noise, {"decibels": (1, 0)}),
        (random_background, {"noise": np.zeros(9, np.int16), "share": 2}),
        (random_scale, {"most": -1}),
        (random_jitter, {"share": -1}),
    ],
)
def test_changes_that_make_no_sense_are_refused(change: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        change(KEY, clip(2), **settings)


def test_parts_of_a_spectrogram_are_hidden_in_training_alone() -> None:
    layer = SpecAugment(bands=4, frames=6, seed=1)
    x = np.random.default_rng(0).normal(size=(200, 30, 20)).astype(np.float32)
    assert np.array_equal(layer(x), x)
    hidden = np.asarray(layer(x, training=True)) != x
    bands, frames = hidden.all(axis=1).sum(axis=1), hidden.all(axis=2).sum(axis=1)
    assert set(bands.tolist()) == set(range(5))
    assert set(frames.tolist()) == set(range(7))
    assert SpecAugment.from_config(layer.get_config()).bands == 4


# -- motion -----------------------------------------------------------------------------------------------------


def test_motion_knows_the_gestures_of_an_arduino(shared_data: Path, gestures: Path, tmp_path: Path) -> None:
    run = gestures
    summary = json.loads((run / "summary.json").read_text())
    assert summary["metrics"]["val_accuracy"] >= 0.95
    assert evaluate_run(run, shared_data / "gestures").examples == 214
    found = predict_files(run, [shared_data / "gestures/punch.csv"])
    assert len(found) == 13
    assert np.mean([one.ranking[0][0] == "punch" for one in found]) > 0.9
    (tmp_path / "odd.csv").write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match="has 2 columns, and the model takes inputs of shape"):
        predict_files(run, [tmp_path / "odd.csv"])


def test_motion_takes_columns_in_another_order_by_their_names(
    shared_data: Path, gestures: Path, tmp_path: Path
) -> None:
    for path in (shared_data / "gestures").glob("*.csv"):
        lines = path.read_text().splitlines()
        turned = (",".join(reversed(line.strip().split(","))) if line.strip() else "" for line in lines)
        (tmp_path / path.name).write_text("\n".join(turned))
    expected = predict_files(gestures, [shared_data / "gestures/punch.csv"])
    found = predict_files(gestures, [tmp_path / "punch.csv"])
    assert [one.outputs for one in found] == [one.outputs for one in expected]
    assert evaluate_run(gestures, tmp_path) == evaluate_run(gestures, shared_data / "gestures")


def test_from_the_command_line(folder: Path, tmp_path: Path, warm_python: str) -> None:
    def output_of(*arguments: str) -> str:
        command = [Path(warm_python).with_name("rudel"), *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    output_of("data", "sound", str(folder), "--out", "records", "--validation", "0.3", "--seconds", "0.5")
    options = ("--set", "net=tiny", "--set", "seconds=0.5", "--batch-size", "63", "--epochs", "1")
    output_of("train", "keywords", "--data", "records", *options, "--run", "run")
    assert "27" in output_of("evaluate", "run", "--data", "records", "--split", "validation")
    assert "falling" in output_of("predict", "run", str(next(folder.glob("falling/*.wav"))))
