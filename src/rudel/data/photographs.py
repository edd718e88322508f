"""The one way in which the bytes of a photograph become an input of a model: in training, prediction and serving.

What happens to an image, in this order:

1. It is decoded; of several frames the first. A JPEG that is much larger than it has to be is decoded at 1/2, 1/4 or
   1/8 of its size, as long as what is left is at least twice as large as requested (`shrinking`).
2. It becomes RGB, or grey by ITU-R 601; what is transparent is laid on white, and of 16 bits the upper 8 are kept
   (`opaque`).
3. The largest part in its middle that has the requested proportions is taken (`middle`): shapes stay as they are, and
   what is cut off lies at the edges.
4. That is scaled by a triangle filter that reaches as far as the pixels of the result are apart, on both sides: across,
   then down, with coefficients of 22 bits and results of 8, as Pillow does it.
5. It is turned and mirrored as its EXIF orientation says.

Every step can be computed in a TensorFlow graph to the same bit (`rudel.export.converter.photographs` does), except for
the conversion of CMYK, which differs by a grey level.

Decoding and scaling release the GIL: threads decode at the same time.
"""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rudel.data.exif import orientation
from rudel.data.images.jpeg import MOST_SCANS, Frame, frame, has_many_scans
from rudel.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF")
"""File formats that are read, by Pillow's names."""

MOST_PIXELS = 89_478_485
"""Larger images are refused, as a small file can hold one that fills all memory; Pillow's own limit for a warning."""

RIGHT_TO_LEFT, UPSIDE_DOWN = (2, 3, 7, 8), (3, 4, 6, 7)
"""EXIF orientations of images whose stored columns, or rows, are in the order opposite to that of the upright image."""

_JPEG = b"\xff\xd8"


def decode(
    content: bytes,
    height: int,
    width: int,
    channels: int = 3,
    name: str = "The picture",
    admit: Callable[[int], None] = lambda pixels: None,
) -> np.ndarray:
    """Turns an encoded photograph into pixels.

    Args:
        content: a JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF file.
        height: of the result, in pixels.
        width: of the result, in pixels.
        channels: 3 for RGB, 1 for grey.
        name: what to call it in an error.
        admit: called with the number of its pixels before they are decoded; may raise a `DataError`.

    Returns:
        uint8 (height, width, channels).

    Raises:
        DataError: it is not an image, is cut short or damaged, or has more than `MOST_PIXELS` pixels.

    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (40, 30), "teal").save(file, "PNG")
    >>> decode(file.getvalue(), 2, 2)[0, 0].tolist()
    [0, 128, 128]
    """
    from PIL import Image

    if channels not in (1, 3) or min(height, width) < 1:
        raise DataError(f"An image cannot become an input of shape ({height}, {width}, {channels}).")
    turned = orientation(content)
    across, down = (height, width) if turned > 4 else (width, height)
    check_scans(content, name)
    try:
        image = _opened(content, across, down, admit)
        flat = opaque(image, "RGB" if channels == 3 else "L")
        left, top, right, bottom = middle(flat.width, flat.height, across, down, turned)
        # one direction at a time, since which of them Pillow takes first depends on its version and on the image
        narrow = flat.resize((across, flat.height), Image.Resampling.BILINEAR, box=(left, 0, right, flat.height))
        scaled = narrow.resize((across, down), Image.Resampling.BILINEAR, box=(0, top, across, bottom))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"{name} has more than {MOST_PIXELS:,} pixels: make it smaller, or leave it out.") from None
    except Image.UnidentifiedImageError:
        raise DataError(
            f"{name} is not an image that can be read: give JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF."
        ) from None
    except (DataError, ImportError, MemoryError):
        raise
    except Exception as error:  # a decoder of hostile bytes may raise whatever it likes
        raise DataError(f"{name} is damaged or truncated ({str(error).rstrip('.')}).") from error
    pixels = np.asarray(scaled).reshape(down, across, channels)
    return oriented(pixels, turned) if turned > 1 else pixels


def check_scans(content: bytes, name: str) -> None:
    """Refuses JPEGs that are small and take very long to decode.

    Raises:
        DataError: it has too many scans.
    """
    if content.startswith(_JPEG) and has_many_scans(content):
        raise DataError(f"{name} is a JPEG of more than {MOST_SCANS} scans: save it again with fewer.")


def shrinking(width: int, height: int, across: int, down: int) -> int:
    """By how much a JPEG is made smaller while it is decoded: 1, 2, 4 or 8.

    Args:
        width, height: of the whole image.
        across, down: what its middle is scaled to.

    >>> shrinking(3024, 3024, 64, 64), shrinking(1024, 200, 64, 64), shrinking(100, 100, 64, 64)
    (8, 1, 1)
    """
    left, top, right, bottom = middle(width, height, across, down)
    spare = min((right - left) // (2 * across), (bottom - top) // (2 * down))
    return next((shrink for shrink in (8, 4, 2) if shrink <= spare), 1)


def middle(width: int, height: int, across: int, down: int, turned: int = 1) -> tuple[int, int, int, int]:
    """The largest part in the middle of an image with the proportions `across` to `down`: left, top, right, bottom.

    Where the margin is odd, what is left of the part or above it is smaller, in the image that is upright.

    Args:
        width, height: of the image as it is stored.
        across, down: proportions of the part as it is stored.
        turned: EXIF orientation of the image.

    >>> middle(100, 100, 64, 64), middle(160, 120, 64, 64), middle(120, 161, 64, 64)
    ((0, 0, 100, 100), (20, 0, 140, 120), (0, 20, 120, 140))
    """
    part_across = min(width, max(1, (2 * height * across + down) // (2 * down)))
    part_down = min(height, max(1, (2 * width * down + across) // (2 * across)))
    left = (width - part_across + (turned in RIGHT_TO_LEFT)) // 2
    top = (height - part_down + (turned in UPSIDE_DOWN)) // 2
    return left, top, left + part_across, top + part_down


def oriented(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Turns and mirrors pixels (height, width, channels) as the EXIF orientation, 1 to 8, says."""
    if orientation > 4:
        pixels = pixels.swapaxes(0, 1)
    # for the orientations 1 to 8: whether the result is upside down, and whether left and right are exchanged
    upside_down, exchanged = orientation in (3, 4, 7, 8), orientation in (2, 3, 6, 7)
    return np.ascontiguousarray(pixels[:: -1 if upside_down else 1, :: -1 if exchanged else 1])


def _opened(content: bytes, across: int, down: int, admit: Callable[[int], None]) -> Any:
    """A Pillow image with its pixels; JPEGs no larger than they have to be."""
    from PIL import Image

    from rudel.internals.pillow import decode_jpeg

    is_jpeg = content.startswith(_JPEG)
    if is_jpeg and (found := _usual_frame(content)):
        _check_size(found.width, found.height)
        admit(found.width * found.height)
        shrink = shrinking(found.width, found.height, across, down)
        return decode_jpeg(content, "L" if found.channels == 1 else "RGB", found.width, found.height, shrink)
    image = Image.open(io.BytesIO(content), formats=FORMATS)
    _check_size(image.width, image.height)
    admit(image.width * image.height)
    shrink = shrinking(image.width, image.height, across, down) if is_jpeg else 1
    if shrink > 1:
        image.draft(None, (image.width // shrink, image.height // shrink))
    image.load()
    return image


def _usual_frame(jpeg: bytes) -> Frame | None:
    """The header of a JPEG that can go to the decoder as it is, without Pillow's reading all that cameras write."""
    found = frame(jpeg)
    return found if found.common and found.channels in (1, 3) and min(found.height, found.width) else None


def _check_size(width: int, height: int) -> None:
    from PIL import Image

    if width * height > MOST_PIXELS:
        raise Image.DecompressionBombError


def opaque(image: "Image.Image", mode: Literal["RGB", "L"]) -> "Image.Image":
    """The image in RGB or grey (`L`), on white where it is transparent."""
    from PIL import Image

    if image.mode == mode and "transparency" not in image.info:
        return image
    image = eight_bits(image)
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.new("RGB", layer.size, "white")
        image.paste(layer, mask=layer.getchannel("A"))
    if mode == "L" and image.mode not in ("L", "1", "RGB"):
        image = image.convert("RGB")
    return image.convert(mode)


def eight_bits(image: "Image.Image") -> "Image.Image":
    """The image itself, or of grey levels with 16 bits the upper 8; those of 32 bits may use 8 or 16."""
    if not image.mode.startswith("I"):
        return image
    from PIL import Image

    grey = np.asarray(image)
    wide = grey.dtype.itemsize == 2 or grey.max(initial=0) > 255
    return Image.fromarray((grey >> 8 if wide else grey).clip(0, 255).astype(np.uint8))
