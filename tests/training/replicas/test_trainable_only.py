"""Only what is trained travels between hosts: with LoRA, or with frozen layers, a fraction of the model."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from training.replicas.conftest import Crew

import rudel

CLASSES = 4


def transformer(lora: bool) -> Any:
    keras.utils.set_random_seed(0)
    tokens = keras.Input((16,), dtype="int32")
    x = keras.layers.Embedding(200, 32)(tokens)
    x = keras.layers.LayerNormalization()(x + keras.layers.MultiHeadAttention(2, 16)(x, x))
    x = keras.layers.LayerNormalization()(x + keras.layers.Dense(32)(keras.layers.Dense(128, activation="gelu")(x)))
    model = keras.Model(tokens, keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling1D()(x)))
    if lora:
        for layer in model.layers[:-1]:
            if hasattr(layer, "enable_lora"):
                layer.enable_lora(2)
            else:
                layer.trainable = False
    return compiled(model)


def mobilenet(frozen: bool) -> Any:
    keras.utils.set_random_seed(0)
    nothing: Any = None  # the stubs of Keras want a name
    body = keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, include_top=False, weights=nothing, pooling="avg")
    body.trainable = not frozen
    images = keras.Input((32, 32, 3))
    return compiled(keras.Model(images, keras.layers.Dense(CLASSES)(body(images, training=False))))


def compiled(model: Any) -> Any:
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def bytes_a_round_and_weight(model: Any, x: np.ndarray, crew: Crew, run: Path) -> float:
    y = np.random.default_rng(1).integers(0, CLASSES, len(x)).astype("int32")
    strategy = rudel.Diloco(round_steps=4, delta_codec="int8", merge_codec="int8")
    rudel.fit(model, x, y, batch_size=8, steps=48, client=crew.client, strategy=strategy, run=run, verbose=0)
    summary = json.loads((run / "summary.json").read_text())
    trained = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    return summary["bytes_sent"] / summary["rounds"] / trained


def check(small: Any, large: Any, x: np.ndarray, crew: Crew, folder: Path) -> None:
    assert small.count_params() >= large.count_params()
    before = [np.asarray(variable) for variable in small.non_trainable_variables]
    of_small = bytes_a_round_and_weight(small, x, crew, folder / "small")
    of_large = bytes_a_round_and_weight(large, x, crew, folder / "large")
    assert 0.8 * of_large < of_small < 1.25 * of_large
    for old, new in zip(before, small.non_trainable_variables, strict=True):
        np.testing.assert_array_equal(old, np.asarray(new))


def test_low_rank_adapters(crew: Crew, tmp_path: Path) -> None:
    tokens = np.random.default_rng(0).integers(0, 200, (64, 16)).astype("int32")
    check(transformer(lora=True), transformer(lora=False), tokens, crew, tmp_path)


@pytest.mark.slow
def test_a_frozen_mobilenet(crew: Crew, tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((64, 32, 32, 3), dtype="float32")
    check(mobilenet(frozen=True), mobilenet(frozen=False), images, crew, tmp_path)
