"""Movements of a sensor in the hand, classified by a small convolutional network.

For a folder of CSV files, one for each movement, with recordings separated by blank lines, such as an Arduino Nano 33
BLE Sense writes; or the records that `rudel data motion` makes of it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

import rudel
from rudel.data.dataset import ToEvaluate
from rudel.data.motion import find_motions
from rudel.errors import DataError, option

training = {"epochs": 60, "least_steps": 300, "batch_size": 16}


def data(
    source: str | None = None,
    samples: int = 119,
    validation: float = 0.2,
    augmentation: Literal["motion", "none"] = "motion",
) -> rudel.Dataset:
    """Recordings as windows.

    Args:
        source: a folder of CSV files, or of records.
        samples: length of a window, in rows: 119 are a second of the Arduino's sensor.
        validation: share of recordings to hold out; records are split already.
        augmentation: what is done at random to recordings that the net learns from: motion makes them stronger or
            weaker, turns the sensor, and adds noise; or none.
    """
    if source is None:
        raise DataError(
            "The recipe `motion` learns from recordings of a sensor: give a folder of CSV files, one for each "
            f"movement, with {option('data')}, or the records that `rudel data motion FOLDER --out DIR` makes of it."
        )
    found = find_motions(source, samples)
    train, held_out = found.split(found.held_out(validation))
    return rudel.Dataset(
        train.examples(),
        held_out and held_out.examples(),
        class_names=train.classes,
        notes=(*found.notes, *found.possible_clocks),
        augment=_changes(found.x.shape[2]) if augmentation == "motion" else None,
        channels=found.channels,
    )


def evaluation(
    source: str, split: str | None, class_names: Sequence[str], channels: Sequence[str] = (), samples: int = 119
) -> ToEvaluate:
    """All recordings at a source, for `rudel evaluate --data`; see `data`.

    Args:
        source: a folder of CSV files, or of records.
        split: of the records; None for all of them.
        class_names: of the model; recordings get its labels by the names of their classes.
        channels: of the model, in its order; recordings are brought into it by the names of theirs.
        samples: length of a window, in rows.
    """
    return find_motions(source, samples, split, least=1).to_evaluate(class_names, channels)


def model(dataset: rudel.Dataset, steps: int = 1, dropout: float = 0.2, learning_rate: float = 5e-3) -> Any:
    """A net for movements: float32 (samples, columns), as the sensor gives them, to probabilities.

    Args:
        dataset: gives the shape, the mean and the variance of each column, and the number of classes.
        steps: of the whole training, over which the learning rate falls to 0 along a cosine.
        dropout: share of the features to drop in training.
        learning_rate: initial learning rate of AdamW.
    """
    import keras
    from keras import layers

    x = dataset.train.x
    mean, variance = (of((0, 1), dtype=np.float64) for of in (x.mean, x.var))  # float32 sums lose a large offset
    inputs = keras.Input(x.shape[1:], name="motion")
    scaled = layers.Normalization(mean=mean, variance=variance + 1e-6, name="scaled")(inputs)
    for number, filters in enumerate((16, 24, 32), 1):
        name = f"convolution_{number}"
        scaled = layers.Conv1D(filters, 5, strides=2, padding="same", use_bias=False, name=name)(scaled)
        scaled = layers.BatchNormalization(momentum=0.9, name=f"{name}_normalised")(scaled)
        scaled = layers.ReLU(name=f"{name}_relu")(scaled)
    features = layers.Dropout(dropout, name="dropout")(layers.GlobalAveragePooling1D(name="mean")(scaled))
    outputs = layers.Dense(len(dataset.class_names), activation="softmax", dtype="float32", name="classes")(features)
    made = keras.Model(inputs, outputs, name="motion")
    schedule: Any = keras.optimizers.schedules.CosineDecay(learning_rate, max(1, steps))
    made.compile(
        keras.optimizers.AdamW(schedule, weight_decay=1e-2), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return made


def _changes(columns: int) -> Any:
    from rudel.data.augmentation import chain, random_jitter, random_scale, random_turn

    turn = [partial(random_turn, degrees=15)] if columns % 3 == 0 else []
    return chain(random_scale, *turn, random_jitter)
