"""The decoding of photographs in `rudel.data.photographs` as a TensorFlow graph, to the same bit.

JPEG and PNG are read, which is what TensorFlow decodes with the same libraries as Pillow. Scaling is two products with
matrices that are computed from the size of the image: Pillow's coefficients, whole numbers of 22 bits, in float64, in
which their sums are exact.

An image that cannot be read makes the whole call fail with TensorFlow's INVALID_ARGUMENT.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rudel.data.photographs import MOST_PIXELS, RIGHT_TO_LEFT, UPSIDE_DOWN
from rudel.export.converter.orientation import Bytes, orientation

_BITS = 22
_ROWS = 256
"""So many rows of an image are scaled at a time: in float64 they take eight times the memory."""

_LUMA = (19595, 38470, 7471)
_SHRINKS = (1, 2, 4, 8)


def decode_all(contents: tf.Tensor, height: int, width: int, channels: int) -> tf.Tensor:
    """Decodes files.

    Args:
        contents: string (N,), each a JPEG or PNG file.
        height, width, channels: of the results.

    Returns:
        uint8 (N, height, width, channels).
    """
    spec = tf.TensorSpec((height, width, channels), tf.uint8)
    return tf.map_fn(lambda one: _decode(one, height, width, channels), contents, fn_output_signature=spec)


def _decode(content: tf.Tensor, height: int, width: int, channels: int) -> tf.Tensor:
    file = Bytes(content)
    is_jpeg, is_png = file.says(0, b"\xff\xd8"), file.says(0, b"\x89PNG")
    with tf.control_dependencies([tf.debugging.Assert(is_jpeg | is_png, ["A picture is not a JPEG or PNG file."])]):
        turned = orientation(file)
    across, down = tf.where(turned > 4, height, width), tf.where(turned > 4, width, height)
    pixels = tf.cond(is_jpeg, lambda: _jpeg(content, across, down), lambda: _png(content, file))
    scaled = _scaled(pixels if channels == 3 else _grey(pixels), across, down, turned)
    return tf.ensure_shape(_oriented(scaled, turned), (height, width, channels))


def _jpeg(content: tf.Tensor, across: tf.Tensor, down: tf.Tensor) -> tf.Tensor:
    """A JPEG in RGB, no larger than it has to be."""
    shape = tf.io.extract_jpeg_shape(content)
    with tf.control_dependencies([_check_size(shape[1], shape[0])]):
        left, top, right, bottom = _middle(shape[1], shape[0], across, down)
    spare = tf.minimum((right - left) // (2 * across), (bottom - top) // (2 * down))
    which = tf.reduce_sum(tf.cast(spare >= tf.constant(_SHRINKS[1:]), tf.int32))

    def at(shrink: int) -> Callable[[], tf.Tensor]:
        return lambda: tf.io.decode_jpeg(
            content, channels=3, ratio=shrink, fancy_upscaling=True, dct_method="INTEGER_ACCURATE"
        )

    return tf.switch_case(which, [at(shrink) for shrink in _SHRINKS])


def _png(content: tf.Tensor, file: Bytes) -> tf.Tensor:
    """A PNG in RGB, laid on white."""
    with tf.control_dependencies([_check_size(file.number(16, 4), file.number(20, 4))]):
        layer = tf.cast(tf.io.decode_png(content, channels=4), tf.int32)
    colours, alpha = layer[..., :3], layer[..., 3:]
    depth, kind = file.number(24, 1), file.number(25, 1)
    is_grey, has_palette = kind == 0, kind == 3
    # TensorFlow's "opaque" is the largest number of so many bits, also where it makes 8 of fewer
    opaque = tf.cast(tf.bitwise.left_shift(tf.constant(1, tf.int64), depth) - 1, tf.int32)
    is_filled = (depth < 8) & (is_grey | (has_palette & tf.reduce_all(alpha == opaque)))
    # as in training, where the transparent one of 4 or 16 levels is looked for among 256, and one of 65,536 is not
    is_missed = is_grey & (((depth == 2) | (depth == 4)) & (colours[..., :1] > 0) | (depth == 16))
    alpha = tf.where((is_filled & (alpha == opaque)) | is_missed, 255, alpha)
    blended = 255 * (255 - alpha) + colours * alpha + 128
    return tf.cast((blended // 256 + blended) // 256, tf.uint8)


def _check_size(width: tf.Tensor, height: tf.Tensor) -> tf.Operation:
    pixels = tf.cast(width, tf.int64) * tf.cast(height, tf.int64)
    return tf.debugging.Assert(pixels <= MOST_PIXELS, [f"A picture has more than {MOST_PIXELS:,} pixels."])


def _grey(pixels: tf.Tensor) -> tf.Tensor:
    weighted = tf.reduce_sum(tf.cast(pixels, tf.int32) * tf.constant(_LUMA), axis=-1, keepdims=True)
    return tf.cast((weighted + (1 << 15)) // (1 << 16), tf.uint8)


def _middle(
    width: tf.Tensor, height: tf.Tensor, across: tf.Tensor, down: tf.Tensor, turned: tf.Tensor | int = 1
) -> tuple[Any, Any, Any, Any]:
    """See `rudel.data.photographs.middle`."""
    part_across = tf.minimum(width, tf.maximum(1, (2 * height * across + down) // (2 * down)))
    part_down = tf.minimum(height, tf.maximum(1, (2 * width * down + across) // (2 * across)))
    left = (width - part_across + tf.cast(_is_one_of(turned, RIGHT_TO_LEFT), tf.int32)) // 2
    top = (height - part_down + tf.cast(_is_one_of(turned, UPSIDE_DOWN), tf.int32)) // 2
    return left, top, left + part_across, top + part_down


def _scaled(pixels: tf.Tensor, across: tf.Tensor, down: tf.Tensor, turned: tf.Tensor) -> tf.Tensor:
    """The middle of pixels (height, width, channels), scaled to (down, across, channels)."""
    shape = tf.shape(pixels)
    left, top, right, bottom = _middle(shape[1], shape[0], across, down, turned)
    columns = _coefficients(shape[1], left, right, across)
    rows = _coefficients(shape[0], top, bottom, down)
    blocks = -(-shape[0] // _ROWS)
    missing = tf.zeros((blocks * _ROWS - shape[0], shape[1], pixels.shape[2]), tf.uint8)
    padded = tf.reshape(tf.concat([pixels, missing], 0), (blocks, _ROWS, shape[1], pixels.shape[2]))
    spec = tf.TensorSpec((_ROWS, None, pixels.shape[2]), tf.uint8)
    narrow = tf.map_fn(lambda block: _product("xw,hwc->hxc", columns, block), padded, fn_output_signature=spec)
    narrow = tf.reshape(narrow, (blocks * _ROWS, across, pixels.shape[2]))[: shape[0]]
    return _product("yh,hxc->yxc", rows, narrow)


def _coefficients(size: tf.Tensor, start: tf.Tensor, end: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Shares of each of `size` pixels in each of `count` between `start` and `end`: (count, size), in 2^-22.

    Source: Pillow, `precompute_coeffs` and `normalize_coeffs_8bpc` in libImaging/Resample.c.
    """
    scale = tf.cast(end - start, tf.float64) / tf.cast(count, tf.float64)
    reach = tf.maximum(scale, 1.0)
    center = tf.cast(start, tf.float64) + (tf.cast(tf.range(count), tf.float64) + 0.5) * scale
    center = center[:, tf.newaxis]
    first = tf.maximum(tf.floor(center - reach + 0.5), 0)
    after = tf.floor(center + reach + 0.5)
    place = tf.cast(tf.range(size), tf.float64)
    weight = tf.maximum(1 - tf.abs((place - center + 0.5) * (1 / reach)), 0)
    weight = tf.where((place >= first) & (place < after), weight, 0)
    weight /= tf.reduce_sum(weight, axis=1, keepdims=True)
    return tf.floor(weight * (1 << _BITS) + 0.5)


def _product(equation: str, coefficients: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
    sums = tf.einsum(equation, coefficients, tf.cast(pixels, tf.float64)) + (1 << (_BITS - 1))
    return tf.cast(tf.minimum(tf.floor(sums / (1 << _BITS)), 255), tf.uint8)


def _oriented(pixels: tf.Tensor, turned: tf.Tensor) -> tf.Tensor:
    """See `rudel.data.photographs.oriented`."""
    pixels = tf.cond(turned > 4, lambda: tf.transpose(pixels, (1, 0, 2)), lambda: pixels)
    upside_down, exchanged = (_is_one_of(turned, which) for which in ((3, 4, 7, 8), (2, 3, 6, 7)))
    pixels = tf.cond(upside_down, lambda: pixels[::-1], lambda: pixels)
    return tf.cond(exchanged, lambda: pixels[:, ::-1], lambda: pixels)


def _is_one_of(turned: tf.Tensor | int, orientations: tuple[int, ...]) -> tf.Tensor:
    return tf.reduce_any(tf.equal(turned, orientations))
