"""What the page computes with strokes is what Python computes, to the byte."""

import json
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
from rudel.data.strokes import bitmap, simplified
from rudel.recipes import digits

SCRIPT = """
import { readFileSync } from "node:fs";
import { inkOnASquare } from "./square.js";
import { bitmap, simplified } from "./strokes.js";
const given = JSON.parse(readFileSync("given.json"));
const points = (drawing) => drawing.map(([xs, ys]) => xs.map((x, i) => [x, ys[i]]));
console.log(JSON.stringify({
  bitmaps: given.drawings.map((drawing) => Array.from(bitmap(points(drawing)))),
  large: given.drawings.slice(-6).map((drawing) => Array.from(bitmap(points(drawing), 64, 48))),
  simple: given.raw.map((drawing) => simplified(points(drawing))),
  squares: given.squares.map(([pixels, size, side, margin]) =>
    Array.from(inkOnASquare(Uint8Array.from(pixels), size, side, margin))),
}));
"""


@pytest.fixture
def in_node(tmp_path: Path, lacking: Callable[[str], NoReturn]) -> Callable[[Any], Any]:
    """Computes in Node.js, with the page's own modules."""
    node = shutil.which("node")
    if node is None:
        lacking("There is no Node.js: apt-get install nodejs")

    def compute(given: Any) -> Any:
        for name in ("strokes.js", "outline.js", "coverage.js", "square.js"):
            (tmp_path / name).write_bytes((files("rudel.play") / "page" / name).read_bytes())
        (tmp_path / "package.json").write_text('{"type": "module"}')
        (tmp_path / "script.js").write_text(SCRIPT)
        (tmp_path / "given.json").write_text(json.dumps(given))
        done = subprocess.run([node, "script.js"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return compute


def test_the_page_computes_what_python_computes(in_node: Callable[[Any], Any], real: Callable[[int], Any]) -> None:
    random = np.random.default_rng(0)
    drawings = [drawing for drawing, _ in real(2)]
    drawings += [random.integers(0, 256, (3, 2, 5)).tolist(), [[[7], [200]]], [[[0, 15], [15, 0]], [[30, 45], [0, 15]]]]
    raw = [
        [(np.array(s) * random.uniform(0.2, 4) + random.normal(0, 2, (2, len(s[0])))).tolist() for s in drawing]
        for drawing in drawings
    ]
    sizes = [(64, 8, 0.0), (28, 8, 0.0), (64, 28, 16 / 304), (20, 8, 0.0), (10, 28, 0.1), (9, 8, 0.0)]
    squares = [
        (bitmap(drawing, size, 30).ravel().tolist(), size, side, margin)
        for drawing, (size, side, margin) in zip(drawings, sizes * len(drawings), strict=False)
    ]
    told = in_node({"drawings": drawings, "raw": raw, "squares": squares})
    assert told["bitmaps"] == [bitmap(drawing).ravel().tolist() for drawing in drawings]
    assert told["large"] == [bitmap(drawing, 64, 48).ravel().tolist() for drawing in drawings[-6:]]
    assert told["simple"] == [[[list(p) for p in zip(*s, strict=True)] for s in simplified(drawing)] for drawing in raw]
    for made, (pixels, size, side, margin) in zip(told["squares"], squares, strict=True):
        picture = Image.fromarray(np.array(pixels, np.uint8).reshape(size, size))
        assert made == ink_on_a_square(picture, side, margin).ravel().tolist()


def test_the_thick_pen_gives_digits_as_much_ink_as_they_have() -> None:
    """A seven, an eight, a three and a two, drawn by hand."""
    hand = [
        [[[30, 225, 110], [0, 0, 255]]],
        [[[128, 60, 128, 200, 128, 50, 128, 210, 128], [128, 60, 0, 60, 128, 195, 255, 195, 128]]],
        [[[60, 128, 190, 180, 120, 190, 200, 128, 50], [20, 0, 50, 110, 125, 150, 220, 255, 230]]],
        [[[60, 80, 150, 195, 180, 60, 60, 200], [60, 15, 0, 50, 110, 250, 255, 255]]],
    ]
    mine = np.mean([digits.read_image(Image.fromarray(bitmap(drawing, 64, 48))) for drawing in hand])
    theirs = np.mean(digits.data().train.take(np.arange(500)).x)
    assert mine == pytest.approx(theirs, rel=0.2)
