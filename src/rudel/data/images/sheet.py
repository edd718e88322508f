"""A contact sheet: a row of images for each class."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rudel.data.photographs import decode
from rudel.errors import DataError
from rudel.files import written_atomically

_SIDE, _GAP, _NAME_WIDTH = 96, 4, 160
_MOST_ROWS = 400
_PAPER, _INK, _EMPTY = (255, 255, 255), (32, 32, 32), (224, 224, 224)


def write_sheet(path: Path, images: Mapping[str, Sequence[bytes]], classes: Sequence[str]) -> None:
    """Draws images as a model sees them, cut to squares.

    Args:
        path: of a PNG file.
        images: encoded, by class.
        classes: in the order of the rows, of which there are at most 400.

    Raises:
        DataError: there are no images, the name does not end in .png, or the file cannot be written.
    """
    if path.suffix.lower() != ".png":
        raise DataError(f"A contact sheet is a PNG file: give a name that ends in .png, not {path.name}.")
    rows = [name for name in classes if images.get(name)][:_MOST_ROWS]
    if not rows:
        raise DataError("There are no images for a contact sheet: the records have no `image/encoded` with a class.")
    from PIL import Image, ImageDraw, ImageFont

    step = _SIDE + _GAP
    across = max(len(images[name]) for name in rows)
    sheet = Image.new("RGB", (_NAME_WIDTH + across * step + _GAP, len(rows) * step + _GAP), _PAPER)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(14)
    for row, name in enumerate(rows):
        top = _GAP + row * step
        draw.text((2 * _GAP, top + _SIDE // 2), _shortened(name), fill=_INK, font=font, anchor="lm")
        for column, content in enumerate(images[name]):
            try:
                cell = Image.fromarray(decode(content, _SIDE, _SIDE))
            except DataError:
                cell = Image.new("RGB", (_SIDE, _SIDE), _EMPTY)
            sheet.paste(cell, (_NAME_WIDTH + column * step, top))
    try:
        with written_atomically(path) as file:
            sheet.save(file, "PNG")
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}.") from error


def _shortened(name: str, most: int = 20) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
