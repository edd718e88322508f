"""Random changes of pictures: the right shapes, the same by the same key, and no more than asked for."""

from typing import Any

import jax
import numpy as np
import pytest

from rudel.data.augmentation import random_flip, random_zoom_and_shift

PICTURES: Any = np.random.default_rng(0).integers(0, 256, (40, 12, 10), dtype="uint8")


@pytest.mark.parametrize("channels", [(), (3,)])
@pytest.mark.parametrize("change", [random_flip, random_zoom_and_shift])
def test_depends_on_the_key_alone(change, channels: tuple[int, ...]) -> None:
    x = np.stack([PICTURES] * 3, axis=-1) if channels else PICTURES
    once, again = change(jax.random.key(1), x), change(jax.random.key(1), x)
    assert once.shape == x.shape
    np.testing.assert_array_equal(once, again)
    assert not np.array_equal(once, change(jax.random.key(2), x))


def test_about_half_are_mirrored_and_none_is_otherwise_changed() -> None:
    flipped = np.asarray(random_flip(jax.random.key(0), PICTURES))
    assert flipped.dtype == np.uint8
    mirrored = [np.array_equal(a, b[:, ::-1]) for a, b in zip(flipped, PICTURES, strict=True)]
    alike = [np.array_equal(a, b) for a, b in zip(flipped, PICTURES, strict=True)]
    assert all(a != b for a, b in zip(mirrored, alike, strict=True))
    assert 10 < sum(mirrored) < 30


def test_no_zoom_and_no_shift_change_nothing() -> None:
    np.testing.assert_allclose(random_zoom_and_shift(jax.random.key(0), PICTURES, zoom=0, shift=0), PICTURES)


def test_a_dot_moves_no_further_than_asked_for() -> None:
    dots: Any = np.zeros((200, 21, 21), "float32")
    dots[:, 10, 10] = 255
    moved = np.asarray(random_zoom_and_shift(jax.random.key(0), dots, zoom=0, shift=0.1))
    rows, columns = np.indices((21, 21))
    mass = moved.sum((1, 2))
    offsets = np.stack([(moved * axis).sum((1, 2)) / mass - 10 for axis in (rows, columns)])
    np.testing.assert_allclose(mass, 255, rtol=1e-4)
    assert np.abs(offsets).max() <= 2.1 + 1e-3
    assert np.abs(offsets).max() > 1.5
    assert abs(offsets.mean()) < 0.2
