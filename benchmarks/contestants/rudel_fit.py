"""`rudel.fit` on the recipe's drawings and model.

Keras is imported as `rudel train` does it. Every step counts, the first one too: compilation is over when the first
epoch begins, and evaluation comes after the last. `compile_seconds` is all that comes before the first step: checks,
moving the data, tracing, compiling.
"""

import time
from typing import Any

import job

import rudel
from rudel.backend import keras_on_jax


def main() -> None:
    """Trains, evaluates, prints."""
    given = job.read()
    keras = keras_on_jax(light=True)
    dataset = job.drawings(given)

    class Clock(keras.callbacks.Callback):
        """Seconds in epochs, and the moment of the first."""

        began_training = seconds = 0.0

        def on_train_begin(self, logs: Any = None) -> None:
            self.began_training = time.perf_counter()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.began_epoch = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seconds += time.perf_counter() - self.began_epoch

    keras.utils.set_random_seed(given.seed)
    model = job.recipe_model(given, dataset)
    clock = Clock()
    began = time.perf_counter()
    rudel.fit(
        model,
        dataset.train,
        steps=given.steps,
        batch_size=given.batch_size,
        seed=given.seed,
        callbacks=[clock],
        verbose=False,
    )
    assert dataset.validation
    accuracy = rudel.evaluate(model, dataset.validation)["accuracy"]
    job.answer(
        ["rudel", "keras", "jax", "numpy"],
        steps=given.steps,
        step_seconds=clock.seconds / given.steps,
        compile_seconds=clock.began_training - began,
        accuracy=accuracy,
    )


if __name__ == "__main__":
    main()
