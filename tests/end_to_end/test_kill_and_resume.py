"""A training that is killed with SIGKILL or interrupted, again and again, ends with the very weights of one that was
not, whether its examples are in memory or read from a file.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from processes import started as process_of

import rudel

WORKER = """
import sys
from pathlib import Path
from rudel.backend import keras_on_jax, set_seed
keras = keras_on_jax(light=True)
import numpy as np
import rudel
from rudel.data.stream import Stream
from rudel.loop import blocks
layers = keras.layers

run, checkpoint_every, streamed = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "streamed"
set_seed(3)
random = np.random.default_rng(0)
x = random.integers(0, 256, (640, 10, 10), dtype="uint8")
y = random.integers(0, 4, 640).astype("int32")
model = keras.Sequential([
    keras.Input((10, 10)), layers.Rescaling(1 / 255), layers.Reshape((10, 10, 1)),
    layers.Conv2D(8, 3), layers.BatchNormalization(), layers.ReLU(), layers.Flatten(), layers.Dropout(0.4),
    layers.Dense(64, activation="relu"), layers.Dense(4, activation="softmax"),
])
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
callbacks = [
    keras.callbacks.ReduceLROnPlateau(patience=1, min_delta=0.01),
    keras.callbacks.EarlyStopping(patience=40, restore_best_weights=True),
]

begun = ["began"]  # not an attribute of the callback, which checkpoints would keep

class Tell(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if begun: print(begun.pop(), flush=True)

    def on_epoch_end(self, epoch, logs=None):
        self.on_epoch_begin(epoch)  # not called of an epoch that is resumed
        print(epoch, flush=True)
        if epoch == 38: sys.stdin.read()  # until the test has sent its signal, however late that is

class OnDisk(Stream):
    def __init__(self, folder):
        np.save(folder / "x.npy", x)
        self.x = np.load(folder / "x.npy", mmap_mode="r")

    def __len__(self): return len(y)
    def take(self, indices): return rudel.Examples(np.array(self.x[indices]), y[indices])
    def fingerprint(self): return "on disk"

blocks.BLOCK_BYTES = 7 * 32 * x[0].nbytes  # half an epoch
data = rudel.Dataset(OnDisk(Path(run).parent) if streamed else rudel.Examples(x, y))
rudel.fit(model, data, validation=0.2, steps=800, batch_size=32, run=run, resume=True, callbacks=[*callbacks, Tell()],
          checkpoint_every=checkpoint_every)
"""


@pytest.fixture(scope="module")
def started(warm_python: str) -> Callable[..., AbstractContextManager[subprocess.Popen[str]]]:
    """Starts a training of 50 epochs of 16 steps, or resumes it."""

    def start(run: Path, checkpoint_every: int, data: str = "memory") -> AbstractContextManager[subprocess.Popen[str]]:
        command = [warm_python, "-c", WORKER, str(run), str(checkpoint_every), data]
        return process_of(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    return start


@pytest.fixture(scope="module")
def finish(started: Callable[..., Any]) -> Callable[..., None]:
    """Trains to the end."""

    def to_the_end(run: Path, data: str = "memory") -> None:
        with started(run, 10_000, data) as worker:
            worker.communicate()
        assert worker.returncode == 0

    return to_the_end


def read_until_epoch(worker: subprocess.Popen[str], epoch: int) -> None:
    """Blocks until the training has ended this epoch, or has begun if it is -1."""
    assert worker.stdout
    assert worker.stdout.readline() == "began\n"
    if epoch >= 0 and not any(int(line) >= epoch for line in worker.stdout):
        raise AssertionError(f"the training ended before epoch {epoch}")


def weights(run: Path) -> str:
    model = rudel.load(run)
    return hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()


def metrics(run: Path) -> list[dict[str, object]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, finish: Callable[..., None]) -> Path:
    run = tmp_path_factory.mktemp("whole") / "undisturbed"
    finish(run)
    return run


@pytest.mark.parametrize(
    ("data", "kills"),
    [
        *(("memory", 2), ("streamed", 2)),
        *(pytest.param(data, kills, marks=pytest.mark.slow) for data, kills in (("memory", 6), ("streamed", 4))),
    ],
)
def test_kills_change_no_bit(
    started: Callable[..., Any],
    finish: Callable[..., None],
    undisturbed: Path,
    tmp_path: Path,
    data: str,
    kills: int,
) -> None:
    disturbed = tmp_path / "disturbed"
    chance = random.Random(os.environ.get("RUDEL_TEST_SEED", "rudel"))
    for epoch in sorted(chance.sample(range(1, 36), kills)):
        with started(disturbed, chance.choice([7, 16, 25]), data) as worker:
            read_until_epoch(worker, epoch)
            worker.kill()  # wherever it is by now
        assert worker.returncode == -signal.SIGKILL
        assert not (disturbed / "summary.json").exists()
    finish(disturbed, data)
    assert weights(disturbed) == weights(undisturbed)
    assert metrics(disturbed) == metrics(undisturbed)


def test_killed_before_the_first_checkpoint_it_begins_again_and_interrupted_it_is_resumed_from_that_moment(
    started: Callable[..., Any], finish: Callable[..., None], undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with started(run, 10_000) as worker:
        read_until_epoch(worker, -1)
        worker.kill()
    assert (run / "config.json").exists()
    assert not list((run / "checkpoints").glob("*"))
    for signal_sent, epoch in ((signal.SIGINT, 3), (signal.SIGTERM, 20)):
        with started(run, 10_000) as worker:
            read_until_epoch(worker, epoch)
            worker.send_signal(signal_sent)
            worker.communicate()
        assert worker.returncode == (-signal.SIGINT if signal_sent == signal.SIGINT else 128 + signal.SIGTERM)
        (*_, newest) = sorted((run / "checkpoints").iterdir())
        assert int(newest.stem.removeprefix("step-")) >= epoch * 16
    finish(run)
    assert weights(run) == weights(undisturbed)
    assert metrics(run) == metrics(undisturbed)
