"""One image on its way into a record: examined, decoded, and encoded again only where it has to be.

A complete, upright JPEG or PNG passes with the bytes that it has. Encoded again are: images that an EXIF tag turns,
CMYK, forms that not every reader of records decodes (WebP, GIF, BMP, uncommon JPEGs), and those larger than requested.
What was coded without loss becomes PNG, the rest JPEG with quality 95 and colours as fine as they were, without
metadata.

Everything here is pure, runs in threads, and on other computers, which need Pillow and nothing else.
"""

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rudel.data.exif import orientation
from rudel.data.images.jpeg import Frame, check_scans, frame
from rudel.data.photographs import FORMATS, MOST_PIXELS, eight_bits

if TYPE_CHECKING:
    from PIL import Image

QUALITY = 95
"""Of JPEGs that are made here."""

NOT_AN_IMAGE, UNREADABLE, ANIMATED, TOO_LARGE = "not an image", "unreadable", "animated", "decompression bomb"
TOO_MANY_BYTES = "too large"
"""Why images are left out."""

UPRIGHT, FROM_CMYK, SHRUNK, RECODED = "rotated upright", "CMYK to RGB", "scaled down", "written as JPEG or PNG"
"""Changes made to images."""

_LOSSLESS = ("PNG", "GIF", "BMP", "TIFF")
_BEGINNINGS = re.compile(rb"\xff\xd8|\x89PNG|RIFF....WEBP|GIF8[79]a|BM|II\*\0|MM\0\*|....ftypavi[fs]", re.DOTALL)


@dataclass(frozen=True)
class ExaminedImage:
    """An image as it goes into a record.

    Args:
        height, width: in pixels.
        content: a JPEG or PNG file; None for the very bytes that were looked at.
        changes: what was done to it.
    """

    height: int
    width: int
    content: bytes | None = None
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """A file that does not become a record.

    Args:
        reason: one of a few, to be counted by.
        detail: more of it, or nothing.
    """

    reason: str
    detail: str = ""


class NotAnImage(Exception):  # noqa: N818
    """A file does not begin as an image does; says more of it, or nothing."""


def check_beginning(first: bytes) -> None:
    """Looks at the first bytes of a file, 16 or more where there are so many.

    Raises:
        NotAnImage: they are not those of a JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF file.
    """
    if not _BEGINNINGS.match(first):
        raise NotAnImage("" if first else "an empty file")


def examine(content: bytes, max_side: int | None = None) -> ExaminedImage | Refused:
    """Decodes a file to its end, and encodes it again if it must be.

    Args:
        content: of the file.
        max_side: images with a longer side are made smaller; None for those of any size.

    >>> examine(b"a text")
    Refused(reason='not an image', detail='')
    """
    try:
        if content.startswith(b"\xff\xd8"):
            return _examine_jpeg(content, max_side)
        return _examine_other(content, max_side)
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # a decoder of hostile bytes may raise whatever it likes
        return Refused(UNREADABLE, " ".join(str(error).split()).rstrip(".") or type(error).__name__)


def examine_all(contents: list[bytes], max_side: int | None = None) -> list[ExaminedImage | Refused]:
    """Examines several files; what is sent to other computers."""
    return [examine(content, max_side) for content in contents]


def _examine_jpeg(content: bytes, max_side: int | None) -> ExaminedImage | Refused:
    found = frame(content)
    if found.height * found.width > MOST_PIXELS:
        return _bomb(found.width, found.height)
    turned = orientation(content)
    small = max_side is None or max(found.height, found.width) <= max_side
    if found.common and found.channels in (1, 3) and turned <= 1 and small:
        check_scans(content, found)
        return ExaminedImage(found.height, found.width)
    return _encode_jpeg(content, found, turned, max_side)


def _encode_jpeg(content: bytes, found: Frame, turned: int, max_side: int | None) -> ExaminedImage:
    from PIL import Image

    image = Image.open(io.BytesIO(content), formats=("JPEG",))
    if max_side is not None:
        shrink = max(found.height, found.width) // (2 * max_side)
        factor = next((factor for factor in (8, 4, 2) if factor <= shrink), 1)
        image.draft(None, (found.width // factor, found.height // factor))
    image.load()
    size = _fitting(found.width, found.height, max_side)
    changes = [FROM_CMYK] if image.mode == "CMYK" else []
    changes += [UPRIGHT] if turned > 1 else []
    changes += [SHRUNK] if size != (found.width, found.height) else []
    return _encode(image, size, turned, "JPEG", tuple(changes) or (RECODED,))


def _examine_other(content: bytes, max_side: int | None) -> ExaminedImage | Refused:
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
    except Image.UnidentifiedImageError:
        return Refused(UNREADABLE, "cut short or damaged") if content.startswith(b"\x89PNG") else Refused(NOT_AN_IMAGE)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        return Refused(TOO_LARGE, str(error).partition(",")[0])
    if image.width * image.height > MOST_PIXELS:
        return _bomb(*image.size)
    if (frames := getattr(image, "n_frames", 1)) > 1:
        return Refused(ANIMATED, f"{frames} pictures in one {image.format} file")
    image.load()
    turned = orientation(content)
    size = _fitting(image.width, image.height, max_side)
    changes = [UPRIGHT] if turned > 1 else []
    changes += [SHRUNK] if size != image.size else []
    if image.format == "PNG" and not changes:
        return ExaminedImage(image.height, image.width)
    changes += [] if image.format == "PNG" else [RECODED]
    changes += [FROM_CMYK] if image.mode == "CMYK" else []
    lossless = image.format in _LOSSLESS or b"VP8L" in content[:64] or image.has_transparency_data
    return _encode(image, size, turned, "PNG" if lossless else "JPEG", tuple(changes))


def _encode(
    image: "Image.Image", size: tuple[int, int], turned: int, form: str, changes: tuple[str, ...]
) -> ExaminedImage:
    from PIL import Image

    sampling = _colour_sampling(image)
    image = _plain(image)
    if image.size != size:
        image = image.resize(size, Image.Resampling.LANCZOS)
    if turned > 1:
        image = image.transpose(Image.Transpose(_TURNS[turned]))
    file = io.BytesIO()
    if form == "JPEG":
        image.save(file, "JPEG", quality=QUALITY, subsampling=sampling)
    else:
        image.save(file, "PNG")
    return ExaminedImage(image.height, image.width, file.getvalue(), changes)


def _colour_sampling(image: "Image.Image") -> str:
    """The chroma subsampling: kept where it was halved in both directions, else none."""
    from PIL import JpegImagePlugin

    halved = image.format in ("JPEG", "MPO") and JpegImagePlugin.get_sampling(image) == 2
    return "4:2:0" if halved else "4:4:4"


def _plain(image: "Image.Image") -> "Image.Image":
    """The image in grey or RGB, of 8 bits, with transparency where it has some."""
    image = eight_bits(image)
    mode = "RGBA" if image.has_transparency_data else "L" if image.mode in ("1", "L") else "RGB"
    plain = image if image.mode == mode else image.convert(mode)
    plain.info.clear()
    return plain


_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
"""By EXIF orientation, Pillow's `Transpose` that puts an image upright."""


def _fitting(width: int, height: int, max_side: int | None) -> tuple[int, int]:
    longest = max(width, height)
    if max_side is None or longest <= max_side:
        return width, height
    return max(1, round(width * max_side / longest)), max(1, round(height * max_side / longest))


def _bomb(width: int, height: int) -> Refused:
    return Refused(TOO_LARGE, f"{width:,} x {height:,} pixels, more than {MOST_PIXELS:,}")
