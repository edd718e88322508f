"""`rudel data sketch` and `rudel data collect`: the sketches run on this computer, and are read through a terminal.

Microphone and motion sensor are stand-ins, which read the samples of a file; nothing of this has been on a board. They
measure faster than a board, so what is on its way when the port is opened, and is lost then, is more: nothing happens
in the first 200 kB.
"""

import contextlib
import json
import os
import shutil
import subprocess
import threading
import tty
import wave
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_disk import full_disk
from hypothesis import given
from hypothesis import strategies as st
from missing import skip_or_fail
from processes import until

from rudel.cli import data_collect
from rudel.data.collecting.cutting import ROWS, Cutter
from rudel.data.collecting.frames import Frame, Header, Reader, written
from rudel.data.collecting.recording_files import Store
from rudel.data.collecting.sketches import SKETCHES
from rudel.data.motion import read_folder as motions_of
from rudel.data.sound.recording_folders import read_folder as sounds_of
from rudel.errors import DataError

CORE = Path(__file__).parents[1] / "micro/arduino"
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-std=gnu++14")
NANO33BLE = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=softfp", "-mfpu=fpv4-sp-d16", "-Os", "-fno-exceptions")
RESTING = 8000  # rows
COLUMNS = ("aX", "aY", "aZ", "gX", "gY", "gZ")


def tool(name: str) -> str:
    return shutil.which(name) or skip_or_fail(f"{name} is needed: apt-get install g++ gcc-arm-none-eabi")


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Programs that do on this computer what the sketches do on a board."""
    folder, programs = tmp_path_factory.mktemp("boards"), {}
    for kind, text in SKETCHES.items():
        source, programs[kind] = folder / f"{kind}.cpp", folder / kind
        source.write_text(f'#include "Arduino.h"\n{text}')
        sources = (source, CORE / "core.cpp", CORE / "sensors.cpp")
        subprocess.run([tool("g++"), "-O1", *WARNINGS, "-I", CORE, *sources, "-o", programs[kind]], check=True)
    return programs


@dataclass
class Board:
    """A board at a port."""

    port: str
    unplug: Callable[[], None]


def unplugged(board: Board, table: Path, lines: int) -> None:
    """Pulls the plug when so many lines have been written."""
    until(lambda: table.exists() and len(table.read_text().splitlines()) >= lines)
    board.unplug()


@contextlib.contextmanager
def plugged_in(program: Path, samples: np.ndarray, folder: Path) -> Iterator[Board]:
    """A board that measures these samples."""
    measured = folder / "measured"
    measured.write_bytes(samples.tobytes())
    line, port = os.openpty()
    tty.setraw(port)
    turns = samples.nbytes // (512 if samples.dtype == np.int16 else 24)
    with measured.open("rb") as given, contextlib.ExitStack() as line_ends:
        line_ends.callback(os.close, line)
        with subprocess.Popen([program, str(turns)], stdin=given, stdout=line) as running:

            def unplug() -> None:
                running.kill()
                line_ends.close()

            try:
                yield Board(os.ttyname(port), unplug)
            finally:
                running.kill()
                os.close(port)


def quiet(random: np.random.Generator, seconds: float) -> np.ndarray:
    """Samples of a quiet room at 16 kHz, int16."""
    return random.normal(0, 20, round(16_000 * seconds)).astype(np.int16)


def word(random: np.random.Generator, seconds: float = 0.5) -> np.ndarray:
    return random.normal(0, 4000, round(16_000 * seconds)).astype(np.int16)


def packets(*parts: np.ndarray) -> np.ndarray:
    """Sound, in whole packets of the microphone."""
    sound = np.concatenate(parts)
    return sound[: len(sound) // 256 * 256]


def movements(random: np.random.Generator, count: int) -> np.ndarray:
    """Rows of a board that rests, is moved `count` times, and rests: float32 (N, 6)."""
    rest = np.array([0.01, 0.02, 1.0, 0.1, 0.2, 0.3], np.float32)
    parts = [np.tile(rest, (RESTING, 1))]
    for _ in range(count):
        parts += [random.normal(0, 0.4, (ROWS, 6)), np.tile(rest, (90, 1))]
        parts[-2][0, :3] = 2.0, -1.0, 0.5
    return np.concatenate(parts).astype(np.float32)


def samples_of(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16_000)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


def test_words_are_cut_where_they_are_spoken(
    rudel: Callable[..., Any], boards: dict[str, Path], tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    spoken = [word(random) for _ in range(3)]
    pauses = [quiet(random, seconds) for seconds in (6.5, 1.2, 1.7, 2.0)]
    sound = packets(pauses[0], spoken[0], pauses[1], spoken[1], pauses[2], spoken[2], pauses[3])
    with plugged_in(boards["sound"], sound, tmp_path) as board:
        done = rudel("data", "collect", "--port", board.port, "--class", "yes", "--out", "words", "--recordings", 3)
    assert (done.code, done.err) == (0, "")
    assert done.out == "3 recordings of yes, the last in words/yes/yes_0003.wav\n"
    for path, utterance in zip(sorted(Path("words/yes").iterdir()), spoken, strict=True):
        recording = samples_of(path)
        (start,) = (i for i in range(16_000 - len(utterance)) if (recording[i : i + 8] == utterance[:8]).all())
        assert recording[start : start + len(utterance)].tobytes() == utterance.tobytes()
        assert 0.2 <= start / 16_000 <= 0.2 + 256 / 16_000
    with plugged_in(boards["sound"], sound, tmp_path) as board:
        options = ("--continuous", "--recordings", 1, "--speaker", "ada")
        done = rudel("data", "collect", "--port", board.port, "--class", "yes", "--out", "words", *options)
        assert done.out == "1 recording of yes, the last in words/yes/yes_ada_0004.wav\n"
        rudel("data", "collect", "--port", board.port, "--class", "no", "--out", "words", *options)
    assert sounds_of("words", 16_000, 1.0).classes == ("no", "yes")


def test_movements_are_added_to_what_is_there(
    rudel: Callable[..., Any], boards: dict[str, Path], tmp_path: Path
) -> None:
    random = np.random.default_rng(1)
    first, more = movements(random, 3), movements(random, 2)
    for rows, count in ((first, 3), (more, 2)):
        with plugged_in(boards["motion"], rows, tmp_path) as board:
            done = rudel(
                "data", "collect", "--port", board.port, "--class", "punch", "--out", "moves", "--recordings", count
            )
        assert (done.code, done.err) == (0, "")
    assert done.out == "2 recordings of punch, the last in moves/punch.csv\n"
    found = motions_of("moves", ROWS, least=1)
    starts = [(rows, RESTING + i * (ROWS + 90)) for rows, count in ((first, 3), (more, 2)) for i in range(count)]
    wanted = np.stack([rows[start : start + ROWS] for rows, start in starts])
    np.testing.assert_allclose(found.x, wanted, atol=5.1e-4)
    Path("moves/flex.csv").write_text("x,y,z\n1,2,3\n")
    with plugged_in(boards["motion"], more, tmp_path) as board:
        error = rudel("data", "collect", "--port", board.port, "--class", "flex", "--out", "moves").error
    assert "moves/flex.csv has the columns x,y,z, and the board sends aX,aY,aZ,gX,gY,gZ" in error
    assert Path("moves/flex.csv").read_text() == "x,y,z\n1,2,3\n"


def test_what_was_recorded_stays_when_the_board_is_unplugged(
    rudel: Callable[..., Any], boards: dict[str, Path], tmp_path: Path
) -> None:
    with plugged_in(boards["motion"], movements(np.random.default_rng(2), 2), tmp_path) as board:
        pulled = threading.Thread(target=unplugged, args=(board, Path("moves/punch.csv"), 2 * (ROWS + 1)))
        pulled.start()
        done = rudel("data", "collect", "--port", board.port, "--class", "punch", "--out", "moves")
        pulled.join()
    assert done.error == f"Error: The board at {board.port} was disconnected: plug it in again, and repeat the command."
    assert done.out == "2 recordings of punch, the last in moves/punch.csv\n"
    assert len(motions_of("moves", ROWS, least=1).x) == 2


def test_a_full_disk_leaves_whole_recordings(tmp_path: Path) -> None:
    store, recording = Store(tmp_path, "punch", Header(columns=COLUMNS), None), np.zeros((ROWS, 6), np.float32)
    for wanted in (1, 2):
        for most in (0, 1000, wanted * 4200):
            with full_disk(most), pytest.raises(DataError, match=r"cannot be written to .*punch\.csv \(File too large"):
                store.add(recording)
        assert len(list(tmp_path.iterdir())) == wanted - 1
        store.add(recording)
        found = motions_of(str(tmp_path), ROWS, least=1)
        assert (found.x.shape, found.left_out) == ((wanted, ROWS, 6), ())


def test_an_empty_table_begins_with_its_header(tmp_path: Path) -> None:
    (tmp_path / "punch.csv").touch()
    Store(tmp_path, "punch", Header(columns=COLUMNS), None).add(np.ones((ROWS, 6), np.float32))
    assert motions_of(str(tmp_path), ROWS, least=1).x.tolist() == np.ones((1, ROWS, 6)).tolist()


def test_a_net_learns_from_what_was_recorded(
    rudel: Callable[..., Any], boards: dict[str, Path], tmp_path: Path
) -> None:
    random = np.random.default_rng(4)

    def utterance(kind: str) -> np.ndarray:
        loud, n = random.uniform(2000, 8000), np.arange(8000) / 16_000
        wave = np.sin(2 * np.pi * random.uniform(280, 320) * n) if kind == "hum" else random.normal(0, 0.5, 8000)
        return (loud * wave).astype(np.int16)

    for kind in ("hum", "hiss"):
        spoken = [part for _ in range(8) for part in (utterance(kind), quiet(random, 1.3))]
        with plugged_in(boards["sound"], packets(quiet(random, 6.5), *spoken), tmp_path) as board:
            where = ("--port", board.port, "--class", kind, "--out", "words")
            assert rudel("data", "collect", *where, "--recordings", 8).code == 0
    options = ("--set", "net=tiny", "--set", "validation=0.3", "--epochs", 40, "--batch-size", 4)
    assert rudel("train", "keywords", "--data", "words", *options, "--run", "ears").code == 0
    done = rudel("evaluate", "ears", "--data", "words", "--json")
    assert done.code == 0
    assert json.loads(done.out)["metrics"]["accuracy"] >= 0.9


def test_mistakes_are_named(
    rudel: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, boards: dict[str, Path], tmp_path: Path
) -> None:
    monkeypatch.setattr(data_collect, "_SILENT_SECONDS", 0.3)
    where = ("--class", "yes", "--out", "words")
    assert rudel("data", "collect", "--port", "/dev/rudel", *where).error.startswith(
        "Error: The port /dev/rudel cannot be opened (No such file or directory): "
    )
    line, port = os.openpty()
    tty.setraw(port)
    name = os.ttyname(port)
    assert f"The board at {name} has sent nothing for 0.3 s" in rudel("data", "collect", "--port", name, *where).error
    assert (
        "cannot be the name of a file"
        in rudel("data", "collect", "--port", name, "--class", "../yes", "--out", "words").error
    )
    os.close(line)
    os.close(port)
    chatter = tmp_path / "chatter"
    chatter.write_text("#!/bin/sh\nwhile :; do echo 1.5 2.5 3.5; done\n")
    chatter.chmod(0o755)
    with plugged_in(chatter, np.zeros(6, np.float32), tmp_path) as board:
        error = rudel("data", "collect", "--port", board.port, *where).error
    assert error.startswith(f"Error: What the board at {board.port} sends is not from Rudel's sketch: ")
    with plugged_in(boards["motion"], movements(np.random.default_rng(3), 1), tmp_path) as board:
        error = rudel("data", "collect", "--port", board.port, *where, "--speaker", "ada").error
    assert error == "Error: --speaker is for sound, and the board sends movements: leave it out."
    assert not Path("words").exists()


@pytest.mark.parametrize("kind", SKETCHES)
def test_sketches_compile_as_for_the_nano_33_ble(rudel: Callable[..., Any], kind: str) -> None:
    done = rudel("data", "sketch", kind, "--out", "board/listener")
    assert done.out.startswith("Upload board/listener/listener.ino to the board, then run `rudel data collect")
    program = Path("listener.cpp")
    program.write_text('#include "Arduino.h"\n' + Path("board/listener/listener.ino").read_text())
    command = [tool("arm-none-eabi-g++"), "-fsyntax-only", *WARNINGS, *NANO33BLE, "-I", CORE, program]
    subprocess.run(command, check=True)
    assert "already exists" in rudel("data", "sketch", kind, "--out", "board/listener").error


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 200)), max_size=6), st.integers(1, 64))
def test_frames_are_found_whatever_is_between_them(parts: list[tuple[bytes, int]], at_once: int) -> None:
    content, wanted = written("H", 0, b"sound 16000"), []
    for number, (rubbish, count) in enumerate(parts):
        wanted.append(np.arange(count, dtype="<i2"))
        content += rubbish.replace(b"\xa5", b"") + written("D", number, wanted[-1].tobytes())
    reader, found = Reader(), []
    for start in range(0, len(content), at_once):
        found += reader.take(content[start : start + at_once])
    assert [frame.values.tolist() for frame in found] == [values.tolist() for values in wanted]
    assert all(frame.follows for frame in found)
    assert reader.lost == 0


@given(st.integers(0, 521 * 8 - 1), st.integers(1, 255))
def test_a_damaged_byte_costs_one_frame_at_most(place: int, damage: int) -> None:
    values = np.random.default_rng(0).integers(-3000, 3000, (8, 256)).astype("<i2")
    content = bytearray(b"".join(written("D", number, row.tobytes()) for number, row in enumerate(values)))
    content[place % len(content)] ^= damage
    reader = Reader()
    list(reader.take(written("H", 0, b"sound 16000")))
    found = [frame.values.tolist() for frame in reader.take(bytes(content))]
    assert len(found) >= 6  # a damaged length may hide the next one until more has come
    assert all(row in values.tolist() for row in found)


def test_a_recording_with_a_gap_is_given_up() -> None:
    cutter, loud = Cutter(Header(columns=COLUMNS), continuous=False), np.full((1, 6), 2.0, np.float32)
    for number in range(ROWS - 1):
        assert not list(cutter.take(Frame(loud, follows=True))), number
    assert cutter.recording
    still = np.zeros((1, 6), np.float32)
    assert not list(cutter.take(Frame(still, follows=False)))
    assert not cutter.recording
    found = [recording for _ in range(ROWS) for recording in cutter.take(Frame(loud, follows=True))]
    assert [recording.tolist() for recording in found] == [np.tile(loud, (ROWS, 1)).tolist()]
