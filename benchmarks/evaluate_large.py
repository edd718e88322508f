"""A recipe with a large model: drawings as in `montagsmaler`, and an MLP 784-2048-1600-n of 4.9 million weights.

What travels between hosts is 20 MB in float32, a hundred steps' worth of computing rather than one.
"""

from typing import Any

import rudel
from rudel.recipes import montagsmaler

HIDDEN, DROPOUT, RATE = (2048, 1600), 0.2, 3e-4


def training() -> dict[str, int]:
    """A tenth of the article's steps."""
    return {"steps": 768, "batch_size": 32}


def data(
    source: str | None = None, progress: Any = None, classes: tuple[str, ...] = montagsmaler.CLASSES
) -> rudel.Dataset:
    """The drawings of `montagsmaler`.

    Args:
        source: an address or a folder laid out as the public bucket; None for the bucket itself.
        progress: called with (bytes done, bytes in all) while something is fetched.
        classes: names of the classes.
    """
    return montagsmaler.data(source, progress, classes)


def model(dataset: rudel.Dataset) -> Any:
    """Two hidden layers, each with dropout.

    Args:
        dataset: gives the number of classes.
    """
    import keras
    from keras import layers

    body = [layer for units in HIDDEN for layer in (layers.Dense(units, activation="relu"), layers.Dropout(DROPOUT))]
    output = layers.Dense(len(dataset.class_names), activation="softmax")
    made = keras.Sequential(
        [keras.Input((28, 28)), layers.Rescaling(1 / 255), layers.Flatten(), *body, output], name="large"
    )
    made.compile(keras.optimizers.Adam(RATE), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made
