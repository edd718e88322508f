"""The orientation of a photograph, read from the bytes of its file.

Only what is needed is read, and nothing is believed: a damaged block says nothing. It is a small part of what an EXIF
reader does, many times as fast, and can be done in a TensorFlow graph in the same way.

Sources: JPEG (ITU-T T.81, annex B), Exif 2.32 (4.6.2 to 4.6.4), PNG (eXIf), WebP (RIFF container).
"""

import io
import struct
from collections.abc import Iterator

from rudel.data.images.jpeg import segments

_TAG = 0x0112
_TYPES = {3: ("H", 2), 4: ("I", 1)}
"""SHORT, as it should be, and LONG, as some write it: how one number is stored, and how many fit an entry."""

_APP1 = 0xE1
_EXIF = b"Exif\0\0"


def orientation(content: bytes) -> int:
    """The EXIF orientation of a JPEG, PNG, WebP or AVIF file; Pillow turns TIFF files itself.

    Returns:
        1 to 8; 0 where the file says nothing that makes sense.
    """
    if content[4:12] in (b"ftypavif", b"ftypavis"):
        return _of_avif(content)
    return _in_block(_block(content).removeprefix(_EXIF))


def _block(content: bytes) -> bytes:
    """The TIFF block with what EXIF says, which may begin with its name; empty where there is none."""
    if content.startswith(b"\xff\xd8"):  # where it does not fit a segment, it goes on in the next one
        found = ((s, e) for marker, s, e in segments(content) if marker == _APP1)
        return b"".join(content[s + len(_EXIF) : e] for s, e in found if content.startswith(_EXIF, s, e))
    if content.startswith(b"\x89PNG"):
        return next((content[s:e] for kind, s, e in _png_chunks(content) if kind == b"eXIf"), b"")
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return next((content[s:e] for kind, s, e in _webp_chunks(content) if kind == b"EXIF"), b"")
    return b""


def _of_avif(content: bytes) -> int:
    """Where the file turns it by boxes of its own, Pillow says the same as an orientation."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            return int(image.getexif().get(_TAG, 0))
    except Exception:  # a decoder of hostile bytes may raise whatever it likes
        return 0


def _png_chunks(png: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Kind, start and end of the content of every chunk."""
    place = 8
    while place + 12 <= len(png):
        size = int.from_bytes(png[place : place + 4], "big")
        if place + 12 + size > len(png):
            return
        yield png[place + 4 : place + 8], place + 8, place + 8 + size
        place += 12 + size


def _webp_chunks(webp: bytes) -> Iterator[tuple[bytes, int, int]]:
    place = 12
    while place + 8 <= len(webp):
        size = int.from_bytes(webp[place + 4 : place + 8], "little")
        if place + 8 + size > len(webp):
            return
        yield webp[place : place + 4], place + 8, place + 8 + size
        place += 8 + size + size % 2


def _in_block(block: bytes) -> int:
    """The orientation in the first directory of a TIFF block."""
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None or block[2:4] not in (b"*\0", b"\0*") or len(block) < 10:
        return 0
    (directory,) = struct.unpack_from(f"{order}I", block, 4)
    if directory + 2 > len(block):
        return 0
    (entries,) = struct.unpack_from(f"{order}H", block, directory)
    for entry in range(directory + 2, min(directory + 2 + 12 * entries, len(block) - 11), 12):
        tag, kind, count = struct.unpack_from(f"{order}HHI", block, entry)
        form, most = _TYPES.get(kind, ("", 0))
        if tag == _TAG and 1 <= count <= most:
            (value,) = struct.unpack_from(f"{order}{form}", block, entry + 8)
            return value if 1 <= value <= 8 else 0
    return 0
