"""Log-mel spectrograms and MFCCs: the same bits in NumPy, JAX, C on this computer and on a board, and WebAssembly."""

import base64
import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from missing import skip_or_fail

from benchmarks.board_features import measure_features
from rudel.backend import keras_on_jax
from rudel.errors import DataError, ModelError, OptionError
from rudel.features import MFCC, Features, LogMel
from rudel.features.c import sources
from rudel.features.mel_tables import weights
from rudel.micro.host import OPTIONS, c_compiler
from rudel.micro.packages.wasm import features_to_wasm

keras = keras_on_jax()

KINDS = [
    LogMel(),
    LogMel(16_000, window_ms=30, bands=40),
    LogMel(8000, window_ms=64, hop_ms=10, bands=10, low=0, high=3000),
    LogMel(11_025, window_ms=15, hop_ms=23, bands=12, low=300),
    MFCC(bands=20),
    MFCC(16_000, window_ms=30, bands=40, coefficients=13),
]
"""The default; MLPerf Tiny's rate; many hops in a window; gaps between windows; MFCCs."""


def difficult(features: LogMel, seconds: float = 0.5) -> np.ndarray:
    """Recordings at the limits of what samples can be, and random ones of many levels."""
    count = round(features.rate * seconds)
    n, random = np.arange(count), np.random.default_rng(0)
    tones = [np.rint(level * np.sin(n * n * 3 / count)) for level in (0.4, 1, 3, 100, 32767)]
    noise = [random.integers(-level, level + 1, count) for level in (1, 5, 300, 32767)]
    limits = [0 * n, 0 * n - 1, 0 * n + 32767, 0 * n - 32768, np.where(n % 2, 32767, -32768), -32768 * (n % 97 == 0)]
    return np.stack([*limits, *tones, *noise]).astype(np.int16)


class InC:
    """The C, built for this computer; undefined behaviour ends the process."""

    def __init__(self, features: LogMel, folder: Path) -> None:
        self.features = features
        for name, text in sources(features, "ears").items():
            (folder / name).write_text(text)
        checks = ["-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
        command = [*c_compiler(), *OPTIONS, *checks, "ears.c", "-o", "ears.so"]
        subprocess.run(command, cwd=folder, check=True)
        self._library = ctypes.CDLL(str(folder / "ears.so"))

    def __call__(self, recording: np.ndarray) -> np.ndarray:
        hop = self.features.hop
        frames = np.empty((self.features.frames(len(recording)), self.features.width), np.int8)
        self._library.ears_reset()
        for i, frame in enumerate(frames):
            given = np.ascontiguousarray(recording[i * hop : (i + 1) * hop])
            self._library.ears_push(ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(frame.ctypes.data))
        return frames


def in_keras(features: LogMel, recordings: np.ndarray) -> np.ndarray:
    model = keras.Sequential([keras.Input(recordings.shape[1:], dtype="int16"), Features(features)])
    return np.asarray(model.predict(recordings, verbose=0))


@pytest.mark.optimized
@pytest.mark.parametrize("features", KINDS, ids=str)
def test_numpy_jax_and_c_give_the_same_bits(features: LogMel, tmp_path: Path) -> None:
    recordings = difficult(features)
    expected = features(recordings)
    assert expected.shape == (len(recordings), features.frames(recordings.shape[1]), features.width)
    in_c = InC(features, tmp_path)
    for recording, frames in zip(recordings, expected, strict=True):
        assert np.array_equal(in_c(recording), frames)
        stream = features.stream()
        hops = recording[: len(frames) * features.hop].reshape(len(frames), -1)
        assert np.array_equal([stream.push(hop) for hop in hops], frames)
    assert np.array_equal(in_keras(features, recordings), expected)


@pytest.fixture(scope="module")
def digits(shared_data: Path) -> list[np.ndarray]:
    """Recordings of 2,250 spoken digits, as they are in their files."""
    files = sorted((shared_data / "spoken-digits").glob("*/*.wav"))
    if not files:
        skip_or_fail("There are no spoken digits beside the checkout.")
    assert len(files) == 2250
    return [soundfile.read(file, dtype="int16")[0] for file in files]


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("features", [LogMel(), MFCC(bands=20)], ids=str)
def test_all_recordings_give_the_same_bits(
    features: LogMel, step: int, digits: list[np.ndarray], tmp_path: Path
) -> None:
    in_c, digits = InC(features, tmp_path), digits[::step]
    found = [features(recording) for recording in digits]
    for recording, frames in zip(digits, found, strict=True):
        assert np.array_equal(in_c(recording), frames)
    padded = np.zeros((len(digits), 8000), np.int16)
    for row, recording in zip(padded, digits, strict=True):
        row[: min(8000, len(recording))] = recording[:8000]
    whole = in_keras(features, padded)
    for recording, row, frames in zip(digits, whole, found, strict=True):
        count = min(len(recording), 8000) // features.hop
        assert np.array_equal(row[:count], frames[:count])
    whole = np.concatenate(found)
    assert (whole.std(axis=0) > 8).all(), "speech moves every band and every coefficient"
    assert np.mean(np.abs(whole[:, 1:] + 0.5) >= 127) < 0.05, "and few leave the range"


@pytest.mark.parametrize(
    ("features", "instructions", "memory"),
    [(LogMel(), 35_000, (3200, 1300, 128)), (MFCC(bands=20), 32_000, (3700, 1300, 128))],
)
def test_a_board_gives_the_same_bits_within_its_budget(
    features: LogMel, instructions: int, memory: tuple[int, ...], digits: list[np.ndarray]
) -> None:
    some = np.zeros((40, 8000), np.int16)
    for row, recording in zip(some, digits[::56], strict=False):
        row[: min(8000, len(recording))] = recording[:8000]
    given = np.concatenate([some, difficult(features, 1.0)])
    measured = measure_features(features, given)
    assert np.array_equal(measured.frames, features(given))
    assert measured.instructions < instructions  # of 120,000 that are allowed
    assert all(a <= b for a, b in zip((measured.flash, measured.ram, measured.stack), memory, strict=True))


@pytest.mark.parametrize("features", [LogMel(), MFCC(bands=20)], ids=str)
def test_a_browser_gives_the_same_bits(features: LogMel, digits: list[np.ndarray], tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        skip_or_fail("There is no Node: apt-get install nodejs.")
    given = [np.resize(recording, 8000) for recording in digits[::150]] + list(difficult(features, 1.0))
    (tmp_path / "features.wasm").write_bytes(features_to_wasm(features))
    (tmp_path / "given.bin").write_bytes(np.concatenate(given).astype("<i2").tobytes())
    (tmp_path / "script.mjs").write_text(
        """
        import { readFileSync } from "node:fs";
        const { instance } = await WebAssembly.instantiate(readFileSync("features.wasm"));
        const { memory, hop, bands, spectrum, push, reset } = instance.exports;
        const [width, height] = process.argv.slice(2).map(Number);
        const file = readFileSync("given.bin");
        const samples = new Int16Array(file.buffer, file.byteOffset, file.length / 2);
        const columns = [], seen = [];
        for (let start = 0; start < samples.length; start += 160) {
          if (start % 8000 === 0) reset();
          new Int16Array(memory.buffer, hop.value, 160).set(samples.subarray(start, start + 160));
          push();
          columns.push(...new Int8Array(memory.buffer, bands.value, width));
          seen.push(...new Int8Array(memory.buffer, spectrum.value, height));
        }
        for (const all of [columns, seen]) console.log(Buffer.from(Int8Array.from(all).buffer).toString("base64"));
        """
    )
    done = subprocess.run(
        [node, "script.mjs", str(features.width), str(features.bands)], cwd=tmp_path, check=True, capture_output=True
    )
    found, seen = (np.frombuffer(base64.b64decode(line), np.int8) for line in done.stdout.split())
    assert np.array_equal(found.reshape(-1, 50, features.width), features(np.stack(given)))
    assert np.array_equal(seen.reshape(-1, 50, features.bands), LogMel(bands=features.bands)(np.stack(given)))


@pytest.mark.parametrize("features", KINDS[:2], ids=str)
def test_they_are_close_to_what_real_numbers_give(features: LogMel) -> None:
    recordings = difficult(features)[-4:]
    past = features.window - features.hop
    padded = np.pad(recordings.astype(float), ((0, 0), (past, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, features.window, axis=1)[:, :: features.hop]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(features.window) / features.window)
    spectrum = np.fft.rfft(windows * hann, features.fft) * 2**15 / features.fft
    shares = weights(features.tables)
    power = np.abs(spectrum[..., : len(shares)]) ** 2 @ shares
    steps = np.clip(np.rint((np.log2(np.maximum(power, 1)) - 33) * 8) - 128, -128, 127)
    off = np.abs(features(recordings) - steps)
    assert off.max() <= 1
    assert (off > 0).mean() < 0.02


def test_coefficients_are_those_of_real_numbers() -> None:
    features = MFCC(bands=20, coefficients=13)
    bands = LogMel(bands=20)(difficult(features)).astype(float)
    place = np.pi * (np.arange(20)[:, None] + 0.5) / 20
    lifter = 1 + 11 * np.sin(np.pi * np.arange(13) / 22)
    wanted = bands @ (np.cos(place * np.arange(13)) * lifter / 20)
    found = features(difficult(features))
    assert np.abs(found - np.clip(wanted, -128, 127)).max() < 0.7
    assert features.silence.tolist() == [-128, *[0] * 12]


def test_louder_is_higher_by_the_decibel() -> None:
    features, n = LogMel(), np.arange(8000)
    tones = np.stack([np.rint(level * np.sin(n * np.pi / 4)) for level in (8, 64, 512, 4096, 32767)]).astype(np.int16)
    peaks = features(tones)[:, 20].max(1)
    assert np.abs(np.diff(peaks) - 48).max() <= 1  # 18 dB, in steps of 0.38
    assert peaks[-1] == 120


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bands": 128}, "would be empty: give fewer bands"),
        ({"bands": 1}, "give two or more"),
        ({"low": 5000.0}, "between 0 and half the rate"),
        ({"high": 4001.0}, "between 0 and half the rate"),
        ({"rate": 100}, "`rate` is in samples a second"),
        ({"window_ms": 1000.0}, "A window of 8,000"),
        ({"hop_ms": 0.0}, "a hop at least 1"),
        ({"rate": 16_000, "window_ms": 128.0, "bands": 3}, "A band would be too wide"),
    ],
)
def test_what_cannot_be_computed_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        LogMel(**settings)
    for coefficients in (1, 21):
        with pytest.raises(OptionError, match="32 bands have 2 to 20 coefficients"):
            MFCC(coefficients=coefficients)


def test_what_is_no_sound_is_refused() -> None:
    for samples in (np.zeros(8000), np.zeros(100, np.int16), np.zeros((), np.int16)):
        with pytest.raises(DataError, match="is made of int16 samples"):
            LogMel()(samples)
    with pytest.raises(DataError, match="A hop has 160 samples"):
        LogMel().stream().push(np.zeros(80, np.int16))
    with pytest.raises(ModelError, match="takes recordings"):
        keras.Sequential([keras.Input((100,), dtype="int16"), Features(LogMel())])


@pytest.mark.parametrize("features", [LogMel(bands=20), MFCC(bands=20)], ids=str)
def test_a_model_that_hears_is_read_back(features: LogMel, tmp_path: Path) -> None:
    inputs = keras.Input((8000,), dtype="int16")
    model = keras.Model(inputs, keras.layers.Flatten()(Features(features)(inputs)))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    recordings = difficult(LogMel(), 1.0)
    assert np.array_equal(again.predict(recordings, verbose=0), model.predict(recordings, verbose=0))
    assert again.layers[1].features == features
