"""Handwritten digits, 8x8 pixels, with a small convolutional network. Needs no download; trains in seconds.

The 1,797 digits come with scikit-learn (a copy of the test set of the UCI "Optical Recognition of Handwritten Digits").
"""

from typing import TYPE_CHECKING, Any

import numpy as np

import rudel
from rudel.data import digits
from rudel.data.pictures import ink_on_a_square

if TYPE_CHECKING:
    from PIL import Image

training = {"epochs": 60, "batch_size": 32}


def data(validation: float = 0.2, augmentation: bool = True, seed: int = 0) -> rudel.Dataset:
    """Loads the digits.

    Args:
        validation: share of the examples to hold out.
        augmentation: shift and stretch training digits at random.
        seed: seed of the split.
    """
    from rudel.data.augmentation import random_zoom_and_shift

    shades, classes = digits.load()
    pixels = (shades * (255 / 16)).round().astype(np.uint8)  # sixteen shades of grey become 0..255
    train, held_out = rudel.split(rudel.Examples(pixels, classes), validation, seed)
    return rudel.Dataset(
        train,
        held_out,
        class_names=[str(digit) for digit in range(10)],
        attribution="Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI (CC BY 4.0).",
        augment=random_zoom_and_shift if augmentation else None,
    )


def model(
    dataset: rudel.Dataset, steps: int = 1, filters: int = 16, dropout: float = 0.4, learning_rate: float = 2e-3
) -> Any:
    """A convolutional net of three layers.

    Args:
        dataset: gives the number of classes.
        steps: of the whole training, over which the learning rate falls to 0.
        filters: filters of the first convolution; the others have twice as many.
        dropout: share of the features to drop in training.
        learning_rate: initial learning rate of Adam.
    """
    import keras
    from keras import layers

    def convolution(filters: int, strides: int = 1) -> list[Any]:
        convolve = layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)
        return [convolve, layers.BatchNormalization(momentum=0.95), layers.ReLU()]

    net = keras.Sequential(
        [
            keras.Input((8, 8)),
            layers.Rescaling(1 / 255),
            layers.Reshape((8, 8, 1)),
            *convolution(filters),
            *convolution(2 * filters, strides=2),
            *convolution(2 * filters),
            layers.Flatten(),
            layers.Dropout(dropout),
            layers.Dense(len(dataset.class_names), activation="softmax"),
        ]
    )
    schedule: Any = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
    net.compile(keras.optimizers.Adam(schedule), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return net


def read_image(image: "Image.Image") -> np.ndarray:
    """A Pillow image as a digit: uint8 (8, 8), white on black; dark ink on light paper is inverted and cut out."""
    return ink_on_a_square(image, 8, margin=0)
