"""What a JPEG file says of itself before its first scan, and whether its scans are whole.

Sources: ITU-T T.81 (annex B, markers), Adobe Technical Note 5116 (four channels).
"""

import struct
from dataclasses import dataclass

_BASELINE, _PROGRESSIVE = 0xC0, 0xC2
_NOT_FRAMES = {0xC4, 0xC8, 0xCC}
_SCAN, _END = 0xDA, 0xD9
_EIGHTH = 8


@dataclass(frozen=True)
class Frame:
    """The header of the picture in a JPEG file.

    Args:
        height, width: in pixels, as stored.
        channels: 1 for grey, 3 for colour, 4 for CMYK.
        common: whether every decoder reads it: 8 bits, Huffman codes, baseline or progressive.
    """

    height: int
    width: int
    channels: int
    common: bool


def frame(content: bytes) -> Frame:
    """Reads the header of the frame.

    Raises:
        ValueError: there is none.
    """
    place, length = 2, len(content)
    while place + 10 <= length:
        if content[place] != 0xFF:
            raise ValueError("a marker is missing")
        marker = content[place + 1]
        if marker == 0xFF:  # a byte to fill with
            place += 1
            continue
        if _BASELINE <= marker <= 0xCF and marker not in _NOT_FRAMES:
            bits, height, width, channels = struct.unpack_from(">BHHB", content, place + 4)
            common = bits == 8 and marker <= _PROGRESSIVE
            return Frame(height, width, channels, common)
        if marker in (_SCAN, _END):
            break
        place += 2 + (content[place + 2] << 8 | content[place + 3])
    raise ValueError("it ends before its frame begins")


def check_scans(content: bytes, frame: Frame) -> None:
    """Reads all scans, to their last bit.

    Every code is decoded; only the last, purely arithmetic steps, from coefficients to pixels, are made for grey at an
    eighth of the size, as they cannot fail. So this finds what decoding in full finds, in a third of the time
    (`benchmarks/images.py`). Releases the GIL.

    Raises:
        ValueError: the file is cut short or damaged.
    """
    from PIL import Image

    size = -(-frame.width // _EIGHTH), -(-frame.height // _EIGHTH)
    Image.frombytes("L", size, content, "jpeg", ("L", "", _EIGHTH, 0))
