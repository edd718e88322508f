"""Random changes to recordings of motion sensors, `(key, x) -> x` of a batch, floats (N, S, C)."""

import math

import jax
import jax.numpy as jnp

from rudel.errors import OptionError


def random_scale(key: jax.Array, x: jax.Array, most: float = 0.2) -> jax.Array:
    """Makes each movement stronger or weaker, all of its axes alike.

    Args:
        key: JAX random key.
        x: floats (N, S, C).
        most: largest relative change, 0 to below 1.

    Raises:
        OptionError: `most` is not from 0 to below 1.
    """
    if not 0 <= most < 1:
        raise OptionError(f"`most` is a relative change, from 0 to below 1, not {most:g}.")
    return x * (1 + jax.random.uniform(key, (len(x), 1, 1), x.dtype, -most, most))


def random_jitter(key: jax.Array, x: jax.Array, share: float = 0.03) -> jax.Array:
    """Adds noise to each axis.

    Args:
        key: JAX random key.
        x: floats (N, S, C).
        share: of the axis' own standard deviation in the recording, that of the noise; 0 or more.

    Raises:
        OptionError: the share is negative.
    """
    if not share >= 0:
        raise OptionError(f"`share` says how strong noise is, 0 or more, not {share:g}.")
    return x + share * x.std(axis=1, keepdims=True) * jax.random.normal(key, x.shape, x.dtype)


def random_turn(key: jax.Array, x: jax.Array, degrees: float = 15) -> jax.Array:
    """Turns the sensor: each three axes that belong together, by one rotation for all of a recording.

    Args:
        key: JAX random key.
        x: floats (N, S, C), C a multiple of 3: x, y and z of one quantity, then of the next.
        degrees: the largest angle, 0 to 180, around an axis of any direction.

    Raises:
        OptionError: the axes do not come in threes, or the angle makes no sense.
    """
    if x.shape[2] % 3 or not 0 <= degrees <= 180:
        raise OptionError(f"`random_turn` turns axes in threes, by 0 to 180 degrees, not {x.shape[2]} by {degrees:g}.")
    which, how_far = jax.random.split(key)
    axis = jax.random.normal(which, (len(x), 3), x.dtype)
    axis = axis / jnp.linalg.norm(axis, axis=1, keepdims=True)
    angle = jax.random.uniform(how_far, (len(x), 1, 1), x.dtype, maxval=math.radians(degrees))
    cross = jnp.cross(axis[:, None, :], jnp.eye(3, dtype=x.dtype)[None])
    outer = axis[:, :, None] * axis[:, None, :]
    turn = jnp.cos(angle) * jnp.eye(3, dtype=x.dtype) + jnp.sin(angle) * cross + (1 - jnp.cos(angle)) * outer
    parts = x.reshape(*x.shape[:2], -1, 3)
    turned = jnp.einsum("nsqa,nab->nsqb", parts, turn, precision=jax.lax.Precision.HIGHEST)
    return turned.reshape(x.shape)
