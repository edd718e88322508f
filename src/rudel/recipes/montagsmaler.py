"""Quick, Draw!: guess what somebody is drawing. By default the magazine's job: 13 classes of fruit and vegetables.

The default net and schedule are those of the article (an MLP 784-256-n, 8,192 steps of global batch 32, 4,000 drawings
a class of which 10 % are held out); `net=cnn` is a small convolutional net that is far more accurate.
"""

from typing import Any, Literal

import numpy as np

import rudel
from rudel.data.pictures import ink_on_a_square

training = {"steps": 8192, "batch_size": 32}

CLASSES = (
    *("apple", "asparagus", "banana", "blackberry", "blueberry", "broccoli", "carrot"),
    *("grapes", "peanut", "pear", "pineapple", "strawberry", "watermelon"),
)


def data(
    source: str | None = None,
    progress: Any = None,
    classes: tuple[str, ...] = CLASSES,
    drawings: int = 4000,
    validation: float = 0.1,
    seed: int = 0,
) -> rudel.Dataset:
    """Fetches the first drawings of every class, or takes them from the cache.

    Args:
        source: an address or a folder laid out as the public bucket; None for the bucket itself.
        progress: called with (bytes done, bytes in all) while something is fetched.
        classes: names of the classes, of the 345 that there are.
        drawings: how many of each class.
        validation: share of the drawings to hold out.
        seed: of the choice of held-out drawings.
    """
    from rudel.data import quickdraw

    loaded = quickdraw.load(classes, drawings, source, progress)
    train, held_out = rudel.split(rudel.Examples(loaded.x, loaded.y), validation, seed)
    fewer = [f"{count:,} of {name}" for name, count in zip(classes, loaded.counts, strict=True) if count < drawings]
    note = f"Fewer than {drawings:,} drawings were to be had of some classes: {', '.join(fewer)}."
    return rudel.Dataset(
        train, held_out, class_names=classes, attribution=quickdraw.ATTRIBUTION, notes=(note,) if fewer else ()
    )


def model(dataset: rudel.Dataset, net: Literal["mlp", "cnn"] = "mlp", hidden: int = 256, dropout: float = 0.2) -> Any:
    """The article's MLP, or a small convolutional net.

    Args:
        dataset: gives the number of classes.
        net: mlp or cnn.
        hidden: units of the MLP's hidden layer.
        dropout: share of the hidden units to drop in training.
    """
    import keras
    from keras import layers

    mlp = [layers.Flatten(), layers.Dense(hidden, activation="relu"), layers.Dropout(dropout)]
    net = keras.Sequential(
        [
            keras.Input((28, 28)),
            layers.Rescaling(1 / 255),
            *mlp,
            layers.Dense(len(dataset.class_names), activation="softmax"),
        ]
    )
    net.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return net


def read_image(picture: Any) -> np.ndarray:
    """A Pillow image as a drawing: uint8 (28, 28), white on black as in Quick, Draw!.

    Dark lines on light paper are inverted; the picture is cut to what is drawn, made square and scaled.
    """
    return ink_on_a_square(picture, 28, margin=16 / 304)  # of the 304 units of a drawing, 16 are free around the ink
