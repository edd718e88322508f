"""The nets of `gpu.py`, each with made-up examples: an MLP, two convolutional nets and transformer blocks.

`large` keeps an accelerator of 16 GB busy; `small` is for CPUs. `article` is the same in both: a net whose steps take
an accelerator less time than a program takes to ask for them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

CLASSES = 16


@dataclass(frozen=True)
class Net:
    """A net and what it trains on.

    Args:
        make: makes the Keras model, not yet compiled.
        inputs: makes so many inputs from a random generator.
        batch: examples of a step on each device.
        batches: how many of them there are.
        steps_a_call: how many steps a loop by hand makes one program of.
    """

    make: Callable[[], Any]
    inputs: Callable[[np.random.Generator, int], np.ndarray]
    batch: int
    batches: int = 16
    steps_a_call: int = 1


def nets(size: str) -> dict[str, Net]:
    """The nets by name, `small` or `large`."""
    large = size == "large"
    width, mlp_batch = (4096, 8192) if large else (512, 256)
    filters, side, cnn_batch = (64, 64, 128) if large else (16, 16, 32)
    photograph, mobilenet_batch = (224, 128) if large else (32, 8)
    dims, length, blocks, transformer_batch = (1024, 512, 4, 32) if large else (128, 64, 2, 8)

    def numbers(random: np.random.Generator, n: int) -> np.ndarray:
        return random.standard_normal((n, width), "float32")

    def pixels(side: int, channels: int) -> Callable[[np.random.Generator, int], np.ndarray]:
        return lambda random, n: random.integers(0, 256, (n, side, side, channels), dtype="uint8")

    return {
        "article": Net(_article, pixels(28, 1), 32, batches=512, steps_a_call=64),
        "mlp": Net(lambda: _mlp(width), numbers, mlp_batch),
        "cnn": Net(lambda: _cnn(filters, side), pixels(side, 3), cnn_batch),
        "mobilenet": Net(lambda: _mobilenet(photograph), pixels(photograph, 3), mobilenet_batch),
        "transformer": Net(
            lambda: _transformer(dims, length, blocks),
            lambda random, n: random.integers(0, 4096, (n, length), dtype="int32"),
            transformer_batch,
        ),
    }


def _article() -> Any:
    """256 hidden units, for drawings."""
    import keras
    from keras import layers

    body = [layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(256, activation="relu"), layers.Dropout(0.2)]
    inputs = keras.Input((28, 28, 1), dtype="uint8")
    return keras.Sequential([inputs, *body, layers.Dense(CLASSES, dtype="float32")], name="article")


def _mlp(width: int) -> Any:
    """Four hidden layers."""
    import keras
    from keras import layers

    hidden = [layers.Dense(width, activation="relu") for _ in range(4)]
    return keras.Sequential([keras.Input((width,)), *hidden, layers.Dense(CLASSES, dtype="float32")], name="mlp")


def _cnn(filters: int, side: int) -> Any:
    """Four stages of three 3x3 convolutions with batch normalisation, each at half the size of the one before."""
    import keras
    from keras import layers

    body: list[Any] = [layers.Rescaling(1 / 127.5, offset=-1)]
    for stage in range(4):
        for number in range(3):
            strides = 2 if stage and not number else 1
            body.append(layers.Conv2D(filters * 2**stage, 3, strides=strides, padding="same", use_bias=False))
            body += [layers.BatchNormalization(), layers.ReLU()]
    head = [layers.GlobalAveragePooling2D(), layers.Dense(CLASSES, dtype="float32")]
    return keras.Sequential([keras.Input((side, side, 3), dtype="uint8"), *body, *head], name="cnn")


def _mobilenet(side: int) -> Any:
    """MobileNetV2 for photographs, with weights of no training."""
    import keras
    from keras import layers

    make: Any = keras.applications.MobileNetV2
    body = make((side, side, 3), include_top=False, weights=None, pooling="avg")
    scale = layers.Rescaling(1 / 127.5, offset=-1)
    inputs = keras.Input((side, side, 3), dtype="uint8")
    return keras.Sequential([inputs, scale, body, layers.Dense(CLASSES, dtype="float32")], name="mobilenet")


def _transformer(dims: int, length: int, blocks: int) -> Any:
    """Pre-norm blocks of self-attention, with heads of 64, and a feed-forward net four times as wide."""
    import keras
    from keras import layers

    tokens = keras.Input((length,), dtype="int32")
    x = layers.Embedding(4096, dims)(tokens)
    for _ in range(blocks):
        normed = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(max(1, dims // 64), 64)(normed, normed)
        wide = layers.Dense(4 * dims, activation="gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dense(dims)(wide)
    pooled = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(tokens, layers.Dense(CLASSES, dtype="float32")(pooled), name="transformer")
