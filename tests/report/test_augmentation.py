"""What the augmentation does to pictures, kept in the run and shown on the page."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rudel
from rudel.data.augmentation import random_brightness, random_flip
from rudel.data.stream import Stream
from rudel.errors import RunError
from rudel.report import augmentation

PICTURES = np.random.default_rng(0).integers(0, 256, (50, 12, 10, 3), dtype="uint8")


class Read(Stream):
    """Pictures that are read when they are taken."""

    def __len__(self) -> int:
        return len(PICTURES)

    def take(self, indices: Any) -> rudel.Examples:
        return rudel.Examples(PICTURES[indices])

    def fingerprint(self) -> str:
        return "pictures"


@pytest.mark.parametrize("train", [rudel.Examples(PICTURES), Read()], ids=["in memory", "streamed"])
def test_examples_of_all_the_data_are_kept_with_three_versions_of_each(tmp_path: Path, train: Any) -> None:
    augmentation.save(tmp_path / "augmentation.npz", rudel.Dataset(train, augment=random_flip))
    with np.load(tmp_path / "augmentation.npz") as file:
        originals, changed = file["originals"], file["changed"]
    np.testing.assert_array_equal(originals, PICTURES[[0, 10, 20, 29, 39, 49]])
    assert changed.shape == (3, 6, 12, 10, 3)
    mirrored = [[np.array_equal(a, b[:, ::-1]) for a, b in zip(version, originals, strict=True)] for version in changed]
    assert 0 < np.sum(mirrored) < 18


def test_float_pictures_and_their_changes_are_scaled_alike(tmp_path: Path) -> None:
    x = np.linspace(0, 0.5, 6 * 100, dtype=np.float32).reshape(6, 10, 10)
    brighter = rudel.Dataset(rudel.Examples(x), augment=lambda key, x: x + 0.5)
    augmentation.save(tmp_path / "a.npz", brighter)
    with np.load(tmp_path / "a.npz") as file:
        assert file["originals"].max() == 128
        assert (file["changed"].min(), file["changed"].max()) == (128, 255)


@pytest.mark.parametrize(
    "dataset",
    [
        rudel.Dataset(rudel.Examples(PICTURES)),
        rudel.Dataset(rudel.Examples(np.zeros((5, 20))), augment=lambda key, x: x),
        rudel.Dataset(rudel.Examples({"a": PICTURES}), augment=lambda key, x: x),
        rudel.Dataset(rudel.Examples(PICTURES), augment=lambda key, x: x.reshape(len(x), -1)),
    ],
    ids=["no augmentation", "no pictures", "several inputs", "no pictures any more"],
)
def test_nothing_is_kept_where_there_is_no_picture_of_it(tmp_path: Path, dataset: rudel.Dataset) -> None:
    augmentation.save(tmp_path / "augmentation.npz", dataset)
    assert not list(tmp_path.iterdir())


def test_the_page_shows_each_example_above_its_versions(run: Any) -> None:
    run.config().epochs().summary()
    assert "augmentation" not in run.report().sections
    augmentation.save(run.path / augmentation.FILE, rudel.Dataset(rudel.Examples(PICTURES), augment=random_brightness))
    page = run.report()
    assert "augmentation" in page.sections
    assert "Augmentation" in page.words("h2")
    columns = next(item for item in page.all("ul") if "changes" in item.get("class", "")).findall("li")
    assert [len(column.findall("img")) for column in columns] == [4] * 6
    for number, column in zip([0, 10, 20, 29, 39, 49], columns, strict=True):
        shown = column.findall("img")[0].get("src", "").removeprefix("data:image/png;base64,")
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(shown)))), PICTURES[number])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off"])
def test_a_damaged_file_is_told(run: Any, content: bytes) -> None:
    run.config().epochs().summary()
    (run.path / augmentation.FILE).write_bytes(content)
    with pytest.raises(RunError, match=r"augmentation\.npz` does not hold images"):
        run.report()
