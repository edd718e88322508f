"""The header of a JPEG file before its first scan, and a check that its scans are whole.

Sources: ITU-T T.81 (annex B, markers), Adobe Technical Note 5116 (four channels).
"""

import itertools
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_BASELINE, _PROGRESSIVE = 0xC0, 0xC2
_NOT_FRAMES = {0xC4, 0xC8, 0xCC}
_SCAN, _END = 0xDA, 0xD9
_HEADER = struct.Struct(">BHHB")
_EIGHTH = 8

MOST_SCANS = 64
"""Encoders write about 10. A scan of a few bytes can change every pixel, so that thousands take hours to decode."""

_MOST_SEGMENTS = 4096
"""That are looked at: a file of 16 MB could hold millions, which take seconds to walk through."""

_ALONE = frozenset((0x00, 0x01, *range(0xD0, 0xD9), 0xFF))
"""Bytes after FF that begin no segment: escaped ones, markers that stand alone, and fill bytes."""

_SCAN_MARKER = bytes((0xFF, _SCAN))
_MARKER = re.compile(b"\xff[^" + re.escape(bytes(sorted(_ALONE))) + b"]")


@dataclass(frozen=True)
class Frame:
    """The header of the image in a JPEG file.

    Args:
        height, width: in pixels, as stored.
        channels: 1 for grey, 3 for colour, 4 for CMYK.
        common: whether every decoder reads it: 8 bits, Huffman codes, baseline or progressive.
    """

    height: int
    width: int
    channels: int
    common: bool


def segments(jpeg: bytes) -> Iterator[tuple[int, int, int]]:
    """Finds the segments before the first scan, as libjpeg and Pillow do: what is between them does not matter.

    Args:
        jpeg: a file that begins with the bytes FF D8.

    Returns:
        The last byte of each marker, and start and end of what the segment holds; of the first 4,096 segments.

    >>> list(segments(bytes.fromhex("ffd8 ffff fffe 0005 616263 00 ffda")))
    [(254, 8, 11)]
    """
    walked = itertools.islice(_walk(jpeg), _MOST_SEGMENTS)
    return itertools.takewhile(lambda segment: segment[0] not in (_SCAN, _END), walked)


def has_many_scans(jpeg: bytes) -> bool:
    """Whether a file has more than `MOST_SCANS` scans, by what looks like one from the first to the end of the image.

    What cameras write before the first scan and append to the image does not count.
    """
    if jpeg.count(_SCAN_MARKER) <= MOST_SCANS:
        return False
    first, end = 0, len(jpeg)
    for marker, start, _ in itertools.islice(_walk(jpeg), _MOST_SEGMENTS):
        if marker == _SCAN and not first:
            first = start
        elif marker == _END:
            end = start
    return jpeg.count(_SCAN_MARKER, first, end) >= MOST_SCANS


def _walk(jpeg: bytes) -> Iterator[tuple[int, int, int]]:
    """All segments, as `segments` does, with those of scans and the end of the image."""
    place, size = 2, len(jpeg)
    while place + 4 <= size:
        marker = jpeg[place + 1]
        if jpeg[place] != 0xFF or marker in _ALONE:  # else it is where it should be, and need not be looked for
            found = _MARKER.search(jpeg, place)
            if not found or found.start() + 4 > size:
                return
            place = found.start()
            marker = jpeg[place + 1]
        start, length = place + 4, jpeg[place + 2] << 8 | jpeg[place + 3]
        if marker == _END:
            yield marker, start, start
            return
        end = place + 2 + length if length > 2 else start
        if end > size:
            return
        yield marker, start, end
        place = end


def frame(content: bytes) -> Frame:
    """Reads the header of the frame.

    Raises:
        ValueError: there is none.
    """
    for marker, start, end in segments(content):
        if _BASELINE <= marker <= 0xCF and marker not in _NOT_FRAMES and end >= start + _HEADER.size:
            bits, height, width, channels = _HEADER.unpack_from(content, start)
            return Frame(height, width, channels, common=bits == 8 and marker <= _PROGRESSIVE)
    raise ValueError("it ends before its frame begins")


def check_scans(content: bytes, frame: Frame) -> None:
    """Reads all scans, to their last bit.

    Every code is decoded; only the last, purely arithmetic steps, from coefficients to pixels, are made for grey at an
    eighth of the size, as they cannot fail. So this finds what decoding in full finds, in a third of the time
    (`benchmarks/images.py`). Releases the GIL.

    Raises:
        ValueError: the file is cut short or damaged.
    """
    from rudel.internals.pillow import decode_jpeg

    decode_jpeg(content, "L", frame.width, frame.height, _EIGHTH)
