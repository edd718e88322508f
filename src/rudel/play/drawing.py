"""How a drawing becomes an input of a model.

The page rasterises the strokes (`page/strokes.js`). A model of 28x28 pixels that takes images of its size as they are,
as `quickdraw` does, gets the same bitmap as *Quick, Draw!* has. For others, the bitmap is larger and its pen thicker,
and what the recipe's `read_image` returns for it is the input, as in `rudel predict`. The page does that itself where
`read_image` agrees with `rudel.data.pictures.ink_on_a_square` on three sample drawings, as for `digits`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rudel.data.pictures import ink_on_a_square
from rudel.errors import RudelError, ServeError

ReadImage = Callable[[Any], Any]

LINE_WIDTH = 16
"""Of the bitmaps of *Quick, Draw!*, in units of their box of 256."""

_SIDES = range(4, 65)
_LARGE = 64
_THICK = 48
"""Units of 256. With it, digits drawn by hand have as much ink as those of the recipe, 30 % of the square."""

_MARGINS = (0.0, 16 / 304)
_SAMPLES: tuple[list[list[tuple[int, int]]], ...] = (
    [[(0, 0), (255, 255)], [(0, 255), (255, 0)]],
    [[(0, 0), (60, 128), (0, 255)]],
    [[(0, 100), (128, 0), (255, 100), (128, 180), (0, 100)], [(128, 85), (128, 95)]],
)
"""Polylines in a box of 256 units, y downwards."""

_FINER = 4
"""Samples are drawn larger by this factor and reduced, which gives them grey edges."""


@dataclass(frozen=True)
class Drawing:
    """The conversion of strokes to inputs that the page has to make.

    Args:
        side: height and width of the bitmap, pixels.
        line_width: of the pen, in units of the box of 256.
        input_side: height and width of what the model takes.
        margin: of `ink_on_a_square`, which makes the input of the bitmap; None where the bitmap is the input.
        by_recipe: whether only the recipe's own `read_image` can make the input.
    """

    side: int
    line_width: float
    input_side: int
    margin: float | None = None
    by_recipe: bool = False

    def samples(self) -> list[np.ndarray]:
        """Bitmaps as the page makes them, but for their edges: uint8 (side, side) each, white on black."""
        return [_drawn(polylines, self.side, self.line_width) for polylines in _SAMPLES]

    def input(self, pixels: np.ndarray, read_image: ReadImage | None, shape: tuple[int, ...]) -> np.ndarray:
        """The input (1, *shape) of a model, of a bitmap."""
        if self.margin is None and not self.by_recipe:
            return pixels.reshape(1, *shape)
        return _read(pixels, read_image).reshape(1, *shape)


def drawing_for(run: str, shape: tuple[int, ...] | None, read_image: ReadImage | None) -> Drawing:
    """How drawings become inputs of a model.

    Args:
        run: its run, for a message.
        shape: of one input; None where there are several, or sizes are open.
        read_image: of its recipe.

    Raises:
        ServeError: the model takes no drawings.
    """
    side = _side(shape)
    if side is None:
        takes = "other things than one picture" if shape is None else f"inputs of shape {shape}"
        raise ServeError(
            f"The run {run} takes {takes}, which cannot be drawn: give a run of `digits` or `quickdraw`, "
            "or of another recipe with small square greyscale images."
        )
    if read_image is None or (side >= 28 and _keeps(read_image, side)):
        return Drawing(side, LINE_WIDTH, side)
    return next(
        (drawing for drawing in (Drawing(_LARGE, _THICK, side, m) for m in _MARGINS) if _same(drawing, read_image)),
        Drawing(_LARGE, _THICK, side, by_recipe=True),
    )


def _side(shape: tuple[int, ...] | None) -> int | None:
    if shape is None or any(not isinstance(size, int) for size in shape):
        return None
    sizes = tuple(size for size in shape if size != 1)
    if len(sizes) == 1:
        sizes = (round(sizes[0] ** 0.5),) * 2
    fits = len(sizes) == 2 and sizes[0] == sizes[1] and sizes[0] in _SIDES and sizes[0] ** 2 == int(np.prod(shape))
    return sizes[0] if fits else None


def _read(pixels: np.ndarray, read_image: ReadImage | None) -> np.ndarray:
    from PIL import Image

    assert read_image is not None
    return np.asarray(read_image(Image.fromarray(pixels)))


def _keeps(read_image: ReadImage, side: int) -> bool:
    return all(_equal(_try(pixels, read_image), pixels) for pixels in Drawing(side, LINE_WIDTH, side).samples())


def _same(drawing: Drawing, read_image: ReadImage) -> bool:
    from PIL import Image

    samples = drawing.samples()
    made = [ink_on_a_square(Image.fromarray(pixels), drawing.input_side, drawing.margin or 0) for pixels in samples]
    return all(_equal(_try(pixels, read_image), expected) for pixels, expected in zip(samples, made, strict=True))


def _drawn(polylines: list[list[tuple[int, int]]], side: int, line_width: float) -> np.ndarray:
    from PIL import Image, ImageDraw

    scale = _FINER * side / (256 + 3 * line_width)
    image = Image.new("L", (_FINER * side, _FINER * side))
    draw = ImageDraw.Draw(image)
    for points in polylines:
        placed = [tuple(scale * (value + 1.5 * line_width) for value in point) for point in points]
        draw.line(placed, fill=255, width=round(scale * line_width), joint="curve")
    return np.asarray(image.reduce(_FINER))


def _try(pixels: np.ndarray, read_image: ReadImage) -> np.ndarray | None:
    try:
        return _read(pixels, read_image)
    except RudelError:
        return None


def _equal(found: np.ndarray | None, expected: np.ndarray) -> bool:
    return found is not None and found.size == expected.size and np.array_equal(found.ravel(), expected.ravel())
