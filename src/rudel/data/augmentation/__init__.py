"""Random changes to training images, on the device, inside the compiled loop.

Each is a pure function of a JAX random key and a batch, `(key, x) -> x`; a `Dataset` names one of them, or a `chain` of
some, as `augment`. Every step has a key of its own, made of the seed and the step's number, so a resumed training makes
the same changes. Every image is changed by a draw of its own, whatever else is in the batch.

A batch is (N, H, W) or (N, H, W, C), uint8 from 0 to 255, or floats. What moves whole pixels (`random_flip`,
`random_pad_and_crop`) keeps the dtype; what computes new values gives floats in the same range: float32 of uint8, and
not rounded. What changes colours needs to know the range of float images: `bounds`, by default from 0 to 255, to
which it limits what comes out. To give settings, use `functools.partial`:

>>> from functools import partial
>>> changes = chain(random_flip, partial(random_rotation, degrees=10), partial(random_brightness, delta=0.1))
>>> import jax, numpy as np
>>> changes(jax.random.key(0), np.zeros((2, 32, 32, 3), np.uint8)).shape
(2, 32, 32, 3)
"""

from typing import TYPE_CHECKING, Any

from rudel.data.augmentation.chain import chain, cloud_tpu_guide
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
from rudel.data.augmentation.sound import (
    random_background,
    random_gain,
    random_noise,
    random_sound_shift,
    random_speed,
)

if TYPE_CHECKING:
    from rudel.data.augmentation.layer import Augmentation

__all__ = [
    "Augmentation",
    "chain",
    "cloud_tpu_guide",
    "random_background",
    "random_brightness",
    "random_contrast",
    "random_enlarged_crop",
    "random_flip",
    "random_gain",
    "random_jitter",
    "random_noise",
    "random_pad_and_crop",
    "random_resized_crop",
    "random_rotation",
    "random_saturation",
    "random_scale",
    "random_sound_shift",
    "random_speed",
    "random_turn",
    "random_zoom_and_shift",
]


def __getattr__(name: str) -> Any:
    if name != "Augmentation":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rudel.data.augmentation.layer import Augmentation

    return Augmentation
