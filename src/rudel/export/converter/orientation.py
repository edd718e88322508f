"""The reading of the EXIF orientation in `rudel.data.exif`, for JPEG and PNG, as a TensorFlow graph."""

from typing import Any

import tensorflow as tf

from rudel.aliases import Tensor

_TAG, _SHORT, _LONG = 0x0112, 3, 4
_APP1, _SCAN, _END = 0xE1, 0xDA, 0xD9
_ALONE = (0xD0, 0xD8)
"""The first and the last of the markers without a segment, beside 0x01."""

_EXIF = b"Exif\0\0"


class Bytes:
    """The bytes of a file, from which numbers are read as int64 at any place, also behind the end, where zeros are.

    Args:
        content: of the file, a scalar string.
    """

    def __init__(self, content: tf.Tensor) -> None:
        self._content = content
        self.size = tf.cast(tf.strings.length(content), tf.int64)
        self._raw = tf.concat([tf.io.decode_raw(content, tf.uint8), tf.zeros(1, tf.uint8)], 0)

    def number(self, place: Tensor, count: int, little: Tensor = False) -> tf.Tensor:
        """The number in `count` bytes at a place, or at each of several, with its least byte first or last."""
        steps = tf.range(count, dtype=tf.int64)
        places = tf.expand_dims(tf.cast(tf.convert_to_tensor(place), tf.int64), -1) + steps
        found = tf.cast(tf.gather(self._raw, tf.clip_by_value(places, 0, self.size)), tf.int64)
        shifts = 8 * tf.where(little, steps, steps[::-1])
        return tf.reduce_sum(tf.bitwise.left_shift(found, shifts), axis=-1)

    def says(self, place: Tensor, text: bytes) -> tf.Tensor:
        """Whether there is this text."""
        return self.number(place, len(text)) == int.from_bytes(text, "big")

    def text(self, start: Tensor, end: Tensor) -> tf.Tensor:
        """The bytes between two places that are not behind the end, a scalar string."""
        start = tf.cast(start, tf.int64)
        return tf.strings.substr(self._content, start, tf.cast(end, tf.int64) - start)

    def markers(self) -> tf.Tensor:
        """Places of all JPEG markers that may have a segment, in their order."""
        kind = self._raw[1:]
        alone = (kind <= 1) | (kind == 0xFF) | ((kind >= _ALONE[0]) & (kind <= _ALONE[1]))
        return tf.where((self._raw[:-1] == 0xFF) & tf.logical_not(alone))[:, 0]


def orientation(file: Bytes) -> tf.Tensor:
    """The EXIF orientation of a JPEG or PNG file: int64, 1 to 8, or 0 where there is none."""
    block = tf.cond(file.number(0, 2) == 0xFFD8, lambda: _in_jpeg(file), lambda: _in_png(file))
    whole = Bytes(block)
    return _in_block(Bytes(whole.text(tf.where(whole.says(0, _EXIF), len(_EXIF), 0), whole.size)))


def _in_jpeg(file: Bytes) -> tf.Tensor:
    """Contents of the EXIF segments of a JPEG, one after the other."""
    markers = tf.concat([file.markers(), [file.size]], 0)

    def segment(place: Tensor) -> tuple[Any, ...]:
        """Whether there is one at or after a place, and marker, start and end of it."""
        mark = markers[tf.searchsorted(markers, [place])[0]]
        start = mark + 4
        end = tf.maximum(start, mark + 2 + file.number(mark + 2, 2))
        marker = file.number(mark + 1, 1)
        return (end <= file.size) & (marker != _SCAN) & (marker != _END), marker, start, end

    def look(place: Tensor, block: Tensor) -> Any:
        _, marker, start, end = segment(place)
        start += len(_EXIF)
        found = (marker == _APP1) & (start <= end) & file.says(start - len(_EXIF), _EXIF)
        return end, block + file.text(tf.where(found, start, end), end)

    first = tf.constant(2, tf.int64)
    _, block = tf.while_loop(lambda place, _: segment(place)[0], look, (first, tf.constant(b"")), parallel_iterations=1)
    return block


def _in_png(file: Bytes) -> tf.Tensor:
    """The content of the first EXIF chunk of a PNG."""

    def chunk_end(place: Tensor) -> Any:
        return place + 8 + file.number(place, 4)

    def look(place: Tensor, start: Tensor, end: Tensor) -> Any:
        found, after = file.says(place + 4, b"eXIf"), chunk_end(place)
        return after + 4, tf.where(found, place + 8, start), tf.where(found, after, end)

    nowhere = tf.constant(-1, tf.int64)
    _, start, end = tf.while_loop(
        lambda place, start, end: (start < 0) & (chunk_end(place) + 4 <= file.size),
        look,
        (tf.constant(8, tf.int64), nowhere, nowhere),
        parallel_iterations=1,
    )
    return tf.cond(start < 0, lambda: tf.constant(b""), lambda: file.text(start, end))


def _in_block(block: Bytes) -> tf.Tensor:
    """The orientation in the first directory of a TIFF block."""
    little, magic = block.says(0, b"II"), block.number(2, 2)
    directory = block.number(4, 4, little)
    there = (little | block.says(0, b"MM")) & ((magic == 0x2A00) | (magic == 0x002A))
    there &= (block.size >= 10) & (directory + 2 <= block.size)
    count = tf.where(there, block.number(directory, 2, little), 0)
    first = directory + 2
    entries = tf.range(first, tf.maximum(first, tf.minimum(first + 12 * count, block.size - 11)), 12)
    kind, numbers = block.number(entries + 2, 2, little), block.number(entries + 4, 4, little)
    most = tf.cast(kind == _LONG, tf.int64) + 2 * tf.cast(kind == _SHORT, tf.int64)
    good = (block.number(entries, 2, little) == _TAG) & (numbers >= 1) & (numbers <= most)
    entries, kind = tf.boolean_mask(entries, good)[:1], tf.boolean_mask(kind, good)[:1]
    values = tf.where(kind == _LONG, block.number(entries + 8, 4, little), block.number(entries + 8, 2, little))
    value = tf.reduce_sum(values)
    return tf.where(value <= 8, value, 0)
