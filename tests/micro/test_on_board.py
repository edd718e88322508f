"""`rudel micro bench --port`, with the sketch it writes on an emulated board, over that board's serial port."""

import contextlib
import importlib.util
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from micro_board import needs_board
from micro_layers import LAYERS, model
from missing import skip_or_fail
from package_models import run, softmax_of_floats, sum_of_two

from rudel.data.collecting.port import SerialPort, opened
from rudel.errors import DataError
from rudel.micro import Compiled, compile_model
from rudel.micro.bench import BenchError, measure, uniform_inputs
from rudel.micro.bench.boards import core
from rudel.micro.bench.build import build
from rudel.micro.bench.host import host_outputs
from rudel.micro.bench.line import Frame, frames
from rudel.micro.bench.on_board import run_on_board
from rudel.micro.bench.sketch import line_sources, write_sketch

ARDUINO = Path(__file__).parent / "emulated_board"
MODEL = model(LAYERS["3 x 3"])
CPP = ("-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Werror", "-O2", "-mthumb")


@dataclass(frozen=True)
class Emulated:
    """A board that QEMU pretends to be.

    Attributes:
        port: where its serial line ends here.
        process: QEMU.
        monitor: the socket of its monitor.
    """

    port: str
    process: subprocess.Popen[str]
    monitor: Path

    def reset(self) -> None:
        """Presses the button; the board has begun again when it returns.

        QEMU carries a reset out before it reads the next command.
        """
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self.monitor))
            for command in (b"system_reset\n", b"info status\n", b""):
                answer = b""
                while not answer.endswith(b"(qemu) "):
                    answer += line.recv(1000)
                line.sendall(command)


def image_of(compiled: Compiled, folder: Path) -> Path:
    """The sketch as a board has it: its C++ compiled as Arduino's builder does, on an emulated Cortex-M4."""
    place = core("cortex-m4")
    sketch, *_ = write_sketch(compiled, folder / "sketch")
    (folder / "sketch.cpp").write_text(f"#include <Arduino.h>\n{sketch.read_text()}")
    include = ("-I", ARDUINO, "-I", folder / "sketch")
    run("arm-none-eabi-g++", *place.options, *CPP, *include, "-c", folder / "sketch.cpp", "-o", folder / "sketch.o")
    return build(folder, place, {**line_sources(compiled), "harness.c": ""}, options=["sketch.o"])


@contextlib.contextmanager
def emulated(image: Path) -> Iterator[Emulated]:
    monitor = image.parent / "monitor"
    command = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-icount", "shift=6", "-kernel", str(image)]
    command += ["-serial", "pty", "-monitor", f"unix:{monitor},server=on,wait=off"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"/dev/\S+", process.stdout.readline())
            assert found
            yield Emulated(found.group(), process, monitor)
        finally:
            process.kill()


@pytest.fixture(scope="module", autouse=True)
def _serial() -> None:
    if importlib.util.find_spec("serial") is None:
        skip_or_fail("this test needs pyserial: pip install 'rudel[board]'")


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_model(MODEL, name="net", target="cortex-m4")


@pytest.fixture(scope="module")
def image(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs_board()
    return image_of(compiled, tmp_path_factory.mktemp("board"))


@pytest.fixture
def board(image: Path) -> Iterator[Emulated]:
    with emulated(image) as found:
        yield found


@pytest.fixture(scope="module")
def examples(compiled: Compiled) -> tuple[list[bytes], list[bytes]]:
    inputs = uniform_inputs(compiled, 3)
    return inputs, host_outputs(compile_model(MODEL, name="net"), inputs)


def test_a_board_gives_bits_and_time(
    board: Emulated, compiled: Compiled, examples: tuple[list[bytes], list[bytes]]
) -> None:
    with opened(board.port) as port:
        found = run_on_board(port, compiled, *examples)
    assert found.differing == 0
    assert len(set(examples[1])) == len(found.microseconds) == 3
    assert found.cycles == pytest.approx(measure(compiled, *examples).instructions, rel=0.01, abs=32)


@dataclass
class Noisy:
    """A port whose line changes, loses and adds bytes, both ways, one in three hundred."""

    port: SerialPort
    random: random.Random
    spoilt: int = 0

    @property
    def name(self) -> str:
        return self.port.name

    def _through(self, data: bytes) -> bytes:
        result = bytearray()
        for byte in data:
            event = self.random.randrange(900)
            self.spoilt += event < 3
            if event != 0:
                result.append(byte ^ (1 << self.random.randrange(8)) if event == 1 else byte)
            if event == 2:
                result += b"\xa5\x5a"[: self.random.randrange(1, 3)]
        return bytes(result)

    def read(self) -> bytes:
        return self._through(self.port.read())

    def write(self, data: bytes) -> None:
        self.port.write(self._through(data))


def test_noise_costs_repetitions_only(
    board: Emulated, compiled: Compiled, examples: tuple[list[bytes], list[bytes]]
) -> None:
    with opened(board.port) as port:
        noisy = Noisy(port, random.Random(1))
        found = run_on_board(noisy, compiled, *examples, timeout=0.5)
    assert (found.differing, len(found.microseconds)) == (0, 3)
    assert noisy.spoilt


@dataclass
class Resetting:
    """A port whose board is reset before it is asked to run, so many times."""

    port: SerialPort
    board: Emulated
    times: int
    last: int = -1

    @property
    def name(self) -> str:
        return self.port.name

    def read(self) -> bytes:
        return self.port.read()

    def write(self, data: bytes) -> None:
        if data[2:3] == b"R" and data[3] != self.last and self.times:
            self.last, self.times = data[3], self.times - 1
            self.board.reset()
        self.port.write(data)


def test_a_board_that_is_reset_gets_its_input_again(
    board: Emulated, compiled: Compiled, examples: tuple[list[bytes], list[bytes]]
) -> None:
    with opened(board.port) as port:
        resetting = Resetting(port, board, 1)
        assert run_on_board(resetting, compiled, *examples, timeout=0.3).differing == 0
        assert resetting.times == 0
        with pytest.raises(BenchError, match="has lost its input 3 times"):
            run_on_board(Resetting(port, board, 3), compiled, *examples, timeout=0.3)


def test_another_model_on_the_board_is_recognised(board: Emulated, examples: tuple[list[bytes], list[bytes]]) -> None:
    for other in (
        compile_model(model(LAYERS["3 x 3"], seed=1), name="net", target="cortex-m4"),
        compile_model(MODEL, name="net", target="cortex-m4", rounding="tflm"),
    ):
        with opened(board.port) as port, pytest.raises(BenchError, match="has another model than net for cortex-m4"):
            run_on_board(port, other, *examples)


def test_a_board_without_the_sketch_is_given_up(compiled: Compiled, examples: tuple[list[bytes], list[bytes]]) -> None:
    other, own = os.openpty()
    threading.Thread(target=os.write, args=(other, b"\xa5\x5aH\x01\xff\xffbooting")).start()
    with opened(os.ttyname(own)) as port, pytest.raises(BenchError, match=r"does not answer: upload the sketch"):
        run_on_board(port, compiled, *examples, patience=0.2)
    os.close(other)
    os.close(own)


def test_a_board_that_is_unplugged_is_gone(
    board: Emulated, compiled: Compiled, examples: tuple[list[bytes], list[bytes]]
) -> None:
    def unplug(done: int, total: int) -> None:
        board.process.kill()
        board.process.wait()

    lost = pytest.raises((DataError, BenchError), match=r"was disconnected|stopped answering")
    with opened(board.port) as port, lost:
        run_on_board(port, compiled, *examples, progress=unplug, timeout=0.1)


def test_several_inputs_and_outputs_lie_one_after_the_other(tmp_path: Path) -> None:
    needs_board()
    two = compile_model(sum_of_two(), name="two", target="cortex-m4")
    inputs = uniform_inputs(two, 5)
    with emulated(image_of(two, tmp_path)) as board, opened(board.port) as port:
        assert run_on_board(port, two, inputs, host_outputs(two, inputs)).differing == 0
        wrong = [bytes(8)] * 5
        assert run_on_board(port, two, inputs, wrong).differing == 5


def test_floats_of_a_board_are_the_same_within_rounding(tmp_path: Path) -> None:
    needs_board()
    floats = compile_model(softmax_of_floats(32), name="floats", target="cortex-m4")
    inputs = uniform_inputs(floats, 1)
    with emulated(image_of(floats, tmp_path)) as board, opened(board.port) as port:
        found = run_on_board(port, floats, inputs, host_outputs(floats, inputs))
    assert (found.differing, found.exact) == (0, False)


@pytest.mark.parametrize("name", ["board", "bench_line", "bench"])
def test_a_model_with_a_name_of_the_sketchs_own_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=rf"^The bench has C of its own that is called `{name}`: rename"):
        write_sketch(compile_model(MODEL, name=name), tmp_path / "sketch")
    assert not (tmp_path / "sketch").exists()


def test_the_command_writes_the_sketch_and_runs_the_board(image: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.tflite"
    file.write_bytes(MODEL)
    command = [Path(sys.executable).with_name("rudel"), "micro", "bench", file]
    wrote = run(*command, "--sketch", tmp_path / "there")
    assert wrote.startswith(f"{tmp_path / 'there' / 'there.ino'} and 6 files beside it")
    assert {path.name for path in (tmp_path / "there").iterdir()} == {
        *("there.ino", "net.h", "net.c", "bench_model.c", "bench_line.c", "bench_line.h", "board.h")
    }
    with emulated(image) as board:  # only now, as a board that waits takes a whole core
        answer = json.loads(run(*command, "--port", board.port, "-n", 1, "--json"))
    assert (answer["differing"], answer["board"]["differing"]) == (0, 0)
    assert answer["board"]["cycles"] == pytest.approx(answer["instructions"], rel=0.02, abs=32)


def test_frames_are_found_in_anything() -> None:
    whole = Frame("g", 7, bytes(range(132)))
    received = bytearray(b"\xa5\xa5\x5a\xa5" + whole.encoded() + b"\x00\xa5\x5ag" + whole.encoded()[:-1])
    assert list(frames(received)) == [whole]
    received += whole.encoded()[-1:]
    assert list(frames(received)) == [whole]
    damaged = bytearray(whole.encoded())
    damaged[20] ^= 1
    assert list(frames(damaged)) == []
