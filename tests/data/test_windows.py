"""Recordings of sound and motion as windows: read, cut, held out as wholes, as records; what is bad is named."""

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from full_disk import full_disk

from rudel.data.dataset import Examples
from rudel.data.held_out import held_out, speaker_of
from rudel.data.motion import find_motions, read_rows
from rudel.data.motion import read_folder as read_motions
from rudel.data.pictures import read_input
from rudel.data.records.writer import write_examples
from rudel.data.sound.keyword_classes import chosen
from rudel.data.sound.noise import read_noise
from rudel.data.sound.recording import decode
from rudel.data.sound.recording_folders import find_recordings, settings_of
from rudel.data.window_records import write_windows
from rudel.data.windows import Windows
from rudel.errors import DataError, OptionError
from rudel.recipes import motion
from rudel.runs.predict_many import files_at

RATE = 8000


def tone(hertz: float, seconds: float, rate: int = RATE, level: float = 0.5) -> np.ndarray:
    return level * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)


def write(path: Path, samples: np.ndarray, rate: int = RATE, **form: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, **form)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two words by four speakers, in several forms, and files that cannot be used."""
    root = tmp_path / "words"
    for number, speaker in enumerate(["ann", "ben", "cem", "dora"]):
        for take in range(5):
            write(root / f"yes/yes_{speaker}_{take}.wav", tone(500, 0.3 + 0.1 * number))
            write(root / f"no/no_{speaker}_{take}.flac", tone(900, 0.4), subtype="PCM_16")
    write(root / "no/no_ann_44100.wav", np.stack([tone(900, 0.4, 44_100), tone(900, 0.4, 44_100, 0)], 1), 44_100)
    write(root / "yes/yes_ben_long.wav", tone(500, 2.5))
    (root / "yes/empty.wav").write_bytes(b"")
    (root / "yes/notes.txt").write_text("not a recording")
    write(root / "no/silent.wav", np.zeros(0))
    broken = (root / "no/no_ann_0.flac").read_bytes()
    (root / "no/broken.flac").write_bytes(broken[:60])
    os.mkfifo(root / "no/pipe.wav")
    return root


LEFT_OUT = ["no/broken.flac", "no/pipe.wav", "no/silent.wav", "yes/empty.wav", "yes/notes.txt"]


def test_every_rate_length_and_form_becomes_windows_and_bad_files_are_named(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = find_recordings(str(folder), RATE, 1.0, lambda done, total: seen.append((done, total)))
    assert (found.x.shape, found.x.dtype, found.classes) == ((43, 8000), np.int16, ("no", "yes"))
    assert sorted(one.name for one in found.left_out) == LEFT_OUT
    assert seen[-1] == (47, 47)
    assert found.names.count("yes/yes_ben_long.wav") == 2, "2.5 s are two windows"
    assert "5 files and recordings in" in found.notes[0]
    assert found.notes[1] == (
        f"1 long recording in {folder}, such as yes/yes_ben_long.wav, became 2 examples: "
        "one per window, whatever is in it."
    )
    stereo = found.x[found.names.index("no/no_ann_44100.wav")].astype(float)
    mono = found.x[found.names.index("no/no_ann_0.flac")].astype(float)
    inner = slice(2800, 5200)  # without the ends, at which a resampler rings
    assert np.abs(np.fft.rfft(stereo[inner])).argmax() == np.abs(np.fft.rfft(mono[inner])).argmax()
    assert stereo[inner].std() == pytest.approx(mono[inner].std() / 2, rel=0.02)


def test_what_is_right_already_stays_to_the_bit(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).integers(-32768, 32768, 5000).astype(np.int16)
    for kind in ("WAV", "FLAC"):
        file = io.BytesIO()
        soundfile.write(file, samples, RATE, format=kind, subtype="PCM_16")
        assert np.array_equal(decode(file.getvalue(), RATE), samples)
    floats = io.BytesIO()
    soundfile.write(floats, samples / 2**15, RATE, format="WAV", subtype="FLOAT")
    assert np.array_equal(decode(floats.getvalue(), RATE), samples)
    piped = bytearray(file.getvalue())  # a FLAC file that was written before its length was known
    piped[21] &= 0xF0
    piped[22:26] = bytes(4)
    with pytest.raises(DataError, match="header does not give its length: convert it to WAV"):
        decode(bytes(piped), RATE)
    spoken = io.BytesIO()  # as telephone systems write it, to be read from its beginning only
    soundfile.write(spoken, samples / 2**17, RATE, format="WAV", subtype="GSM610")
    assert len(decode(spoken.getvalue(), RATE)) >= len(samples)
    bad = io.BytesIO()
    soundfile.write(bad, np.array([0, np.nan]), RATE, format="WAV", subtype="FLOAT")
    with pytest.raises(DataError, match="NaN or infinite"):
        decode(bad.getvalue(), RATE)
    loud, other = io.BytesIO(), io.BytesIO()
    soundfile.write(loud, np.array([0.0, 4.0]), RATE, format="WAV", subtype="FLOAT")
    assert decode(loud.getvalue(), RATE).tolist() == [0, 32767]
    soundfile.write(other, np.array([0.0, 20_000.0]), RATE, format="WAV", subtype="FLOAT")
    with pytest.raises(DataError, match="has floats up to 20,000, and full scale is 1: write it again with whole"):
        decode(other.getvalue(), RATE)


def test_a_recording_is_held_out_as_a_whole_and_a_speaker_with_all_of_theirs(folder: Path) -> None:
    found = find_recordings(str(folder), RATE, 0.2)  # all recordings are several windows
    train, validation = found.split(found.held_out(0.25))
    assert validation
    assert not set(train.names) & set(validation.names)
    assert 0.15 < len(validation) / len(found) < 0.35
    assert set(validation.labels) == {0, 1}, "of every class"
    for speakers in ([], ["cem"]):
        train, validation = found.split(found.held_out(0.25, "speaker", speakers))
        assert validation
        parts = [{speaker_of(name, name.split("/")[0]) for name in part.names} for part in (train, validation)]
        assert not parts[0] & parts[1]
        assert len(parts[1]) == 1
        assert not speakers or parts[1] == {"cem"}
    with pytest.raises(DataError, match=r"nothing of `eve` to hold out: there are ann, ben, cem, dora\."):
        found.held_out(0.1, "speaker", ["eve"])
    with pytest.raises(OptionError, match="`validation` is a share"):
        found.held_out(1.0)


@pytest.mark.parametrize("name", ["turn left", "turn_left", "t-shirt"])
def test_all_recordings_of_a_speaker_are_held_out_whatever_the_class_is_called(name: str, tmp_path: Path) -> None:
    for label in (name, "stop"):
        for speaker in ("anna", "ben"):
            write(tmp_path / label / f"{label}_{speaker}_0001.wav", tone(500, 0.3))
    found = find_recordings(str(tmp_path), RATE, 1.0)
    train, validation = found.split(found.held_out(0, speakers=["anna"]))
    assert validation
    assert sorted(validation.names) == sorted(f"{label}/{label}_anna_0001.wav" for label in (name, "stop"))
    assert sorted(train.names) == sorted(f"{label}/{label}_ben_0001.wav" for label in (name, "stop"))


def test_names_in_decomposed_letters_are_those_in_composed_ones(tmp_path: Path) -> None:
    word, speaker = "ho\u0308her", "bjo\u0308rn"  # as file systems of a Mac keep them
    for label in (word, "stop"):
        for who in (speaker, "anna"):
            write(tmp_path / label / f"{label}_{who}_1.wav", tone(500, 0.3))
    found = find_recordings(str(tmp_path), RATE, 1.0)
    for name in (speaker, "bj\u00f6rn"):
        assert found.held_out(0, speakers=[name]).tolist() == [speaker in path for path in found.names]
    for name in (word, "h\u00f6her"):
        assert chosen(found, [name]).classes == ("h\u00f6her", "unknown", "silence")


def test_another_recording_does_not_reshuffle_the_others() -> None:
    names = [f"yes/{number}.wav" for number in range(200)]
    before, after = held_out(names, 0.2), held_out([*names, "yes/new.wav"], 0.2)
    assert before.sum() == 40
    assert (before != after[:-1]).sum() <= 1
    assert not held_out(["one"], 0.5).any(), "nothing would be left"


def test_words_to_tell_apart_from_all_others_and_from_silence(folder: Path) -> None:
    made = chosen(find_recordings(str(folder), RATE, 1.0), ["yes"])
    assert made.classes == ("yes", "unknown", "silence")
    assert np.bincount(made.labels).tolist() == [22, 21, 22]
    assert np.abs(made.x[made.labels == 2].astype(float)).max() < 600
    with pytest.raises(DataError, match="has no class `maybe`: there are no, yes"):
        chosen(find_recordings(str(folder), RATE, 1.0), ["maybe"])


def test_a_folder_without_a_recording_is_no_class(folder: Path) -> None:
    (folder / "notes").mkdir()
    (folder / "notes/readme.txt").write_text("Spoken in May.")
    found = find_recordings(str(folder), RATE, 1.0)
    assert found.classes == ("no", "yes")
    assert [found.classes[label] for label in found.labels] == [name.split("/")[0] for name in found.names]
    assert "notes/readme.txt" in {one.name for one in found.left_out}


def test_recordings_of_silence_are_silence_and_those_of_unknown_are_unknown(folder: Path) -> None:
    write(folder / "silence/quiet.wav", tone(50, 1.0))
    write(folder / "unknown/strange.wav", tone(2000, 1.0))
    made = chosen(find_recordings(str(folder), RATE, 1.0), ["yes"])
    labels = dict(zip(made.names, made.labels.tolist(), strict=True))
    assert [made.classes[labels[f"{name}.wav"]] for name in ("silence/quiet", "unknown/strange")] == [
        "silence",
        "unknown",
    ]
    assert np.bincount(made.labels).tolist() == [22, 22, 23]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["yes", "no", "yes"], "`words` names `yes` twice: leave one of them out"),
        (["yes", "unknown"], "`words` names `unknown`, a class that is added anyway: leave it out"),
        (["silence"], "`words` names `silence`, a class that is added anyway: leave it out"),
    ],
)
def test_words_that_would_be_a_class_twice_are_refused(folder: Path, words: list[str], message: str) -> None:
    for name in ("silence", "unknown"):
        write(folder / name / "one.wav", tone(50, 1.0))
    with pytest.raises(OptionError, match=message):
        chosen(find_recordings(str(folder), RATE, 1.0), words)


# -- motion -----------------------------------------------------------------------------------------------------

HEADER = "aX,aY,aZ\n"


def rows(count: int, level: float, seed: int = 0) -> str:
    values = level * np.random.default_rng(seed).normal(size=(count, 3))
    return "".join(f"{a:.3f},{b:.3f},{c:.3f}\n" for a, b, c in values)


@pytest.fixture
def gestures(tmp_path: Path) -> Path:
    root = tmp_path / "gestures"
    (root / "wave").mkdir(parents=True)
    punches = [rows(20, 3, seed) for seed in range(6)]
    (root / "punch.csv").write_text(HEADER + "\n".join([*punches, "1,2\n", "1,x,3\n", "1,nan,3\n", "1,2,3\n"]))
    windows_lines = (HEADER + "\n\n".join([rows(20, 1), rows(50, 1)])).replace("\n", "\r\n")
    (root / "wave/monday.csv").write_bytes(b"\xef\xbb\xbf" + windows_lines.encode())
    (root / "wave/other.csv").write_text("x,y\n1,2\n")
    (root / "wave/bare.csv").write_text("1,2,3\n4,5,6\n")
    (root / "wave/twice.csv").write_text("aX,aX,aZ\n4,5,6\n")
    (root / "wave/office.csv").write_text("aX;aY;aZ\n0,4;0,5;0,6\n")
    (root / "notes.md").write_text("# Notes")
    return root


def test_recordings_of_motion_are_separated_by_blank_lines_and_bad_ones_are_named(gestures: Path) -> None:
    found = find_motions(str(gestures), 20)
    assert (found.x.shape, found.x.dtype, found.classes) == ((10, 20, 3), np.float32, ("punch", "wave"))
    assert np.bincount(found.labels).tolist() == [7, 3], "50 rows are two windows"
    assert found.x[found.names.index("punch.csv:10")].tolist() == [[1, 2, 3]] * 20
    assert {one.name: one.detail for one in found.left_out} == {
        "notes.md": "its name does not end in .csv",
        "punch.csv:7": "row 1 has 2 fields, not 3",
        "punch.csv:8": "a field is not a number",
        "punch.csv:9": "a field is NaN or infinite",
        "wave/bare.csv": "its first line does not name the columns, such as aX,aY,aZ,gX,gY,gZ",
        "wave/office.csv": "its columns are not separated by commas: save it with commas, and with decimal points",
        "wave/other.csv": "its columns are not those of punch.csv",
        "wave/twice.csv": "its first line names the column aX twice",
    }


def test_quotes_and_any_ends_of_lines_are_read(tmp_path: Path) -> None:
    for label, form, comma in (("a", '"{}"', ", "), ("b\u00fc", "{}", ",")):
        lines = [["t", "aX"], *([str(n), str(n % 3)] for n in range(8)), ["", ""], ["8", "0"]]
        text = "\r".join(comma.join(form.format(field) for field in line) for line in lines)
        (tmp_path / f"{label}.csv".replace("\u00fc", "u\u0308")).write_text(text, newline="")
    found = find_motions(str(tmp_path), 4)
    assert (found.classes, found.channels, len(found), found.left_out) == (("a", "b\u00fc"), ("t", "aX"), 6, ())
    assert read_rows(tmp_path / "a.csv", (4, 1), ["aX"]).shape == (3, 4, 1), "a column that the model does not take"
    (tmp_path / "c.csv").write_text(f"t,aX\n1,{'1' * 200_000}\n")
    with pytest.raises(DataError, match=r"c\.csv cannot be read: it is not a CSV file \(field larger"):
        read_rows(tmp_path / "c.csv", (4, 2))


def test_a_column_that_never_falls_within_a_recording_is_said() -> None:
    rows = np.arange(40, dtype=np.float32).reshape(10, 4)  # the time, in ten windows
    x = np.stack([rows, rows // 4, rows * 0, rows % 3], axis=-1)
    columns = ("time", "number", "constant", "aX")
    found = Windows("moves", x, np.zeros(10, np.int32), [str(n) for n in range(10)], ("a",), channels=columns)
    assert found.possible_clocks == tuple(
        f"The column `{name}` in moves never falls within a recording: if it is the time, a counter or the number of a "
        "recording, remove it, or the model learns when something was recorded."
        for name in ("time", "number")
    )
    few = found.take(np.arange(10) < 9)
    single = replace(found, x=np.repeat(x[:, :1], 4, axis=1))  # recordings of one row
    assert few.possible_clocks == single.possible_clocks == replace(found, channels=()).possible_clocks == ()
    assert not found.to_evaluate(["a"], ["aX"]).notes


def test_the_recipe_says_that_a_column_may_be_the_time(tmp_path: Path) -> None:
    for label in "ab":
        lines = ["t,aX", *(f"{n},{n % 3}" for n in range(20))]
        (tmp_path / f"{label}.csv").write_text("\n".join(lines))
    assert "column `t`" in motion.data(str(tmp_path), samples=4).notes[-1]


def test_the_gestures_of_an_arduino(shared_data: Path) -> None:
    found = find_motions(str(shared_data / "gestures"), 119)
    assert (found.x.shape, found.left_out, found.possible_clocks) == ((214, 119, 6), (), ())
    assert found.classes == ("circ", "flex", "hori", "punch", "vert")
    assert np.bincount(found.labels[found.held_out(0.2)]).tolist() == [8, 4, 16, 3, 12]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: None, "has no CSV file: give a folder with one for each class"),
        (
            lambda root: (root / "a.csv").write_text(HEADER + rows(3, 1)),
            "of 1 class that can be used, and 2 are",
        ),
        (lambda root: (root / "a.csv").write_text("1,2\n"), r"of 0 classes .* 1 were left out \(a.csv: its first line"),
    ],
)
def test_a_folder_without_motions_is_refused(make: Any, message: str, tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(DataError, match=message):
        find_motions(str(tmp_path), 20)
    with pytest.raises(DataError, match="There is no folder"):
        find_motions(str(tmp_path / "absent"), 20)


@pytest.mark.parametrize("samples", [0, 1, 100_001])
def test_windows_that_are_too_short_or_too_long_are_refused(samples: int, gestures: Path) -> None:
    with pytest.raises(OptionError, match=f"length of a window in rows, 2 to 100,000, not {samples}"):
        read_motions(str(gestures), samples)


@pytest.mark.parametrize("names", [("train/punch", "train/wave", "test/punch"), ("train", "test")])
def test_motions_that_are_split_already_are_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        path = tmp_path / f"{name}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text(HEADER + rows(20, 1))
    with pytest.raises(DataError, match="seems to be split already, into test and train: convert each by itself"):
        find_motions(str(tmp_path), 20)


# -- records ----------------------------------------------------------------------------------------------------


def rudel_data(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [Path(sys.executable).with_name("rudel"), "data", *arguments], capture_output=True, text=True, check=False
    )


def same(found: Windows, original: Windows, validation: np.ndarray) -> bool:
    """Whether the same windows are there, in whatever order."""

    def comparable(windows: Windows, mask: np.ndarray) -> list[Any]:
        parts = zip(windows.names, windows.labels.tolist(), mask.tolist(), windows.x, strict=True)
        return sorted((name, label, held, x.tobytes()) for name, label, held, x in parts)

    assert found.validation is not None
    return comparable(found, found.validation) == comparable(original, validation)


def test_records_hold_the_same_windows(folder: Path, gestures: Path, tmp_path: Path) -> None:
    out = tmp_path / "records"
    noise = folder / "_background_noise_"
    write(noise / "fan.wav", tone(100, 1))
    done = rudel_data("sound", str(folder), "--out", str(out), "--speakers", "ben", "--seconds", "0.5")
    assert done.returncode == 0, done.stderr
    assert f"{noise} is not a class: train with --set noise={noise}." in done.stderr
    assert "left out  4, no recording: no/broken.flac (" in done.stdout
    assert "left out  1, unreadable: no/pipe.wav (not a regular file)" in done.stdout
    original = find_recordings(str(folder), RATE, 0.5)
    validation = original.held_out(0, "speaker", ["ben"])
    assert same(find_recordings(str(out), RATE, 0.5), original, validation)
    assert len(find_recordings(str(out), RATE, 0.5, split="validation")) == validation.sum()
    with pytest.raises(DataError, match="were made with rate 8000, not 16000: make them again, or set rate=8000"):
        find_recordings(str(out), 16_000, 0.5)
    with pytest.raises(DataError, match="has records of sound, not of motion"):
        find_motions(str(out), 20)
    with pytest.raises(OptionError, match="have no split `test`: there are train, validation"):
        find_recordings(str(out), RATE, 0.5, split="test")
    out = tmp_path / "motions"
    for samples in ("10", "20"):
        done = rudel_data("motion", str(gestures), "--out", str(out), "--samples", samples, "--json")
    assert json.loads(done.stdout)["splits"] == {
        "train": {"punch": 6, "wave": 1},
        "validation": {"punch": 1, "wave": 2},
    }, "in the place of what was there"
    found = find_motions(str(gestures), 20)
    assert same(find_motions(str(out), 20), found, found.held_out(0.2))


def test_speakers_are_held_out_of_records_that_were_split_by_recording(folder: Path, tmp_path: Path) -> None:
    original = find_recordings(str(folder), RATE, 0.5)
    out = tmp_path / "records"
    write_windows(out, original, "sound", settings_of(RATE, 0.5), original.held_out(0.25))
    records = find_recordings(str(out), RATE, 0.5)
    train, validation = records.split(records.held_out(0.25, "speaker"))
    assert validation
    parts = [{speaker_of(name, name.split("/")[0]) for name in part.names} for part in (train, validation)]
    assert not parts[0] & parts[1]


def test_columns_are_found_by_their_names_in_files_and_in_records(gestures: Path, tmp_path: Path) -> None:
    out, turned = tmp_path / "records", tmp_path / "turned.csv"
    turned.write_text("aZ,aX,aY\n3,1,2\n")
    assert read_rows(turned, (4, 3), ("aX", "aY", "aZ"))[0].tolist() == [[1, 2, 3]] * 4
    assert read_rows(turned, (4, 3))[0].tolist() == [[3, 1, 2]] * 4, "of a run that does not say"
    with pytest.raises(DataError, match=r"turned.csv has no column `gX`, which the model takes: its columns are aZ, "):
        read_rows(turned, (4, 3), ("aX", "aY", "gX"))
    assert rudel_data("motion", str(gestures), "--out", str(out), "--samples", "20").returncode == 0
    for source in (gestures, out):
        found = find_motions(str(source), 20)
        assert found.channels == ("aX", "aY", "aZ")
        taken = found.to_evaluate(found.classes, ("aZ", "aX", "aY")).examples
        assert isinstance(taken, Examples)
        assert np.array_equal(taken.x, found.x[..., [2, 0, 1]])
    with pytest.raises(DataError, match="has no column `gX`"):
        find_motions(str(out), 20).to_evaluate(("punch", "wave"), ("aX", "aY", "gX"))


def test_a_folder_with_something_else_is_left_alone(gestures: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    done = rudel_data("motion", str(gestures), "--out", str(out))
    assert (done.returncode, done.stdout) == (2, "")
    assert "holds something else, such as `thesis.txt`: name an empty folder" in done.stderr
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_records_of_others_and_of_another_kind_are_left_alone(gestures: Path, tmp_path: Path) -> None:
    found, mine, sounds = find_motions(str(gestures), 20), tmp_path / "mine", tmp_path / "sounds"
    write_examples(mine, [{"label": 1}])
    (tmp_path / "mine/.train-00000-of-00001.tfrecord.0123456789abcdef.tmp").write_bytes(b"half")
    write_windows(sounds, found, "sound", settings_of(RATE, 0.5), found.held_out(0.2))
    for folder, message in (
        (mine, "holds something else, such as `train-00000-of-00001.tfrecord`: name an empty folder"),
        (sounds, "holds records of sound: name another folder for those of motion"),
    ):
        before = contents_of(folder)
        with pytest.raises(DataError, match=message):
            write_windows(folder, found, "motion", {"samples": 20}, found.held_out(0.2))
        assert contents_of(folder) == before


def test_old_records_stay_until_the_new_ones_are_complete(gestures: Path, tmp_path: Path) -> None:
    old, new, out = find_motions(str(gestures), 10), find_motions(str(gestures), 20), tmp_path / "records"
    write_windows(out, old, "motion", {"samples": 10}, old.held_out(0.2))
    before = contents_of(out)
    with full_disk(1000), pytest.raises(DataError, match=r"records cannot be written: File too large\."):
        write_windows(out, new, "motion", {"samples": 20}, new.held_out(0.2))
    assert contents_of(out) == before


def test_records_are_made_again_after_they_were_broken_off(gestures: Path, tmp_path: Path) -> None:
    found, out = find_motions(str(gestures), 20), tmp_path / "records"
    write_examples(out, [{"label": 1}], shards=2)  # as if killed before the description had its name
    for name in ("train-00000-of-00001.tfrecord", "dataset.json"):
        (out / f".{name}.0123456789abcdef.tmp").write_bytes(b"half")
    write_windows(out, found, "motion", {"samples": 20}, found.held_out(0.2))
    assert sorted(path.name for path in out.iterdir()) == [
        "dataset.json", "train-00000-of-00001.tfrecord", "validation-00000-of-00001.tfrecord"
    ]  # fmt: skip


def test_names_of_files_need_not_be_utf_8(gestures: Path, tmp_path: Path) -> None:
    names = [os.fsdecode(name) for name in (b"wave/caf\xe9.csv", b"wave/caf\xe9.txt", b"wave/odd\xe9.csv")]
    for name, text in zip(names, (HEADER + rows(20, 1) + "\n1,2\n", "", "x\n1\n"), strict=True):
        (gestures / name).write_text(text)
    found = find_motions(str(gestures), 20)
    assert f"{names[0]}:1" in found.names
    write_windows(tmp_path / "records", found, "motion", {"samples": 20}, found.held_out(0.2))
    left_out = {one["name"] for one in json.loads((tmp_path / "records" / "dataset.json").read_text())["left_out"]}
    assert left_out >= {"wave/caf\\udce9.csv:2", "wave/caf\\udce9.txt", "wave/odd\\udce9.csv"}
    assert same(find_motions(str(tmp_path / "records"), 20), found, found.held_out(0.2))
    (gestures / os.fsdecode(b"h\xe9.csv")).write_text(HEADER + rows(20, 1))
    with pytest.raises(DataError, match=r"name of a class is not UTF-8, in `h\\udce9\.csv` in .*: rename it"):
        find_motions(str(gestures), 20)


@pytest.mark.parametrize(
    ("shape", "model", "wanted"),
    [
        ((8000,), {"rate": RATE}, "a WAV or FLAC file"),
        ((20, 3), {"channels": ("aX", "aY", "aZ")}, "a CSV file"),
        ((4,), {}, "an .npy file"),
    ],
)
def test_a_file_of_another_kind_is_not_called_an_image(
    shape: tuple[int, ...], model: Any, wanted: str, tmp_path: Path
) -> None:
    (tmp_path / "a.m4a").write_bytes(b"ID3")
    with pytest.raises(DataError, match=rf"a\.m4a is not for this model, which takes inputs .*: give {wanted}\.$"):
        read_input(tmp_path / "a.m4a", shape, **model)


def test_what_is_learned_from_is_predicted_too(tmp_path: Path) -> None:
    for name in ("a.ogg", "b.mp3", "c.aiff", "d.WAV"):
        write(tmp_path / name, tone(500, 0.5))
        assert read_input(tmp_path / name, (RATE,), rate=RATE).any()
    assert [path.name for path in files_at([tmp_path])] == ["a.ogg", "b.mp3", "c.aiff", "d.WAV"]
    assert len(read_noise(tmp_path, RATE)) > 12_000


def test_a_recording_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "memory.wav").symlink_to("/proc/self/mem")
    with pytest.raises(DataError, match=r"memory\.wav cannot be read \(Input/output error\)"):
        read_input(tmp_path / "memory.wav", (8000,), rate=RATE)


def test_without_the_packages_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(DataError, match=r'pip install "rudel\[sound\]"'):
        find_recordings(str(folder), RATE, 1.0)
