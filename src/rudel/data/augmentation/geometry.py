"""Changes of what is where in an image: mirrored, cut out and enlarged, stretched, moved.

Sampling at places between pixels is bilinear. Along one axis it is a product with a matrix that has two entries in each
row. So stretching and cutting are two small batched matrix products and no gather, which is much faster on a CPU.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from rudel.errors import OptionError


def random_flip(key: jax.Array, x: jax.Array) -> jax.Array:
    """Mirrors every second image, on average, left to right.

    Args:
        key: JAX random key.
        x: images (N, H, W) or (N, H, W, C), any dtype.

    Returns:
        Images of the same shape and dtype.
    """
    mirrored = jax.random.bernoulli(key, shape=(len(x),) + (1,) * (x.ndim - 1))
    return jnp.where(mirrored, x[:, :, ::-1], x)


def random_pad_and_crop(
    key: jax.Array, x: jax.Array, pixels: int = 4, mode: Literal["constant", "edge", "reflect"] = "constant"
) -> jax.Array:
    """Adds a margin to each side and cuts each image to its size again, at a random place of whole pixels.

    Args:
        key: JAX random key.
        x: images (N, H, W) or (N, H, W, C), any dtype.
        pixels: width of the margin, and so the largest shift.
        mode: what is in the margin: `constant`, 0; `edge`, the outermost pixels; `reflect`, the image mirrored.

    Returns:
        Images of the same shape and dtype.

    Raises:
        OptionError: the margin is negative, or there is no such mode, or the image is too small to be mirrored.
    """
    sides = x.shape[1:3]
    if mode not in ("constant", "edge", "reflect"):
        raise OptionError(f"`mode` can be constant, edge, or reflect, not {mode!r}.")
    if pixels < 0 or (mode == "reflect" and pixels >= min(sides)):
        raise OptionError(f"`pixels` must be 0 or more, and for `reflect` less than the sides {sides}, not {pixels}.")
    margins = ((0, 0), (pixels, pixels), (pixels, pixels)) + ((0, 0),) * (x.ndim - 3)
    padded = jnp.pad(x, margins, mode=mode)
    corners = jax.random.randint(key, (len(x), 2), 0, 2 * pixels + 1)

    def cut(image: jax.Array, corner: jax.Array) -> jax.Array:
        rest = (0,) * (image.ndim - 2)
        return lax.dynamic_slice(image, (corner[0], corner[1], *rest), x.shape[1:])

    return jax.vmap(cut)(padded, corners)


def random_enlarged_crop(key: jax.Array, x: jax.Array, pixels: int = 10) -> jax.Array:
    """Enlarges each image by some pixels, and cuts it to its size again, at a random place of whole pixels.

    Args:
        key: JAX random key.
        x: images (N, H, W) or (N, H, W, C), uint8 or floats.
        pixels: by how many the height and the width grow.

    Returns:
        Images of the same shape and range, floats.

    Raises:
        OptionError: `pixels` is negative.
    """
    if pixels < 0:
        raise OptionError(f"`pixels` says by how much images are enlarged and cannot be {pixels}: give 0 or more.")
    corners = jax.random.randint(key, (2, len(x)), 0, pixels + 1)
    starts, lengths = [], []
    for axis in (0, 1):
        share = x.shape[1 + axis] / (x.shape[1 + axis] + pixels)
        starts.append(corners[axis] * share)
        lengths.append(jnp.full(len(x), x.shape[1 + axis] * share))
    return _windows(x, starts, lengths)


def random_resized_crop(
    key: jax.Array,
    x: jax.Array,
    area: tuple[float, float] = (0.5, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
) -> jax.Array:
    """Cuts a random part out of each image and scales it to the size of the whole.

    As in Szegedy et al., "Going Deeper with Convolutions" (2015), but a window that would be wider or higher than the
    image is made as wide or high as it, and not drawn again.

    Args:
        key: JAX random key.
        x: images (N, H, W) or (N, H, W, C), uint8 or floats.
        area: the least and the greatest share of the image's area that is kept.
        aspect: the least and the greatest width over height, in pixels, of the part that is kept; drawn so that its
            logarithm is uniform.

    Returns:
        Images of the same shape and range, floats.

    Raises:
        OptionError: the shares are not within 0 and 1, or the aspects not above 0, or a second is below its first.
    """
    if not 0 < area[0] <= area[1] <= 1:
        raise OptionError(f"`area` is the least and the greatest share, above 0 and up to 1, not {tuple(area)}.")
    if not 0 < aspect[0] <= aspect[1]:
        raise OptionError(f"`aspect` is the least and the greatest width over height, above 0, not {tuple(aspect)}.")
    height, width = x.shape[1:3]
    drawn = jax.random.uniform(key, (4, len(x)))
    kept = height * width * (area[0] + (area[1] - area[0]) * drawn[0])
    ratio = aspect[0] * (aspect[1] / aspect[0]) ** drawn[1]
    heights = jnp.minimum(height, jnp.sqrt(kept / ratio))
    widths = jnp.minimum(width, jnp.sqrt(kept * ratio))
    starts = [drawn[2] * (height - heights), drawn[3] * (width - widths)]
    return _windows(x, starts, [heights, widths])


def random_zoom_and_shift(key: jax.Array, x: jax.Array, zoom: float = 0.15, shift: float = 0.07) -> jax.Array:
    """Stretches and moves every image a little, along each axis on its own; what comes in over an edge is 0.

    Args:
        key: JAX random key.
        x: images (N, H, W) or (N, H, W, C), any dtype.
        zoom: largest relative stretch.
        shift: largest shift, as a share of the side.

    Returns:
        Images of the same shape, floats in the same range.
    """
    random = jax.random.uniform(key, (4, len(x)), minval=-1, maxval=1)
    rows = _around_the_middle(x.shape[1], 1 + zoom * random[0], shift * random[1])
    columns = _around_the_middle(x.shape[2], 1 + zoom * random[2], shift * random[3])
    return _resampled(as_floats(x), _interpolation(rows, x.shape[1]), _interpolation(columns, x.shape[2]))


def as_floats(x: jax.Array) -> jax.Array:
    """Whole numbers as float32; floats as they are."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32)


def _windows(x: jax.Array, starts: list[jax.Array], lengths: list[jax.Array]) -> jax.Array:
    """Windows that begin at `starts`, `lengths` pixels high and wide, scaled to the image's size.

    Pixels are areas, with their values at their centres; outside of the outermost centres are the outermost values.
    """
    matrices = []
    for size, start, length in zip(x.shape[1:3], starts, lengths, strict=True):
        place = jnp.arange(size, dtype=jnp.float32) + 0.5
        source = start[:, None] + place * (length / size)[:, None] - 0.5
        matrices.append(_interpolation(jnp.clip(source, 0, size - 1), size))
    return _resampled(as_floats(x), *matrices)


def _around_the_middle(size: int, scale: jax.Array, shift: jax.Array) -> jax.Array:
    """Where in a line of pixels each pixel of the stretched and shifted line comes from, (N, size)."""
    middle = (size - 1) / 2
    return (jnp.arange(size, dtype=jnp.float32) - middle) * scale[:, None] + middle + size * shift[:, None]


def _interpolation(source: jax.Array, size: int) -> jax.Array:
    """Matrices (N, M, size) that sample a line of pixels at the M places `source`; 0 beyond it."""
    return jnp.maximum(0, 1 - jnp.abs(source[:, :, None] - jnp.arange(size, dtype=jnp.float32)))


def _resampled(x: jax.Array, rows: jax.Array, columns: jax.Array) -> jax.Array:
    """Each image sampled along both axes by its own matrices, in the dtype of `x`."""
    rows, columns = rows.astype(x.dtype), columns.astype(x.dtype)
    exact = lax.Precision.HIGHEST  # a GPU or TPU would else keep 8 to 11 bits of a pixel
    if x.ndim == 3:
        return jnp.einsum("nih,nhw,njw->nij", rows, x, columns, precision=exact)
    return jnp.einsum("nih,nhwc,njw->nijc", rows, x, columns, precision=exact)
