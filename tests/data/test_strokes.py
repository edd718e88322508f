"""Bitmaps of strokes are those that Google has made of the same drawings."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from rudel.data.strokes import bitmap, read_drawings, simplified
from rudel.errors import DataError


def test_bitmaps_are_those_of_quick_draw_to_the_byte(shared_data: Path) -> None:
    compared = 0
    for path in sorted((shared_data / "quickdraw/strokes").glob("*.ndjson")):
        theirs = np.load(shared_data / f"quickdraw/full/numpy_bitmap/{path.stem}.npy", mmap_mode="r")
        for i, drawing in enumerate(read_drawings(path)[:10]):
            assert np.array_equal(bitmap(drawing).ravel(), theirs[i]), f"{path.stem} {i}"
            compared += 1
    assert compared >= 130


def test_simplifying_what_is_simple_keeps_most_of_it(shared_data: Path) -> None:
    drawings = read_drawings(shared_data / "quickdraw/strokes/cat.ndjson")
    kept = [len(stroke[0]) for drawing in drawings for stroke in simplified(drawing)]
    given = [len(stroke[0]) for drawing in drawings for stroke in drawing]
    assert len(kept) == len(given)
    assert sum(kept) > 0.95 * sum(given)


@pytest.mark.parametrize("factor", [0.01, 3.7])
def test_place_and_size_do_not_matter(shared_data: Path, factor: float) -> None:
    drawing = read_drawings(shared_data / "quickdraw/strokes/fish.ndjson")[3]
    moved = [[[factor * x - 7 for x in xs], [factor * y + 40 for y in ys]] for xs, ys in drawing]
    assert simplified(moved) == simplified(drawing)


def test_a_finely_drawn_line_becomes_few_points() -> None:
    angles = [2 * math.pi * i / 1000 for i in range(1001)]
    (xs, ys), = simplified([[[math.cos(a) for a in angles], [math.sin(a) for a in angles]]])  # fmt: skip
    assert 12 < len(xs) < 40
    assert (min(xs), max(xs), min(ys), max(ys)) == (0, 255, 0, 255)


@pytest.mark.parametrize("side", [8, 28, 64])
def test_dots_lines_and_nothing(side: int) -> None:
    assert bitmap([], side).sum() == 0
    dot = bitmap([[[0], [0]]], side)
    line = bitmap([[[0, 0, 0], [0, 0, 0]]], side)
    assert np.array_equal(dot, line)
    assert dot.max() > 0
    rows, columns = np.indices(dot.shape)
    middle = [float((places * dot).sum() / dot.sum()) for places in (rows, columns)]
    assert middle == pytest.approx([(side - 1) / 2] * 2, abs=0.1)


def test_points_outside_the_box_are_cut_off() -> None:
    picture = bitmap([[[-2000, 255], [128, 128]], [[100, 100], [-3000, 255]]])
    assert picture.shape == (28, 28)
    assert picture.max() == 255


@pytest.mark.parametrize(
    "drawing", [[[[], []]], [[[1, 2], [3]]], [[[1.0], [math.nan]]], [[[1]]], [[[math.inf, 1], [1, 1]]]]
)
def test_no_strokes(drawing: list[list[list[float]]]) -> None:
    for make in (bitmap, simplified):
        with pytest.raises(DataError, match="A stroke"):
            make(drawing)


def test_files_that_hold_no_drawings(tmp_path: Path) -> None:
    path = tmp_path / "cat.ndjson"
    for content in ("{", json.dumps({"word": "cat"}), "[1]"):
        path.write_text(content)
        with pytest.raises(DataError, match=r"cannot be read as drawings"):
            read_drawings(path)
    with pytest.raises(DataError, match=r"cannot be read as drawings"):
        read_drawings(tmp_path / "missing.ndjson")
