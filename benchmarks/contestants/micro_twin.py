"""A twin of a network of MLPerf Tiny: built in Keras, trained for a moment, converted to int8 by TensorFlow.

    python micro_twin.py ad|kws|ic|vww OUT.tflite

The architectures are those of the benchmark (https://github.com/mlcommons/tiny, closed division); the data are made up:
each class is a smooth random field, and an example is its class's field, shifted and noisy. That is enough for weights,
normalisations and activations to be spread as in a trained network, which is what instructions, flash and memory depend
on, where they depend on values at all. Seeds are fixed. Accuracy means nothing here.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.update(
    KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", TF_ENABLE_ONEDNN_OPTS="0"
)

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

layers = keras.layers
SEED, STEPS, BATCH = 20260801, 60, 16


def normalised(x: Any) -> Any:
    return layers.ReLU()(layers.BatchNormalization()(x))


def convolved(x: Any, filters: int, size: Any, strides: Any = 1) -> Any:
    return layers.Conv2D(filters, size, strides=strides, padding="same")(x)


def separable(x: Any, filters: int, strides: int = 1) -> Any:
    x = normalised(layers.DepthwiseConv2D(3, strides=strides, padding="same")(x))
    return normalised(convolved(x, filters, 1))


def ad() -> tuple[Any, Any]:
    inputs = x = keras.Input((640,))
    for units in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = normalised(layers.Dense(units)(x))
    return inputs, layers.Dense(640)(x)


def kws() -> tuple[Any, Any]:
    inputs = keras.Input((49, 10, 1))
    x = normalised(convolved(inputs, 64, (10, 4), (2, 2)))
    for _ in range(4):
        x = separable(x, 64)
    x = layers.AveragePooling2D((25, 5))(x)
    return inputs, layers.Dense(12, activation="softmax")(layers.Flatten()(x))


def ic() -> tuple[Any, Any]:
    inputs = keras.Input((32, 32, 3))
    x = normalised(convolved(inputs, 16, 3))
    for filters, strides in ((16, 1), (32, 2), (64, 2)):
        y = normalised(convolved(x, filters, 3, strides))
        y = layers.BatchNormalization()(convolved(y, filters, 3))
        short = x if strides == 1 else convolved(x, filters, 1, strides)
        x = layers.ReLU()(layers.Add()([short, y]))
    x = layers.AveragePooling2D(8)(x)
    return inputs, layers.Dense(10, activation="softmax")(layers.Flatten()(x))


def vww() -> tuple[Any, Any]:
    inputs = keras.Input((96, 96, 3))
    x = normalised(convolved(inputs, 8, 3, 2))
    for filters, strides in (
        (16, 1),
        (32, 2),
        (32, 1),
        (64, 2),
        (64, 1),
        (128, 2),
        *[(128, 1)] * 5,
        (256, 2),
        (256, 1),
    ):
        x = separable(x, filters, strides)
    x = layers.AveragePooling2D(3)(x)
    return inputs, layers.Dense(2, activation="softmax")(layers.Flatten()(x))


NETS: dict[str, Callable[[], tuple[Any, Any]]] = {"ad": ad, "kws": kws, "ic": ic, "vww": vww}


def fields(shape: tuple[int, ...], count: int, random: np.random.Generator) -> np.ndarray:
    """Smooth random arrays of a shape, float32 (count, *shape), about -1 to 1."""
    made = random.normal(size=(count, *shape))
    for axis, length in enumerate(shape, start=1):
        for _ in range(2 if length > 3 else 0):
            made = sum(np.roll(made, shift, axis) for shift in range(-2, 3))
    return (made / np.abs(made).std() / 2).astype(np.float32)


def examples(
    shape: tuple[int, ...], classes: int, random: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Endless batches."""
    of_class = fields(shape, classes, random)
    while True:
        y = random.integers(classes, size=BATCH)
        x = np.stack([np.roll(of_class[label], random.integers(8), axis=0) for label in y])
        yield (x + random.normal(size=x.shape) * 0.3).astype(np.float32), y


def trained(name: str) -> tuple[Any, Iterator[tuple[np.ndarray, np.ndarray]]]:
    keras.utils.set_random_seed(SEED)
    inputs, outputs = NETS[name]()
    model = keras.Model(inputs, outputs)
    batches = examples(tuple(inputs.shape[1:]), 12 if name == "ad" else outputs.shape[-1], np.random.default_rng(SEED))
    reconstructs = name == "ad"
    model.compile(keras.optimizers.Adam(1e-3), "mse" if reconstructs else "sparse_categorical_crossentropy")
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.9
    for _ in range(STEPS):
        x, y = next(batches)
        model.train_on_batch(x, x if reconstructs else y)
    return model, batches


def converted(model: Any, batches: Iterator[tuple[np.ndarray, np.ndarray]]) -> bytes:
    """The model with int8 inputs, outputs, weights (per channel) and activations, for one example at a time."""
    signature = tf.TensorSpec((1, *model.input_shape[1:]), tf.float32)
    function = tf.function(lambda x: model(x, training=False)).get_concrete_function(signature)
    frozen = convert_variables_to_constants_v2(function)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([frozen])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    calibration = [example[None] for _ in range(8) for example in next(batches)[0]]
    converter.representative_dataset = lambda: ([example] for example in calibration)
    return converter.convert()


if __name__ == "__main__":
    name, out = sys.argv[1:]
    Path(out).write_bytes(converted(*trained(name)))
