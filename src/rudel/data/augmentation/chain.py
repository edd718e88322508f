"""Several changes one after the other, and a set that has served many."""

from collections.abc import Callable
from typing import Any

import jax

from rudel.aliases import Tree
from rudel.data.augmentation.colour import random_brightness, random_contrast
from rudel.data.augmentation.geometry import random_enlarged_crop, random_flip

Change = Callable[[Any, Any], Any]
"""`(key, x) -> x`."""


def chain(*changes: Change) -> Change:
    """One change that makes all of these in turn, each with a key of its own.

    Args:
        changes: functions `(key, x) -> x`.

    Returns:
        A function `(key, x) -> x`.

    >>> chain()(jax.random.key(0), "as it was")
    'as it was'
    """

    def changed(key: jax.Array, x: Tree) -> Tree:
        for number, change in enumerate(changes):
            x = change(jax.random.fold_in(key, number), x)
        return x

    return changed


def cloud_tpu_guide(key: jax.Array, x: jax.Array, bounds: tuple[float, float] = (0, 255)) -> jax.Array:
    """The changes of Google's guide to custom models on Cloud TPU (2018).

    An image is enlarged by 10 pixels along each axis and cut to its size at a random place, mirrored or not, made
    brighter or darker by up to a quarter of the range (63/255), and given 0.2 to 1.8 times its contrast.

    Args:
        key: JAX random key.
        x: images (N, H, W) or (N, H, W, C), uint8 or floats.
        bounds: the least and greatest value of a pixel.

    Returns:
        Images of the same shape, floats within the bounds.
    """
    crop, flip, brightness, contrast = jax.random.split(key, 4)
    x = random_flip(flip, random_enlarged_crop(crop, x, pixels=10))
    x = random_brightness(brightness, x, delta=63 / 255, bounds=bounds)
    return random_contrast(contrast, x, factors=(0.2, 1.8), bounds=bounds)
