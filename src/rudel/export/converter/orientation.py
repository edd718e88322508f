"""What `rudel.data.exif` reads, for JPEG and PNG, as a TensorFlow graph."""

from typing import Any

import tensorflow as tf

_TAG, _SHORT = 0x0112, 3
_APP1, _SCAN, _END = 0xE1, 0xDA, 0xD9
_EXIF = b"Exif\0\0"


class Bytes:
    """The bytes of a file, from which numbers are read as int64 at any place, also behind the end, where zeros are.

    Args:
        content: of the file, a scalar string.
    """

    def __init__(self, content: tf.Tensor) -> None:
        self.size = tf.cast(tf.strings.length(content), tf.int64)
        self._raw = tf.concat([tf.io.decode_raw(content, tf.uint8), tf.zeros(1, tf.uint8)], 0)

    def number(self, place: Any, count: int, little: Any = False) -> tf.Tensor:
        """The number in `count` bytes at a place, or at each of several, with its least byte first or last."""
        steps = tf.range(count, dtype=tf.int64)
        places = tf.expand_dims(tf.cast(tf.convert_to_tensor(place), tf.int64), -1) + steps
        found = tf.cast(tf.gather(self._raw, tf.clip_by_value(places, 0, self.size)), tf.int64)
        shifts = 8 * tf.where(little, steps, steps[::-1])
        return tf.reduce_sum(tf.bitwise.left_shift(found, shifts), axis=-1)

    def says(self, place: Any, text: bytes) -> tf.Tensor:
        """Whether there is this text."""
        return self.number(place, len(text)) == int.from_bytes(text, "big")


def orientation(file: Bytes) -> tf.Tensor:
    """The EXIF orientation of a JPEG or PNG file: int64, 1 to 8, or 0 where there is none."""
    start, end = tf.cond(
        file.number(0, 2) == 0xFFD8, lambda: _find(file, _jpeg_segment, 2), lambda: _find(file, _png_chunk, 8)
    )
    return tf.cond(start >= 0, lambda: _in_block(file, start, end), lambda: tf.constant(0, tf.int64))


def _find(file: Bytes, part: Any, first: int) -> Any:
    """Start and end of the EXIF block in the parts of a file; -1 where there is none."""

    def look(place: Any, start: Any, end: Any) -> Any:
        _, found, begin, stop, after = part(file, place)
        return after, tf.where(found, begin, start), tf.where(found, stop, end)

    nowhere = tf.constant(-1, tf.int64)
    _, start, end = tf.while_loop(
        lambda place, start, end: (start < 0) & part(file, place)[0],
        look,
        (tf.constant(first, tf.int64), nowhere, nowhere),
        parallel_iterations=1,
    )
    return start, end


def _jpeg_segment(file: Bytes, place: Any) -> tuple[Any, ...]:
    """Whether there is a segment, whether it is EXIF, start and end of the block in it, and where the next one is."""
    marker, end = file.number(place + 1, 1), place + 2 + file.number(place + 2, 2)
    there = (place + 4 <= file.size) & (file.number(place, 1) == 0xFF) & (end <= file.size)
    there &= (marker != _SCAN) & (marker != _END)
    return there, (marker == _APP1) & file.says(place + 4, _EXIF), place + 10, end, end


def _png_chunk(file: Bytes, place: Any) -> tuple[Any, ...]:
    end = place + 8 + file.number(place, 4)
    return end + 4 <= file.size, file.says(place + 4, b"eXIf"), place + 8, end, end + 4


def _in_block(file: Bytes, start: Any, end: Any) -> tf.Tensor:
    """The orientation in the first directory of a TIFF block."""
    little = file.says(start, b"II*\0")
    directory = start + file.number(start + 4, 4, little)
    there = (little | file.says(start, b"MM\0*")) & (start + 10 <= end) & (directory + 2 <= end)
    count = tf.where(there, file.number(directory, 2, little), 0)
    entries = tf.range(directory + 2, tf.maximum(directory + 2, tf.minimum(directory + 2 + 12 * count, end - 11)), 12)
    entries = tf.boolean_mask(entries, file.number(entries, 2, little) == _TAG)[:1]
    value = tf.reduce_sum(file.number(entries + 8, 2, little))
    short = tf.reduce_all(file.number(entries + 2, 2, little) == _SHORT)
    return tf.where(short & (value <= 8), value, 0)
