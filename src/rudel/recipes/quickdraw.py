"""Quick, Draw!: guess what somebody is drawing. By default the magazine's job: 13 classes of fruit and vegetables.

The default net and schedule are those of the article (an MLP 784-256-n, 8,192 steps of global batch 32, 4,000 drawings
a class of which 10 % are held out); `net=cnn` is a small convolutional net that is far more accurate.
"""

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import rudel
from rudel.data.pictures import ink_on_a_square

if TYPE_CHECKING:
    import jax
    import keras
    from PIL import Image

CLASSES = (
    *("apple", "asparagus", "banana", "blackberry", "blueberry", "broccoli", "carrot"),
    *("grapes", "peanut", "pear", "pineapple", "strawberry", "watermelon"),
)


def training(net: Literal["mlp", "cnn"] = "mlp") -> dict[str, int]:
    """The article's 8,192 steps, or what the convolutional net needs."""
    return {"steps": 8192 if net == "mlp" else 10240, "batch_size": 32}


def data(
    source: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    classes: tuple[str, ...] = CLASSES,
    drawings: int = 4000,
    validation: float = 0.1,
    net: Literal["mlp", "cnn"] = "mlp",
    seed: int = 0,
) -> rudel.Dataset:
    """Fetches the first drawings of every class, or takes them from the cache.

    Args:
        source: an address or a folder laid out as the public bucket; None for the bucket itself.
        progress: called with (bytes done, bytes in all) while something is fetched.
        classes: names of the classes, out of 345.
        drawings: number of drawings per class.
        validation: share of the drawings to hold out.
        net: mlp or cnn; the drawings that the latter learns from are mirrored, stretched and moved at random.
        seed: seed of the split.
    """
    from rudel.data import quickdraw

    loaded = quickdraw.load(classes, drawings, source, progress)
    train, held_out = rudel.split(rudel.Examples(loaded.x, loaded.y), validation, seed)
    fewer = [f"{count:,} of {name}" for name, count in zip(classes, loaded.counts, strict=True) if count < drawings]
    note = f"Fewer than {drawings:,} drawings were to be had of some classes: {', '.join(fewer)}."
    return rudel.Dataset(
        train,
        held_out,
        class_names=classes,
        attribution=quickdraw.ATTRIBUTION,
        notes=(note,) if fewer else (),
        augment=_mirror_stretch_and_move if net == "cnn" else None,
    )


def model(
    dataset: rudel.Dataset,
    steps: int = 1,
    net: Literal["mlp", "cnn"] = "mlp",
    hidden: int = 256,
    dropout: float = 0.2,
) -> Any:
    """The article's MLP, or a small convolutional net.

    Args:
        dataset: gives the number of classes.
        steps: of the whole training, over which the learning rate of the convolutional net falls to 0.
        net: mlp or cnn.
        hidden: units of the MLP's hidden layer.
        dropout: share of the hidden units to drop in training.
    """
    import keras
    from keras import layers

    if net == "mlp":
        body = [layers.Flatten(), layers.Dense(hidden, activation="relu"), layers.Dropout(dropout)]
        optimizer = keras.optimizers.Adam(1e-3)
    else:
        body = _convolutions(layers)
        optimizer = _falling_sgd(keras, steps)
    output = layers.Dense(len(dataset.class_names), activation="softmax")
    made = keras.Sequential([keras.Input((28, 28)), layers.Rescaling(1 / 255), *body, output], name=net)
    made.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made


def read_image(image: "Image.Image") -> np.ndarray:
    """A Pillow image as a drawing: uint8 (28, 28), white on black as in Quick, Draw!.

    Dark lines on light paper are inverted; the image is cut to what is drawn, made square and scaled.
    """
    return ink_on_a_square(image, 28, margin=16 / 304)  # of the 304 units of a drawing, 16 are free around the ink


def _convolutions(layers: ModuleType) -> list[Any]:
    """Five convolutions, 14 x 14 to 4 x 4 pixels, and the mean of each feature over the image."""
    body = [layers.Reshape((28, 28, 1))]
    for filters, size, strides in ((32, 5, 2), (32, 3, 1), (64, 3, 2), (64, 3, 1), (128, 3, 2)):
        body.append(layers.Conv2D(filters, size, strides=strides, padding="same", use_bias=False))
        body += [layers.BatchNormalization(momentum=0.98), layers.ReLU()]
    return [*body, layers.GlobalAveragePooling2D()]


def _falling_sgd(keras: ModuleType, steps: int) -> "keras.Optimizer":
    """SGD with Nesterov momentum, whose learning rate rises over the first steps and then falls along a cosine."""
    warm_up = min(400, steps // 10)
    rate = keras.optimizers.schedules.CosineDecay(0.0, max(1, steps - warm_up), warmup_target=0.2, warmup_steps=warm_up)
    optimizer = keras.optimizers.SGD(rate, momentum=0.9, nesterov=True, weight_decay=2e-3)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return optimizer


def _mirror_stretch_and_move(key: "jax.Array", x: "jax.Array") -> "jax.Array":
    import jax

    from rudel.data.augmentation import random_flip, random_zoom_and_shift

    mirror, move = jax.random.split(key)
    return random_flip(mirror, random_zoom_and_shift(move, x, zoom=0.12, shift=0.05))
