"""`rudel data images` and `rudel data inspect`."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rudel.data.records.example import encode_example
from rudel.data.records.writer import write_records


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes with 30 pictures each, an animation and a text."""
    root = tmp_path_factory.mktemp("drawn")
    for number, name in enumerate(("left", "right")):
        (root / name).mkdir()
        for grey in range(30):
            Image.new("RGB", (30 + grey, 40), (grey * 8, number * 200, 0)).save(root / name / f"{grey:02}.png")
    frames = [Image.new("L", (9, 9), grey) for grey in (0, 99, 200)]
    frames[0].save(root / "left" / "moving.gif", save_all=True, append_images=frames[1:])
    (root / "right" / "read.me").write_text("a text")
    return root


@pytest.fixture(scope="module")
def records(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from rudel.data.images.convert import convert

    return convert(drawn, tmp_path_factory.mktemp("out") / "records", validation=0.2, shards=2).path


@pytest.fixture
def own(records: Path, tmp_path: Path) -> Path:
    """A copy of the records, to damage."""
    return shutil.copytree(records, tmp_path / "own")


def test_a_conversion_is_summed_up(rudel: Callable[..., Any], drawn: Path) -> None:
    done = rudel("data", "images", drawn, "--out", "records", "--validation", "0.2", "--max-side", "50")
    assert done.code == 0
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[1].startswith("train 42 ")
    assert "classes 2" in lines
    assert "changed 18 images: scaled down" in lines
    assert "left out 1 file: animated: left/moving.gif" in lines
    assert "left out 1 file: not an image: right/read.me" in lines
    assert lines[-1] == "records records"
    again = rudel("data", "images", drawn, "--out", "records", "--validation", "0.2", "--max-side", "50")
    assert "nothing to do: all images are converted" in again.out


def test_an_image_of_too_many_pixels_is_left_out_without_a_warning(tmp_path: Path) -> None:
    Image.new("1", (9_500, 9_500)).save(tmp_path / "large.png")
    for name in ("left", "right"):
        (tmp_path / "drawn" / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / "drawn" / name / "1.png")
    (tmp_path / "large.png").rename(tmp_path / "drawn/left/large.png")
    command = [sys.executable, "-m", "rudel", "data", "images", "drawn", "--out", "records", "--validation", "0"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "decompression bomb: left/large.png" in done.stdout
    assert "DecompressionBombWarning" not in done.stderr


def test_a_conversion_as_json(rudel: Callable[..., Any], drawn: Path) -> None:
    document = json.loads(rudel("data", "images", drawn, "--out", "records", "--validation", "0", "--json").out)
    assert document["splits"] == {"train": {"left": 30, "right": 30}, "validation": {"left": 0, "right": 0}}
    assert document["left_out"][0] == {
        "name": "left/moving.gif",
        "reason": "animated",
        "detail": "3 pictures in one GIF file",
    }
    assert document["shards_made"] == 1


def test_what_is_held_out_of_nothing_is_said(rudel: Callable[..., Any], drawn: Path) -> None:
    assert (
        "There are no validation images." in rudel("data", "images", drawn, "--out", "records", "--validation", "0").err
    )


def test_another_folder_is_the_validation_set(rudel: Callable[..., Any], drawn: Path, tmp_path: Path) -> None:
    shutil.copytree(drawn / "left", tmp_path / "test/left")
    done = rudel("data", "images", drawn, "--out", "records", "--validation", "test", "--json")
    assert json.loads(done.out)["splits"] == {
        "train": {"left": 30, "right": 30},
        "validation": {"left": 30, "right": 0},
    }


def test_labels_that_hardly_any_images_share_are_noted(rudel: Callable[..., Any], drawn: Path, tmp_path: Path) -> None:
    rows = (f"{path},{number}.5" for number, path in enumerate(drawn.glob("*/*.png")))
    (tmp_path / "prices.csv").write_text("\n".join(rows))
    done = rudel("data", "images", "prices.csv", "--out", "records")
    assert "note 60 of 60 images are the only one of their class" in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere", "--out", "out"), "There is no folder nowhere"),
        ((".", "--out", "out"), "out is in the folder of the images"),
        (("empty", "--out", "out"), "empty is empty"),
        (("one", "--out", "out"), "one class only, `a`"),
        (("two", "--out", "out", "--validation", "1.5"), "`validation` is a share"),
        (("two", "--out", "out", "--validation", "gone"), "There is no folder gone"),
        (("two", "--out", "out", "--classes", "names"), "names cannot be read: No such file"),
        (("two", "--out", "out"), "no image is left, and 2 were left out (a/1.jpg: not an image; b/1.jpg"),
        (("two", "--out", "s3://bucket/records"), "written to a local folder"),
        (("table.csv", "--out", "out"), "table.csv has 3 fields in line 2"),
        (("two", "--out", "out", "--on", "raspi1", "--scheduler", "tcp://1.2.3.4:5"), "Hosts are given twice"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_mistakes(rudel: Callable[..., Any], tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    for name in ("empty/", "one/a/1.jpg", "two/a/1.jpg", "two/b/1.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).write_text("no picture")
    (tmp_path / "table.csv").write_text("1.jpg,a\n2.jpg,b,c\n")
    before = sorted(tmp_path.rglob("*"))
    assert words in rudel("data", "images", *arguments).error
    assert sorted(tmp_path.rglob("*")) == before


def test_records_are_counted(rudel: Callable[..., Any], records: Path) -> None:
    done = rudel("data", "inspect", records, "--json")
    assert done.code == 0
    document = json.loads(done.out)
    assert document["records"] == 60
    assert document["classes"] == ["left", "right"]
    assert [split["files"] for split in document["splits"].values()] == [2, 1]
    assert sum(split["classes"]["left"] for split in document["splits"].values()) == 30
    assert document["sizes"] == {"height": [40, 40, 40], "width": [30, 44, 59]}
    plain = rudel("data", "inspect", records)
    assert "checksums of all 60 records are right" in plain.out


def test_a_contact_sheet_has_a_row_for_each_class(rudel: Callable[..., Any], records: Path) -> None:
    assert rudel("data", "inspect", records, "--sheet", "sheet.png").code == 0
    with Image.open("sheet.png") as sheet:
        assert sheet.size == (160 + 10 * 100 + 4, 2 * 100 + 4)
        greens = np.asarray(sheet)[:, 170:].astype(int)[[50, 150], :, 1]
        assert greens[0].min() == 0
        assert 200 in greens[1]
    assert "PNG file" in rudel("data", "inspect", records, "--sheet", "sheet.gif").error


def test_every_damaged_record_is_named(rudel: Callable[..., Any], own: Path) -> None:
    """A flipped bit in two contents and in a header, and a cut end: each is told by file and place; the rest counts."""
    first, second, _ = sorted(own.glob("*.tfrecord"))
    begins = _begins(first)
    content = bytearray(first.read_bytes())
    content[begins[1] + 40] ^= 4
    content[begins[3] + 40] ^= 1
    content[begins[6] + 2] ^= 1
    first.write_bytes(content)
    second.write_bytes(second.read_bytes()[:-9])
    done = rudel("data", "inspect", own)
    assert done.code == 2
    lines = [line for line in done.err.splitlines() if "is damaged" in line]
    places = [(first, begins[1]), (first, begins[3]), (first, begins[6]), (second, _begins(second, cut=True)[-1])]
    assert lines == [f"{path.name} is damaged at byte {place:,}." for path, place in places]
    assert json.loads(rudel("data", "inspect", own, "--json").out)["records"] == 56


def _begins(path: Path, cut: bool = False) -> list[int]:
    """Where the records of a file begin, by the lengths alone."""
    content, begins, place = path.read_bytes(), [], 0
    while place < len(content):
        begins.append(place)
        place += 16 + int.from_bytes(content[place : place + 8], "little")
    assert cut or place == len(content)
    return begins


def test_a_missing_shard_is_told(rudel: Callable[..., Any], own: Path) -> None:
    (own / "train-00001-of-00002.tfrecord").unlink()
    done = rudel("data", "inspect", own)
    assert done.code == 2
    assert "Of the 2 shards of train, 1 is missing: number 00001." in done.err


def test_labels_out_of_range_are_told(rudel: Callable[..., Any], own: Path) -> None:
    (own / "labels.txt").write_text("left\n")
    done = rudel("data", "inspect", own)
    assert done.code == 2
    assert "30 records have the label 1, and labels.txt names 1 class." in done.err


def test_records_of_others_are_read_too(rudel: Callable[..., Any], tmp_path: Path) -> None:
    write_records(tmp_path / "mine.tfrecord", [encode_example({"x": [1.0, 2.0], "y": n}) for n in range(5)])
    document = json.loads(rudel("data", "inspect", "mine.tfrecord", "--json").out)
    assert (document["records"], document["features"], document["classes"]) == (5, ["x", "y"], [])
    assert list(document["splits"]) == ["mine"]
    assert "no images for a contact sheet" in rudel("data", "inspect", "mine.tfrecord", "--sheet", "x.png").error


def test_what_are_no_records(rudel: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "text.tfrecord").write_text("no records at all, but a text that is long enough to have a header")
    done = rudel("data", "inspect", "text.tfrecord")
    assert done.code == 2
    assert "text.tfrecord is damaged at byte 0." in done.err
    assert "nowhere cannot be read" in rudel("data", "inspect", "nowhere").error
    (tmp_path / "empty").mkdir()
    assert "empty has no records" in rudel("data", "inspect", "empty").error
