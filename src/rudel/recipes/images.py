"""Photographs in a folder per class, such as hand signs, with a small convolutional network.

Made for the Sign Language Digits Dataset (some 2,000 photographs of ten signs), and good for any folder with a folder
of images for each class. Its images become records first (as by `rudel data images`); a folder of records is taken
as it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import rudel
from rudel.data.dataset import ToEvaluate
from rudel.data.images.image_sets import find_photographs
from rudel.data.images.images_dataset import Images, fits_memory
from rudel.errors import DataError, OptionError, option, recipe_option

training = {"epochs": 40, "batch_size": 32}


def data(
    source: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    side: int = 64,
    streamed: Literal["auto", "true", "false"] = "auto",
    augmentation: Literal["signs", "cloud_tpu_guide", "none"] = "signs",
    validation: float = 0.1,
) -> rudel.Dataset:
    """Photographs as records, in memory or read as they are needed.

    Args:
        source: a folder with a folder of photographs for each class, or a folder of records.
        progress: called with (photographs done, photographs in all) while records are made.
        side: height and width that photographs are scaled to, in pixels.
        streamed: whether photographs are decoded when a step needs them (true), or all in the beginning (false); auto
            does the latter if they take 512 MiB or less. The result is the same, bit for bit.
        augmentation: what is done at random to photographs that the net learns from: signs mirrors, cuts out parts, and
            changes brightness and contrast; cloud_tpu_guide does as Google's guide to Cloud TPU of 2018; or none.
        validation: share to hold out, by the hash of the file name; records are split already.
    """
    if source is None:
        raise DataError(
            "The recipe `images` learns from photographs: give a folder that has a folder of them for each class with "
            f"{option('data')}, or the records that `rudel data images FOLDER --out DIR` makes of it; ten hand signs "
            "are at https://github.com/ardamavi/Sign-Language-Digits-Dataset."
        )
    in_memory = {"auto": None, "true": False, "false": True}[streamed]
    changes = _changes(augmentation)
    return Images(source, side, validation=validation, augment=changes, in_memory=in_memory, progress=progress)


def evaluation(
    source: str,
    split: str | None,
    class_names: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
    side: int = 64,
    streamed: Literal["auto", "true", "false"] = "auto",
) -> ToEvaluate:
    """All photographs at a source, for `rudel evaluate --data`; see `data`.

    Args:
        source: a folder with a folder of photographs for each class, or a folder of records.
        split: of the records; None for all of them.
        class_names: of the model; photographs get its labels by the names of their classes.
        progress: called with (photographs done, photographs in all) while records are made.
        side: height and width that photographs are scaled to, in pixels.
        streamed: whether photographs are decoded when they are needed.
    """
    found = find_photographs(source, progress, least_classes=1).to_evaluate(side, split, class_names)
    if streamed == "false" or (streamed == "auto" and fits_memory(len(found.examples), side)):
        return replace(found, examples=found.examples.in_memory())
    return found


def model(
    dataset: rudel.Dataset,
    steps: int = 1,
    side: int = 64,
    net: Literal["compact", "resnet", "mobilenet"] = "compact",
    weights: str | None = None,
    freeze: bool = False,
    dropout: float = 0.3,
    learning_rate: float = 3e-3,
) -> Any:
    """A net for photographs: uint8 (side, side, 3) to probabilities.

    Args:
        dataset: gives the number of classes.
        steps: of the whole training: the learning rate rises over the first tenth, and falls to 0 along a cosine.
        side: height and width of the photographs, in pixels.
        net: compact has 0.2 million weights; mobilenet is MobileNetV2 with 2.3, resnet ResNet50V2 with 23.6 million.
        weights: a file with weights to begin with: the model of a run, or of Keras (.keras, .weights.h5, .h5).
        freeze: train only the last layer, and keep the file's weights in the others.
        dropout: share of the features to drop in training.
        learning_rate: peak learning rate of AdamW.
    """
    import keras
    from keras import layers

    from rudel.recipes.nets.applications import mobilenet, resnet
    from rudel.recipes.nets.compact import compact
    from rudel.recipes.nets.weights import load_weights

    if freeze and weights is None:
        raise OptionError(
            f"`freeze` keeps weights of a file as they are: name one with {recipe_option('weights', 'FILE')}."
        )
    inputs = keras.Input((side, side, 3), dtype="uint8", name="photograph")
    scaled = layers.Rescaling(1 / 127.5, offset=-1, name="from_minus_1_to_1")(inputs)
    features = {"compact": compact, "resnet": resnet, "mobilenet": mobilenet}[net](scaled)
    dropped = layers.Dropout(dropout, name="dropout")(features)
    head = layers.Dense(len(dataset.class_names), activation="softmax", dtype="float32", name="classes")
    made = keras.Model(inputs, head(dropped), name=net)
    if weights is not None:
        load_weights(made, weights, dataset.class_names)
        for layer in made.layers:
            layer.trainable = not freeze or layer is head
    warm_up = steps // 10
    rate: Any = keras.optimizers.schedules.CosineDecay(
        0.0, max(1, steps - warm_up), warmup_target=learning_rate, warmup_steps=warm_up
    )
    made.compile(
        keras.optimizers.AdamW(rate, weight_decay=1e-2), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return made


def _changes(name: str) -> Any:
    from rudel.data.augmentation import (
        chain,
        cloud_tpu_guide,
        random_brightness,
        random_contrast,
        random_flip,
        random_resized_crop,
    )

    signs = chain(
        random_flip,
        partial(random_resized_crop, area=(0.6, 1.0), aspect=(0.85, 1.18)),
        partial(random_brightness, delta=0.15),
        partial(random_contrast, factors=(0.7, 1.3)),
    )
    return {"signs": signs, "cloud_tpu_guide": cloud_tpu_guide, "none": None}[name]
