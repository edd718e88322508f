"""Dropout in parts of a batch: each part draws the rows of a draw for the whole batch, and no others.

JAX makes each random number of its place in the array and the key (*Threefry*; J. Salmon and others, *Parallel random
numbers: as easy as 1, 2, 3*, 2011), so some rows can be drawn without the rest.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_EXPONENT_OF_ONE = np.uint32(0x3F800000)


@contextlib.contextmanager
def masks_of_parts(rows: int, number: jax.Array) -> Iterator[None]:
    """Traces Keras' dropout inside the block so.

    Args:
        rows: examples in a part.
        number: of the part, int32.
    """
    from rudel.internals.keras_jax import draw_seed, noise_shape_of, replaced_dropout

    def of_part(plain: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        def dropout(inputs: jax.Array, rate: float, noise_shape: Any = None, seed: Any = None) -> jax.Array:
            shape = noise_shape_of(inputs, noise_shape)
            if rate in (0.0, 1.0) or shape[0] != rows:
                return plain(inputs, rate, noise_shape, seed)
            mask = bernoulli(jnp.asarray(draw_seed(seed)), 1.0 - rate, shape, number)
            return lax.select(jnp.broadcast_to(mask, inputs.shape), inputs / (1.0 - rate), jnp.zeros_like(inputs))

        return dropout

    with replaced_dropout(of_part):
        yield


def bernoulli(key: jax.Array, p: float, shape: tuple[int, ...], number: jax.Array | int) -> jax.Array:
    """Part of `jax.random.bernoulli(key, p)` for a batch.

    Args:
        key: uint32 (2,).
        p: probability of True.
        shape: of the part, (rows, ...).
        number: of the part.

    Returns:
        Booleans of this shape: rows `number * rows` to `(number + 1) * rows` of the batch.
    """
    from jax.extend.random import threefry_2x32

    size = math.prod(shape)
    place = jnp.uint32(number) * np.uint32(size) + lax.iota(jnp.uint32, size)
    high, low = jnp.split(threefry_2x32(key, jnp.concatenate([jnp.zeros_like(place), place])), 2)
    mantissa = lax.shift_right_logical(high ^ low, np.uint32(9))
    unit = lax.bitcast_convert_type(mantissa | _EXPONENT_OF_ONE, jnp.float32) - np.float32(1)
    return unit.reshape(shape) < np.float32(p)
