"""A driver of a training on hosts in a process of its own, which a test may kill."""

import contextlib
import subprocess
from pathlib import Path
from typing import Any

from processes import started, until

_DRIVER = """
import sys
from rudel.backend import keras_on_jax, set_seed
keras = keras_on_jax(light=True)
import numpy as np
import rudel

address, run, steps, strategy = sys.argv[1:]
set_seed(3)
random = np.random.default_rng(0)
x = random.normal(size=(2560, 10)).astype("float32")
y = (x[:, 0] > 0).astype("int32")
model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
rate = keras.optimizers.schedules.InverseTimeDecay(1e-3, decay_steps=1000, decay_rate=1.0)
model.compile(keras.optimizers.Adam(rate, use_ema=True), loss, metrics=["accuracy"])
strategies = {"diloco": rudel.Diloco(round_steps=32), "async": rudel.Async(steps_between=32)}
rudel.fit(model, x, y, validation=0.2, steps=int(steps), client=address, run=run, resume=True,
          strategy=strategies[strategy])
"""


def driver(
    python: str, address: str, run: Path, steps: int, strategy: str = "diloco"
) -> "contextlib.AbstractContextManager[subprocess.Popen[str]]":
    """Trains on the workers of a scheduler, in a run that is resumed."""
    return started([python, "-c", _DRIVER, address, str(run), str(steps), strategy], stderr=subprocess.PIPE)


def wait_for_rounds(process: "subprocess.Popen[str]", run: Path, count: int, read_log: Any) -> None:
    """Waits until a driver has closed so many rounds."""
    until(lambda: process.poll() is not None or len(read_log(run).rounds) >= count)
    assert process.poll() is None, process.communicate()[1]
