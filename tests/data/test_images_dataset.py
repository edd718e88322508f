"""`rudel.Images`: photographs in Python as on the command line."""

import csv
from pathlib import Path

import keras
import numpy as np
import pandas
import pytest
from PIL import Image

import rudel
from rudel.backend import set_seed
from rudel.data.augmentation import random_flip
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
        with pytest.raises(DataError, match="has no label in line 5"):
            rudel.Images(frame, 32)


def test_a_folder_is_converted_once_however_it_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "link").symlink_to(folder)
    monkeypatch.chdir(folder / "dark")
    for source in (folder, "..", "../../photos", folder.parent / "link"):
        assert len(rudel.Images(source, 32, validation=0.0).train) == 40
    assert len(list((folder.parent / "cache" / "photographs").iterdir())) == 1


def test_photographs_may_stay_encoded(folder: Path) -> None:
    now, later = (rudel.Images(folder, 32, in_memory=held) for held in (True, False))
    assert isinstance(now.train, rudel.Examples)
    assert not isinstance(later.train, rudel.Examples)
    np.testing.assert_array_equal(now.train.x, later.train.take(np.arange(len(later.train))).x)


def test_mistakes(folder: Path) -> None:
    with pytest.raises(OptionError, match="`side` must be at least 32 pixels, not 8"):
        rudel.Images(folder, 8)
    with pytest.raises(DataError, match="There is no folder"):
        rudel.Images(folder / "nothing")
    with pytest.raises(DataError, match="is not a table"):
        rudel.Images(7)
