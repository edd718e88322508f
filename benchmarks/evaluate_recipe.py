"""A recipe: the drawings of `quickdraw`, learned by other models than its own.

`large` is an MLP 784-2048-1600-n of 4.9 million weights: what travels between hosts is 20 MB in float32, a hundred
steps' worth of computing rather than one. `averaged` is the MLP of `quickdraw` with an exponential moving average of
its weights, by Keras' `use_ema`, which `keras.callbacks.SwapEMAWeights` evaluates; one host with it is the stronger of
the two baselines.
"""

from typing import Any, Literal

import rudel
from rudel.recipes import quickdraw

HIDDEN, DROPOUT, RATE = (2048, 1600), 0.2, 3e-4
MOMENTUM = 0.99


def training(of: Literal["large", "averaged"] = "large") -> dict[str, int]:
    """The article's steps, or a tenth of them."""
    return {"steps": 768 if of == "large" else 8192, "batch_size": 32}


def data(
    source: str | None = None, progress: Any = None, classes: tuple[str, ...] = quickdraw.CLASSES
) -> rudel.Dataset:
    """The drawings of `quickdraw`.

    Args:
        source: an address or a folder laid out as the public bucket; None for the bucket itself.
        progress: called with (bytes done, bytes in all) while something is fetched.
        classes: names of the classes.
    """
    return quickdraw.data(source, progress, classes)


def model(dataset: rudel.Dataset, of: Literal["large", "averaged"] = "large") -> Any:
    """One of the models; see the top of this file.

    Args:
        dataset: gives the number of classes.
        of: which model.
    """
    import keras
    from keras import layers

    if of == "averaged":
        made = quickdraw.model(dataset)
        optimizer = keras.optimizers.Adam(1e-3, use_ema=True, ema_momentum=MOMENTUM)
    else:
        body = [each for n in HIDDEN for each in (layers.Dense(n, activation="relu"), layers.Dropout(DROPOUT))]
        output = layers.Dense(len(dataset.class_names), activation="softmax")
        made = keras.Sequential(
            [keras.Input((28, 28)), layers.Rescaling(1 / 255), layers.Flatten(), *body, output], name="large"
        )
        optimizer = keras.optimizers.Adam(RATE)
    made.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made
