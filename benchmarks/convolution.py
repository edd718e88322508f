"""A training step of a convolutional net, three ways: why Rudel has convolutions of its own for CPUs.

    python benchmarks/convolution.py [--net NET] [--steps 20] [--repeats 5]

`cnn` is the net of the recipe `quickdraw`, `ds-cnn` that of `keywords` in MLPerf Tiny's size (64 filters, 49 x 10).
`series` has dilated convolutions along one dimension, `grouped` convolutions in groups as ResNeXt has, `u-net` is an
encoder and a decoder with transposed convolutions and skips.

`rudel` runs steps in its compiled loop; `xla-step` calls a compiled step of the same model again and again, as Keras'
`fit` does; `xla-loop` is Rudel's loop with XLA's own convolutions. All train on noise, in this process, in turns.
"""

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

from rudel.backend import keras_on_jax

keras: Any = keras_on_jax(light=True)

import jax  # noqa: E402  # after Keras, which says where JAX keeps its programs
import numpy as np  # noqa: E402

import rudel  # noqa: E402
from rudel.loop import compiled_loop as loop  # noqa: E402
from rudel.loop import model_state as state  # noqa: E402
from rudel.recipes import quickdraw  # noqa: E402
from rudel.recipes.nets.ds_cnn import ds_cnn  # noqa: E402

BATCH_SIZE, CLASSES = 32, 13


SHAPES = {"ds-cnn": (49, 10, 1), "series": (128, 6), "grouped": (32, 32, 8), "u-net": (32, 32, 3)}


def noise(steps: int, net: str) -> rudel.Dataset:
    """As many examples as the steps need: uint8 (N, 28, 28) or float32 (N, *shape), labels of 13 classes."""
    random = np.random.default_rng(0)
    count = steps * BATCH_SIZE
    if net == "cnn":
        x = random.integers(0, 256, (count, 28, 28), dtype="uint8")
    else:
        x = random.standard_normal((count, *SHAPES[net]), "float32")
    labels = random.integers(0, CLASSES, count).astype("int32")
    return rudel.Dataset(rudel.Examples(x, labels), class_names=[str(i) for i in range(CLASSES)])


def series(x: Any) -> Any:
    """Features (N, 32) of (N, 128, 6), as temporal convolutional networks make them."""
    for dilation in (1, 2, 4, 8):
        x = keras.layers.Conv1D(32, 3, padding="causal", dilation_rate=dilation, activation="relu")(x)
    return keras.layers.GlobalAveragePooling1D()(x)


def grouped(x: Any) -> Any:
    """Features (N, 32) of (N, 32, 32, 8)."""
    for _ in range(2):
        x = keras.layers.Conv2D(32, 3, padding="same", groups=4, activation="relu")(x)
    return keras.layers.GlobalAveragePooling2D()(x)


def u_net(x: Any) -> Any:
    """Features (N, 8) of (N, 32, 32, 3)."""

    def block(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = keras.layers.ReLU()(keras.layers.BatchNormalization()(x))
        return x

    skips = []
    for filters in (8, 16):
        skips.append(block(x, filters))
        x = keras.layers.MaxPooling2D()(skips[-1])
    x = block(x, 32)
    for filters in (16, 8):
        x = keras.layers.Conv2DTranspose(filters, 2, strides=2)(x)
        x = block(keras.layers.Concatenate()([x, skips.pop()]), filters)
    return keras.layers.GlobalAveragePooling2D()(x)


def built(dataset: rudel.Dataset, steps: int, net: str) -> Any:
    """The net with all its variables."""
    if net == "cnn":
        model = quickdraw.model(dataset, steps=steps, net="cnn")
    else:
        inputs = keras.Input(SHAPES[net])
        features = {"series": series, "grouped": grouped, "u-net": u_net}.get(net, lambda x: ds_cnn(x, 64, dropout=0.2))
        model = keras.Model(inputs, keras.layers.Dense(CLASSES)(features(inputs)))
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    first = dataset.train.take(slice(0, BATCH_SIZE))
    state.build(model, (first.x, first.y, None))
    return model


def in_a_loop(dataset: rudel.Dataset, steps: int, net: str, convolutions: Any) -> Callable[[], float]:
    """A function that runs the steps as one program and returns the seconds of a step."""
    model = built(dataset, steps, net)
    data = jax.device_put((dataset.train.x, dataset.train.y, None))
    order = np.arange(steps * BATCH_SIZE, dtype="int32").reshape(steps, BATCH_SIZE)
    with mock.patch.object(loop, "fast_on_cpu", convolutions):
        program, logs = loop.compile_training(model, state.read(model), data, order)
    kept = [loop.Progress(state.read(model), logs, np.asarray(-1, np.int32))]

    def run() -> float:
        began = time.perf_counter()
        block = np.int32(0), np.int32(steps), np.int32(0)
        kept[0], _ = program.run(kept[0], data, order, jax.random.key(0), *block)
        jax.block_until_ready(kept[0].state)
        return (time.perf_counter() - began) / steps

    return run


def step_by_step(dataset: rudel.Dataset, steps: int, net: str) -> Callable[[], float]:
    """A function that calls a compiled step so many times and returns the seconds of a step."""
    model = built(dataset, steps, net)
    step = jax.jit(lambda values, batch: model.train_step(tuple(values), batch)[1], donate_argnums=0)
    batch = jax.device_put((dataset.train.x[:BATCH_SIZE], dataset.train.y[:BATCH_SIZE]))
    kept = [step(state.read(model), batch)]

    def run() -> float:
        began = time.perf_counter()
        for _ in range(steps):
            kept[0] = step(kept[0], batch)
        jax.block_until_ready(kept[0])
        return (time.perf_counter() - began) / steps

    return run


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=["cnn", *SHAPES], default="cnn")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    dataset = noise(given.steps, given.net)
    contestants = {
        "rudel": in_a_loop(dataset, given.steps, given.net, loop.fast_on_cpu),
        "xla-step": step_by_step(dataset, given.steps, given.net),
        "xla-loop": in_a_loop(dataset, given.steps, given.net, contextlib.nullcontext),
    }
    for run in contestants.values():
        run()  # warms up
    rounds = [{name: run() for name, run in contestants.items()} for _ in range(given.repeats)]
    for name in contestants:
        ratios = [times[name] / times["rudel"] for times in rounds]
        milliseconds = 1e3 * statistics.median(times[name] for times in rounds)
        print(
            f"{name:9} {milliseconds:8.2f} ms a step, {statistics.median(ratios):6.2f} times Rudel's "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
