"""Encoded pictures as inputs of a model, as in training: by the recipe's `read_image`, or decoded as photographs."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np

from rudel.data.photographs import MOST_PIXELS, decode
from rudel.data.pictures import sides_of
from rudel.errors import DataError, RudelError
from rudel.serve.signature import OPEN, Signature
from rudel.serve.values import Decode

TYPES = ("image/jpeg", "image/png")
"""What is taken as a body, by its media type."""

_FORMATS = ("JPEG", "PNG")
_NAME = "The picture"


def reader(signature: Signature, read_image: Callable[[Any], Any] | None) -> Decode | None:
    """How encoded pictures become inputs; None for a model that takes no picture.

    Args:
        signature: of the model.
        read_image: of its recipe, if that has one: a Pillow image to an input.
    """
    if len(signature.inputs) != 1:
        return None
    shape = signature.inputs[0].shape
    if signature.inputs[0].dtype == "bytes":
        return lambda content: np.array(content, object)
    if read_image:
        return lambda content: _by_recipe(content, read_image, shape)
    sides = None if OPEN in shape else sides_of(shape)
    return sides and (lambda content: decode(content, *sides, name=_NAME).reshape(shape))


def _by_recipe(content: bytes, read_image: Callable[[Any], Any], shape: tuple[int, ...]) -> np.ndarray:
    from PIL import Image

    try:
        picture = Image.open(io.BytesIO(content), formats=_FORMATS)
        if picture.width * picture.height > MOST_PIXELS:
            raise DataError(f"{_NAME} has more than {MOST_PIXELS:,} pixels: make it smaller.")
        picture.load()
        array = np.asarray(read_image(picture))
    except RudelError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"{_NAME} has more than {MOST_PIXELS:,} pixels: make it smaller.") from None
    except Exception as error:  # a damaged file makes Pillow raise almost anything
        raise DataError(f"{_NAME} is no JPEG or PNG file that can be read.") from error
    if array.size != int(np.prod(shape)):
        raise DataError(f"{_NAME} becomes an input of shape {array.shape}, and the model takes {shape}.")
    return array.reshape(shape)
