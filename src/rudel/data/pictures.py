"""Inputs for a model from files: images, recordings of sound and motion, and arrays in `.npy` files."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.data.file_names import SOUND
from rudel.data.motion import read_rows
from rudel.data.npz import read_npz
from rudel.data.photographs import decode, opaque
from rudel.data.sound.recording import decode as decode_sound
from rudel.data.table import is_table
from rudel.data.windows import cut_or_padded
from rudel.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

_INK = 48
"""Grey levels above this, of 255, count as drawn."""

_HIGHEST_OF_OTHERS = 2.0
"""Floats that do not exceed this are not pixels of 0 to 255, but mostly shares of that."""


def read_input(
    path: Path,
    shape: tuple[int, ...],
    read_image: Callable[[Any], Any] | None = None,
    rate: int | None = None,
    channels: Sequence[str] = (),
    learned_from: Sequence[float] | None = None,
) -> np.ndarray:
    """Reads a file as inputs of a model.

    Args:
        path: an `.npy` file with one input (`shape`) or several (N, *shape), flattened ones too; a WAV or FLAC file, of
            which a long one is several inputs; a CSV file of a motion sensor; or an image.
        shape: of one input.
        read_image: turns a Pillow image into one input; by default it is decoded as photographs are in training, to
            pixels of 0 to 255 (`rudel.data.photographs`).
        rate: of the sound that the model hears, samples a second; None where it hears none.
        channels: columns of a motion sensor, in the order in which the model takes them; empty for that of the file.
        learned_from: the `range_of` the inputs in training; None where that is not known.

    Returns:
        Inputs (N, *shape).

    Raises:
        DataError: the file is missing, cannot be read, or does not fit; or an image has other pixels than the model
            takes.
    """
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    if path.suffix == ".npy":
        return rows_of(_load_array(path), shape, path)
    if path.suffix.lower() in SOUND:
        return _sound(path, shape, rate)
    if path.suffix.lower() == ".csv":
        return read_rows(path, shape, channels)
    if read_image is None:
        sides = sides_of(shape)
        if rate is not None or channels or sides is None:
            wanted = "a WAV or FLAC" if rate is not None else "a CSV" if channels else "an .npy"
            raise DataError(f"{path} is not for this model, which takes inputs of shape {shape}: give {wanted} file.")
        return _photograph(path, shape, sides, learned_from)
    return rows_of(np.asarray(read_image(_load_image(path))), shape, path)


def range_of(x: Any) -> tuple[float, float] | None:
    """The lowest and the highest of the floats that a model takes as its one input; None for other inputs.

    Args:
        x: inputs of examples (N, ...), as `rudel.data.dataset.Examples` has them.
    """
    if not isinstance(x, np.ndarray) or x.dtype.kind != "f" or not x.size:
        return None
    rows = max(1, 2**22 // x[0].size)
    blocks = [x[start : start + rows] for start in range(0, len(x), rows)]
    lows, highs = zip(*((float(block.min()), float(block.max())) for block in blocks), strict=True)
    return min(lows), max(highs)


def other_numbers(learned_from: Sequence[float] | None) -> str:
    """The numbers that a model learned from, in words, where these are not pixels of 0 to 255; else "".

    Pixels are integers, floats that are never negative and reach far above 1, and what nobody knows.

    Args:
        learned_from: their `range_of`.

    >>> other_numbers((0.0, 1.0)), other_numbers((-1.0, 1.0)), other_numbers((0.0, 255.0)), other_numbers(None)
    ('numbers from 0 to 1', 'numbers from -1 to 1', '', '')
    """
    if learned_from is None or (learned_from[0] >= 0 and learned_from[1] > _HIGHEST_OF_OTHERS):
        return ""
    return f"numbers from {learned_from[0]:.3g} to {learned_from[1]:.3g}"


def is_image(path: Path) -> bool:
    """Whether `read_input` takes a file for an image, by its name."""
    return path.suffix.lower() not in (".npy", ".npz", ".csv", *SOUND) and not is_table(path)


def sides_of(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Height, width and channels of an input that is an image; None for other inputs.

    >>> sides_of((28, 28)), sides_of((64, 48, 3)), sides_of((10, 4))
    ((28, 28, 1), (64, 48, 3), (10, 4, 1))
    """
    channels = 1 if len(shape) == 2 else shape[-1] if len(shape) == 3 else 0
    return (shape[0], shape[1], channels) if channels in (1, 3) else None


def ink_on_a_square(picture: "Image.Image", side: int, margin: float) -> np.ndarray:
    """An image of something drawn, as data sets of drawings have it.

    Args:
        picture: a Pillow image: white on black, or dark on light, which is inverted, or of any level on a transparent
            ground. One on a ground that already has the size that is requested is taken as it is.
        side: height and width of the result, pixels.
        margin: share of the side that is left free on every side of what is drawn.

    Returns:
        uint8 (side, side), white on black, what is drawn in the middle.
    """
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(picture)
    grey = _ink_alone(upright) if _is_clear(upright) else opaque(upright, "L")
    if grey.size == (side, side):
        return np.asarray(grey)
    pixels = np.asarray(grey)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    if np.median(border) > 127:
        grey = ImageOps.invert(grey)
    drawn = grey.crop(Image.fromarray(np.asarray(grey) > _INK).getbbox() or (0, 0, *grey.size))
    whole = max(1, round(max(drawn.size) / (1 - 2 * margin)))
    square = Image.new("L", (whole, whole))
    square.paste(drawn, ((whole - drawn.width) // 2, (whole - drawn.height) // 2))
    way = Image.Resampling.BOX if whole > 2 * side else Image.Resampling.BILINEAR
    return np.asarray(square.resize((side, side), way))


def _is_clear(picture: "Image.Image") -> bool:
    """Whether something of an image is transparent."""
    return picture.has_transparency_data and bool(np.asarray(picture.convert("RGBA").getchannel("A")).min() < 255)


def _ink_alone(picture: "Image.Image") -> "Image.Image":
    """What is drawn on a transparent ground, white on black: dark ink is inverted."""
    from PIL import Image

    levels, opacity = np.moveaxis(np.asarray(picture.convert("RGBA").convert("LA"), np.uint32), -1, 0)
    if (levels * opacity).sum() < 128 * opacity.sum():
        levels = 255 - levels
    return Image.fromarray((levels * opacity // 255).astype(np.uint8))


def _load_array(path: Path) -> np.ndarray:
    try:
        arrays = read_npz(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as an .npy file: {error}.") from error
    if "" not in arrays:
        raise DataError(f"{path} is an .npz file, whatever its name says: save one array by np.save.")
    return arrays[""]


def _load_image(path: Path) -> Any:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(path)
            image.load()
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # a decoder of hostile bytes may raise whatever it likes
        raise DataError(f"{path} cannot be read as an image: {error}.") from error
    return image


def _photograph(
    path: Path, shape: tuple[int, ...], sides: tuple[int, int, int], learned_from: Sequence[float] | None
) -> np.ndarray:
    if others := other_numbers(learned_from):
        raise DataError(
            f"{path} is an image, with pixels of 0 to 255, and the model learned from {others}: give an .npy file with "
            "inputs as it takes them."
        )
    return decode(_content(path), *sides, name=str(path)).reshape(1, *shape)


def _sound(path: Path, shape: tuple[int, ...], rate: int | None) -> np.ndarray:
    if rate is None or len(shape) != 1:
        raise DataError(f"{path} is a recording, and the model does not take sound: give an .npy file.")
    return cut_or_padded(decode_sound(_content(path), rate, str(path)), shape[0])


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from error


def rows_of(array: np.ndarray, shape: tuple[int, ...], name: object) -> np.ndarray:
    """An array as inputs of a model.

    Args:
        array: one input or several, flattened ones too.
        shape: of one input.
        name: what messages call the array.

    Returns:
        Inputs (N, *shape).

    Raises:
        DataError: the array does not hold numbers, or does not fit.

    >>> rows_of(np.zeros((5, 12)), (3, 4), "a.npy").shape
    (5, 3, 4)
    """
    size = int(np.prod(shape))
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} holds {array.dtype} values: the model takes numbers.")
    if array.size == size:
        return array.reshape(1, *shape)
    if array.ndim and array.size and array[0].size == size:
        return array.reshape(len(array), *shape)
    raise DataError(f"{name} has shape {array.shape}, and the model takes inputs of shape {shape}.")
