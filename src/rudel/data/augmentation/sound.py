"""Random changes to recordings, as of a batch of samples `(key, x) -> x`, int16 (N, S) to int16 of the same shape.

They are meant to be chained, shift and speed before gain and noise: what falls out of a window or beyond 16 bits is cut
off.
"""

import jax
import jax.numpy as jnp
import numpy as np

from rudel.errors import OptionError

_LIMITS = (-(2.0**15), 2.0**15 - 1)


def random_sound_shift(key: jax.Array, x: jax.Array, share: float = 0.1) -> jax.Array:
    """Moves each recording in its window; what comes in is silence.

    Args:
        key: JAX random key.
        x: int16 (N, S).
        share: the furthest, as a share of the window, 0 to 1.

    Raises:
        OptionError: the share is not from 0 to 1.
    """
    if not 0 <= share <= 1:
        raise OptionError(f"`share` says how far recordings are moved, from 0 to 1, not {share:g}.")
    most = round(share * x.shape[1])
    padded = jnp.pad(x, ((0, 0), (most, most)))
    starts = jax.random.randint(key, (len(x),), 0, 2 * most + 1)
    return jax.vmap(lambda one, start: jax.lax.dynamic_slice(one, (start,), x.shape[1:]))(padded, starts)


def random_speed(key: jax.Array, x: jax.Array, most: float = 0.12) -> jax.Array:
    """Plays each recording faster or slower around its middle, which changes its pitch, as another voice would.

    Between samples it is linear. As in Ko et al., "Audio Augmentation for Speech Recognition" (2015).

    Args:
        key: JAX random key.
        x: int16 (N, S).
        most: largest relative change, 0 to below 1.

    Raises:
        OptionError: `most` is not from 0 to below 1.
    """
    if not 0 <= most < 1:
        raise OptionError(f"`most` is a relative change of speed, from 0 to below 1, not {most:g}.")
    samples = x.shape[1]
    factor = jnp.exp(jax.random.uniform(key, (len(x), 1), minval=-1, maxval=1) * jnp.log1p(most))
    middle = (samples - 1) / 2
    place = (jnp.arange(samples) - middle) * factor + middle
    below = jnp.floor(place)
    here = jnp.clip(below.astype(jnp.int32) + 1, 0, samples + 1)  # in the padded recording
    padded = jnp.pad(x, ((0, 0), (1, 2))).astype(jnp.float32)
    first = jnp.take_along_axis(padded, here, axis=1)
    second = jnp.take_along_axis(padded, jnp.minimum(here + 1, samples + 2), axis=1)
    inside = (place > -1) & (place < samples)
    return _as_samples(jnp.where(inside, first + (second - first) * (place - below), 0))


def random_gain(key: jax.Array, x: jax.Array, decibels: tuple[float, float] = (-12, 6)) -> jax.Array:
    """Makes each recording louder or quieter.

    Args:
        key: JAX random key.
        x: int16 (N, S).
        decibels: the least and the greatest change.

    Raises:
        OptionError: the second is below the first.
    """
    gain = jax.random.uniform(key, (len(x), 1), minval=_checked(decibels)[0], maxval=decibels[1])
    return _as_samples(x * 10 ** (gain / 20))


def random_noise(key: jax.Array, x: jax.Array, decibels: tuple[float, float] = (-90, -50)) -> jax.Array:
    """Adds noise to each recording, of a random colour from white to falling by 6 dB an octave.

    Args:
        key: JAX random key.
        x: int16 (N, S).
        decibels: the least and the greatest level, beside full scale.

    Raises:
        OptionError: the second is below the first.
    """
    how_loud, how_dark, which = jax.random.split(key, 3)
    level = jax.random.uniform(how_loud, (len(x), 1), minval=_checked(decibels)[0], maxval=decibels[1])
    dark = jax.random.uniform(how_dark, (len(x), 1))
    white = jax.random.normal(which, x.shape)
    # a mean of neighbours, over more of them, falls towards high frequencies
    noise = white * (1 - dark) + dark * sum(jnp.roll(white, n, axis=1) for n in range(4)) / 2
    return _as_samples(x + noise * (2.0**15 * 10 ** (level / 20)))


def random_background(
    key: jax.Array,
    x: jax.Array,
    noise: np.ndarray,
    decibels: tuple[float, float] = (-20, 5),
    share: float = 0.8,
) -> jax.Array:
    """Mixes a piece of recorded noise into some recordings, at a random place and of a random loudness.

    Args:
        key: JAX random key.
        x: int16 (N, S).
        noise: int16 (M,), at least one sample, of the same rate; what is shorter than a recording is repeated.
        decibels: the least and the greatest change of the noise's own level.
        share: of the recordings that get noise, 0 to 1.

    Raises:
        OptionError: the second level is below the first, or the share is not from 0 to 1.
    """
    if not 0 <= share <= 1:
        raise OptionError(f"`share` says how many recordings get noise, from 0 to 1, not {share:g}.")
    where, how_loud, which = jax.random.split(key, 3)
    long_enough = jnp.asarray(noise if len(noise) >= x.shape[1] else np.resize(noise, x.shape[1]))
    starts = jax.random.randint(where, (len(x),), 0, len(long_enough) - x.shape[1] + 1)
    pieces = jax.vmap(lambda start: jax.lax.dynamic_slice(long_enough, (start,), x.shape[1:]))(starts)
    gain = 10 ** (jax.random.uniform(how_loud, (len(x), 1), minval=_checked(decibels)[0], maxval=decibels[1]) / 20)
    mixed = jax.random.uniform(which, (len(x), 1)) < share
    return _as_samples(x + jnp.where(mixed, gain, 0) * pieces)


def _as_samples(x: jax.Array) -> jax.Array:
    return jnp.clip(jnp.round(x), *_LIMITS).astype(jnp.int16)


def _checked(decibels: tuple[float, float]) -> tuple[float, float]:
    if not decibels[0] <= decibels[1]:
        raise OptionError(f"`decibels` are the least and the greatest level, not {tuple(decibels)}.")
    return decibels
