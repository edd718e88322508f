"""Inputs for a model from files: images, recordings of sound and motion, and arrays in `.npy` files."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rudel.data.motion import read_rows
from rudel.data.photographs import decode
from rudel.data.sound.recording import decode as decode_sound
from rudel.data.windows import cut_or_padded
from rudel.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

_SOUND = (".wav", ".flac")
_INK = 48
"""Grey levels above this, of 255, count as drawn."""


def read_input(
    path: Path,
    shape: tuple[int, ...],
    read_image: Callable[[Any], Any] | None = None,
    rate: int | None = None,
    channels: Sequence[str] = (),
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

    Returns:
        Inputs (N, *shape).

    Raises:
        DataError: the file is missing, cannot be read, or does not fit.
    """
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    if path.suffix == ".npy":
        return rows_of(_load_array(path), shape, path)
    if path.suffix.lower() in _SOUND:
        return _sound(path, shape, rate)
    if path.suffix.lower() == ".csv":
        return read_rows(path, shape, channels)
    if read_image is None:
        return _photograph(path, shape)
    return rows_of(np.asarray(read_image(_load_image(path))), shape, path)


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
        picture: a Pillow image: white on black, or dark on light, which is inverted. One that already has the size that
            is requested is taken as it is.
        side: height and width of the result, pixels.
        margin: share of the side that is left free on every side of what is drawn.

    Returns:
        uint8 (side, side), white on black, what is drawn in the middle.
    """
    from PIL import Image, ImageOps

    grey = ImageOps.exif_transpose(picture).convert("L")
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


def _load_array(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read as an .npy file: {error}.") from error


def _load_image(path: Path) -> Any:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(path)
            image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{path} cannot be read as an image: {error}.") from error
    return image


def _photograph(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    sides = sides_of(shape)
    if sides is None:
        raise DataError(f"{path} is an image, and the model takes inputs of shape {shape}: give an .npy file.")
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
