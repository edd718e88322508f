"""Mean and variance of a batch that is cut into parts, for one exchange between devices.

Keras takes the mean and then the mean square of what is left, as `numpy.var` does. Over several devices, each of the
two waits for all of them, forwards and backwards. Here every device does that for its part, and the parts are put
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
def moments_in_parts(parts: int, whole: jax.sharding.NamedSharding) -> Iterator[None]:
    """Traces Keras' moments over a batch inside the block so, where it is cut into several parts.

    Args:
        parts: how many.
        whole: what is on every device.
    """
    if parts == 1:
        yield
        return
    from rudel.internals.keras_jax import replaced_moments

    with replaced_moments(lambda plain: functools.partial(moments, plain, parts, whole)):
        yield


def moments(
    plain: Callable[..., Any],
    parts: int,
    whole: jax.sharding.NamedSharding,
    x: jax.Array,
    axes: Sequence[int],
    keepdims: bool = False,
    synchronized: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Mean and variance over some axes; see `keras.ops.moments`. What is not over the batch, `plain` does."""
    over = [axis % x.ndim for axis in axes]
    if synchronized or 0 not in over or x.shape[0] % parts or x.dtype != jnp.float32:
        return plain(x, axes, keepdims=keepdims, synchronized=synchronized)
    cut, inner = x.reshape(parts, -1, *x.shape[1:]), [axis + 1 for axis in over]
    each = jnp.stack([jnp.mean(cut, inner, keepdims=True), jnp.var(cut, inner, keepdims=True)])
    means, variances = lax.with_sharding_constraint(each, whole)
    mean = jnp.mean(means, 0)
    variance = jnp.mean(variances + jnp.square(means - mean), 0)
    return (mean, variance) if keepdims else (jnp.squeeze(mean, over), jnp.squeeze(variance, over))


@contextlib.contextmanager
def moments_of_parts(everywhere: Callable[[jax.Array], jax.Array]) -> Iterator[None]:
    """Traces Keras' moments over a part of a batch inside the block as those of the batch, put together in one order.

    Args:
        everywhere: gives what all parts have, (parts, ...).
    """
    from rudel.internals.keras_jax import replaced_moments

    def of_parts(plain: Callable[..., Any]) -> Callable[..., Any]:
        def moments(x: jax.Array, axes: Sequence[int], keepdims: bool = False, synchronized: bool = False) -> Any:
            over = [axis % x.ndim for axis in axes]
            if synchronized or 0 not in over:
                return plain(x, axes, keepdims=keepdims, synchronized=synchronized)
            exact = x.astype(jnp.float32)
            own = jnp.stack([jnp.mean(exact, over, keepdims=True), jnp.var(exact, over, keepdims=True)])
            mean, variance = _of_all(everywhere, own)
            if x.dtype != jnp.float32:  # as Keras limits them
                least, greatest = jnp.finfo(jnp.float16).min, jnp.finfo(jnp.float16).max
                mean, variance = (jnp.clip(value, least, greatest).astype(x.dtype) for value in (mean, variance))
            return (mean, variance) if keepdims else (jnp.squeeze(mean, over), jnp.squeeze(variance, over))

        return moments

    with replaced_moments(of_parts):
        yield


def pairwise(values: jax.Array) -> jax.Array:
    """The sum over axis 0 by pairs, pairs of pairs, and so on; its length is a power of two.

    >>> float(pairwise(jnp.arange(4.0)))
    6.0
    """
    while len(values) > 1:
        values = values[0::2] + values[1::2]
    return values[0]


def _of_all(everywhere: Callable[[jax.Array], jax.Array], own: jax.Array) -> jax.Array:
    """Mean and variance (2, ...) of the batch, of those of each part; one exchange forwards, and one backwards."""

    @jax.custom_vjp
    def joined(own: jax.Array) -> jax.Array:
        all_parts = everywhere(own)
        means, variances = all_parts[:, 0], all_parts[:, 1]
        mean = pairwise(means) / len(all_parts)
        return jnp.stack([mean, pairwise(variances + jnp.square(means - mean)) / len(all_parts)])

    def forwards(own: jax.Array) -> Any:
        found = joined(own)
        return found, (own[0] - found[0])

    def backwards(off: jax.Array, gradient: jax.Array) -> Any:
        gradients = everywhere(gradient)
        mean, variance = pairwise(gradients) / len(gradients)
        return (jnp.stack([mean + 2 * variance * off, variance]),)

    joined.defvjp(forwards, backwards)
    return joined(own)
