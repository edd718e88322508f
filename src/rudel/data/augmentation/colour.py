"""Changes of brightness, contrast and saturation.

Each draws one number for an image, computes in floating point, and limits what comes out to `bounds`, by default 0 and
255: of uint8 it makes float32, not rounded; floats keep their dtype. A change of no strength changes no bit.
"""

import jax
import jax.numpy as jnp

from rudel.data.augmentation.geometry import as_floats
from rudel.errors import OptionError

_LUMA = (0.299, 0.587, 0.114)
"""How bright red, green and blue look, by ITU-R BT.601."""


def random_brightness(
    key: jax.Array, x: jax.Array, delta: float = 63 / 255, bounds: tuple[float, float] = (0, 255)
) -> jax.Array:
    """Adds one number to all of an image, drawn between -`delta` and `delta` times the range.

    Args:
        key: JAX random key.
        x: images (N, H, W) or (N, H, W, C), uint8 or floats.
        delta: the largest change, as a share of the range, at least 0.
        bounds: the least and greatest value of a pixel.

    Returns:
        Images of the same shape, floats within the bounds.

    Raises:
        OptionError: `delta` is negative.
    """
    if not delta >= 0:
        raise OptionError(f"`delta` is the largest change of brightness and cannot be {delta}: give 0 or more.")
    images = as_floats(x)
    added = _draw(key, images, (-delta, delta)) * (bounds[1] - bounds[0])
    return jnp.clip(images + added, *bounds)


def random_contrast(
    key: jax.Array,
    x: jax.Array,
    factors: tuple[float, float] = (0.8, 1.2),
    bounds: tuple[float, float] = (0, 255),
) -> jax.Array:
    """Multiplies how far pixels are from the mean of their channel in their image.

    Args:
        key: JAX random key.
        x: images (N, H, W) or (N, H, W, C), uint8 or floats.
        factors: the least and the greatest factor; 1 changes nothing, 0 leaves the mean alone.
        bounds: the least and greatest value of a pixel.

    Returns:
        Images of the same shape, floats within the bounds.

    Raises:
        OptionError: the factors are negative, or the second is below the first.
    """
    images = as_floats(x)
    factor = _draw(key, images, _checked(factors))
    mean = images.mean(axis=(1, 2), keepdims=True)
    return jnp.clip(images * factor + mean * (1 - factor), *bounds)


def random_saturation(
    key: jax.Array,
    x: jax.Array,
    factors: tuple[float, float] = (0.8, 1.2),
    bounds: tuple[float, float] = (0, 255),
) -> jax.Array:
    """Multiplies how far colours are from the grey of the same brightness (ITU-R BT.601).

    Args:
        key: JAX random key.
        x: images (N, H, W, 3), red, green and blue, uint8 or floats; grey ones, (N, H, W) or (N, H, W, 1), have no
            colour and stay as they are.
        factors: the least and the greatest factor; 1 changes nothing, 0 makes grey.
        bounds: the least and greatest value of a pixel.

    Returns:
        Images of the same shape, floats within the bounds.

    Raises:
        OptionError: the factors are negative, or the second is below the first.
    """
    images = as_floats(x)
    if x.ndim == 3 or x.shape[3] != 3:
        return images
    factor = _draw(key, images, _checked(factors))
    weights = jnp.asarray(_LUMA, images.dtype)
    grey = (images * weights).sum(axis=-1, keepdims=True)
    return jnp.clip(images * factor + grey * (1 - factor), *bounds)


def _draw(key: jax.Array, x: jax.Array, limits: tuple[float, float]) -> jax.Array:
    """A number for each image, of a shape that broadcasts over it."""
    shape = (len(x),) + (1,) * (x.ndim - 1)
    return jax.random.uniform(key, shape, jnp.float32, *limits).astype(x.dtype)


def _checked(factors: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= factors[0] <= factors[1]:
        raise OptionError(f"`factors` are the least and the greatest factor, 0 or more, not {tuple(factors)}.")
    return factors
