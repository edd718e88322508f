"""Pictures of drawings become the inputs that Quick, Draw! would have made of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from rudel.recipes.quickdraw import read_image


def test_a_bitmap_of_the_data_set_is_taken_as_it_is() -> None:
    bitmap = np.random.default_rng(0).integers(0, 256, (28, 28), dtype="uint8")
    np.testing.assert_array_equal(read_image(Image.fromarray(bitmap)), bitmap)


def test_ink_on_paper_is_inverted_cut_out_and_centred() -> None:
    paper = Image.new("RGB", (400, 300), "white")
    paper.paste("black", (40, 200, 140, 250))
    drawing = read_image(paper)
    assert drawing.shape == (28, 28)
    assert drawing.dtype == np.uint8
    rows, columns = np.flatnonzero(drawing.max(1) > 127), np.flatnonzero(drawing.max(0) > 127)
    assert (columns[0], columns[-1]) == (1, 26)  # 16 of 304 units are free on either side: one and a half pixels
    assert abs((rows[0] + rows[-1]) - 27) <= 1
    assert abs(len(rows) / len(columns) - 0.5) < 0.1


@pytest.mark.parametrize(("mode", "page", "ink"), [("RGBA", (0, 0, 0, 0), (0, 0, 0, 255)), ("I;16", 65_535, 255)])
def test_ink_is_found_on_what_is_transparent_and_in_16_bits(mode: str, page: Any, ink: Any) -> None:
    box = (40, 200, 140, 250)
    paper, white = Image.new(mode, (400, 300), page), Image.new("L", (400, 300), "white")
    paper.paste(Image.new(mode, (100, 50), ink), box)
    white.paste(0, box)
    np.testing.assert_array_equal(read_image(paper), read_image(white))


@pytest.mark.parametrize("size", [400, 28])
def test_ink_of_any_level_on_a_transparent_ground_is_white_on_black(size: int) -> None:
    drawn = []
    for level in (0, 255):
        page = Image.new("LA", (size, size), (0, 0))
        page.paste((level, 255), (size // 4, size // 4, size // 2, size // 2))
        drawn.append(read_image(page))
    np.testing.assert_array_equal(*drawn)
    assert drawn[0].max() > 250
    assert not drawn[0][0].any()


def test_an_empty_page_is_an_empty_drawing() -> None:
    assert not read_image(Image.new("L", (100, 100), 255)).any()


def test_enlarged_photographs_of_real_drawings_come_back_nearly_alike(shared_data: Path) -> None:
    bitmaps = np.load(shared_data / "quickdraw/full/numpy_bitmap/cat.npy")[:50].reshape(-1, 28, 28)
    for bitmap in bitmaps:
        enlarged = ImageOps.invert(Image.fromarray(bitmap).resize((560, 560), Image.Resampling.BICUBIC))
        back = read_image(enlarged)
        assert np.corrcoef(back.reshape(-1).astype(float), bitmap.reshape(-1).astype(float))[0, 1] > 0.8
