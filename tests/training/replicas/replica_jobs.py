"""What tests of several hosts train: a small classifier of rows of a table, in short rounds."""

from typing import Any

import keras
import numpy as np

from rudel.replicas.diloco.diloco_options import Diloco

TABLE = np.random.default_rng(3).normal(size=(512, 5)).astype("float32")
KINDS = (TABLE[:, 0] > 0).astype("int32") + 2 * (TABLE[:, 1] > 0)
SHORT = Diloco(round_steps=8)


def with_schedule() -> tuple[Any, Any, Any]:
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4)])
    schedule: Any = keras.optimizers.schedules.CosineDecay(0.02, 300)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.AdamW(schedule, clipnorm=1.0), loss=loss, metrics=["accuracy"])
    return model, TABLE, KINDS
