"""`rudel.Images`: photographs in Python as on the command line."""

import csv
import json
import os
import re
from pathlib import Path
from typing import Any, cast

import fsspec
import keras
import numpy as np
import pandas
import pytest
from PIL import Image

import rudel
from rudel.backend import set_seed
from rudel.data.augmentation import random_flip
from rudel.data.images.image_sets import find_photographs
from rudel.data.images.shard_plan import place
from rudel.data.records.writer import write_examples
from rudel.errors import DataError, OptionError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Dark and light photographs, 20 each."""
    monkeypatch.setenv("RUDEL_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    for name, brightness in (("dark", 60), ("light", 190)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(20):
            pixels = random.integers(brightness - 50, brightness + 50, (40, 48, 3)).astype("uint8")
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def test_a_folder_trains_a_model_of_ones_own(folder: Path) -> None:
    images = rudel.Images(folder, 32, validation=0.2, augment=random_flip)
    assert images.class_names == ["dark", "light"]
    assert images.validation is not None
    assert len(images.train) + len(images.validation) == 40
    set_seed(0)
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = rudel.fit(model, images, epochs=20, batch_size=8, verbose=0).history
    assert history["val_accuracy"][-1] == 1


def test_tables_and_frames_give_what_the_folder_gives(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(folder.rglob("*.png"))
    with (folder.parent / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *((path, path.parent.name) for path in files)])
    monkeypatch.chdir(folder)
    frame = {"path": [str(path.relative_to(folder)) for path in files], "label": [path.parent.name for path in files]}
    others = dict(zip(("p", "q"), frame.values(), strict=True))
    sources = (folder, folder.parent / "table.csv", frame, others)
    every = [rudel.Images(source, 32, validation=0.0) for source in sources]
    sums = [sorted((int(x.sum()), int(y)) for x, y in zip(each.train.x, each.train.y, strict=True)) for each in every]
    assert all(each == sums[0] for each in sums)
    assert all(each.class_names == ["dark", "light"] for each in every)
    assert len(sums[0]) + len(every[0].validation or ()) == 40


def test_a_label_stays_when_a_file_is_called_like_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for name in ("dark", "light"):
        (folder.parent / name).write_text("notes")
    files = sorted(folder.rglob("*.png"))
    labels, paths = [path.parent.name for path in files], [str(path.relative_to(folder.parent)) for path in files]
    for frame in ({"label": labels, "path": paths}, {"p": paths, "q": labels}):
        images = rudel.Images(frame, 32, validation=0.0)
        assert (images.class_names, len(images.train)) == (["dark", "light"], 40)


def test_labels_in_a_frame_are_read_as_in_a_csv_file(folder: Path) -> None:
    files = sorted(folder.rglob("*.png"))
    numbers = pandas.DataFrame({"path": files, "label": [float(path.parent.name == "light") for path in files]})
    assert rudel.Images(numbers, 32).class_names == ["0", "1"]
    words = numbers.assign(label=["none" if path.parent.name == "dark" else "some" for path in files])
    assert rudel.Images(words, 32).class_names == ["none", "some"], "a word, not a missing label"
    for frame in (numbers, words):
        frame.loc[3, "label"] = None
        with pytest.raises(DataError, match="the DataFrame has no label in row 4"):
            rudel.Images(frame, 32)


def test_a_folder_is_converted_once_however_it_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "link").symlink_to(folder)
    monkeypatch.chdir(folder / "dark")
    for source in (folder, "..", "../../photos", folder.parent / "link"):
        assert len(rudel.Images(source, 32, validation=0.0).train) == 40
    assert len(list((folder.parent / "cache" / "photographs").iterdir())) == 1


def test_the_path_of_a_folder_need_not_be_utf_8(folder: Path, tmp_path: Path) -> None:
    source = folder.rename(folder.with_name(os.fsdecode(b"B\xe4ume")))
    images = rudel.Images(source, 32, validation=0.25)
    assert images.class_names == ["dark", "light"]
    (records,) = (tmp_path / "cache/photographs").iterdir()
    assert json.loads((records / "dataset.json").read_text())["source"] == str(source)


def test_photographs_may_stay_encoded(folder: Path) -> None:
    now, later = (rudel.Images(folder, 32, in_memory=held) for held in (True, False))
    assert isinstance(now.train, rudel.Examples)
    assert not isinstance(later.train, rudel.Examples)
    np.testing.assert_array_equal(now.train.x, later.train.take(np.arange(len(later.train))).x)


def test_mistakes(folder: Path) -> None:
    for side in (8, (32, 32), 40.0):
        with pytest.raises(OptionError, match=f"`side` must be at least 32 pixels, not {re.escape(repr(side))}"):
            rudel.Images(folder, cast(Any, side))
    with pytest.raises(DataError, match="There is no folder"):
        rudel.Images(folder / "nothing")
    with pytest.raises(DataError, match="is not a table"):
        rudel.Images(7)


@pytest.mark.parametrize(
    ("name", "value"),
    [("validation", None), ("validation", 1.0), ("augment", "random_flip"), ("in_memory", "true"), ("in_memory", 1)],
)
def test_arguments_of_another_type_are_refused_before_anything_is_made(folder: Path, name: str, value: object) -> None:
    with pytest.raises(OptionError, match=rf"`{name}` .* not {re.escape(repr(value))}"):
        rudel.Images(folder, 32, **cast(Any, {name: value}))
    assert not (folder.parent / "cache").exists()


@pytest.mark.parametrize(
    "label", [["dark", "old"], ("dark",), {"dark": 1}, np.array([1, 0])], ids=lambda label: type(label).__name__
)
def test_a_label_is_one_value(folder: Path, label: object) -> None:
    files = sorted(folder.rglob("*.png"))
    frame = pandas.DataFrame({"path": files, "label": ["dark", *[label] * (len(files) - 1)]})
    kind = type(label).__name__
    with pytest.raises(
        DataError, match=f"The column `label` of the DataFrame has a {kind} in row 2, and an image has one"
    ):
        rudel.Images(frame, 32)


def test_labels_that_hardly_any_images_share_are_noted(folder: Path) -> None:
    files = sorted(folder.rglob("*.png"))
    prices = {"path": [str(path) for path in files], "label": [min(number, 37) + 0.5 for number in range(len(files))]}
    images = rudel.Images(prices, 32)
    assert images.notes[1].startswith("37 of 40 images are the only one of their class: give names of classes")


def test_classes_that_are_held_out_as_a_whole_are_noted(folder: Path) -> None:
    assert not any("No training image" in note for note in rudel.Images(folder, 32).notes)
    name = next(name for name in (f"dim/{number}.png" for number in range(100)) if place(name) < 0.1)
    (folder / "dim").mkdir()
    Image.new("L", (40, 40), 120).save(folder / name)
    assert rudel.Images(folder, 32).notes[-1] == "No training image is of the class `dim`."
    name = next(name for name in (f"dull/{number}.png" for number in range(100)) if place(name) < 0.1)
    (folder / "dull").mkdir()
    Image.new("L", (40, 40), 130).save(folder / name)
    assert rudel.Images(folder, 32).notes[-1] == "No training image is of the class `dim`, nor of 1 other."


def test_a_folder_that_may_not_be_read_is_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, mode in ((folder.parent, 0o777), (folder, 0)):
        path.chmod(mode)
    monkeypatch.chdir(folder.parent)  # as others may not search the folders above
    user = os.geteuid()
    if user == 0:  # which may read everything
        os.seteuid(65534)
    try:
        with pytest.raises(DataError, match=r"photos cannot be read: Permission denied\."):
            rudel.Images("photos", 32)
    finally:
        os.seteuid(user)
        folder.chmod(0o700)


def test_another_source_can_be_the_validation_set(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "others"
    (other / "light").mkdir(parents=True)
    for number in range(3):
        Image.new("RGB", (40, 40), (200, 200, number)).save(other / f"light/{number}.png")
    images = rudel.Images(folder, 32, validation=other)
    assert (len(images.train), images.class_names) == (40, ["dark", "light"])
    assert isinstance(images.validation, rudel.Examples)
    assert images.validation.y.tolist() == [1, 1, 1]
    streamed = rudel.Images(folder, 32, validation=str(other), in_memory=False).validation
    np.testing.assert_array_equal(cast(Any, streamed).take(np.arange(3)).x, images.validation.x)
    (other / "grey").mkdir()
    Image.new("L", (40, 40), 128).save(other / "grey/0.png")
    with pytest.raises(DataError, match=f"{other} has images of the class `grey`, and {folder} has none"):
        rudel.Images(folder, 32, validation=other)
    with pytest.raises(DataError, match="There is no folder test set"):
        rudel.Images(folder, 32, validation="test set")


def test_a_frame_can_be_the_validation_set(folder: Path) -> None:
    files = sorted(folder.rglob("*.png"))
    frame = pandas.DataFrame({"path": files, "label": [path.parent.name for path in files]})
    images = rudel.Images(frame[2:], 32, validation=frame[:2])
    assert images.validation is not None
    assert (len(images.train), len(images.validation)) == (38, 2)
    for wrong, sentence in (
        (
            frame.assign(label="grey"),
            "the DataFrame for validation has no photograph of a class that the DataFrame has: dark, light.",
        ),
        (
            frame.replace({"label": {"light": "grey"}}),
            "the DataFrame for validation has images of the class `grey`, and the DataFrame has none",
        ),
        (frame.assign(label=[["dark"]] * 40), "The column `label` of the DataFrame for validation has a list in row 1"),
    ):
        with pytest.raises(DataError, match=sentence):
            rudel.Images(frame, 32, validation=wrong)
    with pytest.raises(DataError, match="object is not a table"):
        rudel.Images(folder, 32, validation=object())


def test_one_image_of_each_class_is_enough_to_validate(folder: Path) -> None:
    one = folder.parent / "one"
    for name in ("dark", "light"):
        (one / name).mkdir(parents=True)
        (folder / name / "0.png").rename(one / name / "0.png")
    images = rudel.Images(folder, 32, validation=one)
    assert not [note for note in images.notes if "only one of their class" in note]


@pytest.mark.parametrize("kind", [object, "S5"])
def test_labels_may_be_bytes(folder: Path, kind: Any) -> None:
    files = sorted(folder.rglob("*.png"))
    labels = np.array([path.parent.name.encode() for path in files], kind)
    assert rudel.Images({"path": files, "label": labels}, 32).class_names == ["dark", "light"]


def test_mistakes_in_a_frame_are_found_by_its_rows(folder: Path) -> None:
    files = [str(path) for path in sorted(folder.rglob("*.png"))]
    labels = [Path(path).parent.name for path in files]
    frame = pandas.DataFrame({"path": [*files, "a\nb.png"], "label": [*labels, "dark"]})
    twice, lacking, blank = (frame.copy() for _ in range(3))
    twice.loc[2, "path"] = files[0]
    lacking.loc[39, "label"] = None
    blank.loc[3, "label"] = "li\aght"
    for wrong, sentence in (
        (twice, f"the DataFrame names {files[0]} in row 1 and in row 3: leave one of them out."),
        (lacking, "the DataFrame has no label in row 40."),
        (blank, "Row 4 of the DataFrame cannot name a class"),
    ):
        with pytest.raises(DataError, match=re.escape(sentence)):
            rudel.Images(wrong, 32)
    with pytest.raises(DataError, match="the DataFrame has no columns of paths and of labels"):
        rudel.Images(frame.assign(size=1).rename(columns={"label": "kind of"}), 32)
    assert rudel.Images(frame, 32).notes[1] == (
        "1 of the files in the DataFrame cannot be used, such as a\nb.png (not there)."
    )


def test_the_names_of_foreign_records_may_begin_with_a_byte_order_mark(folder: Path, tmp_path: Path) -> None:
    write_foreign(tmp_path / "records", folder, [0, 1])
    (tmp_path / "records" / "labels.txt").write_bytes(b"\xef\xbb\xbfdark\r\nlight\r\n")
    assert rudel.Images(tmp_path / "records", 32, validation=0).class_names == ["dark", "light"]


@pytest.mark.parametrize("label", [-1, 0.5, "dark", [0, 1]])
def test_labels_of_foreign_records_are_whole_numbers_from_0(folder: Path, tmp_path: Path, label: Any) -> None:
    write_foreign(tmp_path / "records", folder, [0, 1, 2, label])
    with pytest.raises(DataError, match=r"The record at byte .* not a whole number from 0"):
        rudel.Images(tmp_path / "records", 32, validation=0)
    (tmp_path / "records" / "labels.txt").write_text("dark\nlight\nother\n")
    with pytest.raises(DataError, match=r"The record at byte .* not a whole number from 0"):
        find_photographs(str(tmp_path / "records")).to_evaluate(32, None, ["light", "dark"])


def test_foreign_records_may_be_in_a_bucket(folder: Path, tmp_path: Path) -> None:
    write_foreign(tmp_path / "records", folder, [0, 1] * 4)
    write_foreign(tmp_path / "records", folder, [1], "validation")
    files = fsspec.filesystem("memory")
    for path in (tmp_path / "records").iterdir():
        files.pipe_file(f"/foreign/{path.name}", path.read_bytes())
    files.pipe_file("/foreign/labels.txt", b"dark\nlight\n")
    images = rudel.Images("memory://foreign", 32)
    files.rm("/foreign", recursive=True)
    assert images.class_names == ["dark", "light"]
    assert isinstance(images.validation, rudel.Examples)
    assert (len(images.train), images.validation.y.tolist()) == (8, [1])


def write_foreign(records: Path, folder: Path, labels: list[Any], split: str = "train") -> None:
    """Records with only what an input pipeline needs."""
    content = (folder / "dark" / "0.png").read_bytes()
    write_examples(records, [{"image/encoded": content, "image/class/label": label} for label in labels], split)
