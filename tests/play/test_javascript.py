"""Strokes on the page become the bitmaps of *Quick, Draw!*, short drawings, and the inputs of `ink_on_a_square`."""

import json
import math
import shutil
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from PIL import Image

from rudel.data.pictures import ink_on_a_square
from rudel.recipes import digits

SCRIPT = """
import { readFileSync } from "node:fs";
import { inkOnASquare } from "./square.js";
import { bitmap, simplified } from "./strokes.js";
const given = JSON.parse(readFileSync("given.json"));
const points = (drawing) => drawing.map(([xs, ys]) => xs.map((x, i) => [x, ys[i]]));
console.log(JSON.stringify({
  bitmaps: (given.bitmaps ?? []).map(([drawing, ...how]) => Array.from(bitmap(points(drawing), ...how))),
  simple: (given.raw ?? []).map((drawing) => simplified(points(drawing))),
  squares: (given.squares ?? []).map(([pixels, size, side, margin]) =>
    Array.from(inkOnASquare(Uint8Array.from(pixels), size, side, margin))),
}));
"""


@pytest.fixture
def in_node(tmp_path: Path, lacking: Callable[[str], NoReturn]) -> Callable[..., Any]:
    """Computes in Node.js, with the page's own modules."""
    node = shutil.which("node")
    if node is None:
        lacking("There is no Node.js: apt-get install nodejs")

    def compute(**given: Any) -> Any:
        for name in ("strokes.js", "outline.js", "coverage.js", "square.js"):
            (tmp_path / name).write_bytes((files("rudel.play") / "page" / name).read_bytes())
        (tmp_path / "package.json").write_text('{"type": "module"}')
        (tmp_path / "script.js").write_text(SCRIPT)
        (tmp_path / "given.json").write_text(json.dumps(given))
        done = subprocess.run([node, "script.js"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return compute


def as_points(drawing: Any) -> list[list[list[float]]]:
    return [[list(point) for point in zip(*stroke, strict=True)] for stroke in drawing]


def test_bitmaps_are_those_of_quick_draw_to_the_byte(in_node: Callable[..., Any], real: Callable[[int], Any]) -> None:
    drawings = real(10)
    made = in_node(bitmaps=[[drawing] for drawing, _ in drawings])["bitmaps"]
    assert len(made) >= 130
    for i, (_, theirs) in enumerate(drawings):
        assert np.array_equal(np.uint8(made[i]), theirs.ravel()), i


@pytest.mark.parametrize("side", [8, 28, 64])
def test_dots_lines_and_nothing(in_node: Callable[..., Any], side: int) -> None:
    given = [[[], side], [[[[0], [0]]], side], [[[[0, 0, 0], [0, 0, 0]]], side]]
    nothing, dot, line = (np.reshape(made, (side, side)) for made in in_node(bitmaps=given)["bitmaps"])
    assert nothing.sum() == 0
    assert np.array_equal(dot, line)
    assert dot.max() > 0
    middle = [float((places * dot).sum() / dot.sum()) for places in np.indices(dot.shape)]
    assert middle == pytest.approx([(side - 1) / 2] * 2, abs=0.1)


def test_points_outside_the_box_are_cut_off(in_node: Callable[..., Any]) -> None:
    (made,) = in_node(bitmaps=[[[[[-2000, 255], [128, 128]], [[100, 100], [-3000, 255]]]]])["bitmaps"]
    assert (len(made), max(made)) == (784, 255)


def test_simplified_drawings_have_few_points_and_neither_place_nor_size(
    in_node: Callable[..., Any], real: Callable[[int], Any]
) -> None:
    drawings = [drawing for drawing, _ in real(4)]
    drawing = drawings[3]
    moved = [[[[f * x - 7 for x in xs], [f * y + 40 for y in ys]] for xs, ys in drawing] for f in (0.01, 3.7)]
    angles = [2 * math.pi * i / 1000 for i in range(1001)]
    circle = [[[math.cos(a) for a in angles], [math.sin(a) for a in angles]]]
    bent_line = [[[10, 20, 30], [5, 5.1, 5]], [[10, 30], [5, 15]]]
    small, large, (few,), bent, *simple = in_node(raw=[*moved, circle, bent_line, *drawings])["simple"]
    assert simple[3] == small == large
    points = [sum(len(stroke) for drawing in some for stroke in drawing) for some in (simple, map(as_points, drawings))]
    assert points[0] > 0.95 * points[1], "a simplified drawing stays as it is, but for few points"
    assert 12 < len(few) < 40
    assert (np.min(few), np.max(few)) == (0, 255)
    assert bent == as_points([[[0, 255], [0, 0]], [[0, 255], [0, 128]]])


def test_inputs_are_those_of_python(in_node: Callable[..., Any], real: Callable[[int], Any]) -> None:
    sizes = [(64, 8, 0.0), (28, 8, 0.0), (64, 28, 16 / 304), (20, 8, 0.0), (10, 28, 0.1), (9, 8, 0.0)]
    bitmaps = in_node(bitmaps=[[drawing, size, 30] for (drawing, _), (size, *_) in zip(real(1), sizes, strict=False)])
    squares = [(made, *how) for made, how in zip(bitmaps["bitmaps"], sizes, strict=True)]
    for made, (pixels, size, side, margin) in zip(in_node(squares=squares)["squares"], squares, strict=True):
        image = Image.fromarray(np.array(pixels, np.uint8).reshape(size, size))
        assert made == ink_on_a_square(image, side, margin).ravel().tolist()


def test_the_thick_pen_gives_digits_as_much_ink_as_they_have(in_node: Callable[..., Any]) -> None:
    """A seven, an eight, a three and a two, drawn by hand."""
    hand = [
        [[[30, 225, 110], [0, 0, 255]]],
        [[[128, 60, 128, 200, 128, 50, 128, 210, 128], [128, 60, 0, 60, 128, 195, 255, 195, 128]]],
        [[[60, 128, 190, 180, 120, 190, 200, 128, 50], [20, 0, 50, 110, 125, 150, 220, 255, 230]]],
        [[[60, 80, 150, 195, 180, 60, 60, 200], [60, 15, 0, 50, 110, 250, 255, 255]]],
    ]
    bitmaps = in_node(bitmaps=[[drawing, 64, 48] for drawing in hand])["bitmaps"]
    mine = np.mean([digits.read_image(Image.fromarray(np.uint8(made).reshape(64, 64))) for made in bitmaps])
    theirs = np.mean(digits.data().train.take(np.arange(500)).x)
    assert mine == pytest.approx(theirs, rel=0.2)
