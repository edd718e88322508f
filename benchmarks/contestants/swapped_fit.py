"""One script with `model.fit` or `rudel.fit`, Keras on JAX: ten short fits, or epochs from a source of batches."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

BATCH = 32


class Clock(keras.callbacks.Callback):
    """When epochs ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Waits for the loss, and looks at the clock."""
        float((logs or {})["loss"])
        self.ends.append(time.perf_counter())


def mlp(shape: tuple[int, ...], hidden: int) -> Any:
    """A compiled classifier with one hidden layer."""
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input(shape), layers.Flatten(), layers.Dense(hidden, activation="relu"), layers.Dense(10, "softmax")]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def source_of(kind: str, x: np.ndarray, y: np.ndarray) -> Any:
    """Arrays as a source of batches."""
    if kind == "tf.data":
        import tensorflow as tf

        tf.config.set_visible_devices([], "GPU")
        return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).prefetch(tf.data.AUTOTUNE)
    if kind == "DataLoader":
        import torch  # pyright: ignore[reportMissingImports]  # a rival's, which need not be there

        return torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=BATCH
        )
    if kind == "generator":
        return _batches(x, y)

    class Batches(keras.utils.PyDataset):
        """Slices of the arrays."""

        def __len__(self) -> int:
            return len(x) // BATCH

        def __getitem__(self, index: int) -> Any:
            rows = slice(index * BATCH, (index + 1) * BATCH)
            return x[rows], y[rows]

    return Batches()


def _batches(x: np.ndarray, y: np.ndarray) -> Iterator[Any]:
    while True:
        for first in range(0, len(x), BATCH):
            yield x[first : first + BATCH], y[first : first + BATCH]


def short(fit: Callable[..., Any], given: dict[str, Any]) -> dict[str, float]:
    """Fits of one epoch, one after the other, on 1,500 rows: the last batch is a partial one."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(1500, 64)).astype("float32"), random.integers(0, 10, 1500)
    model, began, seconds = mlp((64,), 64), time.perf_counter(), []
    for _ in range(given["fits"]):
        start = time.perf_counter()
        fit(model, x, y, batch_size=BATCH, verbose=0)
        seconds.append(time.perf_counter() - start)
    return {"fits_seconds": time.perf_counter() - began, "later_fit_seconds": sorted(seconds)[len(seconds) // 2]}


def source(fit: Callable[..., Any], given: dict[str, Any]) -> dict[str, float]:
    """Seconds a step of the article's MLP, in the epochs after the first."""
    steps, random = given["steps"], np.random.default_rng(0)
    x = random.random((steps * BATCH, 28, 28), dtype="float32")
    y = random.integers(0, 10, len(x)).astype("int32")
    clock, extra = Clock(), {"steps_per_epoch": steps} if given["kind"] == "generator" else {}
    fit(mlp((28, 28), 256), source_of(given["kind"], x, y), epochs=3, verbose=0, callbacks=[clock], **extra)
    return {"step_seconds": (clock.ends[-1] - clock.ends[0]) / 2 / steps}


def main() -> None:
    """Measures what the job names, and prints it."""
    given = json.loads(sys.argv[1])
    keras.utils.set_random_seed(given["seed"])
    if given["fit"] == "rudel":
        import rudel

        fit: Callable[..., Any] = rudel.fit
    else:
        fit = keras.Model.fit
    print(json.dumps((short if given["kind"] == "short" else source)(fit, given)))


if __name__ == "__main__":
    main()
