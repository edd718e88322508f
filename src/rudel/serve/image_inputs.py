"""Encoded images as inputs of a model, as in training: by the recipe's `read_image`, or decoded as photographs.

A file of some kilobytes can hold an image of many million pixels: those of a request are counted before they are
decoded, and the time limit is checked before each image.
"""

import io
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rudel.data.images.jpeg import frame
from rudel.data.photographs import FORMATS, MOST_PIXELS, check_scans, decode
from rudel.data.pictures import other_numbers, sides_of
from rudel.errors import DataError, RudelError
from rudel.serve.model_signature import OPEN, Signature, Tensor
from rudel.serve.refusal import Refusal, bad
from rudel.serve.server_limits import Limits
from rudel.serve.values import checked

Admit = Callable[[int], None]
"""Called with the number of pixels or samples of a file before it is decoded; raises `DataError` for too many."""

Decode = Callable[[bytes, Admit], np.ndarray]
"""Makes one input of an encoded file."""


@dataclass(frozen=True)
class Files:
    """A kind of files that a model takes in place of numbers.

    Args:
        types: media types of a body that is one such file.
        noun: what they are called.
        unit: what they are counted in before they are decoded.
    """

    types: tuple[str, ...]
    noun: str
    unit: str


EXPORTED = Files(("image/jpg", "image/jpeg", "image/png"), "images", "pixels")
"""Images that a model from `rudel export` decodes itself."""

IMAGES = replace(EXPORTED, types=("image/jpg", *(f"image/{kind.lower()}" for kind in FORMATS)))

_NAME = "The picture"
_TOO_LARGE = f"{_NAME} has more than {MOST_PIXELS:,} pixels: make it smaller."
_UNREADABLE = f"{_NAME} is not a JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF file that can be read."


def reader(
    signature: Signature, read_image: Callable[[Any], Any] | None, learned_from: Sequence[float] | None = None
) -> Decode | None:
    """Conversion of encoded images to inputs; None for a model that takes no image.

    Args:
        signature: of the model.
        read_image: of its recipe, if that has one: a Pillow image to an input.
        learned_from: the range of the inputs in training; see `rudel.data.pictures.other_numbers`.
    """
    if len(signature.inputs) != 1:
        return None
    shape = signature.inputs[0].shape
    if signature.inputs[0].takes_images:
        return _admitted
    if signature.inputs[0].dtype == "bytes":
        return lambda content, admit: np.array(content, object)
    if read_image:
        return lambda content, admit: _by_recipe(content, read_image, shape, admit)
    sides = None if OPEN in shape or other_numbers(learned_from) else sides_of(shape)
    return sides and (lambda content, admit: decode(content, *sides, name=_NAME, admit=admit).reshape(shape))


def decode_all(
    contents: Iterable[bytes],
    tensor: Tensor,
    decode: Decode | None,
    limits: Limits,
    began: float,
    kind: Files = IMAGES,
) -> np.ndarray:
    """The column (N, ...) of encoded files.

    Args:
        contents: the files.
        tensor: the input.
        decode: makes inputs of them; None where the model takes no files.
        limits: of pixels or samples, and of time.
        began: when the request came, by `time.perf_counter`.
        kind: what the files are.

    Raises:
        Refusal: the model takes no files, one of them is none, they have too many pixels, or it takes too long.
    """
    if decode is None:
        raise bad(f"The input `{tensor.name}` takes numbers of shape {tensor.shape_text}, and no images.")
    left = limits.pixels

    def admit(pixels: int) -> None:
        nonlocal left
        left -= pixels
        if left < 0:
            raise DataError(
                f"The {kind.noun} have more than {limits.pixels:,} {kind.unit} together: send fewer at once."
            )

    inputs = []
    try:
        for content in contents:
            if time.perf_counter() - began > limits.seconds:
                raise Refusal(504, f"The {kind.noun} were not decoded within {limits.seconds:g} seconds: send fewer.")
            inputs.append(decode(content, admit))
    except DataError as error:
        raise bad(str(error)) from error
    return checked(np.stack(inputs), tensor)


def _admitted(content: bytes, admit: Admit) -> np.ndarray:
    """A file as it is, for a model that decodes it; of other formats than the usual ones, nothing is known."""
    if content.startswith((b"\xff\xd8", b"\x89PNG")):
        _opened(content, admit)
    return np.array(content, object)


def _by_recipe(content: bytes, read_image: Callable[[Any], Any], shape: tuple[int, ...], admit: Admit) -> np.ndarray:
    image = _opened(content, admit)
    try:
        image.load()
        array = np.asarray(read_image(image))
    except RudelError:
        raise
    except Exception as error:  # a damaged file makes Pillow raise almost anything
        raise DataError(_UNREADABLE) from error
    if array.size != int(np.prod(shape)):
        raise DataError(f"{_NAME} becomes an input of shape {array.shape}, and the model takes {shape}.")
    return array.reshape(shape)


def _opened(content: bytes, admit: Admit) -> Any:
    """A Pillow image, still without its pixels.

    Raises:
        DataError: it is none, or has too many pixels or scans.
    """
    from PIL import Image

    check_scans(content, _NAME)
    try:
        if content.startswith(b"\xff\xd8"):
            frame(content)  # where there is none, Pillow would look for it byte by byte
        image = Image.open(io.BytesIO(content), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(_TOO_LARGE) from None
    except Exception as error:
        raise DataError(_UNREADABLE) from error
    if image.width * image.height > MOST_PIXELS:
        raise DataError(_TOO_LARGE)
    admit(image.width * image.height)
    return image
