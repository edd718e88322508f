"""The Arduino library: its layout, that it compiles as for the Nano 33 BLE, and what its sketch does."""

import itertools
import json
import re
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from micro_board import needs_board
from micro_support.oracles import runner
from package_models import dense, lstm, missing, run, softmax_of_floats, sum_of_two, tool
from processes import LONG, started

from rudel.errors import CompileError
from rudel.micro import Compiled, compile_model
from rudel.micro.bench import uniform_inputs
from rudel.micro.bench.boards import core
from rudel.micro.bench.build import build
from rudel.micro.bench.emulator import run as run_image
from rudel.micro.bench.host import host_outputs
from rudel.micro.bench.measure import glue
from rudel.micro.packages import write_arduino

CORE = Path(__file__).parent / "arduino"

# Of variants/ARDUINO_NANO33BLE/{cflags,cxxflags}.txt in ArduinoCore-mbed.
NANO33BLE = (
    *("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=softfp", "-mfpu=fpv4-sp-d16", "-Os", "-funsigned-char"),
    *("-fdata-sections", "-ffunction-sections", "-fmessage-length=0", "-fno-exceptions", "-fomit-frame-pointer"),
    *("-Wall", "-Wextra", "-Werror", "-DARDUINO=10815", "-DARDUINO_ARDUINO_NANO33BLE"),
)
CXX = ("-std=gnu++14", "-fno-rtti", "-fno-delete-null-pointer-checks", "-Wvla", "-Wno-unused-parameter")


@pytest.fixture
def hello_world(shared_data: Path) -> Compiled:
    """A sine that somebody else has trained."""
    return compile_model(shared_data / "tflite/hello_world_int8.tflite", name="sine")


def as_program(library: Path, name: str, folder: Path) -> Path:
    """The sketch as the builder of Arduino makes a C++ file of it: with Arduino.h in front."""
    sketch = folder / "sketch.cpp"
    text = (library / f"examples/{name}/{name}.ino").read_text()
    sketch.write_text(f"#include <Arduino.h>\n#line 1\n{text}")
    return sketch


def on_this_computer(library: Path, name: str, folder: Path, loops: int) -> list[list[str]]:
    """What the sketch does in so many turns of its loop, a line of words each."""
    include = ("-I", CORE, "-I", library / "src")
    warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")
    run(tool("gcc", "apt-get install gcc"), "-c", *warnings, library / f"src/{name}.c", "-o", folder / "model.o")
    sources = as_program(library, name, folder), CORE / "core.cpp", folder / "model.o"
    run(tool("g++", "apt-get install g++"), *CXX, *warnings, *include, *sources, "-lm", "-o", folder / "sketch")
    return [line.split(" ", 2) for line in run(folder / "sketch", loops).splitlines()]


def test_a_library_has_what_the_specification_asks_for(hello_world: Compiled, tmp_path: Path) -> None:
    files = write_arduino(hello_world, tmp_path / "sine")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in files) == [
        "sine/examples/sine/sine.ino",
        "sine/library.json",
        "sine/library.properties",
        "sine/src/sine.c",
        "sine/src/sine.h",
    ]
    assert sorted(files) == sorted(path for path in tmp_path.rglob("*") if path.is_file())
    properties = dict(line.split("=", 1) for line in (tmp_path / "sine/library.properties").read_text().splitlines())
    assert {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url"} <= set(properties)
    assert properties["name"] == "sine"
    assert properties["includes"] == "sine.h"
    assert properties["architectures"] == "*"
    assert properties["category"] == "Data Processing"
    assert f"{hello_world.arena_bytes:,} bytes of RAM" in properties["paragraph"]
    assert (tmp_path / "sine/src/sine.c").read_text() == hello_world.source


def test_a_library_is_one_of_platformio_too(hello_world: Compiled, tmp_path: Path) -> None:
    write_arduino(hello_world, tmp_path)
    properties = dict(line.split("=", 1) for line in (tmp_path / "library.properties").read_text().splitlines())
    manifest = json.loads((tmp_path / "library.json").read_text())
    assert {"name", "version", "description", "authors", "frameworks", "platforms"} <= set(manifest)
    assert (manifest["name"], manifest["version"]) == (properties["name"], properties["version"])
    assert (tmp_path / "src" / manifest["headers"]).is_file()
    (example,) = manifest["examples"]
    assert [(tmp_path / example["base"] / name).is_file() for name in example["files"]] == [True]


@pytest.mark.parametrize("example", ["sine", "timing"])
@pytest.mark.parametrize("target", ["generic", "nano33ble"])
def test_it_compiles_as_for_the_nano_33_ble(shared_data: Path, tmp_path: Path, example: str, target: str) -> None:
    compiled = compile_model(shared_data / "tflite/hello_world_int8.tflite", name="sine", target=target)
    library = tmp_path / "sine"
    write_arduino(compiled, library, example=example)  # type: ignore[arg-type]
    install = "apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi"
    gcc, gxx = tool("arm-none-eabi-gcc", install), tool("arm-none-eabi-g++", install)
    include = ("-I", CORE, "-I", library / "src")
    run(gcc, "-c", "-std=gnu11", *NANO33BLE, library / "src/sine.c", "-o", tmp_path / "model.o")
    sketch = as_program(library, "sine", tmp_path)
    run(gxx, "-c", *CXX, *NANO33BLE, *include, sketch, "-o", tmp_path / "sketch.o")
    needed = run(tool("arm-none-eabi-nm", install), "--undefined-only", tmp_path / "sketch.o")
    assert "U sine_invoke" in needed


@pytest.mark.parametrize("model", [dense(5, 3), dense(5, 3, integers=False), softmax_of_floats(4), sum_of_two()])
def test_sketches_of_other_models_compile(model: bytes, tmp_path: Path) -> None:
    write_arduino(compile_model(model, name="other"), tmp_path)
    install = "apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi"
    include = ("-I", CORE, "-I", tmp_path / "src")
    sketch = as_program(tmp_path, "other", tmp_path)
    command = (tool("arm-none-eabi-g++", install), "-fsyntax-only", *CXX, *NANO33BLE, *include, sketch)
    run(*command)


def test_the_led_follows_the_sine(hello_world: Compiled, tmp_path: Path) -> None:
    write_arduino(hello_world, tmp_path / "sine", example="sine")
    printed = on_this_computer(tmp_path / "sine", "sine", tmp_path, 2000)
    assert printed[:2] == [["pinMode", "13", "1"], ["begin", "115200"]]
    written = np.array([[int(word) for word in line[1:]] for line in printed if line[0] == "analogWrite"])
    assert set(written[:, 0]) == {13}
    brightness = written[:, 1]
    wanted = 127.5 * (np.sin(2 * np.pi * np.arange(1000) / 1000) + 1)
    assert len(brightness) == 2000
    assert np.corrcoef(brightness[:1000], wanted)[0, 1] > 0.995
    assert np.array_equal(brightness[:1000], brightness[1000:])
    assert np.abs(brightness[:1000] - wanted).max() < 18  # the model is wrong by up to 0.13
    assert 0 <= brightness.min() <= 10
    assert 245 <= brightness.max() <= 255
    curve = np.array([float(line[1]) for line in printed if line[0] == "print"])
    assert np.abs(np.clip(127.5 * (curve + 1), 0, 255) - brightness).max() <= 1
    assert {tuple(line) for line in printed if line[0] == "delay"} == {("delay", "5")}


def test_the_led_gets_the_very_numbers_of_the_model(hello_world: Compiled, shared_data: Path, tmp_path: Path) -> None:
    write_arduino(hello_world, tmp_path / "sine", example="sine")
    printed = on_this_computer(tmp_path / "sine", "sine", tmp_path, 1000)
    curve = [float(line[1]) for line in printed if line[0] == "print"]
    reference = runner((shared_data / "tflite/hello_world_int8.tflite").read_bytes(), "litert")
    (given,), (out,) = hello_world.inputs, hello_world.outputs
    assert given.scale is not None
    assert given.zero_point is not None
    assert out.scale is not None
    assert out.zero_point is not None
    for i in range(0, 1000, 37):
        x = np.float32(2 * np.pi) * np.float32(i) / np.float32(1000)
        number = np.clip(np.rint(x / np.float32(given.scale)) + given.zero_point, -128, 127).astype(np.int8)
        (told_by_litert,) = reference([number.reshape(1, 1)])
        assert curve[i] == pytest.approx((int(told_by_litert[0, 0]) - out.zero_point) * out.scale, abs=6e-5)


@pytest.mark.parametrize("integers", [True, False])
def test_the_timing_sketch_prints_what_comes_out(tmp_path: Path, integers: bool) -> None:
    compiled = compile_model(dense(5, 3, integers=integers), name="layer")
    write_arduino(compiled, tmp_path)
    lines = on_this_computer(tmp_path, "layer", tmp_path, 1)
    zeros = np.full((1, 5), compiled.inputs[0].zero_point or 0, compiled.inputs[0].dtype)
    (out,) = runner(dense(5, 3, integers=integers), "litert")([zeros])
    port = compiled.outputs[0]
    real = (out[0].astype(float) - (port.zero_point or 0)) * (port.scale or 1)
    printed = [line[1] for line in lines if line[0] == "print"]
    assert printed[0] == "125"
    assert [float(word) for word in printed[2::2]] == pytest.approx(real.tolist(), abs=6e-5)
    assert lines[-1] == ["delay", "1000"]


def test_readings_are_rounded_and_clamped_and_classes_named(tmp_path: Path) -> None:
    names = ('a"b', "two words", "\u00e9")
    compiled = compile_model(dense(5, 3), name="layer", class_names=names)
    write_arduino(compiled, tmp_path)
    sketch = tmp_path / "examples/layer/layer.ino"
    readings = (
        "const float readings[] = {0.05f, -0.05f, 100.0f, -100.0f, 1.0f};\n    const float reading = readings[i];"
    )
    sketch.write_text(sketch.read_text().replace("const float reading = 0;", readings))
    lines = on_this_computer(tmp_path, "layer", tmp_path, 1)
    given = np.array([[6, 0, 127, -128, 53]], np.int8)  # by a scale of 0.02 and a zero point of 3
    (out,) = runner(dense(5, 3), "litert")([given])
    printed = [" ".join(line[1:]) for line in lines if line[0] == "print"][2:]
    assert printed[::4] == list(names)
    assert [float(number) for number in printed[2::4]] == pytest.approx((0.05 * (out[0] + 7.0)).tolist(), abs=6e-5)


def test_every_turn_of_a_sketch_with_an_lstm_prints_the_same(tmp_path: Path) -> None:
    write_arduino(compile_model(lstm(), name="gate", stateless=True), tmp_path)
    lines = on_this_computer(tmp_path, "gate", tmp_path, 3)
    turns = [list(turn) for delayed, turn in itertools.groupby(lines, lambda line: line[0] == "delay") if not delayed]
    printed = [[line[1] for line in turn if line[0] == "print"][2::2] for turn in turns]
    assert len(printed) == 3
    assert printed == [printed[0]] * 3


@pytest.mark.parametrize(
    ("target", "has_dsp"), [("pico", False), ("pico2", True), ("nano33ble", True), ("esp32c3", False)]
)
def test_a_library_has_the_kernels_of_the_core(shared_data: Path, tmp_path: Path, target: str, has_dsp: bool) -> None:
    needs_board(target)
    path, place = shared_data / "tflite/micro_speech_int8.tflite", core(target)
    portable, dsp = (compile_model(path, name="speech", target=name) for name in ("generic", "cortex-m4"))
    write_arduino(portable, tmp_path / "speech", dsp=dsp)
    sources = {path.name: path.read_text() for path in (tmp_path / "speech/src").iterdir()}
    (tmp_path / "image").mkdir()
    image = build(
        tmp_path / "image", place, sources | {"model.c": glue(portable)}, options=["-Wall", "-Wextra", "-Werror"]
    )
    inputs = uniform_inputs(portable, 1)
    outputs, (record,) = run_image(image, place.board, inputs)
    assert outputs == host_outputs(portable, inputs)
    assert (record.instructions < 700_000) == has_dsp


def test_inputs_and_outputs_take_no_memory_beside_the_arena(shared_data: Path, tmp_path: Path) -> None:
    compiled = compile_model(shared_data / "tflite/micro_speech_int8.tflite", name="speech")
    write_arduino(compiled, tmp_path)
    sketch = as_program(tmp_path, "speech", tmp_path)
    install = "apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi"
    include = ("-I", CORE, "-I", tmp_path / "src")
    run(tool("arm-none-eabi-g++", install), "-c", *CXX, *NANO33BLE, *include, sketch, "-o", tmp_path / "s.o")
    _, data, bss = map(int, run(tool("arm-none-eabi-size", install), tmp_path / "s.o").splitlines()[1].split()[:3])
    assert data + bss < 16


def test_an_example_that_does_not_fit_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="one number in and one out, and layer is another"):
        write_arduino(compile_model(dense(5, 3), name="layer"), tmp_path / "library", example="sine")
    with pytest.raises(CompileError, match="it can be timing or sine"):
        write_arduino(compile_model(dense(5, 3), name="layer"), tmp_path / "library", example="blink")  # type: ignore[arg-type]
    assert not (tmp_path / "library").exists()


def test_a_folder_that_cannot_be_written(hello_world: Compiled, tmp_path: Path) -> None:
    (tmp_path / "library").write_text("")
    with pytest.raises(CompileError, match="cannot be written"):
        write_arduino(hello_world, tmp_path / "library")


def test_it_runs_on_a_real_core_of_arduino(hello_world: Compiled, tmp_path: Path) -> None:
    """Built with Arduino's core for AVR, and run on a simulated ATmega2560, whose `int` has 16 bits."""
    install = "apt-get install arduino-core-avr gcc-avr avr-libc simavr"
    gcc, gxx, simavr = (tool(name, install) for name in ("avr-gcc", "avr-g++", "simavr"))
    core = Path("/usr/share/arduino/hardware/arduino/avr")
    if not core.is_dir():
        missing(str(core), install)
    library = tmp_path / "sine"
    write_arduino(hello_world, library, example="sine")
    board = (
        *("-mmcu=atmega2560", "-DF_CPU=16000000L", "-DARDUINO=10819", "-DARDUINO_AVR_MEGA2560", "-DARDUINO_ARCH_AVR"),
        *("-Os", "-ffunction-sections", "-fdata-sections", "-I", core / "cores/arduino", "-I", core / "variants/mega"),
    )
    cxx = ("-std=gnu++11", "-fno-exceptions", "-fno-threadsafe-statics")
    strict = ("-Wall", "-Wextra", "-Werror")
    objects = [tmp_path / "model.o", tmp_path / "sketch.o"]
    run(gcc, "-c", "-std=gnu11", *strict, *board, library / "src/sine.c", "-o", objects[0])
    run(
        gxx, "-c", *cxx, *strict, *board, "-I", library / "src", as_program(library, "sine", tmp_path), "-o", objects[1]
    )
    used = ("main.cpp", "Print.cpp", "HardwareSerial.cpp", "HardwareSerial0.cpp", "abi.cpp", "new.cpp")
    for source in (*used, "wiring.c", "wiring_digital.c", "wiring_analog.c", "hooks.c"):
        found = core / "cores/arduino" / source
        objects.append(tmp_path / f"{source}.o")
        compiler, language = (gcc, ["-std=gnu11"]) if source.endswith(".c") else (gxx, cxx)
        run(compiler, "-c", "-w", *language, *board, found, "-o", objects[-1])
    image = tmp_path / "sine.elf"
    run(gcc, "-Os", "-mmcu=atmega2560", "-Wl,--gc-sections", *objects, "-lm", "-o", image)
    command = [simavr, "-m", "atmega2560", "-f", "16000000", image]
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, errors="replace") as simulated:
        assert simulated.stderr
        limit = threading.Timer(LONG, simulated.kill)
        limit.start()
        lines = list(itertools.islice(simulated.stderr, 260))
        limit.cancel()
    curve = [float(number) for number in re.findall(r"(-?\d\.\d{4})\.\.", "".join(lines))]
    here = on_this_computer(library, "sine", tmp_path, len(curve))
    assert len(curve) >= 250
    assert curve == [float(line[1]) for line in here if line[0] == "print"]
