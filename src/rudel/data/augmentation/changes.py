"""All changes of `rudel.data.augmentation`, by name."""

from collections.abc import Callable
from typing import Any

from rudel.data.augmentation.chain import cloud_tpu_guide
from rudel.data.augmentation.colour import random_brightness, random_contrast, random_saturation
from rudel.data.augmentation.geometry import (
    random_enlarged_crop,
    random_flip,
    random_pad_and_crop,
    random_resized_crop,
    random_zoom_and_shift,
)
from rudel.data.augmentation.motion import random_jitter, random_scale, random_turn
from rudel.data.augmentation.rotation import random_rotation
from rudel.data.augmentation.sound import random_gain, random_noise, random_sound_shift, random_speed

CHANGES: dict[str, Callable[..., Any]] = {
    change.__name__: change
    for change in (
        cloud_tpu_guide,
        random_brightness,
        random_contrast,
        random_enlarged_crop,
        random_flip,
        random_gain,
        random_jitter,
        random_noise,
        random_pad_and_crop,
        random_resized_crop,
        random_rotation,
        random_saturation,
        random_scale,
        random_sound_shift,
        random_speed,
        random_turn,
        random_zoom_and_shift,
    )
}
