"""Handwritten digits, 8x8 pixels, with a small convolutional net. Needs no download; trains in seconds.

The 1,797 digits come with scikit-learn (a copy of the test set of the UCI "Optical Recognition of Handwritten Digits").
"""

from typing import Any

import numpy as np

import rudel

training = {"epochs": 40, "batch_size": 32}


def data(validation: float = 0.2, seed: int = 0) -> rudel.Dataset:
    """Loads the digits.

    Args:
        validation: share of the examples to hold out.
        seed: of the choice of held-out examples.
    """
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    pixels = (digits.images * (255 / 16)).round().astype(np.uint8)  # sixteen shades of grey become 0..255
    train, held_out = rudel.split(rudel.Examples(pixels, digits.target.astype(np.int32)), validation, seed)
    return rudel.Dataset(
        train,
        held_out,
        class_names=[str(digit) for digit in range(10)],
        attribution="Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI (CC BY 4.0).",
    )


def model(dataset: rudel.Dataset, filters: int = 32, dropout: float = 0.3, learning_rate: float = 2e-3) -> Any:
    """A convolutional net of two layers.

    Args:
        dataset: gives the number of classes.
        filters: of the first convolution; the second has twice as many.
        dropout: share of the features to drop in training.
        learning_rate: of Adam.
    """
    import keras
    from keras import layers

    net = keras.Sequential(
        [
            keras.Input((8, 8)),
            layers.Rescaling(1 / 255),
            layers.Reshape((8, 8, 1)),
            layers.Conv2D(filters, 3, padding="same", activation="relu"),
            layers.Conv2D(2 * filters, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(dropout),
            layers.Dense(len(dataset.class_names), activation="softmax"),
        ]
    )
    net.compile(keras.optimizers.Adam(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return net
