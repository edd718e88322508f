"""Libraries for Arduino that recognise words and movements: they do what the host does, at the same hop, and are small.

The drivers of microphone and motion sensor are stand-ins here; nothing of this has been on a board.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from micro.micro_board import needs_board
from missing import skip_or_fail

import rudel
from benchmarks.board_recogniser import Recognition, measure_recogniser
from rudel.backend import keras_on_jax
from rudel.c_literals import c_string
from rudel.errors import CompileError
from rudel.features import MFCC, Features, LogMel
from rudel.features.sensor_columns import Columns
from rudel.micro.packages.recogniser import THRESHOLD, half_band

keras = keras_on_jax()

CORE = Path(__file__).parents[1] / "micro/arduino"
NANO33BLE = (  # as in tests/micro/test_arduino.py
    *("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=softfp", "-mfpu=fpv4-sp-d16", "-Os", "-funsigned-char"),
    *("-fdata-sections", "-ffunction-sections", "-fno-exceptions", "-fomit-frame-pointer"),
    *("-Wall", "-Wextra", "-Werror", "-DARDUINO=10815", "-DARDUINO_ARDUINO_NANO33BLE"),
)
WORDS, SPEAKERS = ("falling", "rising", "steady"), 3


def spoken(word: str, speaker: int, random: np.random.Generator) -> np.ndarray:
    """Half a second of a tone at 8 kHz, floats."""
    n = np.arange(4000) / 8000
    pitch = 700 + 150 * speaker + random.uniform(-50, 50) + 500 * (WORDS.index(word) % 2 - WORDS.index(word) // 2)
    wave = np.sin(2 * np.pi * (pitch + 500 * {"falling": -1, "rising": 1, "steady": 0}[word] * (n - 0.25)) * n)
    return wave * random.uniform(0.1, 0.5) + random.normal(0, 0.002, n.shape)


def tool(name: str) -> str:
    found = shutil.which(name)
    return found or skip_or_fail(f"{name} is needed: apt-get install qemu-system-arm gcc-arm-none-eabi g++")


def run_tool(*command: object, **options: Any) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, check=False, **options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, random = tmp_path_factory.mktemp("tones"), np.random.default_rng(0)
    for word in WORDS:
        (root / word).mkdir()
        for number in range(24):
            soundfile.write(root / word / f"{number}.wav", spoken(word, number % SPEAKERS, random), 8000)
    return root


FEATURES = [
    pytest.param(LogMel(bands=20), id="log_mel", marks=pytest.mark.slow),  # its C: test_sound.py, test_log_mel.py
    pytest.param(MFCC(bands=20), id="mfcc"),
]


@pytest.fixture(scope="module", params=FEATURES)
def features(request: pytest.FixtureRequest) -> LogMel:
    return request.param


@pytest.fixture(scope="module")
def keywords(
    features: LogMel, recordings: Path, optimized: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    run = tmp_path_factory.mktemp("runs") / "words"
    options: dict[str, Any] = {
        "net": "tiny",
        "words": "falling,rising",
        "features": "mfcc" if isinstance(features, MFCC) else "log_mel",
    }
    # 80 examples: 5 whole batches, as a smaller last one would be one program more to compile
    options |= {"validation": 1 / 6}
    with optimized():
        rudel.train_recipe("keywords", data=str(recordings), options=options, epochs=60, batch_size=16, run=run)
    return run


@pytest.fixture(scope="module")
def ears(keywords: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The library, and the int8 network that it was made of."""
    folder = tmp_path_factory.mktemp("exports")
    exported = rudel.export(keywords, "arduino", folder / "ears")
    assert any("calls on_keyword(name, score); the network runs every" in note for note in exported.notes)
    rudel.export(keywords, "litert-int8", folder / "ears.tflite")
    return folder / "ears", folder / "ears.tflite"


@pytest.fixture(scope="module")
def stream() -> np.ndarray:
    """Six words, at 16 kHz, int16, in near silence."""
    random = np.random.default_rng(1)
    parts = []
    for number in range(6):
        words = np.repeat(spoken(WORDS[number % 3], number % SPEAKERS, random), 2)
        parts += [np.zeros(random.integers(24_000, 30_000)), words]
    sound = np.concatenate([*parts, np.zeros(20_000)])
    noisy = np.rint(sound * 32767 + random.normal(0, 3, sound.shape))
    return noisy[: len(noisy) // 320 * 320].astype(np.int16)


def texts_of(library: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (library / "src").iterdir()}


def constant(library: Path, name: str) -> int:
    found = next(line for line in (library / "src/ears_recogniser.c").read_text().splitlines() if f" {name} = " in line)
    return int(found.split("=")[1].split("/")[0].strip(" ,"))


def network(path: Path) -> Any:
    interpreter = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    (given,), (output,) = interpreter.get_input_details(), interpreter.get_output_details()

    def answer(example: np.ndarray) -> np.ndarray:
        interpreter.set_tensor(given["index"], example[None])
        interpreter.invoke()
        return interpreter.get_tensor(output["index"])[0].astype(int) + 128

    return answer


def on_the_host(ears: tuple[Path, Path], features: LogMel, sound: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is recognised at which hop, computed with NumPy and LiteRT; written here once more, from the description."""
    library, model = ears
    header = (library / "src/ears_recogniser.h").read_text()
    every = int(header.split("_RECOGNISER_EVERY = ")[1].split(",")[0])
    smoothed, resting = constant(library, "SMOOTHED"), constant(library, "RESTING")
    answer, taps = network(model), half_band().astype(np.int64)
    padded = np.concatenate([np.zeros(22, np.int64), sound.astype(np.int64)])
    filtered = (np.correlate(padded, taps)[1::2] + (1 << 14)) >> 15
    frames = features(np.clip(filtered, -32768, 32767).astype(np.int16))
    frames = np.concatenate([np.tile(features.silence, (50, 1)), frames])
    found, scores = np.full(len(frames) - 50, -1), np.zeros(len(frames) - 50, int)
    runs, rest, heard = [np.zeros(4, int)] * smoothed, 0, -1
    for hop in range(every - 1, len(found), every):
        runs = [*runs[1:], answer(frames[hop + 1 : hop + 51])]
        mean = np.sum(runs, axis=0) // smoothed
        best = int(mean.argmax())
        scores[hop] = mean[best]
        word = best if best < 2 and mean[best] >= THRESHOLD else -1
        if rest:
            rest, heard = rest - 1, heard if word == heard else -1
        elif word != heard:
            found[hop], rest, heard = word, resting if word >= 0 else 0, word
    return found, scores


@pytest.fixture(scope="module")
def on_board(ears: tuple[Path, Path], stream: np.ndarray) -> Recognition:
    needs_board()
    return measure_recogniser("ears", texts_of(ears[0]), stream[None], hop=320)


def test_the_board_recognises_what_the_host_recognises_at_the_same_hop(
    ears: tuple[Path, Path], features: LogMel, stream: np.ndarray, on_board: Recognition
) -> None:
    found, scores = on_the_host(ears, features, stream)
    assert np.array_equal(on_board.found[0], found)
    assert np.array_equal(on_board.scores[0], scores)
    assert found[found >= 0].tolist() == [0, 1, 0, 1], "and the steady tones are unknown"


def test_a_recogniser_is_small_and_idles_for_70_percent(on_board: Recognition) -> None:
    cycles = 64_000_000 * 0.020
    assert on_board.instructions * 1.5 < 0.3 * cycles
    assert on_board.ram + on_board.stack <= 24 * 1024
    assert on_board.flash <= 70 * 1024


def sketch_on_this_computer(library: Path, name: str, given: bytes, turns: int, folder: Path) -> list[str]:
    """What the sketch prints when the stand-ins give it recordings."""
    include = ("-I", CORE, "-I", library / "src")
    strict = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")
    objects = []
    for source in sorted((library / "src").glob("*.c")):
        objects.append(folder / f"{source.stem}.o")
        run_tool(tool("gcc"), "-c", "-O1", "-std=gnu11", *strict, source, "-o", objects[-1])
    sketch = folder / "sketch.cpp"
    sketch.write_text(f"#include <Arduino.h>\n#line 1\n{(library / f'examples/{name}/{name}.ino').read_text()}")
    sources = (sketch, CORE / "core.cpp", CORE / "sensors.cpp")
    run_tool(tool("g++"), "-std=gnu++14", *strict, *include, *sources, *objects, "-lm", "-o", folder / "sketch")
    printed = run_tool(folder / "sketch", turns, input=given).splitlines()
    return [line.removeprefix("print ") for line in printed if line.startswith("print ")]


def test_the_sketch_prints_the_words_that_the_microphone_hears(
    ears: tuple[Path, Path], stream: np.ndarray, on_board: Recognition, tmp_path: Path
) -> None:
    printed = sketch_on_this_computer(ears[0], "ears", stream.tobytes(), 2 * len(stream) // 256, tmp_path)
    heard = np.flatnonzero(on_board.found[0] >= 0)
    words = [WORDS[on_board.found[0, hop]] for hop in heard]
    assert printed[::3] == words
    assert [float(score) for score in printed[2::3]] == pytest.approx(on_board.scores[0, heard] / 255, abs=0.006)


def cross_compile(library: Path, name: str, folder: Path, *options: str) -> None:
    include = ("-I", CORE, "-I", library / "src")
    for source in sorted((library / "src").glob("*.c")):
        run_tool(tool("arm-none-eabi-gcc"), "-c", "-std=gnu11", *NANO33BLE, source, "-o", folder / f"{source.stem}.o")
    sketch = folder / "sketch.cpp"
    sketch.write_text(f"#include <Arduino.h>\n#line 1\n{(library / f'examples/{name}/{name}.ino').read_text()}")
    cxx = ("-std=gnu++14", "-fno-rtti", "-Wvla", "-Wno-unused-parameter", *options)
    run_tool(tool("arm-none-eabi-g++"), "-c", *cxx, *NANO33BLE, *include, sketch, "-o", folder / "sketch.o")


def test_the_library_compiles_as_for_the_nano_33_ble(ears: tuple[Path, Path], tmp_path: Path) -> None:
    cross_compile(ears[0], "ears", tmp_path)
    needed = run_tool(tool("arm-none-eabi-nm"), "--undefined-only", tmp_path / "sketch.o")
    assert {"ears_recogniser_put", "ears_recogniser_take", "ears_recogniser_push"} <= set(needed.split())


# -- movements --------------------------------------------------------------------------------------------------


def movement(kind: str, random: np.random.Generator) -> np.ndarray:
    """119 rows of a sensor: acceleration of up to 4 g, rotation of hundreds of degrees a second."""
    t = np.arange(119) / 119
    swing = np.sin(2 * np.pi * 4 * random.uniform(0.9, 1.1) * t) * random.uniform(0.8, 1.2)
    acceleration = np.tile([0.0, 0.0, 1.0], (119, 1))
    acceleration[:, ("push", "shake", "wave").index(kind)] += 2 * swing
    acceleration[0, 1] = 3.0
    rotation = np.stack([0 * t, 200 * np.gradient(swing, t) / 10, 0 * t], 1)
    noise = random.normal(size=(119, 6)) * [0.1, 0.1, 0.1, 20, 20, 20]
    return (np.concatenate([acceleration, rotation], 1) + noise).astype(np.float32)


@pytest.fixture(scope="module")
def motion(optimized: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and the library made of it."""
    root, random = tmp_path_factory.mktemp("movements"), np.random.default_rng(0)
    for kind in ("push", "shake", "wave"):
        blocks = ["\n".join(",".join(f"{v:.3f}" for v in row) for row in movement(kind, random)) for _ in range(20)]
        (root / f"{kind}.csv").write_text("aX,aY,aZ,gX,gY,gZ\n" + "\n\n".join(blocks) + "\n")
    run = root.parent / f"{root.name}_run"
    with optimized():
        rudel.train_recipe("motion", data=str(root), epochs=30, run=run)
    exported = rudel.export(run, "arduino", root / "hand")
    assert any("on_motion(name, score)" in note for note in exported.notes)
    assert not any("the sketch gives it" in note for note in exported.notes)
    config = json.loads((run / "config.json").read_text())
    assert config["channels"] == ["aX", "aY", "aZ", "gX", "gY", "gZ"]
    (run / "config.json").write_text(json.dumps(config | {"channels": ["gX", "gY", "gZ", "aX", "aY", "aZ"]}))
    assert any("the sketch gives it aX, aY" in note for note in rudel.export(run, "arduino", root / "turned").notes)
    (run / "config.json").write_text(json.dumps(config))
    return run, root / "hand"


def sensor() -> np.ndarray:
    """Rest, a movement, rest, and so on, twice each: float32 (rows, 6)."""
    random = np.random.default_rng(2)
    parts = []
    for kind in ("push", "shake", "wave", "shake", "push", "wave"):
        rest = random.normal(size=(60, 6)) * [0.02, 0.02, 0.02, 2, 2, 2] + [0, 0, 1, 0, 0, 0]
        parts += [rest.astype(np.float32), movement(kind, random)]
    return np.concatenate([*parts, parts[0]])


def test_int8_keeps_both_acceleration_and_rotation(motion: tuple[Path, Path], tmp_path: Path) -> None:
    """With one scale for all six columns, acceleration would be lost."""
    exported = rudel.export(motion[0], "litert-int8", tmp_path / "hand.tflite")
    assert exported.inputs[0]["name"] == "normalised"
    assert exported.inputs[0]["scale"] < 0.1
    assert exported.metrics["accuracy"] >= exported.model_metrics["accuracy"] - 0.005
    assert exported.largest_difference < 0.2
    whole = rudel.export(motion[0], "litert", tmp_path / "float.tflite")
    assert whole.inputs[0]["name"] == "motion", "floats need no such thing"


def test_the_board_recognises_movements_as_the_host_does(motion: tuple[Path, Path], tmp_path: Path) -> None:
    needs_board()
    run, library = motion
    exported = rudel.export(run, "litert-int8", tmp_path / "hand.tflite")
    rows = sensor()
    layer = next(layer for layer in rudel.load(run).layers if layer.name == "scaled")
    columns = Columns(*(np.asarray(value, np.float32).reshape(-1) for value in (layer.mean, layer.variance**0.5)))
    scale, zero = np.float32(exported.inputs[0]["scale"]), exported.inputs[0]["zero_point"]
    given = np.clip(np.round(columns(rows) / scale) + zero, -128, 127).astype(np.int8)
    answer, found, at = network(tmp_path / "hand.tflite"), np.full(len(rows), -1), 0
    scores = np.zeros(len(rows), int)
    while at < len(rows):
        if np.abs(rows[at, :3]).sum() >= 2.5 and at + 119 <= len(rows):
            answered = answer(given[at : at + 119])
            at += 118
            found[at], scores[at] = answered.argmax(), answered.max()
        at += 1
    on_board = measure_recogniser("hand", texts_of(library), rows[None])
    assert np.array_equal(on_board.found[0], found)
    assert np.array_equal(on_board.scores[0], scores)
    assert found[found >= 0].tolist() == [0, 1, 2, 1, 0, 2]
    assert on_board.instructions * 1.5 < 0.3 * 64_000_000 / 119

    printed = sketch_on_this_computer(library, "hand", rows.tobytes(), len(rows), tmp_path)
    assert printed[::3] == ["push", "shake", "wave", "shake", "push", "wave"]


@pytest.mark.parametrize("revision", [0, 1])
def test_sketches_for_both_sensors_compile(motion: tuple[Path, Path], revision: int, tmp_path: Path) -> None:
    library = tmp_path / "hand"
    shutil.copytree(motion[1], library)
    sketch = library / "examples/hand/hand.ino"
    sketch.write_text(sketch.read_text().replace("#define REV2 0", f"#define REV2 {revision}"))
    cross_compile(library, "hand", tmp_path)


def test_a_model_of_accelerations_alone_is_said_to_have_a_sketch_without_on_motion(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for kind in ("push", "shake"):
        rows = "\n\n".join("\n".join(f"{x:.2f},{y:.2f},1" for x, y in random.normal(size=(8, 2))) for _ in range(16))
        (tmp_path / f"{kind}.csv").write_text(f"aX,aY,aZ\n{rows}\n")
    run = tmp_path / "run"
    rudel.train_recipe("motion", data=str(tmp_path), options={"samples": 8}, epochs=1, batch_size=8, run=run)
    notes = rudel.export(run, "arduino", tmp_path / "hand").notes
    words = "The sketch does not call on_motion, which takes a model of the columns aX, aY, aZ, gX, gY, gZ, in g "
    assert f"{words}and degrees a second." in notes
    assert "on_motion" not in (tmp_path / "hand/examples/hand/hand.ino").read_text()


def test_the_sketch_of_another_sensor_gives_rows_to_the_features(fitted: Callable[..., Path], tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal([22, 55, 1013], [4, 15, 8], (256, 3)).astype(np.float32)
    normalise = keras.layers.Normalization()
    normalise.adapt(rows)
    net = keras.Sequential([keras.Input((3,)), normalise, keras.layers.Dense(1, kernel_initializer="ones")])
    run = fitted(net, rows, rows[:, :1])
    rudel.export(run, "arduino", tmp_path / "air", data=rows)
    needs = (tmp_path / "air/library.properties").read_text()
    assert "The network alone needs" in needs
    assert "features and their buffers need more" in needs
    cross_compile(tmp_path / "air", "air", tmp_path)

    sketch = tmp_path / "air/examples/air/air.ino"
    text = sketch.read_text()
    sketch.write_text(text.replace("row[AIR_FEATURES_COLUMNS] = {0}", "row[] = {24.5f, 52.0f, 1019.0f}"))
    _, _, answer, *_ = sketch_on_this_computer(tmp_path / "air", "air", b"", 1, tmp_path)
    wanted = rudel.load(run).predict(np.array([[24.5, 52.0, 1019.0]]), verbose=0)[0, 0]
    assert float(answer) == pytest.approx(wanted, abs=0.1)


def test_the_sketch_of_sound_without_classes_gives_hops_to_the_features(
    fitted: Callable[..., Path], tmp_path: Path
) -> None:
    sound = np.random.default_rng(0).integers(-3000, 3000, (64, 640), np.int16)
    x = keras.layers.Rescaling(1 / 64)(Features(LogMel(bands=16))(given := keras.Input((640,), dtype="int16")))
    run = fitted(keras.Model(given, keras.layers.Dense(1)(keras.layers.Flatten()(x))), sound, sound[:, :1])
    rudel.export(run, "arduino", tmp_path / "loud", data=sound)
    _, _, answer, *_ = sketch_on_this_computer(tmp_path / "loud", "loud", b"", 2, tmp_path)
    wanted = rudel.load(run).predict(np.zeros((1, 640), np.int16), verbose=0)[0, 0]
    assert float(answer) == pytest.approx(wanted, abs=0.1)


def test_names_of_classes_may_be_anything() -> None:
    assert c_string('a"\\?é') == '"a\\042\\134\\077\\303\\251"'


def test_features_that_take_too_long_are_refused() -> None:
    from rudel.micro.packages.recogniser import listening

    with pytest.raises(CompileError, match="Features of a hop of 1 ms alone take too long"):
        listening(None, LogMel(16_000, hop_ms=1))  # type: ignore[arg-type]


def test_the_command_imports_no_tensorflow(motion: tuple[Path, Path], command: Any, tmp_path: Path) -> None:
    """Nor does it show what that prints."""
    done = command(motion[0], "--to", "arduino", "--out", "hand", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("compared on ")
