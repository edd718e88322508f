"""Mean and variance of a batch that is sharded, for one exchange between devices.

Keras takes the mean and then the mean square of what is left, as `numpy.var` does. Over several devices, each of the
two waits for all of them, forwards and backwards. Here every device does that for its shard, and the results are put
together (T. Chan, G. Golub, R. LeVeque, *Updating formulae and a pairwise algorithm for computing sample variances*,
1979).
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


@contextlib.contextmanager
def moments_by_shard(shards: int, replicated: jax.sharding.NamedSharding) -> Iterator[None]:
    """Traces Keras' moments over a batch inside the block so, where it is sharded.

    Args:
        shards: their number; 1 changes nothing.
        replicated: the sharding of what is on every device.
    """
    if shards == 1:
        yield
        return
    from rudel.internals.keras_jax import replaced_moments

    with replaced_moments(lambda plain: functools.partial(moments, plain, shards, replicated)):
        yield


def moments(
    plain: Callable[..., Any],
    shards: int,
    replicated: jax.sharding.NamedSharding,
    x: jax.Array,
    axes: int | Sequence[int] | None,
    keepdims: bool = False,
    synchronized: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Mean and variance over some axes; see `keras.ops.moments`. What is not over the batch, `plain` does."""
    listed = range(x.ndim) if axes is None else [axes] if isinstance(axes, int) else axes
    over = [axis % x.ndim for axis in listed]
    if synchronized or 0 not in over or x.shape[0] % shards or x.dtype != jnp.float32:
        return plain(x, axes, keepdims=keepdims, synchronized=synchronized)
    cut, inner = x.reshape(shards, -1, *x.shape[1:]), [axis + 1 for axis in over]
    each = jnp.stack([jnp.mean(cut, inner, keepdims=True), jnp.var(cut, inner, keepdims=True)])
    means, variances = lax.with_sharding_constraint(each, replicated)
    mean = jnp.mean(means, 0)
    variance = jnp.mean(variances + jnp.square(means - mean), 0)
    return (mean, variance) if keepdims else (jnp.squeeze(mean, over), jnp.squeeze(variance, over))
