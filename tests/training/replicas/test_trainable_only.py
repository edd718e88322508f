"""Only what is trained travels between hosts: with LoRA, or with frozen layers, a fraction of the model."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from training.replicas.conftest import Crew

import rudel
from rudel.backend import set_seed

CLASSES = 4


HOSTS = 2


def transformer() -> Any:
    set_seed(0)
    tokens = keras.Input((16,), dtype="int32")
    x = keras.layers.Embedding(200, 32)(tokens)
    x = keras.layers.LayerNormalization()(x + keras.layers.MultiHeadAttention(2, 16)(x, x))
    x = keras.layers.LayerNormalization()(x + keras.layers.Dense(32)(keras.layers.Dense(128, activation="gelu")(x)))
    model = keras.Model(tokens, keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling1D()(x)))
    for layer in model.layers[:-1]:
        if hasattr(layer, "enable_lora"):
            layer.enable_lora(2)
        else:
            layer.trainable = False
    return model


def mobilenet() -> Any:
    set_seed(0)
    nothing: Any = None  # the stubs of Keras want a name
    body = keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, include_top=False, weights=nothing, pooling="avg")
    body.trainable = False
    images = keras.Input((32, 32, 3))
    return keras.Model(images, keras.layers.Dense(CLASSES)(body(images)))


def check(model: Any, x: np.ndarray, crew: Crew, run: Path) -> None:
    """A message of `int8` has a byte for each weight that is trained, and little besides."""
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    trained = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    assert trained < 0.08 * model.count_params()
    before = [np.asarray(variable) for variable in model.non_trainable_variables]
    y = np.random.default_rng(1).integers(0, CLASSES, len(x)).astype("int32")
    strategy = rudel.Diloco(round_steps=4, delta_codec="int8", merge_codec="int8")
    rudel.fit(
        model,
        x,
        y,
        batch_size=8,
        steps=48,
        client=crew.client,
        strategy=strategy,
        run=run,
        checkpoint_every=48,
        verbose=0,
    )
    for old, new in zip(before, model.non_trainable_variables, strict=True):
        np.testing.assert_array_equal(old, np.asarray(new))
    summary = json.loads((run / "summary.json").read_text())
    for way, messages in (("bytes_sent", summary["rounds"] - 1), ("bytes_received", summary["rounds"])):
        each = summary[way] / messages / HOSTS
        assert trained < each < 1.005 * trained + 120, (way, each, trained)


def test_low_rank_adapters(crew: Crew, tmp_path: Path) -> None:
    tokens = np.random.default_rng(0).integers(0, 200, (64, 16)).astype("int32")
    check(transformer(), tokens, crew, tmp_path / "run")


@pytest.mark.slow
def test_a_frozen_mobilenet(crew: Crew, tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((64, 32, 32, 3), dtype="float32")
    check(mobilenet(), images, crew, tmp_path / "run")
