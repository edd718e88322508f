"""Random changes of pictures: the same by the same key, each picture by itself, as NumPy and Pillow make them."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from rudel.data import augmentation
from rudel.data.augmentation import (
    chain,
    cloud_tpu_guide,
    random_brightness,
    random_contrast,
    random_enlarged_crop,
    random_flip,
    random_pad_and_crop,
    random_resized_crop,
    random_rotation,
    random_saturation,
    random_zoom_and_shift,
)
from rudel.errors import OptionError

OTHERS = {"Augmentation", "chain", *vars(augmentation.sound), *vars(augmentation.motion)}
CHANGES = {name: getattr(augmentation, name) for name in augmentation.__all__ if name not in OTHERS}
NO_CHANGE = {
    "brightness": partial(random_brightness, delta=0),
    "contrast": partial(random_contrast, factors=(1, 1)),
    "saturation": partial(random_saturation, factors=(1, 1)),
    "rotation": partial(random_rotation, degrees=0),
    "resized crop": partial(random_resized_crop, area=(1, 1), aspect=(1, 1)),
    "enlarged crop": partial(random_enlarged_crop, pixels=0),
    "pad and crop": partial(random_pad_and_crop, pixels=0),
    "zoom and shift": partial(random_zoom_and_shift, zoom=0, shift=0),
    "chain": chain(),
}
PICTURES: Any = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3), dtype="uint8")
KEY = jax.random.key(7)


def in_form(shape: str, dtype: str, count: int = 6) -> Any:
    x = (
        PICTURES[:count]
        if shape == "colour"
        else PICTURES[:count, ..., :1]
        if shape == "one"
        else PICTURES[:count, ..., 0]
    )
    return x if dtype == "uint8" else x.astype(np.float32)


@pytest.mark.parametrize("name", CHANGES)
def test_same_key_same_pictures_of_the_same_form_within_the_range(name: str) -> None:
    change = jax.jit(CHANGES[name])
    once, again, other = (np.asarray(change(jax.random.key(seed), PICTURES[:8])) for seed in (1, 1, 2))
    assert once.shape == PICTURES[:8].shape
    assert once.dtype == (np.uint8 if name in ("random_flip", "random_pad_and_crop") else np.float32)
    assert once.min() >= 0
    assert once.max() <= 255 + 1e-3
    np.testing.assert_array_equal(once, again)
    assert not np.array_equal(once, other)
    same = np.repeat(PICTURES[:1], 8, axis=0)  # a picture is changed by a draw of its own, whatever is beside it
    changed = np.asarray(change(jax.random.key(1), same))
    assert len({picture.tobytes() for picture in changed}) > 1
    np.testing.assert_allclose(changed[0], once[0], atol=1e-3)


@pytest.mark.parametrize(("shape", "dtype"), [("grey", "uint8"), ("one", "float32")])
@pytest.mark.parametrize("name", CHANGES)
def test_grey_pictures_keep_their_shape(name: str, shape: str, dtype: str) -> None:
    x = in_form(shape, dtype)
    shapes = jax.eval_shape(CHANGES[name], KEY, x)
    assert shapes.shape == x.shape
    assert shapes.dtype == (x.dtype if name in ("random_flip", "random_pad_and_crop") else np.float32)


def test_grey_pictures_are_changed_as_those_with_one_channel_and_have_no_saturation() -> None:
    changes = jax.jit(chain(cloud_tpu_guide, random_resized_crop, random_rotation))
    grey, one = (np.asarray(changes(KEY, in_form(shape, "float32"))) for shape in ("grey", "one"))
    np.testing.assert_allclose(grey, one[..., 0], atol=1e-2)
    np.testing.assert_array_equal(random_saturation(KEY, in_form("one", "uint8")), in_form("one", "uint8"))


@pytest.mark.parametrize("name", NO_CHANGE)
def test_a_change_of_no_strength_changes_nothing(name: str) -> None:
    x = in_form("colour", "uint8")
    np.testing.assert_array_equal(np.asarray(jax.jit(NO_CHANGE[name])(KEY, x)), x)


def test_float_pictures_keep_dtype_and_bounds() -> None:
    x = (in_form("colour", "float32") / 255 * 2 - 1).astype(jnp.bfloat16)
    bounds = (-1.0, 1.0)
    changed = jax.jit(partial(cloud_tpu_guide, bounds=bounds))(KEY, x)
    assert changed.dtype == jnp.bfloat16
    assert -1 <= float(changed.min()) < float(changed.max()) <= 1
    near = jax.jit(cloud_tpu_guide)(KEY, in_form("colour", "uint8"))
    np.testing.assert_allclose(np.asarray(changed, np.float32) * 127.5 + 127.5, near, atol=8)


def test_about_half_are_mirrored_and_none_is_otherwise_changed() -> None:
    flipped = np.asarray(random_flip(KEY, PICTURES))
    mirrored = [np.array_equal(a, b[:, ::-1]) for a, b in zip(flipped, PICTURES, strict=True)]
    alike = [np.array_equal(a, b) for a, b in zip(flipped, PICTURES, strict=True)]
    assert all(a != b for a, b in zip(mirrored, alike, strict=True))
    assert 10 < sum(mirrored) < 30


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad_and_crop_gives_windows_of_the_padded_picture(mode: Any) -> None:
    cropped = np.asarray(random_pad_and_crop(KEY, PICTURES, pixels=2, mode=mode))
    padded = np.pad(PICTURES, ((0, 0), (2, 2), (2, 2), (0, 0)), mode=mode)
    places = [(i, j) for i in range(5) for j in range(5)]
    found = [
        [place for place in places if np.array_equal(whole[place[0] :, place[1] :][:12, :12], part)]
        for whole, part in zip(padded, cropped, strict=True)
    ]
    assert all(len(places) == 1 for places in found)
    assert len({places[0] for places in found}) > 10


def test_an_enlarged_crop_is_what_pillow_cuts_out() -> None:
    changed = np.asarray(random_enlarged_crop(KEY, PICTURES, pixels=3))
    corners = set()
    for picture, part in zip(PICTURES, changed, strict=True):
        channels = [Image.fromarray(picture[..., c].astype(np.float32)).resize((15, 15), 2) for c in range(3)]
        enlarged = np.stack([np.asarray(channel) for channel in channels], axis=-1)
        windows = {(i, j): enlarged[i : i + 12, j : j + 12] for i in range(4) for j in range(4)}
        corner, nearest = min(windows.items(), key=lambda window: np.abs(window[1] - part).max())
        np.testing.assert_allclose(part, nearest, atol=1e-2)
        corners.add(corner)
    assert len(corners) > 8


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), least=st.floats(0.1, 1), aspect=st.floats(0.4, 1))
def test_resized_crops_are_windows_of_the_area_and_aspect_asked_for(seed: int, least: float, aspect: float) -> None:
    height, width = 30, 20
    rows, columns = np.indices((height, width)).astype(np.float32)
    ramp: Any = np.stack([np.stack([rows, columns], axis=-1)] * 4)  # each pixel says where it comes from
    changed = np.asarray(
        random_resized_crop(jax.random.key(seed), ramp, area=(least, least), aspect=(aspect, 1 / aspect))
    )
    for part in changed:
        down, across = part[15, 10, 0] - part[14, 10, 0], part[15, 10, 1] - part[15, 9, 1]
        part_height, part_width = down * height, across * width
        limited = max(part_height / height, part_width / width) > 1 - 1e-3
        area = part_height * part_width / (height * width)
        assert area <= least + 1e-3 if limited else area == pytest.approx(least, abs=2e-3)
        assert limited or aspect - 1e-2 <= part_width / part_height <= 1 / aspect + 1e-2
        np.testing.assert_allclose(np.diff(part[..., 0], axis=1), 0, atol=1e-3)
        assert part[..., 0].max() <= height - 1 + 1e-3
        assert part[..., 1].max() <= width - 1 + 1e-3


@pytest.mark.parametrize("degrees", [5, 30, 90])
def test_a_rotation_turns_by_the_angle_that_was_drawn_as_pillow_does(degrees: int) -> None:
    rows, columns = np.indices((48, 40)).astype(np.float64)
    smooth = 127 + 60 * np.sin(rows / 6) + 60 * np.cos((columns + rows / 3) / 7)
    x = np.stack([smooth] * 6).astype(np.float32)
    turned = np.asarray(jax.jit(partial(random_rotation, degrees=degrees))(KEY, x))
    drawn = jax.random.uniform(KEY, (6, 1, 1, 1), minval=-math.radians(degrees), maxval=math.radians(degrees))
    angles = np.degrees(np.asarray(drawn)).reshape(-1)
    assert np.abs(angles).max() > degrees / 2
    inner = (slice(14, 34), slice(12, 28))  # what no angle brings from outside
    for picture, angle in zip(turned, angles.tolist(), strict=True):
        expected = np.asarray(Image.fromarray(x[0]).rotate(angle, Image.Resampling.BILINEAR))
        assert np.abs(picture[inner] - expected[inner]).max() < 6
        assert np.abs(picture[inner] - expected[inner]).mean() < 1.5


def test_brightness_adds_one_number_to_a_picture() -> None:
    x: Any = np.full((200, 8, 8, 3), 100, np.uint8)
    added = np.asarray(random_brightness(KEY, x, delta=0.2)) - 100.0
    np.testing.assert_allclose(added, np.broadcast_to(added[:, :1, :1, :1], added.shape), atol=1e-4)
    assert np.abs(added).max() <= 51
    assert added.min() < -40
    assert added.max() > 40


def test_contrast_stretches_around_the_mean_of_each_channel() -> None:
    x = np.clip(PICTURES, 90, 160)
    changed = np.asarray(random_contrast(KEY, x, factors=(0.5, 1.5)))
    mean = x.mean(axis=(1, 2), keepdims=True)
    factors = (changed - mean)[:, 0, 0, 0] / (x - mean)[:, 0, 0, 0]
    assert 0.5 - 1e-3 <= factors.min() < 0.7
    assert 1.3 < factors.max() <= 1.5 + 1e-3
    np.testing.assert_allclose(changed, np.clip(mean + (x - mean) * factors[:, None, None, None], 0, 255), atol=1e-2)


@pytest.mark.parametrize("factor", [0, 0.5, 1.5])
def test_saturation_is_pillows(factor: float) -> None:
    changed = np.asarray(random_saturation(KEY, PICTURES, factors=(factor, factor)))
    for picture, mine in zip(PICTURES, changed, strict=True):
        pillows = np.asarray(ImageEnhance.Color(Image.fromarray(picture)).enhance(factor)).astype(float)
        assert np.abs(mine - pillows).max() <= 2  # Pillow rounds twice


def test_a_chain_gives_each_change_a_key_of_its_own() -> None:
    flips = chain(random_flip, random_flip)
    changed = np.asarray(flips(KEY, PICTURES))
    mirrored = np.array([np.array_equal(a, b[:, ::-1]) for a, b in zip(changed, PICTURES, strict=True)])
    assert 0 < mirrored.sum() < len(PICTURES)  # with one key for both, nothing would be mirrored


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (partial(random_brightness, delta=-1), "`delta`"),
        (partial(random_contrast, factors=(1.2, 0.8)), "`factors`"),
        (partial(random_saturation, factors=(-1, 1)), "`factors`"),
        (partial(random_rotation, degrees=91), "`degrees`"),
        (partial(random_resized_crop, area=(0, 1)), "`area`"),
        (partial(random_resized_crop, aspect=(2, 1)), "`aspect`"),
        (partial(random_enlarged_crop, pixels=-1), "`pixels`"),
        (partial(random_pad_and_crop, pixels=12, mode="reflect"), "`pixels`"),
        (partial(random_pad_and_crop, **{"mode": "wrap"}), "`mode`"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        change(KEY, PICTURES)
