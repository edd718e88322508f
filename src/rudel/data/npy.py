"""The header of a drawings file: an `.npy` array of uint8, (N, 784), row after row.

Only the header is ever interpreted, from the bytes that are there: nothing is unpickled, and a file of which only the
beginning is at hand will do.
"""

import io
import tokenize
from dataclasses import dataclass

import numpy as np
from numpy.lib import format as numpy_format

PIXELS = 28 * 28
"""Bytes of one drawing."""

LONGEST_HEADER = 4096
"""Bytes; the header of a drawings file takes 80 or 128."""

_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}
_READERS = {(1, 0): numpy_format.read_array_header_1_0, (2, 0): numpy_format.read_array_header_2_0}


@dataclass(frozen=True)
class Header:
    """The header of a drawings file.

    Args:
        rows: drawings in the whole file.
        offset: bytes before the first drawing.
    """

    rows: int
    offset: int

    def end(self, rows: int) -> int:
        """Bytes up to the end of this many drawings, or of all where there are fewer."""
        return self.offset + min(rows, self.rows) * PIXELS


def header_bytes(head: bytes) -> int | None:
    """The length of the header, read from the first bytes of a file; None while they are too few.

    Raises:
        ValueError: this is no `.npy` file of a known kind; the message goes on from the file's name.
    """
    magic = numpy_format.MAGIC_PREFIX
    if head[: len(magic)] != magic[: len(head)]:
        raise ValueError(f"is not an .npy file, it begins with {head[:24]!r}")
    if len(head) < numpy_format.MAGIC_LEN:
        return None
    version = (head[6], head[7])
    if version not in _LENGTH_BYTES:
        raise ValueError(f"has version {version[0]}.{version[1]} of the .npy format instead of 1.0 or 2.0")
    before = numpy_format.MAGIC_LEN + _LENGTH_BYTES[version]
    if len(head) < before:
        return None
    length = before + int.from_bytes(head[numpy_format.MAGIC_LEN : before], "little")
    if length > LONGEST_HEADER:
        raise ValueError(f"has a header of {length:,} bytes, which no file of drawings has")
    return length


def parse_header(head: bytes) -> Header | None:
    """Reads the header at the beginning of `head`; None while `head` is too short.

    Raises:
        ValueError: the file holds no drawings: it is no `.npy` file, or not uint8 of the shape (N, 784) in C order with
            N above 0. The message goes on from the file's name.

    >>> file = io.BytesIO()
    >>> np.save(file, np.zeros((3, 784), np.uint8))
    >>> parse_header(file.getvalue())
    Header(rows=3, offset=128)
    """
    length = header_bytes(head)
    if length is None or len(head) < length:
        return None
    file = io.BytesIO(head[:length])
    try:
        shape, fortran_order, dtype = _READERS[numpy_format.read_magic(file)](file, max_header_size=LONGEST_HEADER)
    except (ValueError, TypeError, SyntaxError, tokenize.TokenError) as error:
        raise ValueError("has a damaged .npy header") from error
    if dtype != np.uint8:
        raise ValueError(f"holds {dtype} instead of uint8")
    if fortran_order or len(shape) != 2 or shape[1] != PIXELS:
        order = ", column after column," if fortran_order else ""
        raise ValueError(f"has the shape {shape}{order} instead of (N, {PIXELS}) row after row")
    if not shape[0] > 0:
        raise ValueError("holds no drawing at all")
    return Header(rows=shape[0], offset=length)
