"""Spoken words, classified by a small convolutional network that takes sound as it comes from a microphone.

For a folder with a folder of recordings for each word (WAV or FLAC), such as the Free Spoken Digit Dataset or Speech
Commands, or the records that `rudel data sound` makes of it. The model takes samples: its features, MFCCs in
whole numbers, are its first layer.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import rudel
from rudel.data.dataset import ToEvaluate
from rudel.data.file_names import composed
from rudel.data.sound.keyword_classes import chosen
from rudel.data.sound.noise import BACKGROUND, read_noise
from rudel.data.sound.recording_folders import find_recordings
from rudel.errors import DataError, option
from rudel.files import expanded

training = {"epochs": 40, "least_steps": 400, "batch_size": 32}


def data(
    source: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    rate: int = 8000,
    seconds: float = 1.0,
    words: tuple = (),
    validation: float = 0.1,
    split: Literal["recording", "speaker"] = "recording",
    speakers: tuple = (),
    augmentation: Literal["keywords", "none"] = "keywords",
    noise: str | None = None,
    seed: int = 0,
) -> rudel.Dataset:
    """Recordings as windows of samples.

    Args:
        source: a folder with a folder of recordings for each word, or a folder of records.
        progress: called with (recordings read, recordings in all).
        rate: samples a second that the model hears; recordings of another rate are resampled.
        seconds: what the model hears at a time; recordings are cut or padded to it.
        words: those to tell apart, separated by commas: all others become `unknown`, and `silence` is added. Without
            this, every folder is a class.
        validation: share of recordings to hold out; records keep their split unless `split` is speaker.
        split: hold out single recordings, or all those of some speakers.
        speakers: names of speakers to hold out, instead of a share.
        augmentation: what is done at random to recordings that the net learns from: keywords moves them, changes their
            speed and loudness, and adds noise; or none.
        noise: a folder of recordings of background noise to mix in as well; by default `_background_noise_` in the
            folder of recordings, as Speech Commands has it, if it is there.
        seed: seed of the generated silence.
    """
    if source is None:
        raise DataError(
            "The recipe `keywords` learns from recordings: give a folder that has a folder of them for each word with "
            f"{option('data')}, or the records that `rudel data sound FOLDER --out DIR` makes of it; ten digits are at "
            "https://github.com/Jakobovski/free-spoken-digit-dataset."
        )
    found = find_recordings(source, rate, seconds, progress)
    train, held_out = found.split(found.held_out(validation, split, speakers))
    if words:
        train, held_out = chosen(train, words, seed), held_out and chosen(held_out, words, _apart(seed))
    return rudel.Dataset(
        train.examples(),
        held_out and held_out.examples(),
        class_names=train.classes,
        notes=(*found.notes, *train.without_examples),
        augment=_changes(_background(source, noise, rate)) if augmentation == "keywords" else None,
    )


def evaluation(
    source: str,
    split: str | None,
    class_names: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
    rate: int = 8000,
    seconds: float = 1.0,
    words: tuple = (),
    seed: int = 0,
) -> ToEvaluate:
    """All recordings at a source, for `rudel evaluate --data`; see `data`.

    Args:
        source: a folder with a folder of recordings for each word, or a folder of records.
        split: of the records; None for all of them.
        class_names: of the model; recordings get its labels by the names of their classes.
        progress: called with (recordings read, recordings in all).
        rate: samples per second.
        seconds: length of the model's input.
        words: those to tell apart; some may be absent, but not all.
        seed: seed of the generated silence.
    """
    found = find_recordings(source, rate, seconds, progress, split, least=1)
    if words:
        found = chosen(found, [word for word in composed(words) if word in found.classes] or words, _apart(seed))
    return found.to_evaluate(class_names)


def model(
    dataset: rudel.Dataset,
    steps: int = 1,
    rate: int = 8000,
    seconds: float = 1.0,
    net: Literal["large", "medium", "small", "tiny"] = "medium",
    features: Literal["mfcc", "log_mel"] = "mfcc",
    bands: int = 20,
    coefficients: int = 10,
    dropout: float = 0.2,
    learning_rate: float = 3e-3,
) -> Any:
    """A net for words: int16 (samples,) to probabilities.

    Args:
        dataset: gives the number of classes.
        steps: of the whole training: the learning rate rises over the first tenth, and falls to 0 along a cosine.
        rate: samples per second.
        seconds: length of the model's input.
        net: medium is MLPerf Tiny's DS-CNN with 64 filters; small has 32, tiny 16, large 96.
        features: log_mel is a log-mel spectrogram; mfcc is its cosine transform, which is better for new voices.
        bands: bands of the spectrogram.
        coefficients: number of MFCCs per frame.
        dropout: share of the features to drop in training.
        learning_rate: peak learning rate of AdamW.
    """
    import keras
    from keras import layers

    from rudel.features import MFCC, Features, LogMel
    from rudel.features.masks import SpecAugment
    from rudel.recipes.nets.ds_cnn import SIZES, ds_cnn

    inputs = keras.Input((round(rate * seconds),), dtype="int16", name="sound")
    kind = MFCC(rate, bands=bands, coefficients=coefficients) if features == "mfcc" else LogMel(rate, bands=bands)
    heard = Features(kind, name=features)(inputs)
    x = SpecAugment(kind.width // 8, 5, name="hidden_parts")(layers.Rescaling(1 / 64, name="scaled")(heard))
    x = layers.Reshape((*x.shape[1:], 1), name="spectrogram")(x)
    x = ds_cnn(x, SIZES[net], dropout)
    outputs = layers.Dense(len(dataset.class_names), activation="softmax", dtype="float32", name="words")(x)
    made = keras.Model(inputs, outputs, name="keywords")
    warm_up = steps // 10
    schedule: Any = keras.optimizers.schedules.CosineDecay(
        0.0, max(1, steps - warm_up), warmup_target=learning_rate, warmup_steps=warm_up
    )
    made.compile(
        keras.optimizers.AdamW(schedule, weight_decay=1e-2), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return made


def _apart(seed: int) -> tuple[int, int]:
    """The seed of silence to evaluate on, which is not that of the training."""
    return seed, 1


def _background(source: str, noise: str | None, rate: int) -> Any:
    """Samples of background noise; None where there is none."""
    beside = expanded(source) / BACKGROUND
    folder = noise or (beside if beside.is_dir() else None)
    return None if folder is None else read_noise(folder, rate)


def _changes(background: Any = None) -> Any:
    from rudel.data.augmentation import (
        chain,
        random_background,
        random_gain,
        random_noise,
        random_sound_shift,
        random_speed,
    )

    mixed = [] if background is None else [partial(random_background, noise=background)]
    return chain(random_speed, partial(random_sound_shift, share=0.1), random_gain, *mixed, random_noise)
