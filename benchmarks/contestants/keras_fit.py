"""Keras' own `fit`, on the backend that KERAS_BACKEND names.

The MLP gets its drawings as float32 in 0..1, the recipe's CNN as the uint8 that it rescales itself. `fit` is called
three times: for the warm-up, for all full epochs, and for what is left of the steps. The drawings are cut to full
batches, so that there is nothing to compile after the warm-up, and there is no callback between steps. The clock runs
within the epochs after the warm-up and waits for their results; `compile_seconds` is the warm-up, less what its steps
would have taken at the later pace.
"""

import time
from collections.abc import Iterator
from typing import Any

import job
import keras
import numpy as np

from rudel.data.dataset import Dataset


class Clock(keras.callbacks.Callback):
    """Seconds spent in epochs."""

    seconds = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts."""
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stops when the loss is known, hence every step done."""
        float((logs or {})["loss"])
        self.seconds += time.perf_counter() - self.began


def article_model(classes: int) -> Any:
    """The article's net, for pixels in 0..1."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(classes, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def pieces(steps: int, per_epoch: int) -> Iterator[tuple[int, int]]:
    """Calls of `fit` that make up so many steps: (steps an epoch, epochs)."""
    epochs, rest = divmod(steps, per_epoch)
    if epochs:
        yield per_epoch, epochs
    if rest:
        yield rest, 1


def prepared(given: job.Job) -> tuple[Any, list[np.ndarray], list[np.ndarray]]:
    """The model, and (x, y) to train and to validate on."""
    dataset: Dataset = job.drawings(given)
    assert dataset.validation
    mlp = given.net == "mlp"
    model = article_model(len(given.classes)) if mlp else job.recipe_model(given, dataset)
    parts = (dataset.train, dataset.validation)
    train, validation = ([job.as_floats(part.x) if mlp else part.x, np.asarray(part.y)] for part in parts)
    return model, train, validation


def main() -> None:
    """Trains, evaluates, prints."""
    given = job.read()
    keras.utils.set_random_seed(given.seed)
    model, (x, y), (x_held_out, y_held_out) = prepared(given)
    model.steps_per_execution = given.steps_per_execution
    size = given.batch_size

    def fit(steps: int, epochs: int, clock: Clock) -> None:
        count = steps * size
        model.fit(x[:count], y[:count], batch_size=size, epochs=epochs, callbacks=[clock], verbose=0)

    began = time.perf_counter()
    fit(given.warm_up, 1, Clock())
    warm_up_seconds = time.perf_counter() - began
    clock = Clock()
    for steps, epochs in pieces(given.steps - given.warm_up, len(x) // size):
        fit(steps, epochs, clock)
    step_seconds = clock.seconds / (given.steps - given.warm_up)
    results = model.evaluate(x_held_out, y_held_out, batch_size=256, verbose=0, return_dict=True)
    job.answer(
        ["keras", keras.backend.backend(), "numpy"],
        steps=given.steps,
        step_seconds=step_seconds,
        compile_seconds=max(0.0, warm_up_seconds - given.warm_up * step_seconds),
        accuracy=float(results["accuracy"]),
    )


if __name__ == "__main__":
    main()
