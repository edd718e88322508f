"""Rotation by three shears, each of which moves rows or columns along themselves.

A. Paeth, "A Fast Algorithm for General Raster Rotation" (1986): a rotation by t is a shear of the rows by -tan(t/2), of
the columns by sin(t), and of the rows again. A row is moved by its own number of whole pixels, bit by bit of that
number (moved by 1, or not; by 2, or not; ...), and between neighbours linearly. No step gathers, which is slow.
The result is slightly softer than from the four neighbours of every pixel.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax

from rudel.data.augmentation.geometry import as_floats
from rudel.errors import OptionError

_ROWS, _COLUMNS = 1, 2
_MOST_DEGREES = 90


def random_rotation(key: jax.Array, x: jax.Array, degrees: float = 15) -> jax.Array:
    """Turns every image around its middle; what comes in over an edge continues the outermost pixels.

    Args:
        key: JAX random key.
        x: images (N, H, W) or (N, H, W, C), uint8 or floats.
        degrees: the largest angle, to either side, 0 to 90.

    Returns:
        Images of the same shape and range, floats.

    Raises:
        OptionError: `degrees` is not between 0 and 90.
    """
    if not 0 <= degrees <= _MOST_DEGREES:
        raise OptionError(f"`degrees` must be between 0 and {_MOST_DEGREES}, not {degrees}.")
    most = math.radians(degrees)
    angles = jax.random.uniform(key, (len(x), 1, 1, 1), minval=-most, maxval=most)
    images = as_floats(x)
    return _rotated(images if x.ndim == 4 else images[..., None], angles, most).reshape(x.shape)


def _rotated(x: jax.Array, angles: jax.Array, most: float) -> jax.Array:
    """Images (N, H, W, C) turned by `angles` (N, 1, 1, 1), which are at most `most`, counterclockwise.

    The first shear makes images wider, so that nothing is lost that the third one brings back.
    """
    height, width = x.shape[1:3]
    margin = math.ceil(math.tan(most / 2) * (height - 1) / 2)
    wide = width + 2 * margin
    reach = math.ceil(math.sin(most) * (wide - 1) / 2)
    down = (jnp.arange(height) - (height - 1) / 2)[:, None, None]
    across = (jnp.arange(wide) - (wide - 1) / 2)[:, None]
    along_rows, along_columns = -jnp.tan(angles / 2) * down, jnp.sin(angles) * across
    x = jnp.pad(x, ((0, 0), (0, 0), (margin, margin), (0, 0)), mode="edge")
    x = _moved(x, along_rows, margin, _COLUMNS)
    x = _moved(x, along_columns, reach, _ROWS)
    return lax.slice_in_dim(_moved(x, along_rows, margin, _COLUMNS), margin, margin + width, axis=_COLUMNS)


def _moved(x: jax.Array, shift: jax.Array, reach: int, axis: int) -> jax.Array:
    """`x[i + shift]` along an axis, between pixels linearly; `shift` broadcasts over `x` and is at most `reach`."""
    size = x.shape[axis]
    bits = (2 * reach + 1).bit_length()
    margins = [(0, 0)] * x.ndim
    margins[axis] = (reach, max(0, 2**bits - reach))
    x = lax.slice_in_dim(jnp.pad(x, margins, mode="edge"), 0, size + 2**bits, axis=axis)
    below = jnp.clip(jnp.floor(shift), -reach, reach)
    fraction = (shift - below).astype(x.dtype)
    places = below.astype(jnp.int32) + reach
    for step in (2**bit for bit in reversed(range(bits))):
        moved, stayed = lax.slice_in_dim(x, step, None, axis=axis), lax.slice_in_dim(x, 0, -step, axis=axis)
        # Without the barrier, XLA would compute each step again for every use of it in the next one.
        x = lax.optimization_barrier(jnp.where((places & step) != 0, moved, stayed))
    here, next_ = lax.slice_in_dim(x, 0, size, axis=axis), lax.slice_in_dim(x, 1, size + 1, axis=axis)
    return here * (1 - fraction) + next_ * fraction
