"""The nets of `gpu.py`: an MLP, a convolutional net and transformer blocks, each with made-up examples.

`large` keeps an accelerator of 16 GB busy; `small` is for CPUs.
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
    """

    make: Callable[[], Any]
    inputs: Callable[[np.random.Generator, int], np.ndarray]
    batch: int


def nets(size: str) -> dict[str, Net]:
    """The nets by name, `small` or `large`."""
    large = size == "large"
    width, mlp_batch = (4096, 8192) if large else (512, 256)
    filters, side, cnn_batch = (64, 64, 128) if large else (16, 16, 32)
    dims, length, blocks, transformer_batch = (1024, 512, 4, 32) if large else (128, 64, 2, 8)
    return {
        "mlp": Net(lambda: _mlp(width), lambda random, n: random.normal(size=(n, width)).astype("float32"), mlp_batch),
        "cnn": Net(
            lambda: _cnn(filters, side),
            lambda random, n: random.integers(0, 256, (n, side, side, 3), dtype="uint8"),
            cnn_batch,
        ),
        "transformer": Net(
            lambda: _transformer(dims, length, blocks),
            lambda random, n: random.integers(0, 4096, (n, length), dtype="int32"),
            transformer_batch,
        ),
    }


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
